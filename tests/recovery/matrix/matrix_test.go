//go:build e2e

package matrix

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toad/internal/fault"
	"toad/tests/host"
	"toad/tests/scene"
)

const (
	ready = `http = "http://127.0.0.1:8080/healthz"
interval = "200ms"
timeout = "1s"`
	// The deadline leaves a good release time on a busy machine: a cell is about what a death does, not about speed.
	limits = "deadline = \"90s\"\nstable = \"1s\""

	seed    = 20261129
	reboots = 20 // at an instant, and as many restarts of the user manager
)

// TestEveryPointEndsOnOneOfTwoReleases runs a seeded few cells of each scenario, or with TOAD_ALL=1 all of them. TOAD_MATRIX
// names a file that keeps the results: what it has passed already is not run again, or with TOAD_MATRIX_ANEW=1 what this build
// has passed. TOAD_MATRIX_MINUTES ends it early, with what has begun; TOAD_MATRIX_HOSTS are at work at once, or two.
func TestEveryPointEndsOnOneOfTwoReleases(t *testing.T) {
	p := newPlan(t, os.Getenv("TOAD_MATRIX"), os.Getenv("TOAD_ALL") != "")
	if minutes := os.Getenv("TOAD_MATRIX_MINUTES"); minutes != "" {
		d, err := time.ParseDuration(minutes + "m")
		if err != nil {
			t.Fatal(err)
		}
		p.until = time.Now().Add(d)
	}
	hosts := 2
	if n := os.Getenv("TOAD_MATRIX_HOSTS"); n != "" {
		var err error
		if hosts, err = strconv.Atoi(n); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("on", func(t *testing.T) {
		for i := range hosts {
			t.Run(fmt.Sprintf("host %d", i+1), func(t *testing.T) {
				t.Parallel()
				p.work(t, p.whole || i == 0)
			})
		}
	})
	t.Logf("%s of %d hosts", p.summary(), hosts)
	if p.traced == p.wanted {
		p.holdTable(t)
	}
	if p.anew && p.file != "" && len(p.trace)+len(p.todo)+len(p.later) == 0 {
		p.forget(t)
	}
}

// forget takes out of the file what other builds have done: all of it was run anew.
func (p *plan) forget(t *testing.T) {
	var text []byte
	for _, r := range p.results {
		if line, err := json.Marshal(r); err != nil {
			t.Fatal(err)
		} else if p.counts(r) {
			text = append(append(text, line...), '\n')
		}
	}
	if err := os.WriteFile(p.file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// plan is what is to be run, by several hosts.
type plan struct {
	mu      sync.Mutex
	changed *sync.Cond
	todo    []Cell
	later   []Cell     // second kills
	trace   []scenario // to be traced first
	busy    int        // cells and traces that may make more
	whole   bool
	anew    bool      // what another build has passed is run again
	until   time.Time // nothing is begun any more; zero: never
	file    string
	build   string // toad's version
	machine string
	traced  int // of the scenarios that are wanted
	wanted  int
	results []Result
	done    map[string]bool
	again   map[string]bool // what an earlier run has not passed; it comes first
	rnd     *rand.Rand
	met     map[string]bool // the points that a trace has passed, by their rows
}

func newPlan(t *testing.T, file string, whole bool) *plan {
	p := &plan{whole: whole, machine: machine(t), build: build(t), file: file, done: map[string]bool{}, again: map[string]bool{}, met: map[string]bool{}, rnd: rand.New(rand.NewPCG(seed, 1))}
	p.changed = sync.NewCond(&p.mu)
	if file != "" {
		old, err := Load(file)
		if err != nil {
			t.Fatal(err)
		}
		p.results = old
	}
	p.anew = os.Getenv("TOAD_MATRIX_ANEW") != ""
	for _, r := range p.results {
		p.done[r.key()] = r.Result == Passed && p.counts(r)
		p.again[r.key()] = r.Result != Passed
	}
	for _, sc := range scenarios {
		if p.whole || len(sc.few) > 0 {
			p.wanted++
			if !p.reused(sc) {
				p.trace = append(p.trace, sc)
			}
		}
	}
	p.add(p.atInstants()...)
	return p
}

// atInstants are the reboots and restarts of the user manager, at seeded instants of a probation.
func (p *plan) atInstants() (all []Cell) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	for n := range reboots {
		for _, action := range []string{Reboot, Manager} {
			c := Cell{Scenario: scenarios[0].name, Action: action, After: rnd.IntN(1500)}
			if p.whole || n < 1 {
				all = append(all, c)
			}
		}
	}
	return all
}

// add takes cells that are not done yet; the caller holds the lock, or is alone.
func (p *plan) add(cells ...Cell) {
	for _, c := range cells {
		switch {
		case p.done[c.key()]:
			continue
		case c.Second != "":
			p.later = append(p.later, c)
		case p.again[c.key()]:
			p.todo = slices.Insert(p.todo, 0, c)
		default: // in no order, so that a part of the whole is spread over it
			p.todo = slices.Insert(p.todo, p.rnd.IntN(len(p.todo)+1), c)
		}
		p.done[c.key()] = true
	}
	p.changed.Broadcast()
}

// counts tells whether a result stands in this run.
func (p *plan) counts(r Result) bool { return !p.anew || r.Build == p.build }

// reused takes the points of a scenario that an earlier run of the same build has found.
func (p *plan) reused(sc scenario) bool {
	for _, r := range slices.Clone(p.results) {
		if r.Scenario != sc.name || len(r.Points) == 0 || r.Build != p.build || r.Result == Failed {
			continue
		}
		p.take(sc, r.Points)
		return true
	}
	return false
}

// take plans the cells of a scenario; the caller holds the lock, or is alone.
func (p *plan) take(sc scenario, points []Passing) {
	p.traced++
	for _, at := range points {
		row, _ := fault.Find(nameIn(at.Name, 1))
		p.met[row.Name] = true
	}
	p.add(p.cells(sc, points)...)
	for _, old := range p.results {
		if old.Scenario == sc.name && p.counts(old) {
			p.second(old)
		}
	}
}

// next hands out a scenario to trace, or a cell; both nil when there will be nothing more for the one who asks. For the few
// cells one host with two sides is enough.
func (p *plan) next(beside bool) (*scenario, *Cell) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if !p.until.IsZero() && time.Now().After(p.until) {
			return nil, nil
		}
		if i := slices.IndexFunc(p.trace, func(sc scenario) bool { return beside || !sc.beside }); i >= 0 {
			sc := p.trace[i]
			p.trace = slices.Delete(p.trace, i, i+1)
			p.busy++
			return &sc, nil
		}
		for _, list := range []*[]Cell{&p.todo, &p.later} {
			if i := slices.IndexFunc(*list, func(c Cell) bool { return beside || !scenarioOf(c.Scenario).beside }); i >= 0 {
				c := (*list)[i]
				*list = slices.Delete(*list, i, i+1)
				p.busy++
				return nil, &c
			}
		}
		if p.busy == 0 {
			return nil, nil
		}
		p.changed.Wait()
	}
}

