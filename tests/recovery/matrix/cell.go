// Package matrix kills toad, cuts the power, or fails a call at every point at which it changes the host, and asserts that
// the host ends on one of two releases. What came of it stands in docs/recovery.md, which it writes.
package matrix

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"toad/internal/fault"
)

// Actions at a point, and at an instant of a probation.
const (
	Kill    = "kill"
	Cut     = "power cut"
	Error   = "error"
	Reboot  = "reboot"
	Manager = "user manager restarted"
)

// Passing is one passing of a point while an operation runs its course: N counts the passings of that name.
type Passing struct {
	Name string `json:"name"`
	N    int    `json:"n"`
	// Ways are the actions that are tried there.
	Ways []string `json:"ways"`
}

// Cell is one thing to try.
type Cell struct {
	Scenario string `json:"scenario"`
	Action   string `json:"action"`
	Point    string `json:"point,omitempty"`
	N        int    `json:"n,omitempty"`
	After    int    `json:"after,omitempty"` // milliseconds into the probation, for a reboot or a restart
	// Second is "<point> <n>" of a second kill, counted from the first fault on.
	Second string `json:"second,omitempty"`
}

func (c Cell) String() string {
	s := c.Action + " at " + c.Point
	switch {
	case c.Point == "":
		s = fmt.Sprintf("%s %d ms into it", c.Action, c.After)
	case c.N > 1:
		s += fmt.Sprintf(" %d", c.N)
	}
	if c.Second != "" {
		s += ", then kill at " + c.Second
	}
	return s
}

// key is the same for a cell that is to be run once only: the point of the second kill is drawn from what the first run
// met, so it is no part of it.
func (c Cell) key() string {
	return fmt.Sprintf("%s|%s|%s|%d|%d|%v", c.Scenario, c.Action, c.Point, c.N, c.After, c.Second != "")
}

// What may come of a cell.
const (
	Passed = "passed"
	Failed = "failed"
	NotMet = "not met" // the operation did not pass there this time
)

// Result is what came of a cell, or the points of a scenario.
type Result struct {
	Cell
	Points  []Passing `json:"points,omitempty"`
	Result  string    `json:"result,omitempty"`
	Ended   string    `json:"ended,omitempty"` // the phase
	Next    string    `json:"next,omitempty"`  // a point that the recovery passed, for a second kill
	Seconds float64   `json:"seconds,omitempty"`
	At      time.Time `json:"at"`
	Build   string    `json:"build,omitempty"` // toad's version
	Machine string    `json:"machine,omitempty"`
}

// Load reads results, one a line; the last of a cell counts. A file that is missing holds none.
func Load(file string) ([]Result, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	at, all := map[string]int{}, []Result{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var r Result
		if json.Unmarshal(lines.Bytes(), &r) != nil {
			continue // cut short when the run was stopped
		}
		if i, seen := at[r.key()]; seen {
			all[i] = r
			continue
		}
		at[r.key()] = len(all)
		all = append(all, r)
	}
	return all, lines.Err()
}

// passed is one line of a trace: the point, with the generation of an operation as it stands to the traced one (web-g{0}),
// and the process.
type passed struct{ name, process string }

var (
	operation = regexp.MustCompile(`\bweb-g(-?[0-9]+)`)
	relative  = regexp.MustCompile(`\bweb-g\{(-?[0-9]+)\}`)
)

func parseTrace(text string, generation int) (all []passed) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 {
			all = append(all, passed{shift(operation, f[0], -generation, "web-g{%d}"), f[1]})
		}
	}
	return all
}

// nameIn is the name of a passing's point while the operation of a generation runs its course.
func nameIn(point string, generation int) string {
	return shift(relative, point, generation, "web-g%d")
}

func shift(from *regexp.Regexp, name string, by int, format string) string {
	return from.ReplaceAllStringFunc(name, func(s string) string {
		n, _ := strconv.Atoi(from.FindStringSubmatch(s)[1])
		return fmt.Sprintf(format, n+by)
	})
}

// once are points that touch nothing that decides: of their passings in one phase the first stands for the others.
var once = []string{"file.append*.log", "file.rename*.watch.json", "file.rename*-g{*}.json"}

// choose makes the passings that are tried out of a trace, by three rules. A step that another point stands for is left
// to it, as the table says. What decides nothing is tried once a phase. And since the state of the host after one change
// is the state before the next one of the same process, a kill and a power cut are tried at one of the two. Of a scenario
// with a part of its own the rest is counted and not tried.
func choose(trace []passed, own part) (all []Passing, unknown []string) {
	phase := ""
	count, seen := map[string]int{}, map[string]bool{}
	from, tried := own.from, map[string]int{}
	before := map[string]string{} // process: the last point of it at which a kill is tried
	for _, p := range trace {
		row, ok := fault.Find(nameIn(p.name, 1))
		if !ok {
			unknown = append(unknown, p.name)
		}
		count[p.name]++
		if rest, ok := strings.CutPrefix(p.name, "record.saved."); ok {
			phase = rest
		}
		if p.name == from {
			from = ""
		}
		if !ok || row.By != "" || from != "" {
			continue
		}
		if tried[p.name]++; !own.has(p.name, tried[p.name]) {
			delete(before, p.process)
			continue
		}
		if matches(once, p.name) {
			if key := p.name + phase; seen[key] {
				delete(before, p.process) // the state is another one than that of the last point that is tried
				continue
			} else {
				seen[key] = true
			}
		}
		one := Passing{Name: p.name, N: count[p.name], Ways: []string{Kill, Cut, Error}}
		if after(before[p.process]) && !after(p.name) {
			one.Ways = []string{Error}
		}
		before[p.process] = p.name
		all = append(all, one)
	}
	return all, unknown
}

// part is what a scenario tries of its course: what comes from a point on, and of that the first passings of some points.
type part struct {
	from   string
	points []string // patterns; none stand for all of them, however often they are passed
	times  int
}

func (own part) has(name string, time int) bool {
	return len(own.points) == 0 || time <= own.times && matches(own.points, name)
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(one string) bool { ok, _ := path.Match(one, name); return ok })
}

// after tells whether a point stands after a change.
func after(name string) bool {
	for _, a := range []string{"record.saved.", "file.renamed.", "file.removed.", "file.appended.", "file.made."} {
		if strings.HasPrefix(name, a) {
			return true
		}
	}
	return strings.HasSuffix(name, ".after")
}
