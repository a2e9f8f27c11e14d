package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"toad/probation"
	"toad/quadlet"
	"toad/unitgen"
)

// restore puts the previous release back: pins, reload, one restart job per unit. What did not run before is stopped.
func (r *Rollout) restore(ctx context.Context, svc probation.Service) error {
	svc, err := r.holdLimit(ctx, svc)
	if err != nil {
		// The limit bounds what toad says; the previous release must come back all the same.
		r.note(*svc.Operation, "error", "step", "the limit of the restore could not be armed: "+err.Error(), nil)
	}
	if svc, err = r.seeCandidate(ctx, svc); err != nil {
		return err
	}
	r.dropLimit(ctx, *svc.Operation, unitgen.Probation)
	if svc, err = r.haveImages(ctx, svc); err != nil {
		return err
	}
	op := *svc.Operation
	if err := r.turnBack(op); err != nil {
		return err
	}
	if err := r.putBackPins(ctx, op); err != nil {
		return err
	}
	if svc, err = r.startCheck(ctx, svc); err != nil {
		r.note(op, "error", "step", "the check of the restore: "+err.Error(), nil)
	}
	op = *svc.Operation
	for _, b := range op.Before {
		if err := r.putBackUnit(ctx, op, b); err != nil {
			return err
		}
	}
	r.startDependents(ctx, op)
	svc = r.lastWords(ctx, svc)
	_, err = r.apply(ctx, svc, r.event(probation.Replaced, ""))
	return err
}

// lastWords adds to the evidence, and to the refusal that rests on it, what the failed invocation logged last. The jobs
// of the restore are queued by then: the previous release does not wait for a journal.
func (r *Rollout) lastWords(ctx context.Context, svc probation.Service) probation.Service {
	op := *svc.Operation
	if op.Evidence == nil || len(op.Evidence.Lines) > 0 {
		return svc
	}
	evidence := *op.Evidence
	if evidence.Lines = r.Lines(ctx, op, evidence.Invocation); len(evidence.Lines) == 0 {
		return svc
	}
	r.tellWords(op, evidence, evidence.Lines)
	op.Evidence = &evidence
	svc.Operation = &op
	svc.Refusals = slices.Clone(svc.Refusals)
	for i := range svc.Refusals {
		if svc.Refusals[i].Operation == op.ID {
			svc.Refusals[i].Evidence = &evidence
		}
	}
	return svc
}

// tellWords puts the last words of an invocation into the operation's log.
func (r *Rollout) tellWords(op probation.Operation, of probation.Evidence, lines []string) {
	for _, line := range lines {
		r.note(op, "info", "application", line, map[string]string{"unit": of.Unit, "invocation": of.Invocation})
	}
}

// putBackPins makes the pins those of the previous release, and has them loaded.
func (r *Rollout) putBackPins(ctx context.Context, op probation.Operation) error {
	if err := r.putBack(ctx, op, func(b probation.UnitBefore) string { return r.restoredPin(op, b) }); err != nil {
		return err
	}
	r.readBack(ctx, op)
	return nil
}

// restoreUnsaved puts the previous release back although that cannot be saved, as on a full disk: what was laid beside the
// pins needs no space. The act fails all the same, comes again, and tells the rest when there is space.
func (r *Rollout) restoreUnsaved(ctx context.Context, op probation.Operation) error {
	r.note(op, "error", "step", "the state folder takes no record; the previous release is put back all the same", nil)
	if err := r.turnBack(op); err != nil {
		return err
	}
	if err := r.putBackPins(ctx, op); err != nil {
		return err
	}
	for _, b := range op.Before {
		b.Down = !b.Running || op.Sided() && op.Moves(b)
		if err := r.putBackUnit(ctx, op, b); err != nil {
			return err
		}
	}
	return nil
}

// seeCandidate notes which invocations the restore replaces, once, and ends the check that watched them.
func (r *Rollout) seeCandidate(ctx context.Context, svc probation.Service) (probation.Service, error) {
	op := *svc.Operation
	if op.CandidateSeen {
		return svc, nil
	}
	before := make([]probation.UnitBefore, len(op.Before))
	for i, b := range op.Before {
		s, err := r.Units.State(ctx, b.Service)
		if err != nil {
			return svc, err
		}
		if op.Sided() {
			b.Down = op.Moves(b) || !b.Running || (op.StoppedByOperator && !s.Running())
			before[i] = b
			continue
		}
		if restored, err := r.restored(ctx, op, b, s); err != nil {
			return svc, err
		} else if !restored { // else it was put back while that could not be saved
			b.Candidate = s.InvocationID
		}
		b.Down = !b.Running || (op.StoppedByOperator && !s.Running())
		before[i] = b
	}
	op.Before, op.CandidateSeen = before, true
	svc.Operation = &op
	if err := r.Records.Put(svc); err != nil {
		return svc, err
	}
	if op.Checks > 0 {
		err := r.Jobs.Stop(ctx, unitgen.CheckName(op.ID, op.Checks))
		if err != nil && !errors.Is(err, unitgen.ErrNoUnit) {
			return svc, err
		}
	}
	return svc, nil
}

