//go:build e2e

package matrix

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toad/internal/fault"
	"toad/tests/host"
	"toad/tests/scene"
)

// limit is how long a cell may take from the fault to the end; it only bounds a test that fails.
const limit = 5 * time.Minute

// course is one run of a scenario on a host.
type course struct {
	w          *scene.Web
	sc         scenario
	c          Cell
	generation int
	deadlines  []time.Time // of the operation, as its record told them
	bootedAt   time.Time   // the last start of the user manager in this course; zero without one
	cursor     string      // of the journal, before a user manager was restarted
	client     *exec.Cmd
	ended      chan struct{}
	nudged     bool
}

// state is the path of a file of toad's state folder, seen from here: also while the host is off.
func state(w *scene.Web, name string) string {
	return filepath.Join(w.Root, host.Home, ".local/state/toad", name)
}

func put(t *testing.T, w *scene.Web, name, text string) {
	t.Helper()
	if err := os.WriteFile(state(w, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(state(w, name), host.UID, host.UID); err != nil {
		t.Fatal(err)
	}
}

// record is what the matrix looks at of a service's record.
type record struct {
	Generation int
	Promoted   struct {
		Digest, Side string
		ImageID      string `json:"image_id"`
	}
	Drain    *struct{}
	Refusals []struct {
		Operation, Reason, Code string
		Release                 struct{ Digest string }
	}
	Operation struct {
		ID, Phase, Code, Reason string
		Released, Retained      bool
		Candidate, Previous     struct {
			ImageID string `json:"image_id"`
		}
		Deadline *struct{ At time.Time }
		EndedAt  *time.Time `json:"ended_at"`
	}
}

func tryRead(w *scene.Web) (r record, ok bool) {
	text, err := os.ReadFile(state(w, "services/web.json"))
	return r, err == nil && json.Unmarshal(text, &r) == nil
}

func read(t *testing.T, w *scene.Web) record {
	t.Helper()
	r, ok := tryRead(w)
	if !ok {
		t.Fatal("the record cannot be read")
	}
	return r
}

// traced runs a scenario with nothing injected and returns the points that it passes, and the operation's generation.
func (sc scenario) traced(t *testing.T, w *scene.Web) ([]passed, string, int) {
	x := &course{w: w, sc: sc}
	x.begin(t, "")
	x.finish(t)
	x.holds(t, x.end(t))
	text, err := os.ReadFile(state(w, "fault.trace"))
	if err != nil {
		t.Fatal(err)
	}
	trace := parseTrace(string(text), x.generation)
	if sc.only != nil {
		trace = sc.only(trace)
	}
	return trace, string(text), x.generation
}

// run does what a cell says, lets the host recover, and asserts what must hold whatever was done.
func run(t *testing.T, w *scene.Web, c Cell) Result {
	x := &course{w: w, sc: scenarioOf(c.Scenario), c: c}
	x.begin(t, c.Point)
	if c.Point == "" {
		x.atInstant(t)
	}
	x.finish(t)
	r := x.end(t)
	phase := r.Operation.Phase
	result := Result{Cell: c, Result: Passed, Ended: phase}
	if x.nudged {
		result.Ended += ", after a request"
	}
	if left, err := os.ReadFile(state(w, "fault")); err == nil {
		if err := os.Remove(state(w, "fault")); err != nil {
			t.Fatal(err)
		}
		t.Logf("not met: %s", strings.TrimSpace(string(left)))
		result.Result = NotMet
	}
	x.allowed(t, r)
	x.holds(t, r)
	if c.Second == "" {
		result.Next = x.drawn(t)
	}
	return result
}

// begin arms what is to be injected and starts the course.
func (x *course) begin(t *testing.T, point string) {
	t.Helper()
	for _, name := range []string{"fault", "fault.cut", "fault.trace"} {
		_ = os.Remove(state(x.w, name))
	}
	x.generation = read(t, x.w).Generation + 1
	if x.sc.prepare != nil {
		x.sc.prepare(t, x.w)
	}
	if x.sc.boot {
		x.see()
		x.w.Off(t)
	}
	put(t, x.w, "fault.trace", "")
	if point != "" {
		action := x.c.Action
		if action == Cut {
			action = "cut"
		}
		lines := fmt.Sprintf("%s %d %s\n", nameIn(point, x.generation), x.c.N, action)
		if name, n, ok := strings.Cut(x.c.Second, " "); ok {
			lines += fmt.Sprintf("%s %s kill\n", nameIn(name, x.generation), n)
		}
		put(t, x.w, "fault", lines)
	}
	if x.sc.boot {
		x.bootedAt = time.Now()
		x.w.Boot(t)
		return
	}
	x.ask(t)
}

// ask sends the request of the scenario and does not wait for its answer, which may never come.
func (x *course) ask(t *testing.T) {
	t.Helper()
	x.hangUp()
	ctx, cancel := context.WithCancel(context.Background())
	client, ended := x.w.UserCommand(ctx, t, x.sc.request(t, x.w)...), make(chan struct{})
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	x.client, x.ended = client, ended
	go func() {
		_ = client.Wait()
		cancel()
		close(ended)
	}()
}

func (x *course) hangUp() {
	if x.client != nil {
		_ = x.client.Process.Kill()
		<-x.ended
		x.client = nil
	}
}

// answered tells that nobody waits for the answer to the request any more.
func (x *course) answered() bool {
	if x.client == nil {
		return !x.sc.boot
	}
	select {
	case <-x.ended:
		return true
	default:
		return false
	}
}

// atInstant reboots the host or restarts its user manager some time into the probation.
func (x *course) atInstant(t *testing.T) {
	t.Helper()
	x.w.WaitPhase(t, "probation")
	time.Sleep(time.Duration(x.c.After) * time.Millisecond)
	x.see()
	x.bootedAt = time.Now()
	if x.c.Action == Reboot {
		x.w.Reboot(t)
		return
	}
	shown := x.w.MustExec(t, "journalctl", "-n", "0", "--show-cursor", "--no-pager")
	_, x.cursor, _ = strings.Cut(shown, "-- cursor: ")
	x.w.MustExec(t, "systemctl", "restart", fmt.Sprintf("user@%d.service", host.UID))
}

// see notes the deadline that the operation's record has.
func (x *course) see() record {
	r, ok := tryRead(x.w)
	if ok && r.Generation == x.generation && r.Operation.Deadline != nil {
		if at := r.Operation.Deadline.At; !slices.ContainsFunc(x.deadlines, at.Equal) {
			x.deadlines = append(x.deadlines, at)
		}
	}
	return r
}

// finish waits until the operation is decided and has let go of everything, and cuts the power when the fault asks for it.
func (x *course) finish(t *testing.T) {
	t.Helper()
	defer x.hangUp()
	var left string
	began := time.Now()
	for end := began.Add(limit); ; time.Sleep(20 * time.Millisecond) {
		r := x.see()
		if _, err := os.Stat(state(x.w, "fault.cut")); err == nil {
			x.cut(t)
			continue
		}
		op := r.Operation
		switch {
		case x.answered() && (r.Generation < x.generation || x.sc.prepare != nil && op.Phase == "probation" && strings.HasPrefix(x.sc.ends, "rolled")):
			x.ask(t) // the fault came before anything was saved: nothing is owed, and the same request is taken now
		case r.Generation >= x.generation && terminal(op.Phase) && op.Released && (op.Phase != "promoted" || op.Retained) && r.Drain == nil:
			if left = x.left(t); left == "" {
				return
			}
		case !x.bootedAt.IsZero() && !x.nudged && time.Since(x.bootedAt) > 40*time.Second:
			// Nothing has come of it: whoever asks the daemon, or the hourly tick, has it carried on.
			x.nudged = true
			x.w.User(t, "toad", "status", "web")
		}
		if time.Now().After(end) {
			t.Fatalf("not at an end after %s; left: %s\n%s", time.Since(began), left, x.w.Log(t))
		}
	}
}

// cut is the power cut that the fault waits for.
func (x *course) cut(t *testing.T) {
	t.Helper()
	x.hangUp()
	x.admitted(t)
	x.w.Off(t)
	x.see()
	if err := os.Remove(state(x.w, "fault.cut")); err != nil {
		t.Fatal(err)
	}
	x.bootedAt = time.Now()
	x.w.Boot(t)
	x.see()
}

func (x *course) end(t *testing.T) record {
	t.Helper()
	x.see()
	return read(t, x.w)
}

func terminal(phase string) bool {
	return slices.Contains([]string{"promoted", "rolled_back", "withdrawn", "rollback_failed", "failed"}, phase)
}

// drawn is a seeded point of those that the host passed after the fault.
func (x *course) drawn(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(state(x.w, "fault.trace"))
	if err != nil || x.c.Point == "" {
		return ""
	}
	seen, count, all := 0, map[string]int{}, []string(nil)
	for _, p := range parseTrace(string(text), x.generation) {
		if seen < x.c.N {
			if p.name == x.c.Point {
				seen++
			}
			continue
		}
		count[p.name]++
		if row, ok := fault.Find(nameIn(p.name, 1)); ok && row.By == "" {
			all = append(all, fmt.Sprintf("%s %d", p.name, count[p.name]))
		}
	}
	if len(all) == 0 {
		return ""
	}
	h := fnv.New64()
	h.Write([]byte(x.c.key()))
	return all[rand.New(rand.NewPCG(seed, h.Sum64())).IntN(len(all))]
}
