package rollout_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // a host of the tests may have no zones

	"toad/probation"
	"toad/probation/record"
)

// step sets the wall clock.
func (l *lab) step(by time.Duration) {
	l.wall += by
	l.stepped = true
}

// elapse lets time pass as systemd sees it: a timer starts an act when the wall clock has reached its instant, and a
// check is ended by its timeout, which no step of the wall clock moves. In each tick it calls look.
func (l *lab) elapse(id string, d time.Duration, look func()) {
	l.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		for _, name := range slices.Sorted(maps.Keys(l.own)) {
			s, loaded := l.own[name]
			at, timer := l.calendar[name]
			switch bound, check := l.bound[name]; {
			case !loaded:
				continue // stopped by an act of this tick
			case timer && !l.now().Wall.Before(at) && s.SubState == "waiting":
				s.SubState = "running"
				l.own[name] = s
				l.act(id)
			case check && l.now().Boot >= bound:
				l.act(id)
			default:
				continue
			}
			delete(l.own, name)
		}
		look()
	}
}

// undecided lets a candidate stay unready, and asserts that it is given up at its deadline: not before, and no later.
func (l *lab) undecided(id string, steps map[time.Duration]time.Duration) {
	l.t.Helper()
	due := l.operation().Deadline.Boot
	began := time.Now()
	done := map[time.Duration]bool{}
	l.elapse(id, enrollment.Limit.Deadline+2*time.Second, func() {
		for after, by := range steps {
			if time.Since(began) >= after && !done[after] {
				done[after] = true
				l.step(by)
			}
		}
		late := l.now().Boot - due
		switch phase := l.operation().Phase; {
		case late < 0 && phase != probation.Probation:
			l.t.Fatalf("%s before the deadline: %s", -late, phase)
		case late > time.Second && phase == probation.Probation:
			l.t.Fatalf("nothing happened at the deadline: timers %v, checks %v, now %v", l.calendar, l.bound, l.now())
		}
	})
}

const hour, day = time.Hour, 24 * time.Hour

func TestAStepOfTheWallClockNeitherLosesNorHastensADeadline(t *testing.T) {
	for name, steps := range map[string]map[time.Duration]time.Duration{
		"an hour on":                   {10 * time.Second: hour},
		"an hour back":                 {10 * time.Second: -hour},
		"a day on":                     {10 * time.Second: day},
		"a day back":                   {10 * time.Second: -day},
		"back just before":             {59 * time.Second: -hour},
		"on, and back where it was":    {10 * time.Second: hour, 20 * time.Second: -hour},
		"back, and on where it was":    {10 * time.Second: -hour, 20 * time.Second: hour},
		"a day on, then two days back": {10 * time.Second: day, 59 * time.Second: -2 * day},
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				id := l.accept(v2)
				l.until(id, probation.Probation)
				l.undecided(id, steps)
				l.until(id)
				l.ended(probation.RolledBack, probation.CodeDeadline, v1)
			})
		})
	}
}

// The instants are told in UTC, so a gap or a repeated hour of the host's zone is none of theirs.
func TestSummerTimeMovesNoDeadline(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]time.Time{
		"the gap":           time.Date(2027, 3, 28, 1, 0, 0, 0, time.UTC),
		"the repeated hour": time.Date(2027, 10, 31, 1, 0, 0, 0, time.UTC),
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.zone, l.wall = zone, time.Until(change.Add(-30*time.Second))
				id := l.accept(v2)
				l.until(id, probation.Probation)
				l.undecided(id, nil)
				l.until(id)
				l.ended(probation.RolledBack, probation.CodeDeadline, v1)
				l.until(l.accept(v3))
				l.ended(probation.Promoted, "", v3)
			})
		})
	}
}

