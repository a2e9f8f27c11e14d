package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"toad/probation"
	"toad/quadlet"
	"toad/unitgen"
)

// Strays names the pins, and the containers, that no record accounts for. Nothing is done about them: somebody's file, and
// what somebody runs, is not toad's to take away.
func (r *Rollout) Strays(ctx context.Context) ([]string, error) {
	pins, err := r.strayPins()
	return append(pins, r.strayContainers(ctx)...), err
}

func (r *Rollout) strayPins() ([]string, error) {
	names, err := r.Records.Names()
	if err != nil {
		return nil, err
	}
	owners, unknown := map[string]bool{}, map[string]bool{}
	for _, n := range names {
		svc, err := r.Records.Service(n)
		want, known := map[string]string(nil), false
		if err == nil && svc.Active() == nil {
			want, known = r.wantedPins(svc)
		}
		unknown[n] = !known
		for unit, text := range want {
			owners[unit] = text != ""
		}
	}
	pins := r.Quadlet.Pins()
	units, err := pins.Units()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, unit := range units {
		text, _, err := pins.Read(unit)
		if err != nil {
			return nil, err
		}
		p, bad := quadlet.ParsePin(text)
		switch {
		case owners[unit]:
		case bad != nil:
			all = append(all, fmt.Sprintf("%s is no pin that toad wrote, and no service has the unit; remove it and reload", pins.Path(unit)))
		case !slices.Contains(names, p.Service):
			all = append(all, fmt.Sprintf("%s is of %s, which has no record here; remove it and reload", pins.Path(unit), p.Operation))
		case !unknown[p.Service]:
			all = append(all, fmt.Sprintf("%s is of %s, and %s does not have the unit any more; remove it and reload", pins.Path(unit), p.Operation, p.Service))
		}
	}
	return all, nil
}

// strayContainers names what runs with an operation's label, and is not what its unit runs.
func (r *Rollout) strayContainers(ctx context.Context) (all []string) {
	running, err := r.Images.Containers(ctx, quadlet.OperationLabel)
	if err != nil {
		return nil // without Podman nothing of it can be said
	}
	for _, c := range running {
		service, _, ok := probation.ParseOperationID(c.Operation)
		if svc, err := r.Records.Service(service); !ok || err != nil || svc.Active() != nil || !c.Running {
			continue // a replacement may be under way
		}
		if s, err := r.Units.State(ctx, c.Unit); err != nil || s.Job != 0 || r.Runs(s) == c.ID {
			continue
		}
		all = append(all, fmt.Sprintf("container %s carries the label of %s and runs beside %s's own; if nobody needs it: podman rm -f %s", c.Name, c.Operation, service, c.Name))
	}
	return all
}

// clear takes away what toad itself left behind: timers of operations that are over, and files that were never finished.
func (r *Rollout) clear(ctx context.Context) error {
	timers, err := r.Units.List(ctx, "toad-prepare-*.timer", "toad-probation-*.timer", "toad-restore-*.timer")
	for _, t := range timers {
		if op, ok := unitgen.OperationOf(t.Name); ok {
			err = errors.Join(err, r.clearTimer(ctx, t.Name, op))
		}
	}
	inState, bad := r.Records.Sweep()
	beside, worse := r.Quadlet.Pins().Sweep()
	for _, path := range append(inState, beside...) {
		r.Log.Warn("a write was cut short; what it left is removed", "file", path)
	}
	return errors.Join(err, bad, worse)
}

// clearTimer stops a timer that bounds nothing any more. One is armed before its operation is saved, under the lock.
func (r *Rollout) clearTimer(ctx context.Context, timer, id string) error {
	service, _, _ := probation.ParseOperationID(id)
	unlock, err := r.lockSoon(ctx, service)
	if err != nil {
		return nil // an act is at it
	}
	defer unlock()
	svc, err := r.Records.Service(service)
	if err != nil || svc.Operation != nil && svc.Operation.ID == id && !svc.Operation.Released {
		return nil // a damaged record may still need it
	}
	r.Log.Warn("a timer of an operation that is over is stopped", "unit", timer, "operation", id)
	return ignoreNoUnit(r.Jobs.Stop(ctx, timer))
}
