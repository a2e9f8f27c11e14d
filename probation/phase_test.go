package probation_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"toad/probation"
)

const (
	digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	idA     = "1111111111111111111111111111111111111111111111111111111111111111"
	idB     = "2222222222222222222222222222222222222222222222222222222222222222"
)

var start = time.Date(2026, 11, 29, 20, 0, 0, 0, time.UTC)

func at(d time.Duration) probation.Instant {
	return probation.Instant{Wall: start.Add(d), Boot: time.Hour + d, BootID: "one"}
}

func enrollment() probation.Enrollment {
	return probation.Enrollment{Name: "web", Units: []string{"web.container"}, Image: "localhost:5000/app",
		Ready: probation.Ready{HTTP: "http://127.0.0.1:8080/", Interval: 500 * time.Millisecond, Timeout: time.Second},
		Limit: probation.Limits{Deadline: time.Minute, Stable: 2 * time.Second, Pull: time.Minute, Keep: 2}}
}

// inPhase is a service whose operation is in a phase, with what that phase must have.
func inPhase(p probation.Phase) probation.Service {
	promoted := probation.Release{Digest: digestA, Digests: []string{digestA}, ImageID: idA, Generation: 6}
	deadline := probation.NewDeadline(at(0), time.Minute)
	op := probation.Operation{ID: "web-g7", Service: "web", Generation: 7, Phase: p, Enrollment: enrollment(),
		Candidate: probation.Release{Digest: digestB, Digests: []string{digestB}, ImageID: idB, Generation: 7},
		Previous:  &promoted, PrepareBy: deadline, AcceptedAt: start}
	if p != probation.Accepted && p != probation.Preparing && p != probation.Failed {
		op.Prepared, op.Deadline = true, &deadline
		op.Before = []probation.UnitBefore{{Unit: "web.container", Service: "web.service", Running: true, Invocation: "old", ImageID: idA}}
	}
	if p == probation.Restoring || p == probation.RolledBack || p == probation.RollbackFailed {
		op.RestoreBy = &deadline
	}
	if p.Terminal() {
		ended := start
		op.EndedAt = &ended
	}
	return probation.Service{Name: "web", Generation: 7, Promoted: &promoted, Retained: []probation.Release{promoted}, Operation: &op}
}

// onSides is inPhase of a service with two sides, the candidate on side b.
func onSides(p probation.Phase) probation.Service {
	svc := inPhase(p)
	op := svc.Operation
	op.Enrollment.Units = []string{"web@a.container", "web@b.container"}
	op.Enrollment.Door = &probation.Door{Socket: "web.socket", Listen: "%t/web-%i.sock", Drain: time.Minute}
	op.Candidate.Side = "web@b.container"
	svc.Promoted.Side, op.Previous.Side = "web@a.container", "web@a.container"
	if len(op.Before) > 0 {
		op.Before = []probation.UnitBefore{
			{Unit: "web@a.container", Service: "web@a.service", Running: true, Invocation: "old", ImageID: idA},
			{Unit: "web@b.container", Service: "web@b.service", Invocation: "idle"}}
	}
	return svc
}

// next is the table of the design: what each phase makes of each event. An event that is not named is ignored.
var next = map[probation.Phase]map[probation.Kind]probation.Phase{
	probation.Accepted: {
		probation.Begun: probation.Preparing, probation.Prepared: probation.Preparing,
		probation.PrepareFailed: probation.Failed, probation.PrepareTimeout: probation.Failed, probation.Expired: probation.Failed,
		probation.Aborted: probation.Failed, probation.BindingBroken: probation.Failed, probation.Unfit: probation.Failed,
	},
	probation.Preparing: {
		probation.Prepared: probation.Preparing, probation.PrepareFailed: probation.Failed, probation.PrepareTimeout: probation.Failed,
		probation.Expired: probation.Failed, probation.Aborted: probation.Failed, probation.BindingBroken: probation.Failed,
		probation.Unfit: probation.Failed,
	},
	probation.Switching: {
		probation.Switched: probation.Probation, probation.BindingBroken: probation.Failed, probation.PrepareFailed: probation.Failed,
		probation.Aborted: probation.Restoring, probation.Expired: probation.Restoring, probation.Unfit: probation.Restoring,
		probation.Stopped: probation.Restoring, probation.Stable: probation.Promoting, probation.CheckLost: probation.Switching,
	},
	probation.Probation: {
		probation.Stable: probation.Promoting, probation.Unfit: probation.Restoring, probation.Expired: probation.Restoring,
		probation.Aborted: probation.Restoring, probation.Stopped: probation.Restoring, probation.CheckLost: probation.Probation,
	},
	probation.Promoting: {probation.PinKept: probation.Promoted, probation.PinLost: probation.Restoring},
	probation.Restoring: {
		probation.Replaced: probation.Restoring, probation.CheckLost: probation.Restoring, probation.Settled: probation.RolledBack,
		probation.LeftStopped: probation.Withdrawn, probation.Stopped: probation.Withdrawn,
		probation.SettleFailed: probation.RollbackFailed, probation.SettleExpired: probation.RollbackFailed,
	},
	probation.Promoted: {}, probation.RolledBack: {}, probation.Withdrawn: {}, probation.RollbackFailed: {}, probation.Failed: {},
}

