package rollout_test

import (
	"context"
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
	"toad/quadlet"
	"toad/unitgen"
)

// inLab runs a story on a clock that moves only when everybody waits.
func inLab(t *testing.T, story func(*lab)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { story(newLab(t)) })
}

func TestAHealthyReleaseIsPromotedAndABadOneIsPutBack(t *testing.T) {
	inLab(t, func(l *lab) {
		l.until(l.accept(v2))
		l.ended(probation.Promoted, "", v2)
		if !l.kept[v1.ID] || !l.kept[v2.ID] {
			t.Errorf("kept to go back to: %v", l.kept)
		}
		l.unwell[v3.ID] = true
		l.until(l.accept(v3))
		l.ended(probation.RolledBack, probation.CodeCandidateExited, v2)
		if f := l.service().Refusal(probation.Release{Digest: v3.Digest}); f == nil || f.Evidence == nil || len(f.Evidence.Lines) == 0 {
			t.Errorf("want v3 refused with its last words, have %+v", f)
		}
	})
}

// The state is ahead of everything that follows from it, so it does not matter where a process dies. lab asserts at each
// call that the deadline stands, that a timer holds it before a unit is touched, and that numbers are saved before use.
func TestDeadAtAnyCallItCarriesOn(t *testing.T) {
	for _, after := range []bool{false, true} {
		for _, bad := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %v, bad %v", after, bad), func(t *testing.T) {
				t.Parallel()
				n := 1
				for deadAtCall(t, n, after, bad) {
					n++
				}
				if n < 15 {
					t.Errorf("only %d calls were found", n)
				}
			})
		}
	}
}

// deadAtCall reports whether there was such a call.
func deadAtCall(t *testing.T, n int, after, bad bool) (died bool) {
	inLab(t, func(l *lab) {
		phase, code, starts := probation.Promoted, probation.Code(""), 2
		id := l.accept(v2)
		if bad {
			l.until(id)
			l.unwell[v3.ID] = true
			id, phase, code, starts = l.accept(v3), probation.RolledBack, probation.CodeCandidateExited, 4
		}
		l.dieAt, l.dieAfter = l.calls+n, after
		where := l.until(id)
		died = l.calls >= l.dieAt
		l.ended(phase, code, v2)
		if l.starts != starts {
			t.Errorf("%d starts, want %d", l.starts, starts)
		}
		if t.Failed() {
			t.Fatalf("dead %s (call %d)\n%s", where, n, strings.Join(l.asked, "\n"))
		}
	})
	return died
}

// A timer that is lost is armed again, for the instant that was set at first.
func TestALostTimerIsArmedForTheSameInstant(t *testing.T) {
	inLab(t, func(l *lab) {
		id := l.accept(v2)
		l.until(id, probation.Probation)
		time.Sleep(20 * time.Second)
		delete(l.own, "toad-probation-web-g1.timer")
		l.act(id)
		if _, ok := l.own["toad-probation-web-g1-2.timer"]; !ok {
			t.Errorf("no new timer among %v", l.own)
		}
	})
}

// A check that died without a verdict is made again, each time after a longer pause; the deadline stays.
func TestALostCheckIsMadeAgain(t *testing.T) {
	inLab(t, func(l *lab) {
		id := l.accept(v2)
		l.until(id, probation.Probation)
		for n := 2; n <= 4; n++ {
			delete(l.own, unitgen.CheckName(id, n-1))
			began := time.Now()
			l.act(id)
			if _, ok := l.own[unitgen.CheckName(id, n)]; !ok {
				t.Fatalf("no check %d among %v", n, l.own)
			}
			if paused := time.Since(began); paused != time.Second<<(n-2) {
				t.Errorf("check %d came after %v", n, paused)
			}
		}
		l.until(id)
		l.ended(probation.Promoted, "", v2)
	})
}

