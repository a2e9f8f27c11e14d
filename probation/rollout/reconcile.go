package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"toad/probation"
	"toad/probation/record"
)

// lockPatience is how long a reconcile waits for a service that an act is busy with; it is skipped and named then.
const lockPatience = 2 * time.Second

// Resume starts an act for every operation that owes something. It does nothing else, so it may run at any time.
func (r *Rollout) Resume(ctx context.Context) error {
	return r.each(func(svc probation.Service) error {
		if svc.Due() == probation.Nothing {
			return nil
		}
		return r.Begin(ctx, *svc.Operation)
	}, func(name string) error {
		if op, undecided := r.Records.Undecided(name); undecided {
			return r.Begin(ctx, op)
		}
		return nil
	})
}

// each visits every service: one with a readable record, or one whose record is damaged, which is named as well.
func (r *Rollout) each(visit func(probation.Service) error, damaged func(name string) error) error {
	names, err := r.Records.Names()
	if err != nil {
		return err
	}
	var all []error
	for _, n := range names {
		svc, err := r.Records.Service(n)
		switch {
		case err == nil:
			err = visit(svc)
		case errors.Is(err, record.ErrDamaged):
			r.Log.Error("a record is damaged", "service", n, "err", err)
			err = damaged(n)
		}
		if err != nil {
			all = append(all, fmt.Errorf("%s: %w", n, err))
		}
	}
	return errors.Join(all...)
}

// Reconcile runs before any enrolled unit after a start of the user manager. It decides like an act, but waits for no
// job, no Podman and no network: it makes the pins equal to the recorded side, reloads once if it wrote any, arms the
// limits, admits the candidates that may go on, and starts an act for everything that is owed.
func (r *Rollout) Reconcile(ctx context.Context) error {
	var held []probation.Service
	var unlocks []func()
	defer func() {
		for _, unlock := range unlocks {
			unlock()
		}
	}()
	var wrote bool
	visitErr := r.each(func(svc probation.Service) error {
		if svc.Active() == nil {
			changed, err := r.settleDecided(ctx, svc)
			wrote = wrote || changed
			return err
		}
		unlock, err := r.lockSoon(ctx, svc.Name)
		if err != nil {
			return err
		}
		unlocks = append(unlocks, unlock)
		svc, changed, err := r.settlePins(ctx, svc.Name)
		wrote = wrote || changed
		held = append(held, svc)
		return err
	}, func(string) error { return nil })
	if wrote {
		if err := r.Reload(ctx); err != nil {
			return errors.Join(visitErr, err)
		}
	}
	for _, svc := range held {
		if err := r.readmit(ctx, svc); err != nil {
			visitErr = errors.Join(visitErr, fmt.Errorf("%s: %w", svc.Name, err))
		}
	}
	return errors.Join(visitErr, r.Resume(ctx))
}

func (r *Rollout) lockSoon(ctx context.Context, service string) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	return r.Records.Lock(ctx, service)
}

// Reload has the user manager read all units anew, one reload at a time.
func (r *Rollout) Reload(ctx context.Context) error {
	unlock, err := r.Records.LockReload(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return r.Manager.Reload(ctx)
}

// settlePins decides on one service and makes its pins those of the recorded side. changed says that a file was written.
func (r *Rollout) settlePins(ctx context.Context, name string) (svc probation.Service, changed bool, err error) {
	if svc, err = r.Records.Service(name); err != nil || svc.Active() == nil {
		return svc, false, err
	}
	svc = svc.Carried(r.Now(), r.Records.Watch(svc.Operation.ID).Deadline)
	if err := r.Records.Put(svc); err != nil {
		return svc, false, err
	}
	if ev, found := r.find(*svc.Operation); found {
		if svc, err = r.apply(ctx, svc, ev); err != nil {
			return svc, false, err
		}
		if svc.Operation.Phase == probation.Restoring { // it was to run after this boot, and does not
			if err := r.Alert(ctx, *svc.Operation, svc.Promoted); err != nil {
				r.note(*svc.Operation, "warn", "step", "alert: "+err.Error(), nil)
			}
		}
	}
	if err := r.keepDoor(ctx, svc); err != nil {
		return svc, false, err
	}
	op := *svc.Operation
	for _, b := range op.Before {
		changed, err = r.settlePin(op, b, changed)
		if err != nil {
			return svc, changed, err
		}
	}
	return svc, changed, nil
}

// settleDecided makes the pins and the door of a service with nothing under way those of the release in force, before its
// units start: what others changed while the user manager was down would run else, and of a group only in part.
func (r *Rollout) settleDecided(ctx context.Context, svc probation.Service) (changed bool, err error) {
	_, wrong, err := r.changedPins(svc)
	if err != nil || len(wrong) == 0 && r.CheckDoor(svc) == nil {
		return false, err
	}
	unlock, err := r.lockSoon(ctx, svc.Name)
	if err != nil {
		return false, err
	}
	defer unlock()
	if svc, err = r.Records.Service(svc.Name); err != nil || svc.Active() != nil {
		return false, err
	}
	if err := r.keepDoor(ctx, svc); err != nil {
		return false, err
	}
	want, wrong, err := r.changedPins(svc)
	if err != nil || len(wrong) == 0 {
		return false, err
	}
	return true, r.layAgain(*svc.Operation, want, wrong)
}

func (r *Rollout) settlePin(op probation.Operation, b probation.UnitBefore, changed bool) (bool, error) {
	want := r.pinOf(op, b)
	have, _, err := r.Quadlet.Pins().Read(b.Unit)
	if err != nil || have == want {
		return changed, err
	}
	return true, r.Quadlet.Pins().Restore(b.Unit, want)
}

// pinOf is the pin that a unit has in the phase of its operation.
func (r *Rollout) pinOf(op probation.Operation, b probation.UnitBefore) string {
	if undecided := op.Phase == probation.Switching || op.Phase == probation.Probation || op.Phase == probation.Promoting; undecided && !op.Moves(b) {
		return b.Pin
	}
	switch op.Phase {
	case probation.Switching, probation.Probation:
		return r.candidatePin(op, b).Text()
	case probation.Promoting:
		return r.promotedPin(op, b).Text()
	}
	return r.restoredPin(op, b)
}

// readmit lets a candidate start that the record still wants, under the same limit, with a new check.
func (r *Rollout) readmit(ctx context.Context, svc probation.Service) error {
	op := svc.Active()
	if op == nil {
		return nil
	}
	svc, err := r.holdLimit(ctx, svc)
	if err != nil {
		return err
	}
	switch op.Phase {
	case probation.Switching, probation.Promoting: // of two sides the act starts the candidate
		return r.admit(ctx, *op)
	case probation.Probation:
		if err := r.admit(ctx, *op); err != nil {
			return err
		}
	case probation.Restoring:
		if !op.Replaced {
			return nil // the act replaces what is there, and starts the check
		}
	default:
		return nil
	}
	if err := r.startSides(ctx, *op); err != nil {
		return err
	}
	if running, err := r.checkLoaded(ctx, *svc.Operation); err != nil || running {
		return err
	}
	_, err = r.startCheck(ctx, svc)
	return err
}
