package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"toad/probation"
	"toad/unitgen"
)

// An operation under way is owned by systemd: a timer on the calendar holds its limit, and while something is being
// watched a check holds the monotonic bound of the same limit.

// limit is the timer and the deadline that bound an operation in its phase.
func limit(op probation.Operation) (unitgen.Kind, probation.Deadline) {
	switch {
	case op.Phase == probation.Restoring:
		return unitgen.Restore, *op.RestoreBy
	case op.Deadline != nil:
		return unitgen.Probation, *op.Deadline
	}
	return unitgen.Prepare, op.PrepareBy
}

// loaded lists the operation's transient units that the manager has loaded.
func (r *Rollout) loaded(ctx context.Context, op string) ([]unitgen.State, error) {
	states, err := r.Units.List(ctx, unitgen.Patterns(op)...)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(states, func(s unitgen.State) bool {
		id, ok := unitgen.OperationOf(s.Name)
		return !ok || id != op
	}), nil
}

// holdLimit makes sure that a timer holds the limit of the phase. The number in its name is saved before it is created,
// so that a name is never used twice.
func (r *Rollout) holdLimit(ctx context.Context, svc probation.Service) (probation.Service, error) {
	kind, deadline := limit(*svc.Operation)
	states, err := r.loaded(ctx, svc.Operation.ID)
	if err != nil {
		return svc, err
	}
	for _, s := range states {
		ours := strings.HasPrefix(s.Name, "toad-"+string(kind)+"-") && strings.HasSuffix(s.Name, ".timer")
		if ours && (s.SubState == "waiting" || s.Job != 0) { // one that has fired stays loaded while its act runs
			return svc, nil
		}
	}
	if deadline.Past(r.Now()) {
		return svc, nil // the next look finds it past; systemd never fires a calendar timer that is
	}
	op := *svc.Operation
	op.Timers++
	svc.Operation = &op
	if err := r.Records.Put(svc); err != nil {
		return svc, err
	}
	if err := r.arm(ctx, op); err != nil {
		return svc, fmt.Errorf("arm %s: %w", unitgen.TimerName(kind, op.ID, op.Timers), err)
	}
	return svc, nil
}

// arm makes the timer of the phase's limit under the number that op holds.
func (r *Rollout) arm(ctx context.Context, op probation.Operation) error {
	kind, deadline := limit(op)
	now := r.Now()
	left := deadline.LeftAt(now)
	if left <= 0 {
		return nil
	}
	return r.Units.Create(ctx, unitgen.Timer(kind, op.ID, op.Timers, now.Wall.Add(left), r.Program))
}

// checkLoaded reports whether the current check runs.
func (r *Rollout) checkLoaded(ctx context.Context, op probation.Operation) (bool, error) {
	if op.Checks == 0 {
		return false, nil
	}
	state, err := r.Units.State(ctx, unitgen.CheckName(op.ID, op.Checks))
	if err != nil {
		return false, err
	}
	return state.Exists() && (state.ActiveState == "activating" || state.Job != 0), nil
}

// startCheck makes the next check, its number saved first.
func (r *Rollout) startCheck(ctx context.Context, svc probation.Service) (probation.Service, error) {
	op := *svc.Operation
	op.Checks++
	svc.Operation = &op
	if err := r.Records.Put(svc); err != nil {
		return svc, err
	}
	_, deadline := limit(op)
	left := deadline.LeftAt(r.Now())
	if left <= 0 {
		return svc, nil
	}
	if err := r.Units.Create(ctx, unitgen.Check(op.ID, op.Checks, left, r.Program)); err != nil {
		return svc, fmt.Errorf("start %s: %w", unitgen.CheckName(op.ID, op.Checks), err)
	}
	return svc, nil
}

// watch leaves the operation to its timer and its check, and makes good what is missing of them.
func (r *Rollout) watch(ctx context.Context, svc probation.Service, waited int) (probation.Duty, error) {
	svc, err := r.holdLimit(ctx, svc)
	if err != nil {
		return "", err
	}
	running, err := r.checkLoaded(ctx, *svc.Operation)
	if err != nil {
		return "", err
	}
	if running {
		return probation.Nothing, nil
	}
	if _, found := r.find(*svc.Operation); found {
		return again, nil // it ended between two looks, and left its verdict
	}
	if op := svc.Operation; op.ChecksLost == 0 || op.ChecksLost != waited {
		if svc, err = r.apply(svc, r.event(probation.CheckLost, "")); err != nil {
			return "", err
		}
		r.note(*svc.Operation, "warn", "step", fmt.Sprintf("check %d is gone without a verdict; the window begins anew", op.Checks), nil)
		return checkAgain, nil
	}
	if _, err := r.startCheck(ctx, svc); err != nil {
		return "", err
	}
	return probation.Nothing, nil
}