// A lost check is counted once, also when another act finds that it is lost: two that count it for each other would keep
// each other waiting for ever.
func TestALostCheckIsCountedOnce(t *testing.T) {
	inLab(t, func(l *lab) {
		id := l.accept(v2)
		l.until(id, probation.Probation)
		delete(l.own, unitgen.CheckName(id, 1))
		ctx, cancel := context.WithTimeout(l.t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := l.toad().Act(ctx, id); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("it did not wait: %v", err)
		}
		l.act(id)
		if op := l.operation(); op.Checks != 2 || op.ChecksLost != 1 {
			t.Errorf("want 1 lost check and a second, have %d lost and number %d", op.ChecksLost, op.Checks)
		}
		l.until(id)
		l.ended(probation.Promoted, "", v2)
	})
}

func TestOfSeveralFindingsTheFirstInTheOrderOfTheDesignCounts(t *testing.T) {
	verdict := func(kind probation.Kind) probation.Verdict {
		return probation.Verdict{Kind: kind, Code: probation.Code(kind)}
	}
	for _, c := range []struct {
		name    string
		aborted bool
		verdict probation.Verdict
		late    bool
		code    probation.Code // of the restore; "" for a promotion
	}{
		{"aborted and stopped", true, verdict(probation.Stopped), false, probation.CodeAborted},
		{"aborted and stable", true, verdict(probation.Stable), false, probation.CodeAborted},
		{"aborted and expired", true, probation.Verdict{}, true, probation.CodeAborted},
		{"failed and expired", false, verdict(probation.Unfit), true, "failed"},
		{"stopped and expired", false, verdict(probation.Stopped), true, probation.CodeStopped},
		{"expired and stable", false, verdict(probation.Stable), true, probation.CodeDeadline},
		{"stable", false, verdict(probation.Stable), false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				id := l.accept(v2)
				l.until(id, probation.Probation)
				if c.late {
					time.Sleep(enrollment.Limit.Deadline)
				}
				if err := l.records.PutWatch(id, record.Watch{Check: 1, Phase: probation.Probation, Verdict: c.verdict, At: l.now()}); err != nil {
					t.Fatal(err)
				}
				if c.aborted {
					if err := l.records.Abort(id, "uid 1000"); err != nil {
						t.Fatal(err)
					}
				}
				l.act(id)
				op := l.operation()
				if promoted := op.Phase == probation.Promoted; promoted != (c.code == "") || op.Code != c.code {
					t.Errorf("want %q, have %s %q", c.code, op.Phase, op.Code)
				}
			})
		})
	}
}

// A verdict counts only if it is the current check's, of the current phase.
func TestAnotherChecksVerdictIsIgnored(t *testing.T) {
	for _, w := range []record.Watch{
		{Check: 2, Phase: probation.Probation}, {Check: 0, Phase: probation.Probation}, {Check: 1, Phase: probation.Restoring},
	} {
		inLab(t, func(l *lab) {
			id := l.accept(v2)
			l.until(id, probation.Probation)
			w.Verdict, w.At = probation.Verdict{Kind: probation.Stable}, l.now()
			if err := l.records.PutWatch(id, w); err != nil {
				t.Fatal(err)
			}
			l.act(id)
			if op := l.operation(); op.Phase != probation.Probation {
				t.Errorf("the verdict of check %d in %s made it %s", w.Check, w.Phase, op.Phase)
			}
		})
	}
}

func TestPodmanIsWokenForADeployment(t *testing.T) {
	inLab(t, func(l *lab) {
		l.until(l.accept(v2))
		if l.woken != 1 {
			t.Errorf("woken %d times for a deployment", l.woken)
		}
	})
}

