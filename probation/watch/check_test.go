package watch_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"toad/probation"
	"toad/probation/record"
	"toad/probation/watch"
	"toad/unitgen"
)

const (
	candidate = "1111111111111111111111111111111111111111111111111111111111111111"
	container = "2222222222222222222222222222222222222222222222222222222222222222"
)

// host is a manager with one unit, whose container answers.
type host struct {
	state   unitgen.State
	change  func(unitgen.State) unitgen.State // what one look sees
	changes chan unitgen.Change
	is      watch.Container
	lines   []string
	running string               // the container, as of the last look
	wall    func() time.Duration // how far the wall clock is off
	foreign bool                 // something else holds the port
	records *record.Store
	looked  func() // happens while the unit is looked at
}

func (h *host) State(context.Context, string) (unitgen.State, error) {
	st := h.state
	if h.change != nil {
		st = h.change(st)
	}
	h.running = st.ControlGroup
	if h.looked != nil {
		h.looked()
	}
	return st, nil
}

func (h *host) Invocation(ctx context.Context, name string) (string, error) {
	st, err := h.State(ctx, name)
	return st.InvocationID, err
}

func (h *host) Watch(context.Context, ...string) (<-chan unitgen.Change, error) {
	return h.changes, nil
}
func (h *host) Stopping(context.Context) (bool, error) { return false, nil }

func (h *host) Container(_ context.Context, id string) (watch.Container, error) {
	if id != container {
		return watch.Container{}, errors.New("no such container")
	}
	return h.is, nil
}

// Where the container shares the host's network anybody can be the one who answers.
func TestAnAnswerOfAnotherProgramDoesNotCount(t *testing.T) {
	h := newHost()
	h.foreign = true
	v, w := h.run(t, well)
	if v.Kind != "" || w.Unready != nil || !strings.Contains(w.Why, "answered by something that is not web.service") {
		t.Errorf("have %+v, %+v", v, w)
	}
}

// A release that dies of a port which somebody else holds is not to blame.
func TestAPortThatIsTakenIsNotTheReleasesFault(t *testing.T) {
	h := newHost()
	h.foreign = true
	h.state.ActiveState, h.state.SubState, h.state.ExecMainStatus, h.state.Result = "failed", "failed", 1, "exit-code"
	v, _ := h.run(t, well)
	if v.Kind != probation.Unfit || v.Code != probation.CodeInterrupted || v.Evidence != nil {
		t.Errorf("have %+v", v)
	}
}

func newHost() *host {
	return &host{changes: make(chan unitgen.Change, 1), is: watch.Container{ImageID: candidate, Operation: "web-g1"},
		state: unitgen.State{Name: "web.service", LoadState: "loaded", ActiveState: "active", SubState: "running", InvocationID: "new",
			Restart: "always", ControlGroup: container}}
}

// run is a check of the candidate web-g1, with half a second until its deadline.
func (h *host) run(t *testing.T, answer http.HandlerFunc) (probation.Verdict, record.Watch) {
	t.Helper()
	server := httptest.NewServer(answer)
	defer server.Close()
	records, err := record.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h.records = records
	born := time.Now()
	now := func() probation.Instant {
		i := probation.Instant{Wall: time.Now(), Boot: time.Since(born) + time.Hour, BootID: "one"}
		if h.wall != nil {
			i.Wall = i.Wall.Add(h.wall())
		}
		return i
	}
	deadline := probation.NewDeadline(now(), 500*time.Millisecond)
	op := probation.Operation{ID: "web-g1", Service: "web", Generation: 1, Phase: probation.Probation, Checks: 1, Deadline: &deadline,
		Candidate: probation.Release{ImageID: candidate},
		Before:    []probation.UnitBefore{{Unit: "web.container", Service: "web.service", Invocation: "old"}},
		Enrollment: probation.Enrollment{Name: "web", Ready: probation.Ready{HTTP: server.URL, Interval: 5 * time.Millisecond, Timeout: time.Second},
			Limit: probation.Limits{Stable: 30 * time.Millisecond}}}
	if err := records.Put(probation.Service{Name: "web", Generation: 1, Operation: &op}); err != nil {
		t.Fatal(err)
	}
	c := &watch.Check{Records: records, Units: h, Containers: h, Now: now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Runs: func(unitgen.State) string { return h.running }, MemoryLimit: func(unitgen.State) bool { return false }, Status: func(string) {},
		Foreign:      func(unitgen.State, probation.Ready) bool { return h.foreign },
		PodmansLines: func(context.Context, probation.Operation, string) []string { return h.lines }}
	v, err := c.Run(t.Context(), "web-g1", 1)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !strings.Contains(err.Error(), "was replaced by") {
		t.Fatal(err)
	}
	return v, records.Watch("web-g1")
}

func well(http.ResponseWriter, *http.Request) {}

func TestACandidateThatAnswersIsStable(t *testing.T) {
	if v, w := newHost().run(t, well); v.Kind != probation.Stable || w.Verdict.Kind != probation.Stable || w.Check != 1 {
		t.Errorf("have %+v, %+v", v, w)
	}
}