// A healthy candidate is promoted whatever the wall clock does in between, also when its timer goes off too early.
func TestAStepOfTheWallClockRestoresNoHealthyCandidate(t *testing.T) {
	for _, by := range []time.Duration{-day, -hour, hour, day} {
		for _, in := range []probation.Phase{probation.Accepted, probation.Probation, probation.Promoting} {
			t.Run(fmt.Sprintf("%v in %s", by, in), func(t *testing.T) {
				inLab(t, func(l *lab) {
					id := l.accept(v2)
					switch in {
					case probation.Probation:
						l.until(id, in)
					case probation.Promoting:
						l.until(id, probation.Probation)
						svc, _ := l.service().Apply(probation.Event{Kind: probation.Stable, At: l.now()})
						if err := l.records.Put(svc); err != nil {
							t.Fatal(err)
						}
					}
					l.step(by)
					l.elapse(id, 5*time.Second, func() {})
					if phase := l.operation().Phase; phase.Terminal() && phase != probation.Promoted {
						l.t.Fatalf("it is %s", phase)
					}
					l.until(id)
					l.ended(probation.Promoted, "", v2)
				})
			})
		}
	}
}

// The limit of a restore is held like the deadline of a switch.
func TestAStepOfTheWallClockMovesNoLimitOfARestore(t *testing.T) {
	for _, by := range []time.Duration{-day, -hour, hour, day} {
		t.Run(by.String(), func(t *testing.T) {
			inLab(t, func(l *lab) {
				l.until(l.accept(v2))
				l.unwell[v3.ID] = true
				id := l.accept(v3)
				l.until(id, probation.Restoring)
				due := l.operation().RestoreBy.Boot
				l.step(by)
				l.elapse(id, due-l.now().Boot+2*time.Second, func() {
					late, phase := l.now().Boot-due, l.operation().Phase
					if (late < 0) != (phase == probation.Restoring) && late.Abs() > time.Second {
						l.t.Fatalf("%v after the limit it is %s", late, phase)
					}
				})
				l.until(id)
				l.ended(probation.RollbackFailed, probation.CodeRollbackFailed, v2)
			})
		})
	}
}

// Over a boot only the wall clock can tell, and one that cannot be right gives nobody more time: the previous release
// comes back, nothing was admitted, and nothing is held against the candidate.
func TestABootWithAWrongClockGivesNoTime(t *testing.T) {
	for name, off := range map[string]time.Duration{
		"an hour back": -hour, "a day back": -day, "no clock of its own": -30 * 365 * day, "an hour on": hour, "a day on": day,
	} {
		t.Run(name, func(t *testing.T) {
			inLab(t, func(l *lab) {
				id := l.accept(v2)
				l.until(id, probation.Probation)
				l.seen(20 * time.Second)
				l.asked = nil
				l.wall += off
				l.boot(time.Second)
				if l.run.ImageID != v1.ID {
					t.Errorf("%.1s runs after the boot", l.run.ImageID)
				}
				l.step(-off) // the network tells the time
				l.until(id)
				l.ended(probation.RolledBack, probation.CodeDeadline, v1)
				if slices.ContainsFunc(l.asked, func(s string) bool { return strings.HasPrefix(s, "admit") }) {
					t.Errorf("it was admitted: %v", l.asked)
				}
				if refused := l.service().Refusals; len(refused) != 0 {
					t.Errorf("the clock's fault is held against it: %+v", refused)
				}
			})
		})
	}
}

// A clock that was put back in the boot before, and stood still while the host was off, gives back nothing of what was
// used: not more is left than at the last save.
func TestABootGivesBackNothingOfTheDeadline(t *testing.T) {
	inLab(t, func(l *lab) {
		id := l.accept(v2)
		l.until(id, probation.Probation)
		l.step(-25 * time.Second)
		l.seen(40 * time.Second)
		l.wall -= 10 * time.Second
		l.boot(10 * time.Second)
		due := l.now().Boot + 20*time.Second
		l.step(-hour)
		l.elapse(id, 22*time.Second, func() {
			late, phase := l.now().Boot-due, l.operation().Phase
			if (late < 0) != (phase == probation.Probation) && late.Abs() > time.Second {
				l.t.Fatalf("%v after the deadline it is %s", late, phase)
			}
		})
		l.until(id)
		l.ended(probation.RolledBack, probation.CodeDeadline, v1)
	})
}

// seen lets time pass, and the check note how much is left.
func (l *lab) seen(d time.Duration) {
	l.t.Helper()
	time.Sleep(d)
	op := l.operation()
	err := l.records.PutWatch(op.ID, record.Watch{Check: op.Checks, Phase: op.Phase, At: l.now(), Deadline: op.Deadline.Seen(l.now())})
	if err != nil {
		l.t.Fatal(err)
	}
}