// That a release was unready until its deadline is held against it only if somebody looked, in one boot, to the end.
func TestUnseenUnreadinessRefusesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		unseen  time.Duration
		boot    string
		refused bool
	}{
		"seen to the end":  {5 * time.Second, "one", true},
		"a gap before it":  {50 * time.Second, "one", false},
		"in another boot":  {5 * time.Second, "zero", false},
		"nobody looked":    {0, "", false},
		"ready to the end": {-1, "one", false},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				id := l.accept(v2)
				l.until(id, probation.Probation)
				time.Sleep(enrollment.Limit.Deadline - c.unseen)
				w := record.Watch{Check: 1, Phase: probation.Probation, At: l.now(), Unready: &probation.Evidence{Unit: service, Invocation: "x"}}
				if w.At.BootID = c.boot; c.unseen < 0 {
					w.Unready = nil
				}
				if c.boot != "" {
					if err := l.records.PutWatch(id, w); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(max(c.unseen, 0))
				l.until(id)
				if have := l.operation(); have.Phase != probation.RolledBack || have.Code != probation.CodeDeadline {
					t.Fatalf("have %s %s", have.Phase, have.Code)
				}
				if refused := len(l.service().Refusals) > 0; refused != c.refused {
					t.Errorf("want refused %v, have %+v", c.refused, l.service().Refusals)
				}
			})
		})
	}
}

// A restore that does not settle is never called a rollback.
func TestARestoreThatDoesNotSettleIsNoRollback(t *testing.T) {
	for _, late := range []bool{false, true} {
		inLab(t, func(l *lab) {
			l.unwell[v2.ID] = true
			id := l.accept(v2)
			l.until(id, probation.Probation)
			l.check()
			l.act(id)
			if l.operation().Phase != probation.Restoring {
				t.Fatalf("it is %s", l.operation().Phase)
			}
			if late {
				time.Sleep(2 * enrollment.Limit.Deadline)
			} else {
				l.run.ImageID = v3.ID // something else runs
				l.check()
			}
			l.act(id)
			if op := l.operation(); op.Phase != probation.RollbackFailed || op.Code != probation.CodeRollbackFailed {
				t.Errorf("late %v: have %s %s", late, op.Phase, op.Code)
			}
		})
	}
}

func TestAReleaseRefusedUnderAnotherNameIsNotSwitchedTo(t *testing.T) {
	inLab(t, func(l *lab) {
		l.unwell[v2.ID] = true
		l.until(l.accept(v2))
		index := v2
		index.Digest = "sha256:" + strings.Repeat("9", 64)
		index.Digests = []string{index.Digest, v2.Digest}
		l.registry[repository+"@"+index.Digest] = index
		index.RepoDigests = []string{repository + "@" + index.Digest, v2.RepoDigests[0]}
		l.have(index)
		starts := l.starts
		l.until(l.accept(index))
		l.ended(probation.Failed, probation.CodeDigestRefused, v1)
		if l.starts != starts {
			t.Error("the refused image was started")
		}
		l.until(l.accept(v2, func(r *probation.Request) { r.Retry = true }))
		l.ended(probation.RolledBack, probation.CodeCandidateExited, v1)
	})
}

func TestWithoutAWayBackNothingIsTouched(t *testing.T) {
	inLab(t, func(l *lab) {
		l.noRetain = errors.New("no space left on device")
		invocation := l.state.InvocationID
		l.until(l.accept(v2))
		l.ended(probation.Failed, probation.CodeNoWayBack, v1)
		if l.state.InvocationID != invocation || slices.Contains(l.asked, "reload") {
			t.Errorf("the host was touched: %v", l.asked)
		}
	})
}

// What was pruned comes back from its archive, and is named by its id: the archive has lost the digest.
func TestAPrunedReleaseIsPutBackByItsID(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		inLab(t, func(l *lab) {
			previous := v1
			if pinned {
				l.until(l.accept(v2))
				previous = v2
			}
			l.unwell[v3.ID] = true
			id := l.accept(v3)
			l.until(id, probation.Probation)
			l.prune()
			l.registry = nil
			l.until(id)
			l.ended(probation.RolledBack, probation.CodeCandidateExited, previous)
			if !slices.Contains(l.asked, "load back "+previous.ID[:1]) {
				t.Errorf("it was not loaded back: %v", l.asked)
			}
		})
	}
}

func TestARollbackNeedsNoRegistry(t *testing.T) {
	inLab(t, func(l *lab) {
		l.until(l.accept(v2))
		l.until(l.accept(v3))
		l.prune()
		l.registry = nil
		// What is gone back to is decided under the lock, whatever the request was made of.
		l.until(l.accept(v3, func(r *probation.Request) { r.Rollback = true }))
		l.ended(probation.Promoted, "", v2)
	})
}

