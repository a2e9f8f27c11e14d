package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"toad/probation"
	"toad/probation/record"
)

// Act does what an operation owes, until it is owned by a loaded timer and a check, or owes nothing. It is safe to
// repeat and to run beside others: what it does follows from the saved state, under the service's lock.
func (r *Rollout) Act(ctx context.Context, id string) error {
	service, _, ok := probation.ParseOperationID(id)
	if !ok {
		return fmt.Errorf("%q is not an operation's id", id)
	}
	waited := 0
	for {
		duty, op, err := r.turn(ctx, service, id, waited)
		if err != nil {
			return err
		}
		switch duty {
		case probation.DoPrepare:
			err = r.prepare(ctx, op)
		case probation.DoRetain:
			err = r.retain(ctx, op)
		case bringBack:
			var loaded bool
			if loaded, err = r.loadInForce(ctx, op); !loaded {
				return err
			}
		case waitAgain:
			err = pause(ctx, 500*time.Millisecond)
		case checkAgain:
			if op, err = r.Records.Operation(id); err == nil { // the turn has counted it
				waited = op.ChecksLost
				err = pause(ctx, time.Second<<min(op.ChecksLost-1, 5))
			}
		default:
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// checkAgain is the duty to make a lost check anew after a pause.
const checkAgain = probation.Duty("check again")

// waitAgain is the duty to look again in a moment.
const waitAgain = probation.Duty("wait")

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(min(d, 30*time.Second)):
		return nil
	}
}

// turn takes the service's lock and goes as far as it can without moving image bytes or waiting. It returns the duty
// that is left: to prepare, to retain, to make a lost check again, or none.
func (r *Rollout) turn(ctx context.Context, service, id string, waited int) (probation.Duty, probation.Operation, error) {
	unlock, err := r.Records.Lock(ctx, service)
	if err != nil {
		return "", probation.Operation{}, err
	}
	defer unlock()
	for {
		svc, err := r.Records.Service(service)
		if errors.Is(err, record.ErrDamaged) {
			if rebuilt, err := r.giveUpDamaged(ctx, service, id, err); err != nil || !rebuilt {
				return "", probation.Operation{}, err
			}
			continue
		}
		if err != nil {
			return "", probation.Operation{}, err
		}
		if svc.Operation == nil || svc.Operation.ID != id {
			return "", probation.Operation{}, nil // never saved, or long past
		}
		op := *svc.Operation
		r.tellCurrent(op)
		if stopping, err := r.Units.Stopping(ctx); err != nil || stopping {
			return "", op, err // reconcile carries on after the start of the manager
		}
		if svc, err = r.carried(svc); err != nil {
			return "", op, err
		}
		op = *svc.Operation
		if ev, ok := r.find(op); ok {
			if _, err := r.apply(ctx, svc, ev); err != nil {
				return "", op, err
			}
			continue
		}
		duty, err := r.step(ctx, svc, waited)
		if err != nil || duty != again {
			return duty, op, err
		}
	}
}

// carried binds the limits of an operation under way to the clock of this boot, as reconcile does, which may have failed.
func (r *Rollout) carried(svc probation.Service) (probation.Service, error) {
	op, now := svc.Active(), r.Now()
	if op == nil {
		return svc, nil
	}
	if _, d := limit(*op); d.BootID == now.BootID {
		return svc, nil
	}
	svc = svc.Carried(now, r.Records.Watch(op.ID).Deadline)
	return svc, r.Records.Put(svc)
}

// again means that a step has saved something and the state is to be looked at afresh.
const again = probation.Duty("again")

// step does the one thing that is owed now.
func (r *Rollout) step(ctx context.Context, svc probation.Service, waited int) (probation.Duty, error) {
	switch duty := svc.Due(); duty {
	case probation.DoBeginAct:
		_, err := r.apply(ctx, svc, r.event(probation.Begun, ""))
		return again, err
	case probation.DoSwitch:
		return again, r.doSwitch(ctx, svc)
	case probation.DoWatch:
		return r.watch(ctx, svc, waited)
	case probation.DoPromote:
		return r.promote(ctx, svc)
	case probation.DoRestore:
		return again, r.restore(ctx, svc)
	case probation.DoRelease:
		return again, r.release(ctx, svc)
	case probation.DoDrain:
		return r.drain(ctx, svc)
	case probation.Nothing:
		if r.Lost(ctx, svc) {
			return bringBack, nil
		}
		if svc.ByID {
			return duty, r.afterLoad(ctx, svc)
		}
		return duty, nil
	default:
		return duty, nil
	}
}

func (r *Rollout) event(kind probation.Kind, reason string) probation.Event {
	return probation.Event{Kind: kind, At: r.Now(), Reason: reason}
}

// apply draws an event's consequences and saves them; then they are told.
func (r *Rollout) apply(ctx context.Context, svc probation.Service, ev probation.Event) (probation.Service, error) {
	from := svc.Operation.Phase
	next, ok := svc.Apply(ev)
	if !ok {
		return svc, fmt.Errorf("%s: event %s does not fit phase %s", svc.Operation.ID, ev.Kind, from)
	}
	if from == probation.Preparing && next.Operation.Phase == probation.Switching {
		// From here on the host is touched. A record that is damaged meanwhile must not leave the candidate in force for ever.
		if err := r.Records.Copy(*next.Operation); err != nil {
			return svc, err
		}
	}
	if err := r.Records.Put(next); err != nil {
		if next.Operation.Phase == probation.Restoring && from != probation.Restoring {
			err = errors.Join(err, r.restoreUnsaved(ctx, *next.Operation))
		}
		return svc, err
	}
	if op := *next.Operation; op.Phase != from {
		if op.Phase == probation.RollbackFailed && ev.Evidence != nil { // why the release before did not come up either
			r.tellWords(op, *ev.Evidence, r.Lines(ctx, op, ev.Evidence.Invocation))
		}
		r.note(op, level(op.Phase), string(op.Phase), says(op, ev), map[string]string{"code": string(op.Code)})
	}
	return next, nil
}

// tellCurrent makes good the line of a transition whose act died between the save and the telling.
func (r *Rollout) tellCurrent(op probation.Operation) {
	last, err := r.Records.LastPhase(op.ID)
	if err == nil && last != op.Phase {
		r.note(op, level(op.Phase), string(op.Phase), says(op, r.event("", "carried on in "+string(op.Phase))), map[string]string{"code": string(op.Code)})
	}
}

func level(p probation.Phase) string {
	switch p {
	case probation.RollbackFailed, probation.Failed:
		return "error"
	case probation.Restoring, probation.RolledBack, probation.Withdrawn:
		return "warn"
	}
	return "info"
}

// says is the sentence of a transition.
func says(op probation.Operation, ev probation.Event) string {
	switch op.Phase {
	case probation.Preparing:
		return "preparing; what runs is not touched"
	case probation.Switching:
		return fmt.Sprintf("switching to %s, undecided until %s", name(op.Candidate), op.Deadline.At.Format(time.RFC3339))
	case probation.Probation:
		return "on probation"
	case probation.Promoting:
		return ev.Reason
	case probation.Promoted:
		return name(op.Candidate) + " is in force"
	case probation.Restoring:
		return "restoring the previous release: " + op.Reason
	case probation.RolledBack:
		return "the previous release is in force again"
	}
	return op.Reason
}

// find tells what happened to an operation since its last save. Found together, the first of aborted, stopped, failed,
// expired and stable counts.
func (r *Rollout) find(op probation.Operation) (probation.Event, bool) {
	now := r.Now()
	by, aborted := r.Records.Aborted(op.ID)
	abort := r.event(probation.Aborted, "given up by "+by)
	switch op.Phase {
	case probation.Accepted, probation.Preparing:
		if aborted {
			return abort, true
		}
		if op.PrepareBy.Past(now) {
			return r.event(probation.PrepareTimeout, notInTime), true
		}
	case probation.Switching, probation.Probation:
		if aborted {
			return abort, true
		}
		return r.findVerdict(op, now)
	case probation.Restoring:
		if op.Replaced {
			return r.findSettled(op, now)
		}
	}
	return probation.Event{}, false
}

// verdict is what the current check of this phase came to.
func (r *Rollout) verdict(op probation.Operation, phase probation.Phase) (record.Watch, probation.Verdict) {
	w := r.Records.Watch(op.ID)
	if w.Check != op.Checks || w.Phase != phase {
		return record.Watch{}, probation.Verdict{}
	}
	return w, w.Verdict
}

func (r *Rollout) findVerdict(op probation.Operation, now probation.Instant) (probation.Event, bool) {
	w, v := r.verdict(op, probation.Probation)
	switch {
	case v.Kind == probation.Stopped || v.Kind == probation.Unfit:
		return probation.Event{Kind: v.Kind, At: now, Code: v.Code, Reason: v.Reason, Evidence: v.Evidence}, true
	case op.Deadline.Past(now):
		return probation.Event{Kind: probation.Expired, At: now, Evidence: unready(op, w, now),
			Reason: "undecided at the deadline" + because(w)}, true
	case v.Kind == probation.Stable && op.Phase == probation.Probation:
		ev := r.event(probation.Stable, v.Reason)
		ev.Gap = &w.Outage.Total
		return ev, true
	}
	return probation.Event{}, false
}

// watchEvery is how often a check saves what it sees when nothing changes.
const watchEvery = 30 * time.Second

// unready is the evidence of a release that was seen unready until the deadline, within one boot and without a gap.
func unready(op probation.Operation, w record.Watch, now probation.Instant) *probation.Evidence {
	if w.Unready == nil || w.At.BootID != now.BootID || op.Deadline.BootID != now.BootID ||
		now.Boot-w.At.Boot > watchEvery+5*time.Second {
		return nil
	}
	return w.Unready
}

func because(w record.Watch) string {
	if w.Why == "" {
		return ""
	}
	return ": " + w.Why
}

func (r *Rollout) findSettled(op probation.Operation, now probation.Instant) (probation.Event, bool) {
	w, v := r.verdict(op, probation.Restoring)
	switch {
	case v.Kind == probation.Stopped:
		return r.event(probation.Stopped, v.Reason), true
	case v.Kind == probation.Unfit:
		ev := r.event(probation.SettleFailed, "the previous release did not settle: "+v.Reason)
		ev.Evidence = v.Evidence
		return ev, true
	case v.Kind == probation.Stable && op.GoesOn():
		ev := r.event(probation.Settled, "")
		ev.Gap = &w.Outage.Total
		return ev, true
	case v.Kind == probation.Stable:
		return r.event(probation.LeftStopped, ""), true
	case op.RestoreBy.Past(now):
		return r.event(probation.SettleExpired, "the previous release had not settled by the limit of the restore"+because(w)), true
	}
	return probation.Event{}, false
}