// cells makes the cells of a scenario: all, or for the default run a seeded one of each action.
func (p *plan) cells(sc scenario, points []Passing) (all []Cell) {
	h := fnv.New64()
	h.Write([]byte(sc.name))
	rnd := rand.New(rand.NewPCG(seed, h.Sum64()))
	for _, action := range every {
		few := 0
		if slices.Contains(sc.few, action) {
			few = 1
		}
		for _, i := range rnd.Perm(len(points)) {
			at := points[i]
			if !slices.Contains(at.Ways, action) || !p.whole && few == 0 || slices.Contains(sc.not, action) {
				continue
			}
			few--
			all = append(all, Cell{Scenario: sc.name, Action: action, Point: at.Name, N: at.N})
		}
	}
	return all
}

// finish takes the result of a cell, and plans the second kill after it.
func (p *plan) finish(t *testing.T, r Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy--
	defer p.changed.Broadcast()
	r.Build, r.Machine = p.build, p.machine
	p.results = append(p.results, r)
	if p.file != "" {
		line, err := json.Marshal(r)
		f, err2 := os.OpenFile(p.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		_, err = f.Write(append(line, '\n'))
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	p.second(r)
}

// second plans a second kill during the recovery from a kill or a power cut, at the point that the first run has drawn.
func (p *plan) second(r Result) {
	if r.Next == "" || r.Second != "" || r.Action != Kill && r.Action != Cut {
		return
	}
	if sc := scenarioOf(r.Scenario); p.whole && !sc.beside || r.Action == Cut && sc.twice {
		c := r.Cell
		c.Second = r.Next
		p.add(c)
	}
}

// work runs cells on a host of its own, until there are none; with beside, those of a service with two sides on a second one.
// After a failure it takes a new host.
func (p *plan) work(t *testing.T, beside bool) {
	hosts := map[bool]*scene.Web{}
	for {
		sc, c := p.next(beside)
		name := ""
		switch {
		case sc != nil:
			name = "points of " + sc.name
		case c != nil:
			one := scenarioOf(c.Scenario)
			sc, name = &one, c.Scenario+": "+c.String()
		default:
			return
		}
		w := p.hostOf(t, hosts, sc.beside)
		var r Result
		ok := t.Run(name, func(t *testing.T) {
			defer func() { // also when it fails in the middle
				if t.Failed() {
					r.Result = Failed
				}
				p.finish(t, r)
			}()
			if c == nil {
				r = Result{Cell: Cell{Scenario: sc.name}, At: time.Now().UTC()}
				r.Points = p.points(t, w, *sc)
				return
			}
			r = Result{Cell: *c, Result: Failed, At: time.Now().UTC()}
			began := time.Now()
			for range 2 {
				if r = run(t, w, *c); r.Result != NotMet {
					break
				}
			}
			r.At, r.Seconds = began.UTC(), time.Since(began).Seconds()
		})
		if !ok {
			w.Off(t)
			delete(hosts, sc.beside)
		}
	}
}

// hostOf takes the host for a scenario, or makes it. Who gets none must not keep the others waiting for what it has taken.
func (p *plan) hostOf(t *testing.T, hosts map[bool]*scene.Web, beside bool) *scene.Web {
	defer func() {
		if hosts[beside] == nil {
			p.mu.Lock()
			p.busy--
			p.changed.Broadcast()
			p.mu.Unlock()
		}
	}()
	if hosts[beside] == nil {
		hosts[beside] = newHost(t, beside)
	}
	return hosts[beside]
}

// newHost is a host whose three last releases are retained, so that a cell begins as the one before it ended.
func newHost(t *testing.T, beside bool) *scene.Web {
	w := &scene.Web{Host: host.Up(t, host.Options{})}
	if beside {
		w.Faults(t)
		_, more, _ := strings.Cut(ready, "\n")
		w.Shown(t, "../../..", "A side that takes its listener from systemd", more, "\n[service.web.probation]\n"+limits+"\n")
	} else {
		w.Up(t, scene.Options{Faults: true, Ready: ready, Limits: limits})
	}
	for _, tag := range []string{"v2", "v3"} {
		w.MustUser(t, deploy(w.Digest(t, tag))...)
		host.Eventually(t, tag+" to be in force", limit, func() bool {
			r, ok := tryRead(w)
			return ok && r.Operation.Phase == "promoted" && r.Promoted.Digest == w.Digest(t, tag) && r.Operation.Retained
		})
	}
	if beside {
		w.Settled(t)
	}
	w.Quiet(t)
	return w
}

// points runs a scenario with nothing injected and lists what it passes. A point that the table does not have is a failure:
// nobody would try it.
func (p *plan) points(t *testing.T, w *scene.Web, sc scenario) []Passing {
	trace, text, _ := sc.traced(t, w)
	all, unknown := choose(trace, sc.own)
	for _, name := range unknown {
		t.Errorf("the point %s is not in the table", name)
	}
	if len(all) < sc.least {
		t.Fatalf("only %d points were passed:\n%s", len(all), text)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.take(sc, all)
	t.Logf("%d points", len(all))
	return all
}

// holdTable asserts that the scenarios meet every point of the table that is for the matrix to try, and no other.
func (p *plan) holdTable(t *testing.T) {
	for _, row := range fault.Points {
		if row.By == "" && !p.met[row.Name] {
			t.Errorf("no scenario passes %s: the matrix does not try it", row.Name)
		}
	}
}

// summary counts the cells of this run and of those it builds on.
func (p *plan) summary() string {
	count := map[string]int{}
	seconds := 0.0
	for _, r := range p.results {
		count[r.Result]++
		seconds += r.Seconds
	}
	return fmt.Sprintf("%d passed, %d failed, %d not met, in %.0f s", count[Passed], count[Failed], count[NotMet], seconds)
}

// build is the version of the binary with fault points.
func build(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(filepath.Join(filepath.Dir(os.Getenv("TOAD_BIN")), "toad-faults"), "version").Output()
	if err != nil {
		t.Fatalf("make faults: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// machine says on what it ran.
func machine(t *testing.T) string {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("Linux %s with %d processors, Debian 13 hosts", unix.ByteSliceToString(u.Release[:]), runtime.NumCPU())
}