// A binding that another file undoes is found before anything is stopped, and leaves no pin behind.
func TestABindingThatDoesNotHoldIsTakenBack(t *testing.T) {
	inLab(t, func(l *lab) {
		l.until(l.accept(v2))
		before, _, _ := l.dirs.Pins().Read(unit)
		invocation := l.state.InvocationID
		l.override = v1.ID
		l.until(l.accept(v3))
		l.override = ""
		l.ended(probation.Failed, probation.CodeBindingBroken, v2)
		if text, _, _ := l.dirs.Pins().Read(unit); text != before || l.state.InvocationID != invocation {
			t.Errorf("the pin is now\n%s", text)
		}
	})
}

func TestABootWithinTheDeadlineAdmitsTheCandidate(t *testing.T) {
	inLab(t, func(l *lab) {
		id := l.accept(v2)
		l.until(id, probation.Probation)
		l.boot(20 * time.Second)
		if l.run.ImageID != v2.ID || len(l.state.Conditions) == 0 {
			t.Errorf("%.1s runs behind %v", l.run.ImageID, l.state.Conditions)
		}
		l.until(id)
		l.ended(probation.Promoted, "", v2)
	})
}

// Past its deadline the way back is written before the unit starts, and nothing is admitted.
func TestABootPastTheDeadlineStartsThePreviousRelease(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		inLab(t, func(l *lab) {
			previous := v1
			if pinned {
				l.until(l.accept(v2))
				previous = v2
			}
			id := l.accept(v3)
			l.until(id, probation.Probation)
			l.asked = nil
			l.boot(2 * enrollment.Limit.Deadline)
			if l.run.ImageID != previous.ID {
				t.Errorf("%.1s runs after the boot", l.run.ImageID)
			}
			if slices.ContainsFunc(l.asked, func(s string) bool { return strings.HasPrefix(s, "admit") }) {
				t.Errorf("it was admitted: %v", l.asked)
			}
			l.until(id)
			l.ended(probation.RolledBack, probation.CodeDeadline, previous)
		})
	}
}

// Whatever a crash left in the place of the pin, a boot makes it what the record says.
func TestABootMakesThePinsThoseOfTheRecord(t *testing.T) {
	for phase, fenced := range map[probation.Phase]bool{probation.Probation: true, probation.Promoting: false} {
		inLab(t, func(l *lab) {
			id := l.accept(v2)
			l.until(id, probation.Probation)
			if phase == probation.Promoting {
				svc, _ := l.service().Apply(probation.Event{Kind: probation.Stable, At: l.now()})
				if err := l.records.Put(svc); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.dirs.Pins().Write(unit, quadlet.Pin{Operation: id, Service: "web", Reference: v1.ID}.Text()); err != nil {
				t.Fatal(err)
			}
			l.boot(time.Second)
			text, _, _ := l.dirs.Pins().Read(unit)
			if p, err := quadlet.ParsePin(text); err != nil || p.Fenced != fenced || p.Digest != v2.Digest {
				t.Errorf("in %s the pin is\n%s", phase, text)
			}
			l.until(id)
			l.ended(probation.Promoted, "", v2)
		})
	}
}

func TestTheOperatorsFilesStayAsTheyAre(t *testing.T) {
	inLab(t, func(l *lab) {
		path := filepath.Join(l.dirs.Config, unit)
		before, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		l.until(l.accept(v2))
		l.unwell[v3.ID] = true
		l.until(l.accept(v3))
		if have, err := os.ReadFile(path); err != nil || string(have) != string(before) {
			t.Errorf("%s is now\n%s", path, have)
		}
		var names []string
		entries, _ := os.ReadDir(l.dirs.Config)
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if want := []string{unit, unit + ".d"}; !slices.Equal(names, want) {
			t.Errorf("want %v, have %v", want, names)
		}
	})
}
