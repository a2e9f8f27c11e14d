package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"toad/probation"
)

// A reconcile that cannot run, or dies at any of its calls, leaves the candidate down; the next act decides instead of it.
func TestAReconcileThatDiesIsMadeGoodByAnAct(t *testing.T) {
	for _, phase := range []probation.Phase{probation.Switching, probation.Probation, probation.Promoting, probation.Restoring} {
		for _, after := range []bool{false, true} {
			for _, late := range []bool{false, true} {
				if late && after {
					continue // it decides the same, and differs only in when
				}
				t.Run(fmt.Sprintf("%s, after %v, late %v", phase, after, late), func(t *testing.T) {
					t.Parallel()
					for n := 0; reconcileDiesAt(t, phase, n, after, late); n++ { // 0: it did not run at all
					}
				})
			}
		}
	}
}

func reconcileDiesAt(t *testing.T, phase probation.Phase, n int, after, late bool) (died bool) {
	inLab(t, func(l *lab) {
		l.until(l.accept(v2))
		l.unwell[v3.ID] = phase == probation.Restoring
		id := l.accept(v3)
		l.stopIn(id, phase)
		off := time.Second
		if late {
			off = 2 * enrollment.Limit.Deadline
		}
		l.reset(off)
		l.dieAt, l.dieAfter = l.calls+n, after
		l.booting = true
		died = n == 0 || l.dies(func() error { return l.toad().Reconcile(l.t.Context()) })
		l.dieAt, l.booting = 0, false
		l.start(l.side) // as the manager would have it
		ran := l.run.Operation == id
		if ran && !l.admitted["TOAD_ADMITTED_web_g2=1"] && phase != probation.Promoting {
			t.Error("the candidate runs unadmitted")
		}
		l.until(id)
		switch {
		case phase == probation.Restoring:
			l.ended(probation.RolledBack, probation.CodeCandidateExited, v2)
		case late && phase != probation.Promoting:
			l.ended(probation.RolledBack, probation.CodeDeadline, v2)
		default:
			l.ended(probation.Promoted, "", v3)
		}
		if late && ran && phase != probation.Promoting {
			t.Error("past its deadline the candidate ran")
		}
		if t.Failed() {
			t.Fatalf("dead at call %d\n%s", n, strings.Join(l.asked, "\n"))
		}
	})
	return died
}

// Nor does it matter where the act that makes it good dies: what it has admitted and not started yet is started by the next.
func TestAnActThatDiesInAReconcilesPlaceIsMadeGood(t *testing.T) {
	for n, died := 1, true; died; n++ {
		inLab(t, func(l *lab) {
			l.until(l.accept(v2))
			id := l.accept(v3)
			l.stopIn(id, probation.Probation)
			l.reset(time.Second)
			l.start(l.side) // as the manager would have it: the fence keeps it down
			l.dieAt = l.calls + n
			died = l.act(id) != ""
			l.dieAt = 0
			l.until(id)
			l.ended(probation.Promoted, "", v3)
		})
	}
}

// stopIn lets the operation come to a phase, and no further.
func (l *lab) stopIn(id string, phase probation.Phase) {
	l.t.Helper()
	l.stopAt = phase
	defer func() { l.stopAt = "" }()
	for range 5 {
		if l.act(id) == "" && l.operation().Phase != phase {
			l.check()
		}
		if l.operation().Phase == phase {
			return
		}
	}
	l.t.Fatalf("it never was in %s", phase)
}

func (l *lab) dies(do func() error) (died bool) {
	l.t.Helper()
	defer func() {
		if r := recover(); r != nil {
			died = true
		}
	}()
	if err := do(); err != nil {
		l.t.Error(err)
	}
	return false
}
