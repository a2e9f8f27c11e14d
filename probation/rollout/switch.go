package rollout

import (
	"context"
	"errors"
	"fmt"

	"toad/probation"
	"toad/quadlet"
	"toad/unitgen"
)

// doSwitch moves all units of a service to the candidate at once, or of two sides the idle one. Every step of it may be found half done.
func (r *Rollout) doSwitch(ctx context.Context, svc probation.Service) error {
	if svc.Operation.Phase == probation.Preparing {
		before, err := r.before(ctx, *svc.Operation)
		if err != nil {
			return err
		}
		door, err := r.doorBefore(*svc.Operation)
		if err != nil {
			return err
		}
		ev := r.event(probation.SwitchBegun, "")
		ev.Before, ev.DoorWas, ev.Deadline = before, door, probation.NewDeadline(ev.At, svc.Operation.Enrollment.Limit.Deadline)
		_, err = r.apply(ctx, svc, ev)
		return err
	}
	svc, err := r.holdLimit(ctx, svc)
	if err != nil {
		return err
	}
	op := *svc.Operation
	r.dropLimit(ctx, op, unitgen.Prepare)
	if op.Sided() {
		if err := r.turnBack(op); err != nil {
			return err
		}
	}
	if err := r.admit(ctx, op); err != nil {
		return err
	}
	if err := r.bind(ctx, op, r.candidatePin); err != nil {
		return r.unbind(ctx, svc, err)
	}
	if err := r.turnLink(ctx, op); err != nil {
		return r.unbind(ctx, svc, err)
	}
	if running, err := r.checkLoaded(ctx, op); err != nil {
		return err
	} else if !running {
		if svc, err = r.startCheck(ctx, svc); err != nil {
			return err
		}
	}
	for _, b := range op.Before {
		if !op.Moves(b) {
			continue
		}
		if err := r.replace(ctx, op, b); err != nil {
			return fmt.Errorf("restart %s: %w", b.Service, err)
		}
	}
	_, err = r.apply(ctx, svc, r.event(probation.Switched, ""))
	return err
}

