package rollout_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/probation"
)

// sound asserts that the pins are as the record has them, and that a look has nothing to tell.
func (l *lab) sound(when string) {
	l.t.Helper()
	if bad := l.toad().CheckPins(l.t.Context(), l.service()); len(bad) > 0 {
		l.t.Errorf("%s: %v", when, bad)
	}
	before, lines := l.pinText(), l.logLines()
	if err := l.toad().Look(l.t.Context()); err != nil {
		l.t.Errorf("%s: look: %v", when, err)
	}
	if l.pinText() != before || l.logLines() != lines {
		l.t.Errorf("%s: a look was not silent", when)
	}
}

func (l *lab) pinText() string {
	text, _, err := l.dirs.Pins().Read(unit)
	if err != nil {
		l.t.Fatal(err)
	}
	return text
}

func (l *lab) logLines() (n int) {
	for _, line := range l.records.Lines(l.operation().ID) {
		if line.Event == "binding" {
			n++
		}
	}
	return n
}

func TestALookIsSilentHoweverAnOperationEnded(t *testing.T) {
	inLab(t, func(l *lab) {
		l.unwell[v3.ID] = true
		l.until(l.accept(v3))
		l.sound("rolled back to what ran before the first deployment")
		l.until(l.accept(v2))
		l.sound("promoted")
		l.until(l.accept(v3, func(r *probation.Request) { r.Retry = true }))
		l.sound("rolled back to a promoted release")
		delete(l.registry, v1.RepoDigests[0])
		delete(l.images, v1.RepoDigests[0])
		id := l.accept(v1, func(r *probation.Request) { r.Key = "one more" })
		if err := l.records.Abort(id, "uid 1000"); err != nil {
			l.t.Fatal(err)
		}
		l.until(id)
		l.sound("failed before anything was touched")
	})
}

func TestALookPutsBackWhatOthersTook(t *testing.T) {
	inLab(t, func(l *lab) {
		l.until(l.accept(v2))
		want := l.pinText()
		for n, do := range []func() error{
			func() error { return os.RemoveAll(l.dirs.Pins().Path(unit)) },
			func() error {
				return os.WriteFile(l.dirs.Pins().Path(unit), []byte(strings.Replace(want, "never", "always", 1)), 0o644)
			},
			func() error { return os.WriteFile(l.dirs.Pins().Path(unit), nil, 0o644) },
		} {
			starts := l.starts
			if err := do(); err != nil {
				l.t.Fatal(err)
			}
			if err := l.toad().Look(l.t.Context()); err != nil {
				l.t.Fatal(err)
			}
			if l.pinText() != want || l.logLines() != n+1 || l.starts != starts {
				l.t.Errorf("case %d: %d lines, %d starts, pin\n%s", n, l.logLines(), l.starts-starts, l.pinText())
			}
			l.sound("put right")
		}
	})
}

// What others changed while the user manager was down never runs: the pin is as recorded before the unit starts.
func TestABootStartsTheReleaseInForceWhateverItsPinSays(t *testing.T) {
	inLab(t, func(l *lab) {
		l.until(l.accept(v2))
		l.until(l.accept(v3))
		want := l.pinText()
		if err := os.WriteFile(l.dirs.Pins().Path(unit), []byte(strings.ReplaceAll(want, v3.RepoDigests[0], v2.RepoDigests[0])), 0o644); err != nil || l.pinText() == want {
			l.t.Fatal(err, want)
		}
		l.boot(0)
		if l.run.ImageID != v3.ID || l.pinText() != want || l.logLines() != 1 {
			l.t.Errorf("%.1s runs, %d lines, pin\n%s", l.run.ImageID, l.logLines(), l.pinText())
		}
		l.sound("after the boot")
	})
}

// Where the disk is full the record still says probation when the previous release's pins are laid; a look leaves them.
func TestALookLeavesADueRestoreAlone(t *testing.T) {
	inLab(t, func(l *lab) {
		l.until(l.accept(v2))
		back := l.pinText()
		id := l.accept(v3)
		l.until(id, probation.Probation)
		time.Sleep(time.Hour) // far past the deadline
		if err := l.dirs.Pins().Restore(unit, back); err != nil {
			l.t.Fatal(err)
		}
		if err := l.toad().Look(l.t.Context()); err != nil {
			l.t.Fatal(err)
		}
		if have := l.pinText(); have != back {
			l.t.Errorf("the candidate's pin was laid again:\n%s", have)
		}
		l.until(id)
		l.ended(probation.RolledBack, probation.CodeDeadline, v2)
	})
}

