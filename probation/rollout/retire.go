package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"toad/probation"
)

// Retire takes units out of service: what is under way for the service is given up, the units are stopped and their pins
// taken away. Without a service they are units that no service has any more. Safe to repeat; nothing starts them again.
func (r *Rollout) Retire(ctx context.Context, service string, units []string, by string) error {
	if service != "" {
		if err := r.giveUp(ctx, service, by); err != nil {
			return err
		}
	}
	for _, unit := range units {
		if err := r.stopUnit(ctx, unit); err != nil {
			return err
		}
	}
	if service == "" {
		return r.removePins(ctx, units)
	}
	_, err := r.Unpin(ctx, service, units, by)
	return err
}

// giveUp ends the operation that is under way, and waits for its end: systemd has it within its limits.
func (r *Rollout) giveUp(ctx context.Context, service, by string) error {
	for {
		svc, err := r.Records.Service(service)
		if err != nil {
			return err
		}
		op := svc.Active()
		if op == nil {
			return nil
		}
		if _, aborted := r.Records.Aborted(op.ID); !aborted {
			_, err := r.Abort(ctx, op.ID, by)
			if rejected := new(probation.Rejection); err != nil && !errors.As(err, &rejected) {
				return err
			}
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return fmt.Errorf("%s is still in %s: %w", op.ID, op.Phase, err)
		}
	}
}

// stopUnit stops a unit and waits until nothing of it runs.
func (r *Rollout) stopUnit(ctx context.Context, unit string) error {
	name, err := r.serviceUnit(unit)
	if err != nil {
		return nil // there is no such file any more, nor what it made
	}
	for {
		s, err := r.Units.State(ctx, name)
		if err != nil {
			return err
		}
		if !s.Running() && s.Job == 0 {
			_ = r.Jobs.ResetFailed(ctx, name)
			return nil
		}
		if s.Job == 0 {
			if err := ignoreNoUnit(r.Jobs.Stop(ctx, name)); err != nil {
				return fmt.Errorf("stop %s: %w", name, err)
			}
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("%s is still %s: %w", name, s.ActiveState, err)
		}
	}
}