// Neither the window nor the deadline is counted by the wall clock, which jumps here at every look at it.
func TestAStepOfTheWallClockFillsNoWindow(t *testing.T) {
	jumps := []time.Duration{24 * time.Hour, -24 * time.Hour, time.Hour, -time.Hour}
	for name, answer := range map[string]http.HandlerFunc{
		"ready":   well,
		"unready": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	} {
		h, looks := newHost(), 0
		h.wall = func() time.Duration { looks++; return jumps[looks%len(jumps)] }
		began := time.Now()
		v, _ := h.run(t, answer)
		took := time.Since(began)
		if name == "ready" && (v.Kind != probation.Stable || took < 30*time.Millisecond) ||
			name == "unready" && (v.Kind != "" || took < 500*time.Millisecond) {
			t.Errorf("%s: %q after %v", name, v.Kind, took)
		}
	}
}

// An answer counts only for the run that was there before and after it.
func TestAnAnswerOfAnotherRunDoesNotCount(t *testing.T) {
	for name, other := range map[string]func(*unitgen.State){
		"invocation": func(s *unitgen.State) { s.InvocationID = "other" },
		"container":  func(s *unitgen.State) { s.ControlGroup = strings.Repeat("3", 64) },
	} {
		h := newHost()
		asked := make(chan bool, 1)
		h.change = func(s unitgen.State) unitgen.State {
			select {
			case <-asked: // the look after the answer
				other(&s)
			default:
			}
			return s
		}
		v, w := h.run(t, func(http.ResponseWriter, *http.Request) { asked <- true })
		if v.Kind != "" || w.Ready || !strings.Contains(w.Why, "replaced while it was probed") {
			t.Errorf("%s: have %+v, %+v", name, v, w)
		}
	}
}

// Nobody is asked while what would answer is not the candidate.
func TestWhatIsNotUpIsNotAsked(t *testing.T) {
	for name, change := range map[string]func(*host){
		"a unit that starts": func(h *host) { h.state.ActiveState = "activating" },
		"no container":       func(h *host) { h.state.ControlGroup = "" },
	} {
		h := newHost()
		change(h)
		asked := false
		if v, w := h.run(t, func(http.ResponseWriter, *http.Request) { asked = true }); v.Kind != "" || w.Ready || asked {
			t.Errorf("%s: asked %v, have %+v, %+v", name, asked, v, w)
		}
	}
}

// What is about to be replaced is asked for the length of the gap alone.
func TestTheFormerRunIsAskedAndNotJudged(t *testing.T) {
	h := newHost()
	h.state.InvocationID = "old"
	looks := 0
	h.change = func(s unitgen.State) unitgen.State {
		if looks++; looks > 12 {
			s.InvocationID = "new"
		}
		return s
	}
	v, w := h.run(t, well)
	if v.Kind != probation.Stable || w.Outage.Open || w.Outage.Total > 100*time.Millisecond || w.Outage.Ready.BootID == "" {
		t.Errorf("a switch that nobody noticed: have %+v, %+v", v, w.Outage)
	}
	h.change, h.state.InvocationID = nil, "old"
	if v, w := h.run(t, well); v.Kind != "" || w.Ready {
		t.Errorf("the former run for ever: have %+v, %+v", v, w)
	}
}

// A stop that is over by the next sample is seen all the same.
func TestAStopBetweenTwoSamplesIsSeen(t *testing.T) {
	h := newHost()
	h.changes <- unitgen.Change{Kind: unitgen.JobNew, Unit: "web.service", JobType: "stop"}
	if v, _ := h.run(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }); v.Kind != probation.Stopped {
		t.Errorf("have %+v", v)
	}
}

// A check whose act died and made another one leaves what that one has written alone.
func TestAReplacedCheckWritesNothing(t *testing.T) {
	h := newHost()
	h.looked = func() {
		svc, err := h.records.Service("web")
		if err != nil {
			t.Fatal(err)
		}
		svc.Operation.Checks = 2
		if err := errors.Join(h.records.Put(svc), h.records.PutWatch("web-g1", record.Watch{Check: 2})); err != nil {
			t.Fatal(err)
		}
	}
	if v, w := h.run(t, well); v.Kind != "" || w.Check != 2 || w.Ready {
		t.Errorf("it left %+v and came to %+v", w, v)
	}
}

// Podman gives 126 for a port that is taken and for a command that cannot be run; its words tell which is the image's.
func TestPodmansWordsTellWhoseFaultItWas(t *testing.T) {
	for words, blamed := range map[string]bool{
		"Error: pasta failed with exit code 1:|Failed to bind port 8080 (Address already in use)":                              false,
		"Error: write /var/tmp/x: no space left on device":                                                                     false,
		"Error: crun: executable file `/app` not found in $PATH: OCI runtime attempted to invoke a command that was not found": true,
		"Error: crun: open executable: Permission denied: OCI permission denied":                                               true,
		"": false,
	} {
		h := newHost()
		h.state.ActiveState, h.state.SubState, h.state.ControlGroup, h.state.ExecMainStatus, h.state.ExecMainCode = "failed", "failed", "", 126, 1
		h.lines = strings.Split(words, "|")
		v, _ := h.run(t, well)
		code := probation.CodeInterrupted
		if blamed {
			code = probation.CodeCandidateExited
		}
		if v.Kind != probation.Unfit || v.Code != code || (v.Evidence != nil) != blamed {
			t.Errorf("%q: have %+v", words, v)
		}
	}
}