// However many pins others took away, a boot waits for one reload.
func TestABootReloadsOnce(t *testing.T) {
	inLab(t, func(l *lab) {
		l.until(l.accept(v2))
		text, err := json.Marshal(l.service())
		if err != nil {
			l.t.Fatal(err)
		}
		for _, name := range []string{"one", "two", "three"} {
			var svc probation.Service
			if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), "web", name)), &svc); err != nil {
				l.t.Fatal(err)
			}
			if err := l.records.Put(svc); err != nil {
				l.t.Fatal(err)
			}
		}
		before := len(l.asked)
		l.boot(0)
		reloads := 0
		for _, call := range l.asked[before:] {
			if call == "reload" {
				reloads++
			}
		}
		if reloads != 1 {
			l.t.Errorf("%d reloads: %q", reloads, l.asked[before:])
		}
		for _, name := range []string{"one", "two", "three"} {
			if _, found, err := l.dirs.Pins().Read(name + ".container"); err != nil || !found {
				l.t.Errorf("%s has no pin: %v", name, err)
			}
		}
	})
}

// However an unpin is cut short, its repetition and a look both come to no pin.
func TestAnUnpinThatDiesIsCarriedOn(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; ; n++ {
			died := false
			inLab(t, func(l *lab) {
				l.until(l.accept(v2))
				had, run := l.pinText(), l.run
				l.dieAt, l.dieAfter = l.calls+n, after
				func() {
					defer func() { died = recover() != nil }()
					_, _ = l.toad().Unpin(l.t.Context(), "web", nil, "uid 1000")
				}()
				l.dieAt = 0
				if l.service().Promoted == nil {
					if err := l.toad().Look(l.t.Context()); err != nil {
						l.t.Fatal(err)
					}
					l.sound("a look after an unpin that died")
					// The record says that there are none: what is left over, or put there, goes.
					if err := l.dirs.Pins().Write(unit, had); err != nil {
						l.t.Fatal(err)
					}
					if err := l.toad().Look(l.t.Context()); err != nil {
						l.t.Fatal(err)
					}
					if l.pinText() != "" {
						l.t.Errorf("call %d: a look leaves the pin", n)
					}
				}
				units, err := l.toad().Unpin(l.t.Context(), "web", nil, "uid 1000")
				if err != nil || len(units) != 1 || units[0].Image != repository+":v1" || !units[0].Running {
					l.t.Errorf("call %d: %+v %v", n, units, err)
				}
				s := l.service()
				if l.pinText() != "" || s.Promoted != nil || s.Generation != 1 || l.run != run {
					l.t.Errorf("call %d: pin %q, record %+v", n, l.pinText(), s)
				}
				l.sound("unpinned")
				l.until(l.accept(v3))
				l.ended(probation.Promoted, "", v3)
				if p := l.operation().Previous; p == nil || p.Generation != 0 || p.ImageID != v2.ID {
					l.t.Errorf("what ran was not adopted: %+v", p)
				}
				l.sound("deployed after an unpin")
			})
			if !died {
				break
			}
		}
	}
}

func TestAnUnpinIsRefusedDuringAnOperation(t *testing.T) {
	inLab(t, func(l *lab) {
		l.until(l.accept(v2), probation.Probation)
		_, err := l.toad().Unpin(l.t.Context(), "web", nil, "uid 1000")
		var rejected *probation.Rejection
		if !errors.As(err, &rejected) || rejected.Code != probation.CodeOperationActive {
			l.t.Errorf("have %v", err)
		}
		if l.pinText() == "" {
			l.t.Error("the pin is gone")
		}
	})
}

// Wherever a deployment stands when its record is lost, the repaired one ends on one of the two releases, with the pins
// of that one.
func TestARecordLostAtAnyCallIsRepaired(t *testing.T) {
	phases := map[probation.Phase]int{}
	for died, n := true, 1; died; n++ {
		inLab(t, func(l *lab) {
			l.until(l.accept(v2))
			id := l.accept(v3)
			l.dieAt = l.calls + n
			for l.act(id) == "" && probation.Due(l.operation()) != probation.Nothing && l.check() {
			}
			died, l.dieAt = l.calls >= l.dieAt, 0
			if err := os.WriteFile(filepath.Join(l.records.Dir(), "services/web.json"), nil, 0o600); err != nil {
				l.t.Fatal(err)
			}
			done, err := l.toad().Repair(l.t.Context(), "web", &enrollment)
			if err != nil {
				l.t.Fatalf("call %d: %v", n, err)
			}
			phases[done.Service.Operation.Phase]++
			l.until(id)
			runs, inForce := v2, 1
			if l.operation().Phase == probation.Promoted {
				runs, inForce = v3, 2
			}
			s := l.service()
			if l.run.ImageID != runs.ID || s.Promoted == nil || s.Promoted.Generation != inForce || s.Promoted.ImageID != runs.ID || s.Generation != 2 || len(s.Refusals) != 0 {
				l.t.Errorf("call %d: it runs %.4s, record %+v\n%s", n, l.run.ImageID, s, strings.Join(done.From, "\n"))
			}
			l.sound("repaired")
		})
		if t.Failed() {
			t.Fatalf("at call %d", n)
		}
	}
	for _, p := range []probation.Phase{probation.Failed, probation.Restoring, probation.Promoted} {
		if phases[p] == 0 {
			t.Errorf("no repair came to %s: %v", p, phases)
		}
	}
}
