package probation_test

import (
	"slices"
	"testing"
	"time"

	"toad/probation"
)

// What the last turn of the door left is owed when nothing of the operation's own is, and before another candidate starts.
func TestTheFormerSideIsOwedBetweenOperationsAndBeforeASwitch(t *testing.T) {
	drain := &probation.Drain{Unit: "web@a.container", Service: "web@a.service"}
	for _, c := range []struct {
		name               string
		phase              probation.Phase
		prepared, released bool
		want               probation.Duty
	}{
		{"an act begins", probation.Accepted, false, false, probation.DoBeginAct},
		{"the image is pulled meanwhile", probation.Preparing, false, false, probation.DoPrepare},
		{"nothing starts before it", probation.Preparing, true, false, probation.DoDrain},
		{"let go first", probation.Promoted, true, false, probation.DoRelease},
		{"then it", probation.Promoted, true, true, probation.DoDrain},
		{"after a failed preparation too", probation.Failed, false, true, probation.DoDrain},
	} {
		svc := onSides(c.phase)
		svc.Drain = drain
		svc.Operation.Prepared, svc.Operation.Released = c.prepared, c.released
		if have := svc.Due(); have != c.want {
			t.Errorf("%s: want %q, have %q", c.name, c.want, have)
		}
	}
	svc := onSides(probation.Promoted)
	svc.Drain, svc.Operation.Released = nil, true
	if have := svc.Due(); have != probation.DoRetain {
		t.Errorf("nothing to drain: have %q", have)
	}
	if have := (probation.Service{}).Due(); have != probation.Nothing {
		t.Errorf("a service that was never deployed owes %q", have)
	}
}

// On trial only the candidate is watched; of a restore the side in force comes first, for its readiness counts.
func TestACheckWatchesTheSidesThatItsPhaseIsAbout(t *testing.T) {
	op := *onSides(probation.Probation).Operation
	want := []probation.Want{{Service: "web@b.service", Replaces: "idle", ImageID: idB, Operation: "web-g7"}}
	if have := probation.Wants(op); !slices.Equal(have, want) || op.Asked() != "web@b.container" {
		t.Errorf("on trial: %+v, asked %s", have, op.Asked())
	}
	op.Phase = probation.Restoring
	want = []probation.Want{{Service: "web@a.service", ImageID: idA}, {Service: "web@b.service", Down: true}}
	if have := probation.Wants(op); !slices.Equal(have, want) || op.Asked() != "web@a.container" {
		t.Errorf("restoring: %+v, asked %s", have, op.Asked())
	}
}

func TestAddressesOfASide(t *testing.T) {
	d := probation.Door{Listen: "%t/web/%i/app.sock"}
	if have := d.Address("web@a.container", "/run/user/7"); have != "/run/user/7/web/a/app.sock" {
		t.Error(have)
	}
	r := probation.Ready{HTTP: "http://127.0.0.1:1808%i/healthz", Interval: time.Second}.Of("web@2.container", "/run/user/7")
	if r.HTTP != "http://127.0.0.1:18082/healthz" || r.Interval != time.Second {
		t.Error(r)
	}
	if r := (probation.Ready{HTTP: "http://127.0.0.1/%i"}).Of("", "/run"); r.HTTP != "http://127.0.0.1/%i" {
		t.Error("filled in without a side:", r.HTTP)
	}
}
