package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"toad/probation"
	"toad/quadlet"
	"toad/unitgen"
)

// promote takes the fence away. The unit is not restarted: what runs is what was observed.
func (r *Rollout) promote(ctx context.Context, svc probation.Service) (probation.Duty, error) {
	op := *svc.Operation
	if err := r.letIn(ctx, op); err != nil {
		return "", err
	}
	if up, err := r.candidateUp(ctx, op); err != nil {
		return "", err
	} else if !up && !op.Deadline.Past(r.Now()) {
		return waitAgain, nil
	} else if !up {
		ev := r.event(probation.PinLost, "the candidate was ready through its window, but did not come up again before the door could turn")
		ev.Code = probation.CodeInterrupted
		_, err := r.apply(ctx, svc, ev)
		return again, err
	}
	if err := r.bind(ctx, op, r.promotedPin); err != nil {
		var broken *quadlet.BindingError
		// On a full disk the way back needs no space, and nobody knows when there will be some.
		if !errors.As(err, &broken) && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
			return "", err
		}
		_, err = r.apply(ctx, svc, r.event(probation.PinLost, err.Error()))
		return again, err
	}
	if op.Sided() {
		if _, err := r.turnDoor(op.Service, op.Enrollment.Door.Address(op.Candidate.Side, r.Runtime)); err != nil {
			return "", err
		}
	}
	if err := r.turnLink(ctx, op); err != nil {
		if !errors.Is(err, ErrNoImage) {
			return "", err
		}
		_, err = r.apply(ctx, svc, r.event(probation.PinLost, err.Error()))
		return again, err
	}
	r.startDependents(ctx, op)
	_, err := r.apply(ctx, svc, r.event(probation.PinKept, ""))
	return again, err
}

// candidateUp makes sure that the door does not turn to a side that is down, as after a boot; it is started then. Where
// there are no sides the candidate is what serves, up or not.
func (r *Rollout) candidateUp(ctx context.Context, op probation.Operation) (bool, error) {
	for _, b := range op.Before {
		if !op.Sided() || !op.Moves(b) {
			continue
		}
		s, err := r.Units.State(ctx, b.Service)
		if err == nil && !s.Running() && s.Job == 0 {
			_ = r.Jobs.ResetFailed(ctx, b.Service)
			err = r.Jobs.Start(ctx, b.Service)
		}
		if err != nil || !s.Up() || r.Runs(s) == "" {
			return false, err
		}
	}
	return true, nil
}

// startDependents starts what ran before and was taken down with the unit. It is queued, not awaited: a dependent that
// does not come up is its own affair.
func (r *Rollout) startDependents(ctx context.Context, op probation.Operation) {
	for _, b := range op.Before {
		if op.Sided() && op.Moves(b) != (op.Phase == probation.Promoting) {
			continue // they belong to a side that is not in force
		}
		for _, name := range b.Dependents {
			s, err := r.Units.State(ctx, name)
			if err == nil && !s.Running() && s.Job == 0 {
				err = r.Jobs.Start(ctx, name)
			}
			if err != nil {
				r.note(op, "warn", "step", fmt.Sprintf("start %s, which depends on %s: %v", name, b.Service, err), nil)
			}
		}
	}
}

// leftIdle reports whether a unit that was not up is down again after its candidate ran: a side, or a service that was stopped.
func leftIdle(op probation.Operation, b probation.UnitBefore) bool {
	if op.Sided() {
		return op.Moves(b) && op.Phase != probation.Promoted
	}
	return b.Down && (op.Phase == probation.RolledBack || op.Phase == probation.Withdrawn)
}

