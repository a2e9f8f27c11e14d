package rollout_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"toad/probation"
	"toad/probation/record"
	"toad/probation/rollout"
	"toad/quadlet"
	"toad/unitgen"
)

const (
	sideA, sideB       = "web@a.container", "web@b.container"
	serviceA, serviceB = "web@a.service", "web@b.service"
)

// sided is a lab whose service has two sides. v1 runs on side a, to which the door leads.
type sided struct {
	*lab
	enrollment probation.Enrollment
	units      map[string]*side // by service
	open       int              // connections to the side that is to be drained
	turns      []string         // where the door led, as it was found after each call
	link       string
	text       string // the record of which op is the operation
	op         probation.Operation
}

// side is one unit as it is loaded and runs.
type side struct {
	unit   string
	state  unitgen.State
	run    rollout.Container
	starts int
}

func newSided(t *testing.T) *sided {
	l := &sided{lab: newLab(t), enrollment: enrollment, units: map[string]*side{serviceA: {unit: sideA}, serviceB: {unit: sideB}}}
	l.enrollment.Units = []string{sideA, sideB}
	l.enrollment.Door = &probation.Door{Socket: "web.socket", Listen: "%t/web-%i.sock", Drain: 30 * time.Second}
	for _, s := range l.units {
		if err := os.WriteFile(filepath.Join(l.dirs.Config, s.unit), []byte("[Container]\nImage="+repository+":v1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	l.loadSides()
	l.startSide(serviceA)
	l.link = l.toad().DoorLink("web")
	if err := os.MkdirAll(l.toad().DoorLinks(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/run/web-a.sock", l.toad().DoorLink("web")); err != nil {
		t.Fatal(err)
	}
	return l
}

func (l *sided) toad() *rollout.Rollout {
	r := l.lab.toad()
	r.Units, r.Jobs, r.Manager, r.Images, r.Runtime = l, l, l, l, "/run"
	r.Connections = func(string) (int, error) { return l.open, nil }
	return r
}

func (l *sided) State(ctx context.Context, name string) (unitgen.State, error) {
	l.serves("a look at " + name)
	if s, ok := l.units[name]; ok {
		l.look()
		return s.state, nil
	}
	if name == "web.socket" {
		return unitgen.State{Name: name, LoadState: "loaded", ActiveState: "active"}, nil
	}
	return l.lab.State(ctx, name)
}

// serves asserts the whole point of two sides: at every moment the door leads to a side whose release has been watched.
func (l *sided) serves(when string) {
	l.t.Helper()
	at, _ := os.Readlink(l.link)
	service := map[string]string{"/run/web-a.sock": serviceA, "/run/web-b.sock": serviceB}[at]
	if text := l.record(); text != l.text {
		l.text, l.op = text, l.operation()
	}
	if n := len(l.turns); n == 0 || l.turns[n-1] != at {
		l.turns = append(l.turns, at)
	}
	op := l.op
	if s := l.units[service]; s == nil || s.run.ID == "" {
		l.t.Errorf("%s in %s: the door leads to %s, where nothing runs", when, op.Phase, at)
	} else if s.run.Operation == op.ID && op.Phase != probation.Promoting && op.Phase != probation.Promoted && op.Phase != probation.Restoring {
		l.t.Errorf("%s in %s: the door leads to the candidate", when, op.Phase)
	}
}

func (l *sided) Restart(_ context.Context, name string) error {
	defer l.pass("restart " + name)()
	l.held("a restart")
	l.startSide(name)
	return nil
}

func (l *sided) Start(_ context.Context, name string) error {
	defer l.pass("start " + name)()
	if s, ok := l.units[name]; ok && s.run.ID == "" {
		l.startSide(name)
	}
	return nil
}

func (l *sided) Stop(ctx context.Context, name string) error {
	if _, ok := l.units[name]; !ok {
		return l.lab.Stop(ctx, name)
	}
	defer l.pass("stop " + name)()
	l.stopSide(name)
	return nil
}

func (l *sided) Reload(context.Context) error {
	defer l.pass("reload")()
	l.loadSides()
	return nil
}

func (l *sided) Container(_ context.Context, id string) (rollout.Container, error) {
	l.look()
	for _, s := range l.units {
		if s.run.ID == id {
			return s.run, nil
		}
	}
	return rollout.Container{}, fmt.Errorf("no container %s", id)
}

func (l *sided) loadSides() {
	for name, s := range l.units {
		text, pinned, err := l.dirs.Pins().Read(s.unit)
		if err != nil {
			l.t.Fatal(err)
		}
		st := &s.state
		image, pull, label := repository+":v1", "missing", ""
		st.Name, st.LoadState, st.SourcePath, st.DefaultDependencies = name, "loaded", filepath.Join(l.dirs.Config, s.unit), true
		st.TriggeredBy = []string{strings.Replace(name, ".service", ".socket", 1)}
		st.After, st.OnFailure, st.Conditions, st.ExecCondition = nil, nil, nil, nil
		if pinned {
			p, err := quadlet.ParsePin(text)
			if err != nil {
				l.t.Fatal(err)
			}
			image, pull, label = p.Reference, "never", p.Operation
			st.After, st.OnFailure = []string{rollout.ReconcileUnit}, []string{"toad-alert@" + strings.TrimSuffix(name, ".service") + ".service"}
			if p.Fenced {
				st.Conditions = []unitgen.Condition{{Type: "ConditionEnvironment", Param: p.AdmissionVar + "=1"}}
				st.ExecCondition = [][]string{{"/usr/bin/test", "-n", "${" + p.AdmissionVar + "}"}}
			}
		}
		st.ExecStart = [][]string{{"/usr/bin/podman", "run", "--name", "x", "--label", "io.toad.operation=" + label, "--pull", pull, image}}
	}
}

func (l *sided) startSide(name string) {
	s := l.units[name]
	for _, c := range s.state.Conditions {
		if !l.admitted[c.Param] {
			return
		}
	}
	l.starts++
	s.starts++
	argv := s.state.ExecStart[0]
	s.state.InvocationID = fmt.Sprintf("%032d", l.starts)
	img, ok := l.images[argv[len(argv)-1]]
	if !ok {
		l.t.Fatalf("%s would run %s, which is not here", name, argv[len(argv)-1])
	}
	_, label, _ := strings.Cut(argv[5], "=")
	s.run = rollout.Container{ID: fmt.Sprintf("%064d", l.starts), ImageID: img.ID, Operation: label, Running: true}
	s.state.ActiveState, s.state.SubState, s.state.ControlGroup = "active", "running", "/"+s.run.ID
}

func (l *sided) stopSide(name string) {
	s := l.units[name]
	s.run = rollout.Container{}
	s.state.ActiveState, s.state.SubState, s.state.ControlGroup = "inactive", "dead", ""
}

// bootSides is a power cut. The door starts the side to which it leads.
func (l *sided) bootSides() {
	l.t.Helper()
	l.bootID, l.born = l.bootID+"+", time.Now()
	l.own, l.admitted = map[string]unitgen.State{}, map[string]bool{}
	for name, s := range l.units {
		l.stopSide(name)
		s.state.InvocationID = ""
	}
	l.loadSides()
	at, _ := os.Readlink(l.toad().DoorLink("web"))
	door := map[string]string{"/run/web-a.sock": serviceA, "/run/web-b.sock": serviceB}[at]
	l.startSide(door) // after reconcile in truth; it must not depend on what that does, where nothing is undecided
	if op := l.operation(); l.units[door].run.ID == "" && op.Phase != probation.Promoting {
		l.t.Errorf("in %s the door leads to %s, which does not start after a boot", op.Phase, at)
	}
	l.dieAt = 0
	if err := l.toadAtBoot().Reconcile(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	l.startSide(door)
}

// toadAtBoot has a door behind which nothing runs yet.
func (l *sided) toadAtBoot() *rollout.Rollout {
	r := l.toad()
	r.Units = atBoot{l}
	return r
}

type atBoot struct{ *sided }

func (l atBoot) State(ctx context.Context, name string) (unitgen.State, error) {
	if s, ok := l.units[name]; ok {
		return s.state, nil
	}
	return l.lab.State(ctx, name)
}

func (l *sided) accept(img rollout.Image, change ...func(*probation.Request)) string {
	l.t.Helper()
	req := probation.Request{Digest: img.Digest, Key: fmt.Sprint(l.calls), Body: img.Digest, By: "uid 1000"}
	for _, c := range change {
		c(&req)
	}
	op, _, err := l.toad().Accept(l.t.Context(), l.enrollment, req)
	if err != nil {
		l.t.Fatal(err)
	}
	return op.ID
}

func (l *sided) act(id string) (where string) {
	l.t.Helper()
	defer func() {
		if r := recover(); r != nil {
			d, ok := r.(died)
			if !ok {
				panic(r)
			}
			where = d.at
		}
	}()
	if err := l.toad().Act(l.t.Context(), id); err != nil {
		l.t.Errorf("toad act: %v", err)
	}
	return ""
}

// until acts, lets checks come to their verdict and timers fire, until a phase or until nothing is owed.
func (l *sided) until(id string, phases ...probation.Phase) (where string) {
	l.t.Helper()
	for range 40 {
		if died := l.act(id); died != "" {
			where = died
			continue
		}
		svc := l.service()
		if slices.Contains(phases, svc.Operation.Phase) || svc.Due() == probation.Nothing {
			return where
		}
		if !l.checkSides() && !l.fire() {
			break
		}
	}
	l.t.Fatalf("it stays %s with %v loaded\n%s", l.operation().Phase, l.own, strings.Join(l.asked, "\n"))
	return where
}

// fire lets the timer of a drain fire.
func (l *sided) fire() bool {
	for name := range l.own {
		if strings.HasPrefix(name, "toad-drain-") {
			delete(l.own, name)
			time.Sleep(time.Second)
			return true
		}
	}
	return false
}

func (l *sided) checkSides() bool {
	op := l.operation()
	name := unitgen.CheckName(op.ID, op.Checks)
	if _, ok := l.own[name]; !ok {
		return false
	}
	delete(l.own, name)
	w := record.Watch{Check: op.Checks, Phase: op.Phase, At: l.now()}
	w.Verdict = probation.Verdict{Kind: probation.Stable, Reason: "ready"}
	for _, want := range probation.Wants(op) {
		s := l.units[want.Service]
		switch {
		case want.Down != (s.run.ID == "") || !want.Down && s.run.ImageID != want.ImageID:
			w.Verdict = probation.Verdict{Kind: probation.Unfit, Code: probation.CodeWrongImage, Reason: "something else runs as " + want.Service}
		case !want.Down && l.unwell[s.run.ImageID]:
			w.Verdict = probation.Verdict{Kind: probation.Unfit, Code: probation.CodeCandidateExited, Reason: "it exited",
				Evidence: &probation.Evidence{Unit: want.Service, Invocation: s.state.InvocationID, ExitStatus: 2}}
		}
	}
	if err := l.records.PutWatch(op.ID, w); err != nil {
		l.t.Fatal(err)
	}
	return true
}

// ends asserts how it ended, which side serves what, and that the other one is down behind a fence.
func (l *sided) ends(phase probation.Phase, serves string, runs rollout.Image) {
	l.t.Helper()
	l.dieAt = 0
	op := l.operation()
	if op.Phase != phase {
		l.t.Errorf("want %s, have %s: %s", phase, op.Phase, op.Reason)
	}
	for name, s := range l.units {
		text, _, _ := l.dirs.Pins().Read(s.unit)
		p, _ := quadlet.ParsePin(text)
		if name == serves {
			if s.run.ImageID != runs.ID || p.Fenced {
				l.t.Errorf("%s runs %.1s with the pin\n%s", name, s.run.ImageID, text)
			}
			if at, _ := os.Readlink(l.toad().DoorLink("web")); at != "/run/web-"+probation.Instance(s.unit)+".sock" {
				l.t.Errorf("the door leads to %s", at)
			}
			if svc := l.service(); svc.Promoted.Side != s.unit {
				l.t.Errorf("the record says that %q is in force", svc.Promoted.Side)
			}
		} else if s.run.ID != "" || !p.Idle() {
			l.t.Errorf("the idle %s runs %q with the pin\n%s", name, s.run.ID, text)
		}
	}
	if len(l.own) != 0 || len(l.admitted) != 0 || l.service().Drain != nil {
		l.t.Errorf("left behind: %v %v %v", l.own, l.admitted, l.service().Drain)
	}
	if bad := l.toad().CheckPins(l.t.Context(), l.service()); len(bad) > 0 {
		l.t.Errorf("the pins: %v", bad)
	}
	before := len(l.records.Lines(op.ID))
	if err := l.toad().Look(l.t.Context()); err != nil || len(l.records.Lines(op.ID)) != before {
		l.t.Errorf("a look was not silent: %v", err)
	}
}

func inSided(t *testing.T, story func(*sided)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { story(newSided(t)) })
}

func TestSidesTakeTurns(t *testing.T) {
	inSided(t, func(l *sided) {
		l.unwell[v3.ID] = true
		l.until(l.accept(v3))
		l.ends(probation.RolledBack, serviceA, v1)
		l.until(l.accept(v2))
		l.ends(probation.Promoted, serviceB, v2)
		l.until(l.accept(v3, func(r *probation.Request) { r.Retry = true }))
		l.ends(probation.RolledBack, serviceB, v2)
		l.until(l.accept(v1))
		l.ends(probation.Promoted, serviceA, v1)
		if l.units[serviceA].starts != 3 || l.units[serviceB].starts != 2 {
			t.Errorf("side a was started %d times, side b %d", l.units[serviceA].starts, l.units[serviceB].starts)
		}
		want := []string{"/run/web-a.sock", "/run/web-b.sock", "/run/web-a.sock"}
		if !slices.Equal(l.turns, want) {
			t.Errorf("the door led to %v", l.turns)
		}
	})
}

// Wherever a process dies, the door leads to a side that serves, at each call on the way and in the end. A power cut in its
// place comes to the same.
func TestDeadAtAnyCallTheDoorLeadsToWhatServes(t *testing.T) {
	for _, bad := range []bool{false, true} {
		for _, cut := range []bool{false, true} {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("bad %v, cut %v, after %v", bad, cut, after), func(t *testing.T) {
					t.Parallel()
					n := 1
					for sidedDeadAt(t, n, bad, cut, after) {
						n++
					}
					if n < 20 {
						t.Errorf("only %d calls were found", n)
					}
				})
			}
		}
	}
}

func sidedDeadAt(t *testing.T, n int, bad, cut, after bool) (there bool) {
	inSided(t, func(l *sided) {
		l.until(l.accept(v2))
		l.ends(probation.Promoted, serviceB, v2)
		l.unwell[v3.ID] = bad
		starts := l.units[serviceB].starts
		id := l.accept(v3)
		l.dieAt, l.dieAfter = l.calls+n, after
		where := ""
		if cut {
			for range 40 {
				if where = l.act(id); where != "" {
					l.bootSides()
					starts = l.units[serviceB].starts // the door starts it again
					break
				}
				if l.service().Due() == probation.Nothing || !l.checkSides() && !l.fire() {
					break
				}
			}
		}
		last := l.until(id)
		there = l.calls >= n && (where != "" || last != "")
		if bad {
			l.ends(probation.RolledBack, serviceB, v2)
		} else {
			l.ends(probation.Promoted, serviceA, v3)
		}
		if l.units[serviceB].starts != starts {
			t.Errorf("the side in force was started %d times more", l.units[serviceB].starts-starts)
		}
		if t.Failed() {
			t.Fatalf("dead %s%s (call %d)\n%s", where, last, n, strings.Join(l.asked, "\n"))
		}
	})
	return there
}

// The former side is stopped when nobody is connected to it, or at the limit; the next candidate waits for that.
func TestAFormerSideIsStoppedWhenItsConnectionsHaveEnded(t *testing.T) {
	for _, c := range []struct {
		ends time.Duration // of the connection
		want time.Duration // until the side is down
	}{{0, 0}, {5 * time.Second, 12 * time.Second}, {time.Hour, 45 * time.Second}} {
		inSided(t, func(l *sided) {
			l.open = 1
			id := l.accept(v2)
			l.until(id, probation.Promoted)
			began := time.Now()
			if c.ends > 0 && l.units[serviceA].run.ID == "" {
				t.Error("it was stopped under an open connection")
			}
			next := ""
			for l.service().Drain != nil && time.Since(began) < time.Hour {
				if time.Since(began) >= c.ends {
					l.open = 0
				}
				if next == "" && time.Since(began) > 2*time.Second {
					next = l.accept(v3) // another deployment comes while the side is drained
				}
				if next != "" {
					id = next
				}
				l.act(id)
				if next != "" && l.service().Drain != nil && l.operation().Phase != probation.Preparing {
					t.Fatalf("%s is in %s while the side is drained", next, l.operation().Phase)
				}
				time.Sleep(500 * time.Millisecond)
				l.fire()
			}
			if took := time.Since(began); took > c.want+5*time.Second {
				t.Errorf("a connection of %v: the side was down after %v", c.ends, took)
			}
			l.open = 0
			l.until(id)
			if next != "" {
				l.ends(probation.Promoted, serviceA, v3)
			} else {
				l.ends(probation.Promoted, serviceB, v2)
			}
		})
	}
}

// A door that somebody else turned is put back at once, and told.
func TestADoorThatOthersTurnedIsPutBack(t *testing.T) {
	inSided(t, func(l *sided) {
		id := l.accept(v2)
		l.until(id, probation.Probation)
		link := l.toad().DoorLink("web")
		for _, phase := range []probation.Phase{probation.Probation, probation.Promoted} {
			l.until(id, phase)
			at, _ := os.Readlink(link)
			if err := os.Remove(link); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/run/other.sock", link); err != nil {
				t.Fatal(err)
			}
			if err := l.toadAtBoot().Look(l.t.Context()); err != nil {
				t.Fatal(err)
			}
			if have, _ := os.Readlink(link); have != at {
				t.Errorf("in %s it leads to %s, want %s", phase, have, at)
			}
			lines := l.records.Lines(id)
			if !slices.ContainsFunc(lines, func(l record.Line) bool { return strings.Contains(l.Message, "the door was changed by others") }) {
				t.Errorf("in %s it was not told", phase)
			}
		}
		l.until(id)
		l.ends(probation.Promoted, serviceB, v2)
	})
}

// A damaged record is rebuilt from what is left, wherever the process died: what was undecided is given up, and the door
// leads to what serves.
func TestADamagedRecordOfSidesIsRebuilt(t *testing.T) {
	seen := map[probation.Phase]int{}
	for _, bad := range []bool{false, true} {
		for n, there := 1, true; there; n++ {
			inSided(t, func(l *sided) {
				l.until(l.accept(v2))
				l.unwell[v3.ID] = bad
				id := l.accept(v3)
				l.dieAt, l.dieAfter = l.calls+n, true
				where := ""
				for range 40 {
					if where = l.act(id); where != "" || l.service().Due() == probation.Nothing || !l.checkSides() && !l.fire() {
						break
					}
				}
				l.dieAt = 0
				was := l.operation().Phase
				seen[was]++
				there = where != ""
				if err := os.WriteFile(filepath.Join(l.records.Dir(), "services/web.json"), nil, 0o600); err != nil {
					l.t.Fatal(err)
				}
				e := l.enrollment
				if _, err := l.toadAtBoot().Repair(l.t.Context(), "web", &e); err != nil {
					l.t.Fatal(err)
				}
				l.until(id)
				switch have := l.operation().Phase; {
				case have == probation.Promoted && !bad:
					l.ends(probation.Promoted, serviceA, v3)
				case have == probation.Failed && was == probation.Preparing:
					l.ends(probation.Failed, serviceB, v2)
				default:
					l.ends(probation.RolledBack, serviceB, v2)
				}
				if l.t.Failed() {
					l.t.Fatalf("dead %s in %s (call %d)\n%s", where, was, n, strings.Join(l.asked, "\n"))
				}
			})
		}
	}
	for _, phase := range []probation.Phase{probation.Preparing, probation.Switching, probation.Probation, probation.Promoting, probation.Restoring, probation.Promoted} {
		if seen[phase] == 0 {
			t.Errorf("never damaged in %s: %v", phase, seen)
		}
	}
}
