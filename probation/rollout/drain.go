package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"toad/probation"
	"toad/quadlet"
	"toad/unitgen"
)

// drain goes on with what the last turn of the door left: it stops the former side when its connections have ended, or at
// the limit. It waits for neither; a timer brings the next look.
func (r *Rollout) drain(ctx context.Context, svc probation.Service) (probation.Duty, error) {
	d := *svc.Drain
	s, err := r.Units.State(ctx, d.Service)
	if err != nil {
		return "", err
	}
	if !d.Stopping {
		open, why := r.open(svc, d, s)
		if open && !d.By.Past(r.Now()) {
			return r.lookAgain(ctx, svc, pauseOf(d, r.Now()))
		}
		d.Stopping = true
		svc.Drain = &d
		if err := r.Records.Put(svc); err != nil {
			return "", err
		}
		r.note(*svc.Operation, "info", "drain", fmt.Sprintf("%s, which the door does not lead to any more, is stopped: %s", d.Service, why), nil)
	}
	if err := r.fenceIdle(ctx, svc); err != nil {
		return "", err
	}
	if s, err = r.Units.State(ctx, d.Service); err != nil {
		return "", err
	}
	// Asked for again while it lasts: a job of somebody else's may have taken the place of this one.
	if err := r.stopSide(ctx, s); err != nil {
		return "", err
	}
	switch {
	case s.Running():
		return r.lookAgain(ctx, svc, time.Second)
	case s.Job != 0 || s.ActiveState == "deactivating":
		return r.lookAgain(ctx, svc, time.Second)
	case s.ActiveState == "failed": // by how it answered the stop: that tells nobody anything
		if err := ignoreNoUnit(r.Jobs.ResetFailed(ctx, d.Service)); err != nil {
			return "", fmt.Errorf("forget that %s failed: %w", d.Service, err)
		}
	}
	r.dropLimit(ctx, *svc.Operation, unitgen.Drain)
	svc.Drain = nil
	return again, r.Records.Put(svc)
}

// open reports whether somebody is still connected to a side that is to be stopped, and says what was found.
func (r *Rollout) open(svc probation.Service, d probation.Drain, s unitgen.State) (open bool, why string) {
	if !s.Running() {
		return false, "it does not run"
	}
	door := r.doorOf(svc)
	if door == nil {
		return false, "its socket is not known any more"
	}
	n, err := r.Connections(door.Address(d.Unit, r.Runtime))
	switch {
	case err != nil:
		return true, "its connections cannot be counted (" + err.Error() + "), and the limit has come"
	case n > 0:
		return true, fmt.Sprintf("%d connections were left at the limit of %v", n, door.Drain)
	}
	return false, "its connections have ended"
}

// doorOf is the door that was turned last.
func (r *Rollout) doorOf(svc probation.Service) *probation.Door {
	if last, found := r.lastTouched(svc); found {
		return last.Enrollment.Door
	}
	return nil
}

// pauseOf makes looks rarer the longer a connection lasts.
func pauseOf(d probation.Drain, now probation.Instant) time.Duration {
	since := now.Wall.Sub(d.By.Newest) // of the turn
	return min(max(since/2, time.Second), 15*time.Second, max(d.By.LeftAt(now), time.Millisecond))
}

// fenceIdle makes the pin of the former side one that nobody admits.
func (r *Rollout) fenceIdle(ctx context.Context, svc probation.Service) error {
	want, known := r.wantedPins(svc)
	text := want[svc.Drain.Unit]
	if !known || text == "" {
		return nil // the pins were given up meanwhile
	}
	unlock, err := r.Records.LockReload(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := r.Quadlet.Pins().Restore(svc.Drain.Unit, text); err != nil {
		return err
	}
	var broken *quadlet.BindingError
	if err := r.verifyText(ctx, svc.Drain.Unit, text); err == nil || !errors.As(err, &broken) {
		return err
	}
	if err := r.Manager.Reload(ctx); err != nil {
		return err
	}
	if err := r.verifyText(ctx, svc.Drain.Unit, text); errors.As(err, &broken) {
		r.note(*svc.Operation, "error", bindingEvent, broken.Error(), map[string]string{"unit": svc.Drain.Unit})
	} else if err != nil {
		return err
	}
	return nil
}

// lookAgain makes sure that a timer brings the next look. What else the operation owes is done meanwhile.
func (r *Rollout) lookAgain(ctx context.Context, svc probation.Service, after time.Duration) (probation.Duty, error) {
	duty := probation.Nothing
	if op := svc.Operation; op.Phase == probation.Promoted && !op.Retained {
		duty = probation.DoRetain
	}
	states, err := r.loaded(ctx, svc.Operation.ID)
	if err != nil {
		return "", err
	}
	for _, s := range states {
		if strings.HasPrefix(s.Name, "toad-"+string(unitgen.Drain)+"-") && strings.HasSuffix(s.Name, ".timer") && (s.SubState == "waiting" || s.Job != 0) {
			return duty, nil
		}
	}
	_, err = r.create(svc, func(op *probation.Operation) string {
		op.Timers++
		return unitgen.TimerName(unitgen.Drain, op.ID, op.Timers)
	}, func(op probation.Operation) error {
		return r.Units.Create(ctx, unitgen.Pause(unitgen.Drain, op.ID, op.Timers, after, r.Program))
	})
	return duty, err
}
