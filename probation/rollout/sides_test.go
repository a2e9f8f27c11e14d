package rollout_test

import (
	"errors"
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
)

const (
	sideA, sideB       = "web@a.container", "web@b.container"
	serviceA, serviceB = "web@a.service", "web@b.service"
)

// door is what leads to one of two sides.
type door struct {
	link  string
	open  int      // connections to the side that is to be drained
	turns []string // where it led, as it was found after each call
	text  string   // the record of which op is the operation
	op    probation.Operation
}

// newSided is a lab whose service has two sides. v1 runs on side a, to which the door leads.
func newSided(t *testing.T) *lab {
	e := enrollment
	e.Units = []string{sideA, sideB}
	e.Door = &probation.Door{Socket: "web.socket", Listen: "%t/web-%i.sock", Drain: 30 * time.Second}
	l := labOf(t, e)
	l.door = &door{link: l.toad().DoorLink("web")}
	l.load()
	l.start(l.side)
	if err := os.MkdirAll(l.toad().DoorLinks(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/run/web-a.sock", l.door.link); err != nil {
		t.Fatal(err)
	}
	return l
}

// doorServes asserts the whole point of two sides: at every moment the door leads to a side whose release has been watched.
func (l *lab) doorServes(when string) {
	l.t.Helper()
	d := l.door
	if d == nil || l.booting {
		return
	}
	at, _ := os.Readlink(d.link)
	service := map[string]string{"/run/web-a.sock": serviceA, "/run/web-b.sock": serviceB}[at]
	if text := l.record(); text != d.text {
		d.text, d.op = text, l.operation()
	}
	if n := len(d.turns); n == 0 || d.turns[n-1] != at {
		d.turns = append(d.turns, at)
	}
	op := d.op
	if s := l.units[service]; s == nil || s.run.ID == "" {
		l.t.Errorf("%s in %s: the door leads to %s, where nothing runs", when, op.Phase, at)
	} else if s.run.Operation == op.ID && op.Phase != probation.Promoting && op.Phase != probation.Promoted && op.Phase != probation.Restoring {
		l.t.Errorf("%s in %s: the door leads to the candidate", when, op.Phase)
	}
}

// bootSides is a power cut. The door starts the side to which it leads.
func (l *lab) bootSides() {
	l.t.Helper()
	l.reset(0)
	at, _ := os.Readlink(l.door.link)
	s := l.units[map[string]string{"/run/web-a.sock": serviceA, "/run/web-b.sock": serviceB}[at]]
	l.start(s) // after reconcile in truth; it must not depend on what that does, where nothing is undecided
	if op := l.operation(); s.run.ID == "" && op.Phase != probation.Promoting {
		l.t.Errorf("in %s the door leads to %s, which does not start after a boot", op.Phase, at)
	}
	l.dieAt = 0
	l.inTheDark(func(r *rollout.Rollout) error { return r.Reconcile(l.t.Context()) })
	if s.run.ID == "" {
		l.start(s)
	}
}

// inTheDark lets toad do something while nothing runs behind the door yet, as at a boot.
func (l *lab) inTheDark(do func(*rollout.Rollout) error) {
	l.t.Helper()
	l.booting = true
	if err := do(l.toad()); err != nil {
		l.t.Fatal(err)
	}
	l.booting = false
}

// ends asserts how it ended, which side serves what, and that the other one is down behind a fence.
func (l *lab) ends(phase probation.Phase, serves string, runs rollout.Image) {
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
			if at, _ := os.Readlink(l.door.link); at != "/run/web-"+probation.Instance(s.unit)+".sock" {
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

func inSided(t *testing.T, story func(*lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { story(newSided(t)) })
}

// A call that does not come through is made again: a candidate that failed does not stay a failed unit on its idle side.
func TestACandidateThatFailedIsForgottenOnItsSide(t *testing.T) {
	inSided(t, func(l *lab) {
		l.unwell[v3.ID] = true
		id := l.accept(v3)
		l.until(id, probation.Restoring)
		l.noReset = errors.New("no answer")
		before := l.forgotten[serviceB]
		for range 10 {
			if err := l.toad().Act(l.t.Context(), id); err != nil {
				l.noReset = nil // systemd starts it again
			} else if !l.check() {
				break
			}
		}
		if !l.operation().Released || l.noReset != nil || l.forgotten[serviceB] <= before {
			l.t.Errorf("let go %v; its failure was forgotten %d times, before %d", l.operation().Released, l.forgotten[serviceB], before)
		}
	})
}

// What did not run before is down again after its first release was bad, and no failed unit.
func TestAFirstReleaseThatFailedLeavesNoFailedUnit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := labOf(t, enrollment)
		l.unwell[v2.ID] = true
		id := l.accept(v2)
		l.until(id, probation.Restoring)
		l.noReset = errors.New("no answer") // of what is asked once it is decided
		for range 10 {
			if err := l.toad().Act(t.Context(), id); err != nil {
				l.noReset = nil // systemd starts it again
			} else if !l.check() {
				break
			}
		}
		if op := l.operation(); op.Phase != probation.Withdrawn || !op.Released || l.noReset != nil {
			t.Errorf("%s, let go %v, its failure forgotten %v", op.Phase, op.Released, l.noReset == nil)
		}
	})
}

func TestSidesTakeTurns(t *testing.T) {
	inSided(t, func(l *lab) {
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
		if !slices.Equal(l.door.turns, want) {
			t.Errorf("the door led to %v", l.door.turns)
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
	inSided(t, func(l *lab) {
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
				if l.service().Due() == probation.Nothing || !l.check() && !l.fire() {
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
		inSided(t, func(l *lab) {
			l.door.open = 1
			id := l.accept(v2)
			l.until(id, probation.Promoted)
			began := time.Now()
			if c.ends > 0 && l.units[serviceA].run.ID == "" {
				t.Error("it was stopped under an open connection")
			}
			next := ""
			for l.service().Drain != nil && time.Since(began) < time.Hour {
				if time.Since(began) >= c.ends {
					l.door.open = 0
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
			l.door.open = 0
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
	inSided(t, func(l *lab) {
		id := l.accept(v2)
		l.until(id, probation.Probation)
		link := l.door.link
		for _, phase := range []probation.Phase{probation.Probation, probation.Promoted} {
			l.until(id, phase)
			at, _ := os.Readlink(link)
			if err := os.Remove(link); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("/run/other.sock", link); err != nil {
				t.Fatal(err)
			}
			l.inTheDark(func(r *rollout.Rollout) error { return r.Look(l.t.Context()) })
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
			inSided(t, func(l *lab) {
				l.until(l.accept(v2))
				l.unwell[v3.ID] = bad
				id := l.accept(v3)
				l.dieAt, l.dieAfter = l.calls+n, true
				where := ""
				for range 40 {
					if where = l.act(id); where != "" || l.service().Due() == probation.Nothing || !l.check() && !l.fire() {
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
				l.inTheDark(func(r *rollout.Rollout) error {
					_, err := r.Repair(l.t.Context(), "web", &e)
					return err
				})
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
