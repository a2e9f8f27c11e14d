package rollout

import (
	"context"
	"errors"
	"fmt"

	"toad/probation"
	"toad/quadlet"
)

// bringBack is the duty to load the image of the release in force back from its archive. It is not in the record: others
// took the image away, and only Podman knows.
const bringBack = probation.Duty("bring back")

// BringBack starts an act for every service whose release in force has lost its image.
func (r *Rollout) BringBack(ctx context.Context) error {
	return r.each(func(svc probation.Service) error {
		if !r.Lost(ctx, svc) {
			return nil
		}
		return r.Begin(ctx, *svc.Operation)
	}, func(string) error { return nil })
}

// Lost reports whether the image of the release in force is gone from Podman, so that its unit could not start. What
// Podman does not say counts as there.
func (r *Rollout) Lost(ctx context.Context, svc probation.Service) bool {
	if svc.Promoted == nil || svc.Promoted.ImageID == "" || svc.Operation == nil || svc.Active() != nil {
		return false
	}
	want, known := r.wantedPins(svc)
	for _, text := range want {
		p, err := quadlet.ParsePin(text)
		if err != nil || !known || !svc.Promoted.Names(p.Digest) && p.Reference != svc.Promoted.ImageID {
			continue
		}
		if _, err := r.images(svc.Operation.Enrollment).Image(ctx, p.Reference); errors.Is(err, ErrNoImage) {
			return true
		}
	}
	return false
}

// loadInForce loads the image back and saves that it is known by its id only. It moves image bytes, so it holds the
// service's lock only to save.
func (r *Rollout) loadInForce(ctx context.Context, op probation.Operation) (loaded bool, err error) {
	unlock, err := r.Records.LockPrepare(op.ID)
	if err != nil {
		return false, nil // another act is at it
	}
	defer unlock()
	svc, err := r.Records.Service(op.Service)
	if err != nil || svc.Promoted == nil {
		return false, err
	}
	rel := *svc.Promoted
	if kept, err := r.images(op.Enrollment).Retained(rel.ImageID); err != nil || !kept {
		r.note(op, "error", "step", fmt.Sprintf("the image of %s is gone from Podman and there is no archive of it: pull it, or deploy another release", name(rel)), nil)
		return false, err
	}
	r.note(op, "warn", "step", "the image of "+name(rel)+" is gone from Podman; it is loaded back from its archive", nil)
	if err := r.haveImage(ctx, op.Enrollment, rel.ImageID); err != nil {
		return false, fmt.Errorf("load %s back: %w", name(rel), err)
	}
	release, err := r.Records.Lock(ctx, op.Service)
	if err != nil {
		return false, err
	}
	defer release()
	svc, err = r.Records.Service(op.Service)
	if err != nil || svc.Active() != nil || svc.Promoted == nil || svc.Promoted.ImageID != rel.ImageID {
		return false, err
	}
	svc.ByID = true
	return true, r.Records.Put(svc)
}

// afterLoad pins what came back by its id, and starts what has failed for want of it.
func (r *Rollout) afterLoad(ctx context.Context, svc probation.Service) error {
	want, known := r.wantedPins(svc)
	if !known {
		return nil
	}
	if err := r.repin(ctx, want); err != nil {
		return err
	}
	return r.startFailed(ctx, *svc.Operation, want)
}

// repin makes the pins those wanted, and has them loaded if they are not: somebody may have died between the two.
func (r *Rollout) repin(ctx context.Context, want map[string]string) error {
	unlock, err := r.Records.LockReload(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	asWanted := true
	for unit, text := range want {
		if err := r.Quadlet.Pins().Restore(unit, text); err != nil {
			return err
		}
		asWanted = asWanted && r.verifyText(ctx, unit, text) == nil
	}
	if asWanted {
		return nil
	}
	return r.Manager.Reload(ctx)
}

// startFailed starts the units that Podman could not run. One that was stopped stays so.
func (r *Rollout) startFailed(ctx context.Context, op probation.Operation, want map[string]string) error {
	for unit := range want {
		service, err := r.serviceUnit(unit)
		if err != nil {
			continue // there is no such unit any more
		}
		s, err := r.Units.State(ctx, service)
		if err != nil || s.ActiveState != "failed" || s.Running() || !couldNotRun(unit, int(s.ExecMainStatus)) {
			continue
		}
		r.note(op, "warn", "step", service+" had failed for want of its image; it is started", nil)
		_ = r.Jobs.ResetFailed(ctx, service)
		if err := r.Jobs.Start(ctx, service); err != nil {
			return fmt.Errorf("start %s: %w", service, err)
		}
	}
	return nil
}

// couldNotRun reports whether an exit status says that there was nothing to run.
func couldNotRun(unit string, status int) bool {
	const noFile = 203 // systemd's EXIT_EXEC
	if quadlet.Plain(unit) {
		return status == noFile
	}
	return probation.PodmanFailed(status)
}