// due is what each phase owes when it has just been entered.
var due = map[probation.Phase]probation.Duty{
	probation.Accepted: probation.DoBeginAct, probation.Preparing: probation.DoPrepare, probation.Switching: probation.DoSwitch,
	probation.Probation: probation.DoWatch, probation.Promoting: probation.DoPromote, probation.Restoring: probation.DoRestore,
	probation.Promoted: probation.DoRelease, probation.RolledBack: probation.DoRelease, probation.Withdrawn: probation.DoRelease,
	probation.RollbackFailed: probation.DoRelease, probation.Failed: probation.DoRelease,
}

func TestEveryPhaseTakesEveryEventAsTheDesignSays(t *testing.T) {
	everyPhaseTakesEveryEvent(t, inPhase)
}

// With two sides it is the same table; only what a promotion leaves to be done is more.
func TestEveryPhaseTakesEveryEventAlikeOnSides(t *testing.T) {
	everyPhaseTakesEveryEvent(t, onSides)
}

func everyPhaseTakesEveryEvent(t *testing.T, inPhase func(probation.Phase) probation.Service) {
	delete(next[probation.Switching], probation.Stable)    // before Switched there is nothing to promote
	delete(next[probation.Switching], probation.CheckLost) // the act that switches makes the check
	for _, phase := range probation.Phases {
		for _, kind := range probation.Kinds {
			t.Run(fmt.Sprintf("%s in %s", kind, phase), func(t *testing.T) {
				svc := inPhase(phase)
				before := reload(t, svc)
				want, taken := next[phase][kind]
				got, ok := svc.Apply(event(kind))
				if ok != taken {
					t.Fatalf("want taken %v, have %v", taken, ok)
				}
				if !reflect.DeepEqual(reload(t, svc), before) {
					t.Error("the value that the event was applied to has changed")
				}
				if !ok {
					if !reflect.DeepEqual(got, svc) {
						t.Error("an ignored event changed something")
					}
					return
				}
				if got.Operation.Phase != want {
					t.Fatalf("want %s, have %s", want, got.Operation.Phase)
				}
				carriesOn(t, got)
			})
		}
	}
}

// event carries what the phase needs of it.
func event(kind probation.Kind) probation.Event {
	return probation.Event{Kind: kind, At: at(time.Second), Code: probation.CodeCandidateExited, Reason: "because",
		Candidate: probation.Release{Digest: digestB, Digests: []string{digestB}, ImageID: idB, Generation: 7},
		InForce:   &probation.Release{Digest: digestA, Digests: []string{digestA}, ImageID: idA, Generation: 6}}
}