// restoredPin is the text a unit goes back to. What ran without a pin gets one by image id, so that no edit and no
// update moves it; what did not run gets back what was there.
func (r *Rollout) restoredPin(op probation.Operation, b probation.UnitBefore) string {
	if op.Sided() && op.Moves(b) {
		if p, err := quadlet.ParsePin(b.Pin); op.Previous != nil && (err != nil || !p.Idle()) {
			return r.idlePin(op, b.Unit, *op.Previous).Text()
		}
		return b.Pin
	}
	if p, err := quadlet.ParsePin(b.Pin); err == nil && b.ByID {
		p.Reference = b.ImageID
		return p.Text()
	}
	if b.Pin != "" || !b.Running || b.ImageID == "" {
		return b.Pin
	}
	digest := ""
	if op.Previous != nil {
		digest = op.Previous.Digest
	}
	return quadlet.Pin{Operation: probation.OperationID(op.Service, 0), Service: op.Service, Unit: b.Unit,
		File: op.Enrollment.Binary(), Reference: b.ImageID, Digest: digest}.Text()
}

// haveImages makes sure that what is put back has its image on the host, and notes which units must name it by id: an
// image that came back from an archive has lost its digest. What cannot be had is told; the restart is made all the same.
func (r *Rollout) haveImages(ctx context.Context, svc probation.Service) (probation.Service, error) {
	op := *svc.Operation
	before := slices.Clone(op.Before)
	changed := false
	for i := range before {
		b := &before[i]
		if b.Down || b.ImageID == "" {
			continue
		}
		if err := r.haveImage(ctx, op.Enrollment, b.ImageID); err != nil {
			r.note(op, "error", "step", fmt.Sprintf("the image that %s goes back to: %v", b.Unit, err), nil)
			continue
		}
		p, err := quadlet.ParsePin(b.Pin)
		if err != nil || b.ByID || p.Reference == b.ImageID {
			continue // no pin of ours, or one by id
		}
		if _, err := r.images(op.Enrollment).Image(ctx, p.Reference); errors.Is(err, ErrNoImage) {
			b.ByID, changed = true, true
		}
	}
	if !changed {
		return svc, nil
	}
	op.Before = before
	svc.Operation = &op
	return svc, r.Records.Put(svc)
}

// haveImage brings an image back from its archive if Podman has lost it. Podman may fail for a moment, and without the
// image the previous release cannot start.
func (r *Rollout) haveImage(ctx context.Context, e probation.Enrollment, id string) error {
	for try := 1; ; try++ {
		_, err := r.images(e).Image(ctx, id)
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrNoImage) {
			err = r.images(e).LoadBack(ctx, id)
		}
		if err == nil || try == 3 {
			return err
		}
		if pause(ctx, 200*time.Millisecond) != nil {
			return err
		}
	}
}

// readBack names a restored binding that does not verify. The restart is made all the same; the check's look at the
// running image decides.
func (r *Rollout) readBack(ctx context.Context, op probation.Operation) {
	for _, b := range op.Before {
		text := r.restoredPin(op, b)
		if text == "" {
			continue
		}
		p, err := quadlet.ParsePin(text)
		if err == nil {
			p.Unit = b.Unit
			err = r.verify(ctx, p, b.Service)
		}
		if err != nil {
			r.note(op, "error", "step", fmt.Sprintf("the restored pin of %s: %v", b.Unit, err), nil)
		}
	}
}

// putBackUnit restarts what ran before, or stops what did not, once.
func (r *Rollout) putBackUnit(ctx context.Context, op probation.Operation, b probation.UnitBefore) error {
	s, err := r.Units.State(ctx, b.Service)
	if err != nil {
		return err
	}
	if b.Down {
		if s.ActiveState == "inactive" && s.Job == 0 && !(op.Sided() && op.Moves(b)) {
			return nil
		}
		if op.Sided() && op.Moves(b) {
			return r.stopSide(ctx, s)
		}
		return ignoreNoUnit(r.Jobs.Stop(ctx, b.Service))
	}
	if op.Sided() && s.Running() {
		return nil // it serves, and the check says whether it is what it should be
	}
	if restored, err := r.restored(ctx, op, b, s); err != nil || restored {
		return err
	}
	_ = r.Jobs.ResetFailed(ctx, b.Service)
	if hold := op.Enrollment.Hold; hold != "" {
		_ = r.Jobs.ResetFailed(ctx, hold)
	}
	return r.Jobs.Restart(ctx, b.Service)
}

// restored reports whether an earlier run of this restore has replaced the candidate. While a job is queued it is not
// known; another restart job then merges with it, or replaces a start that the check has not counted yet.
func (r *Rollout) restored(ctx context.Context, op probation.Operation, b probation.UnitBefore, s unitgen.State) (bool, error) {
	if s.Job != 0 || s.InvocationID == b.Candidate {
		return false, nil
	}
	id := r.Runs(s)
	if id == "" {
		return false, nil
	}
	c, err := r.images(op.Enrollment).Container(ctx, id)
	if err != nil {
		return false, nil // gone between the two looks
	}
	return c.Operation != op.ID && (b.ImageID == "" || c.ImageID == b.ImageID), nil
}

func ignoreNoUnit(err error) error {
	if errors.Is(err, unitgen.ErrNoUnit) {
		return nil
	}
	return err
}
