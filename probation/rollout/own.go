package rollout

import (
	"context"
	"errors"
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
	return r.create(svc, func(op *probation.Operation) string {
		op.Timers++
		return unitgen.TimerName(kind, op.ID, op.Timers)
	}, func(op probation.Operation) error { return r.arm(ctx, op) })
}

// names is how many names a unit may find taken before something is badly wrong.
const names = 10

// create saves the next number and makes the unit that carries it. A name that somebody or something left behind is
// passed over.
func (r *Rollout) create(svc probation.Service, next func(*probation.Operation) string, make func(probation.Operation) error) (probation.Service, error) {
	for try := 1; ; try++ {
		op := *svc.Operation
		name := next(&op)
		svc.Operation = &op
		if err := r.Records.Put(svc); err != nil {
			return svc, err
		}
		err := make(op)
		if err == nil {
			return svc, nil
		}
		if try == names || !errors.Is(err, unitgen.ErrExists) {
			return svc, fmt.Errorf("make %s: %w", name, err)
		}
		r.note(op, "warn", "step", "the name "+name+" is taken by a left-over unit; the next one is used", nil)
	}
}

// dropLimit stops the timers of a limit that is behind the operation. One that fires all the same finds nothing to do.
func (r *Rollout) dropLimit(ctx context.Context, op probation.Operation, kind unitgen.Kind) {
	states, err := r.loaded(ctx, op.ID)
	for _, s := range states {
		if strings.HasPrefix(s.Name, "toad-"+string(kind)+"-") && strings.HasSuffix(s.Name, ".timer") {
			err = errors.Join(err, ignoreNoUnit(r.Jobs.Stop(ctx, s.Name)))
		}
	}
	if err != nil {
		r.note(op, "warn", "step", "the limit of the phase before could not be dropped: "+err.Error(), nil)
	}
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
	return r.create(svc, func(op *probation.Operation) string {
		op.Checks++
		return unitgen.CheckName(op.ID, op.Checks)
	}, func(op probation.Operation) error {
		_, deadline := limit(op)
		left := deadline.LeftAt(r.Now())
		if left <= 0 {
			return nil
		}
		return r.Units.Create(ctx, unitgen.Check(op.ID, op.Checks, left, r.Program))
	})
}

// watch leaves the operation to its timer and its check, and makes good what is missing of them.
func (r *Rollout) watch(ctx context.Context, svc probation.Service, waited int) (probation.Duty, error) {
	svc, err := r.holdLimit(ctx, svc)
	if err != nil {
		return "", err
	}
	if svc.Operation.Phase == probation.Probation {
		if err := r.letIn(ctx, *svc.Operation); err != nil {
			return "", err
		}
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
	// Each check is counted once: two acts that count for each other would both wait for ever.
	if op := svc.Operation; op.ChecksLost == 0 || op.LostCheck != op.Checks {
		if svc, err = r.apply(ctx, svc, r.event(probation.CheckLost, "")); err != nil {
			return "", err
		}
		r.note(*svc.Operation, "warn", "step", fmt.Sprintf("check %d is gone without a verdict; the window begins anew", op.Checks), nil)
		return checkAgain, nil
	}
	if svc.Operation.ChecksLost != waited {
		return checkAgain, nil // this act has not waited yet
	}
	if _, err := r.startCheck(ctx, svc); err != nil {
		return "", err
	}
	return probation.Nothing, nil
}