// release lets go of everything that owned a decided operation. The admission goes last but one: a restart of a unit
// whose manager still has the fenced text loaded would be refused without it.
func (r *Rollout) release(ctx context.Context, svc probation.Service) error {
	op := *svc.Operation
	states, err := r.loaded(ctx, op.ID)
	if err != nil {
		return err
	}
	for _, s := range states {
		if strings.HasSuffix(s.Name, ".timer") || strings.HasPrefix(s.Name, "toad-check-") {
			if err := r.Jobs.Stop(ctx, s.Name); err != nil && !errors.Is(err, unitgen.ErrNoUnit) {
				return fmt.Errorf("stop %s: %w", s.Name, err)
			}
		}
		if s.ActiveState == "failed" { // somebody or something left it behind under a name of this operation's
			_ = r.Jobs.ResetFailed(ctx, s.Name)
		}
	}
	if err := r.Manager.UnsetEnvironment(ctx, unitgen.AdmissionVar(op.ID)); err != nil {
		return fmt.Errorf("unset the admission of %s: %w", op.ID, err)
	}
	if err := r.dropLaid(op); err != nil {
		return err
	}
	for _, b := range op.Before {
		if err := r.Quadlet.Pins().DropPrevious(b.Unit); err != nil {
			return err
		}
		if leftIdle(op, b) {
			// It is idle, and no failed unit.
			if err := ignoreNoUnit(r.Jobs.ResetFailed(ctx, b.Service)); err != nil {
				return fmt.Errorf("forget that %s failed: %w", b.Service, err)
			}
		}
	}
	if _, err := r.Records.Sweep(); err != nil {
		r.note(op, "warn", "step", "sweep the state folder: "+err.Error(), nil)
	}
	switch op.Phase {
	case probation.Failed, probation.RolledBack, probation.Withdrawn, probation.RollbackFailed:
		if op.Phase == probation.Failed && op.Code != probation.CodeProgramMismatch {
			break // whoever asked has the answer, and nothing became of it
		}
		if err := r.Alert(ctx, op, svc.Promoted); err != nil {
			return fmt.Errorf("alert of %s: %w", op.ID, err)
		}
	}
	if op.Phase == probation.Promoted {
		r.Promoted(ctx, op)
	}
	op.Released = true
	// A record that is damaged later is rebuilt from this copy.
	if err := r.Records.Archive(op); err != nil {
		return err
	}
	svc.Operation = &op
	return r.Records.Put(svc)
}

// retain keeps the promoted image where a prune cannot take it, and drops what is beyond the number to keep. It moves
// image bytes, so it runs without the service's lock.
func (r *Rollout) retain(ctx context.Context, op probation.Operation) error {
	unlock, err := r.Records.LockPrepare(op.ID)
	if err != nil {
		return nil // another act is at it
	}
	defer unlock()
	if err := r.images(op.Enrollment).Retain(ctx, op.Candidate.ImageID); err != nil {
		return fmt.Errorf("retain %s: %w", name(op.Candidate), err)
	}
	release, err := r.Records.Lock(ctx, op.Service)
	if err != nil {
		return err
	}
	defer release()
	svc, err := r.Records.Service(op.Service)
	if err != nil || svc.Operation == nil || svc.Operation.ID != op.ID {
		return err
	}
	done := *svc.Operation
	done.Retained = true
	svc.Operation = &done
	if err := r.Records.Put(svc); err != nil {
		return err
	}
	return r.dropUnkept(ctx)
}

// dropUnkept removes the archives that no service keeps.
func (r *Rollout) dropUnkept(context.Context) error {
	names, err := r.Records.Names()
	if err != nil {
		return err
	}
	var keep []string
	for _, n := range names {
		svc, err := r.Records.Service(n)
		if err != nil {
			return nil // a damaged record may name any of them
		}
		for _, rel := range svc.Retained {
			keep = append(keep, rel.ImageID)
		}
		if op := svc.Operation; op != nil {
			// A candidate that is not prepared yet is known by nothing but the digest that was asked for.
			keep = append(keep, op.Candidate.ImageID, strings.TrimPrefix(op.Candidate.Digest, "sha256:"))
			if op.Previous != nil {
				keep = append(keep, op.Previous.ImageID)
			}
		}
	}
	err = r.Images.DropRetained(keep)
	if r.Files != nil {
		err = errors.Join(err, r.Files(probation.Enrollment{}).DropRetained(keep))
	}
	return err
}
