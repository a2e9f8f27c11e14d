package probation_test

import (
	"testing"
	"time"

	"toad/probation"
)

func clock(boot string, seconds int) probation.Instant {
	return probation.Instant{Wall: time.Unix(1_800_000_000+int64(seconds), 0), Boot: time.Duration(seconds) * time.Second, BootID: boot}
}

func TestAnOutageIsFromTheLastReadyLookToTheNext(t *testing.T) {
	deadline := probation.NewDeadline(clock("a", 100), time.Minute)
	op := probation.Operation{Phase: probation.Probation, Deadline: &deadline}
	op.Enrollment.Limit.Deadline = time.Minute
	for _, c := range []struct {
		name  string
		looks []string // "ready" or not, a second apart from 101 on
		want  time.Duration
		open  bool
	}{
		{"the old release was never seen ready", []string{"", "", "ready"}, 3 * time.Second, false},
		{"it was, a moment before", []string{"ready", "", "ready"}, 2 * time.Second, false},
		{"the candidate comes up and falls", []string{"ready", "", "ready", "ready", "", "", "ready"}, 5 * time.Second, false},
		{"nothing answers any more", []string{"ready", "", ""}, 0, true},
		{"nothing is missed", []string{"ready", "ready"}, 0, false},
	} {
		o := op.Outage(probation.Outage{})
		for i, look := range c.looks {
			o = o.See(look != "", clock("a", 101+i))
		}
		if o.Total != c.want || o.Open != c.open {
			t.Errorf("%s: want %v, open %v, have %+v", c.name, c.want, c.open, o)
		}
	}
}

func TestAnOutageIsCarriedFromCheckToCheck(t *testing.T) {
	by := probation.NewDeadline(clock("a", 200), time.Minute)
	op := probation.Operation{Phase: probation.Restoring, RestoreBy: &by}
	op.Enrollment.Limit.Deadline = time.Minute
	saved := probation.Outage{Ready: clock("a", 170), Total: time.Second} // ready when it was saved, half a minute ago
	if o := op.Outage(saved).See(false, clock("a", 201)).See(true, clock("a", 203)); o.Total != 4*time.Second {
		t.Errorf("a release that was ready is so until the restore: want 4s, have %+v", o)
	}
	saved.Open = true
	if o := op.Outage(saved).See(true, clock("a", 203)); o.Total != 34*time.Second {
		t.Errorf("an outage goes on: want 34s, have %+v", o)
	}
	if o := op.Outage(saved).See(true, clock("b", 300)); o.Total != 131*time.Second {
		t.Errorf("over a boot the wall clock counts: want 131s, have %+v", o)
	}
}