// before reads how the units stand: what a restore puts back.
func (r *Rollout) before(ctx context.Context, op probation.Operation) ([]probation.UnitBefore, error) {
	var all []probation.UnitBefore
	for _, unit := range op.Enrollment.Units {
		service, err := r.serviceUnit(unit)
		if err != nil {
			return nil, err
		}
		s, err := r.Units.State(ctx, service)
		if err != nil {
			return nil, err
		}
		pin, _, err := r.Quadlet.Pins().Read(unit)
		if err != nil {
			return nil, err
		}
		b := probation.UnitBefore{Unit: unit, Service: service, Running: s.Running(), Invocation: s.InvocationID, Pin: pin,
			StopTimeout: microseconds(s.TimeoutStopUSec)}
		if b.Container = r.Runs(s); b.Container != "" {
			if c, err := r.images(op.Enrollment).Container(ctx, b.Container); err == nil {
				b.ImageID = c.ImageID
			}
		}
		if op.Previous != nil && (b.ImageID == "" || op.Enrollment.Binary()) { // which is the file that is kept
			b.ImageID = op.Previous.ImageID
		}
		if b.Dependents, err = r.dependents(ctx, s); err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	return all, nil
}

// dependents are the active units that go down when this one does.
func (r *Rollout) dependents(ctx context.Context, s unitgen.State) ([]string, error) {
	var active []string
	seen := map[string]bool{}
	for _, name := range append(append([]string{}, s.RequiredBy...), s.BoundBy...) {
		if seen[name] {
			continue
		}
		seen[name] = true
		d, err := r.Units.State(ctx, name)
		if err != nil {
			return nil, err
		}
		if d.Running() {
			active = append(active, name)
		}
	}
	return active, nil
}

// admit tells it first: no start of the candidate is to be found in the journal before that.
func (r *Rollout) admit(ctx context.Context, op probation.Operation) error {
	r.Log.Info("admitted", "service", op.Service, "operation", op.ID, "phase", op.Phase)
	if err := r.Manager.SetEnvironment(ctx, unitgen.AdmissionVar(op.ID)+"=1"); err != nil {
		return fmt.Errorf("admit %s: %w", op.ID, err)
	}
	return nil
}

// letIn admits a candidate that no reconcile has admitted since the user manager started, and starts what its fence has
// kept down, also where an act died between the two. The caller has found nothing against the operation: that is all a
// reconcile decides by.
func (r *Rollout) letIn(ctx context.Context, op probation.Operation) error {
	env, err := r.Manager.Environment(ctx)
	if err != nil {
		return err
	}
	late := env[unitgen.AdmissionVar(op.ID)] == ""
	if late {
		r.note(op, "warn", "step", "no reconcile has admitted it since the user manager started; it is admitted now", nil)
		if err := r.admit(ctx, op); err != nil {
			return err
		}
	}
	for _, b := range op.Before {
		if !op.Moves(b) {
			continue
		}
		s, err := r.Units.State(ctx, b.Service)
		if err == nil && (s.KeptDown() || late && !s.Running() && s.Job == 0) {
			err = r.Jobs.Start(ctx, b.Service)
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", b.Service, err)
		}
	}
	return nil
}

// candidatePin is the fenced pin of a unit while its operation is undecided.
func (r *Rollout) candidatePin(op probation.Operation, b probation.UnitBefore) quadlet.Pin {
	p := r.promotedPin(op, b)
	p.Fenced, p.AdmissionVar = true, unitgen.AdmissionVar(op.ID)
	return p
}

// promotedPin is the same without the fence.
func (r *Rollout) promotedPin(op probation.Operation, b probation.UnitBefore) quadlet.Pin {
	return quadlet.Pin{Operation: op.ID, Service: op.Service, Unit: b.Unit, Digest: op.Candidate.Digest, Release: op.Candidate.Definition.Text(b.Unit),
		File: op.Enrollment.Binary(), Reference: reference(op.Enrollment, op.Candidate)}
}

// reference is how a pin names a release: by digest where Podman can resolve it, else by image id. An image that came
// back from an archive has no manifest digest any more. A file is named by its sha256.
func reference(e probation.Enrollment, rel probation.Release) string {
	if !e.Binary() && rel.Digest != "" && len(rel.Digests) > 0 {
		return e.Image + "@" + rel.Digest
	}
	return rel.ImageID
}

// bind writes the pins of all units, reloads once, and reads every unit back. The reload lock keeps two services from
// reloading at once: concurrent runs of the generator have written corrupt units.
func (r *Rollout) bind(ctx context.Context, op probation.Operation, pin func(probation.Operation, probation.UnitBefore) quadlet.Pin) error {
	unlock, err := r.Records.LockReload(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	pins := r.Quadlet.Pins()
	for _, b := range op.Before {
		if err := pins.LayPrevious(b.Unit, r.restoredPin(op, b)); err != nil {
			return err
		}
	}
	if err := r.layLink(op); err != nil {
		return err
	}
	for _, b := range op.Before {
		if !op.Moves(b) {
			continue
		}
		if err := pins.Write(b.Unit, pin(op, b).Text()); err != nil {
			return err
		}
	}
	if err := r.Manager.Reload(ctx); err != nil {
		return err
	}
	for _, b := range op.Before {
		if !op.Moves(b) {
			continue
		}
		if err := r.verify(ctx, pin(op, b), b.Service); err != nil {
			return err
		}
		if err := r.suits(ctx, op, b); err != nil {
			return err
		}
	}
	return nil
}

func (r *Rollout) verify(ctx context.Context, p quadlet.Pin, service string) error {
	s, err := r.Units.State(ctx, service)
	if err != nil {
		return err
	}
	return quadlet.Verify(r.Quadlet, p, generated(s))
}

// unbind answers a switch that could not be bound: the pins go back to what they were before anything is stopped.
func (r *Rollout) unbind(ctx context.Context, svc probation.Service, cause error) error {
	var broken *quadlet.BindingError
	if !errors.As(cause, &broken) && !errors.Is(cause, quadlet.ErrWrite) && !errors.Is(cause, ErrNoImage) {
		return cause // the bus or the lock: the act comes again, within the deadline
	}
	op := *svc.Operation
	moved := false
	for _, b := range op.Before {
		if !op.Moves(b) {
			continue
		}
		m, queued, err := r.moved(ctx, op, b)
		if err != nil {
			return err
		}
		moved = moved || m || queued
	}
	ev := r.event(probation.BindingBroken, cause.Error())
	ev.Moved = moved
	if !moved {
		if err := r.turnBack(op); err != nil {
			return errors.Join(cause, err)
		}
		if err := r.putBack(ctx, op, func(b probation.UnitBefore) string { return b.Pin }); err != nil {
			return errors.Join(cause, err)
		}
	}
	_, err := r.apply(ctx, svc, ev)
	return err
}

// putBack gives every unit the pin text that it is to have, and reloads.
func (r *Rollout) putBack(ctx context.Context, op probation.Operation, text func(probation.UnitBefore) string) error {
	unlock, err := r.Records.LockReload(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, b := range op.Before {
		if err := r.Quadlet.Pins().Restore(b.Unit, text(b)); err != nil {
			return err
		}
	}
	return r.Manager.Reload(ctx)
}

// moved reports whether a unit runs the candidate: its container carries the operation's label. While a job is queued
// it may not be known; another restart job then merges with it, or replaces a start that the check has not counted yet.
func (r *Rollout) moved(ctx context.Context, op probation.Operation, b probation.UnitBefore) (moved, queued bool, err error) {
	s, err := r.Units.State(ctx, b.Service)
	if err != nil {
		return false, false, err
	}
	id := r.Runs(s)
	if id == "" || s.InvocationID == b.Invocation {
		return false, s.Job != 0, nil
	}
	c, err := r.images(op.Enrollment).Container(ctx, id)
	if err != nil {
		return false, s.Job != 0, nil // gone between the two looks
	}
	if op.Enrollment.Binary() && c.ImageID != op.Candidate.ImageID {
		return false, s.Job != 0, nil // the release before, which came up again between the pin and the turn of the link
	}
	return c.Operation == op.ID, s.Job != 0, nil
}

// replace queues the one restart job of a unit, unless it has been switched already.
func (r *Rollout) replace(ctx context.Context, op probation.Operation, b probation.UnitBefore) error {
	moved, _, err := r.moved(ctx, op, b)
	if err != nil || moved {
		return err
	}
	if op.Sided() {
		s, err := r.Units.State(ctx, b.Service)
		if err == nil {
			err = r.openSide(ctx, s)
		}
		if err != nil {
			return err
		}
	}
	// Failures of earlier releases must not use up the start limit of this one.
	_ = r.Jobs.ResetFailed(ctx, b.Service)
	return r.Jobs.Restart(ctx, b.Service)
}