func reload(t *testing.T, svc probation.Service) probation.Service {
	t.Helper()
	data, err := json.Marshal(svc)
	if err != nil {
		t.Fatal(err)
	}
	var out probation.Service
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// carriesOn saves and reads back, and asks what is owed: the answer must be the same, and must fit the phase.
func carriesOn(t *testing.T, svc probation.Service) {
	t.Helper()
	again := reload(t, svc)
	have, want := again.Due(), svc.Due()
	drained := svc.Operation.Sided() && svc.Operation.Phase == probation.Promoted
	if drained != (again.Drain != nil) {
		t.Errorf("left of the turn: %+v", again.Drain)
	}
	if have != want {
		t.Errorf("what is owed: want %q, after a reload %q", want, have)
	}
	fits := due[svc.Operation.Phase]
	switch {
	case svc.Operation.Phase == probation.Preparing && svc.Operation.Prepared:
		fits = probation.DoSwitch
	case svc.Operation.Replaced:
		fits = probation.DoWatch
	}
	if have != fits {
		t.Errorf("in %s: want %q owed, have %q", svc.Operation.Phase, fits, have)
	}
	if svc.Operation.Phase.Terminal() != (svc.Operation.EndedAt != nil) {
		t.Error("a terminal operation has an end, and no other")
	}
}

func TestTheListsOfPhasesAndEventsAreWhole(t *testing.T) {
	if len(next) != len(probation.Phases) || len(due) != len(probation.Phases) {
		t.Fatalf("want a row for each of %d phases", len(probation.Phases))
	}
	for phase, row := range next {
		for kind := range row {
			if !slices.Contains(probation.Kinds, kind) {
				t.Errorf("%s: event %q is not listed", phase, kind)
			}
		}
	}
}

func TestSwitchBeginsOnlyWhenPrepared(t *testing.T) {
	svc := inPhase(probation.Preparing)
	if _, ok := svc.Apply(event(probation.SwitchBegun)); ok {
		t.Fatal("an operation that is not prepared began to switch")
	}
	svc, _ = svc.Apply(event(probation.Prepared))
	ev := event(probation.SwitchBegun)
	ev.Deadline = probation.NewDeadline(at(0), time.Minute)
	svc, ok := svc.Apply(ev)
	if !ok || svc.Operation.Phase != probation.Switching || svc.Operation.Deadline == nil {
		t.Fatalf("want switching with a deadline, have %+v", svc.Operation)
	}
}

func TestABrokenBindingAfterAUnitMovedIsRestored(t *testing.T) {
	ev := event(probation.BindingBroken)
	ev.Moved = true
	svc, ok := inPhase(probation.Switching).Apply(ev)
	if !ok || svc.Operation.Phase != probation.Restoring || svc.Operation.Code != probation.CodeBindingBroken {
		t.Fatalf("want restoring, have %+v", svc.Operation)
	}
}

func TestPromotionPutsTheCandidateInForceAndKeepsTheOldOne(t *testing.T) {
	svc := inPhase(probation.Promoting)
	svc.Refusals = []probation.Refusal{{Release: svc.Operation.Candidate, Operation: "web-g5"}}
	svc, _ = svc.Apply(event(probation.PinKept))
	if svc.Promoted.Digest != digestB || svc.Promoted.Generation != 7 || svc.Promoted.PromotedAt.IsZero() {
		t.Errorf("in force: %+v", svc.Promoted)
	}
	if len(svc.Retained) != 2 || svc.Retained[0].Digest != digestB || svc.Retained[1].Digest != digestA {
		t.Errorf("retained: %+v", svc.Retained)
	}
	if len(svc.Refusals) != 0 {
		t.Errorf("promotion lifts the refusal, have %+v", svc.Refusals)
	}
}

func TestOnlyEvidenceRefuses(t *testing.T) {
	svc, _ := inPhase(probation.Probation).Apply(event(probation.Unfit))
	if len(svc.Refusals) != 0 {
		t.Fatalf("refused without evidence: %+v", svc.Refusals)
	}
	ev := event(probation.Unfit)
	ev.Evidence = &probation.Evidence{Unit: "web.service", Invocation: "new", ExitStatus: 2}
	svc, _ = inPhase(probation.Probation).Apply(ev)
	for _, name := range []probation.Release{{Digest: digestB}, {ImageID: idB}, {Digests: []string{digestA, digestB}}} {
		if svc.Refusal(name) == nil {
			t.Errorf("not refused as %+v", name)
		}
	}
	if svc.Refusal(probation.Release{Digest: digestA}) != nil || svc.Refusal(probation.Release{}) != nil {
		t.Error("another release is refused, too")
	}
}

// A retry that says nothing of the release, such as one given up, leaves it refused.
func TestOnlyPromotionLiftsARefusal(t *testing.T) {
	svc := inPhase(probation.Promoted)
	svc.Refusals = []probation.Refusal{{Release: probation.Release{Digest: digestB}, Operation: "web-g5"}}
	svc, _, err := svc.Accept(enrollment(), probation.Request{Digest: digestB, Retry: true}, at(0))
	if err != nil || svc.Refusal(probation.Release{Digest: digestB}) == nil {
		t.Fatalf("a retry lifted the refusal: %+v, %v", svc.Refusals, err)
	}
	for _, ev := range []probation.Kind{probation.Begun, probation.Aborted} {
		svc, _ = svc.Apply(event(ev))
	}
	if svc.Operation.Phase != probation.Failed || svc.Refusal(probation.Release{Digest: digestB}) == nil {
		t.Errorf("%s lifted the refusal: %+v", svc.Operation.Phase, svc.Refusals)
	}
	svc = inPhase(probation.Promoting) // of another release
	svc.Refusals = []probation.Refusal{{Release: probation.Release{Digest: digestA}, Operation: "web-g5"}}
	if svc, _ = svc.Apply(event(probation.PinKept)); svc.Refusal(probation.Release{Digest: digestA}) == nil {
		t.Error("the promotion of another release lifted the refusal")
	}
}

func TestAdoptionIsGenerationZero(t *testing.T) {
	svc := inPhase(probation.Preparing)
	svc.Promoted, svc.Retained, svc.Operation.Previous = nil, nil, nil
	ev := event(probation.Prepared)
	ev.InForce = &probation.Release{ImageID: idA}
	svc, _ = svc.Apply(ev)
	if svc.Promoted == nil || svc.Promoted.Generation != 0 || len(svc.Retained) != 1 {
		t.Fatalf("want what ran in force as generation 0, have %+v", svc.Promoted)
	}
}
