package rollout

import (
	"context"
	"errors"
	"slices"

	"toad/probation"
	"toad/quadlet"
)

// Unpinned is what a unit is without toad's pin.
type Unpinned struct {
	Unit    string `json:"unit"`    // Quadlet file name
	Service string `json:"service"` // "" if there is no such file any more
	Image   string `json:"image"`   // what its next start runs; "" if it would run no container
	Running bool   `json:"running"` // it was left as it is
}

// Unpin gives a service's units back to their operator. It saves first: if it is cut short, the record says that there
// are no pins, and the repetition or the fence takes away what is left of them. Nothing is stopped or started.
func (r *Rollout) Unpin(ctx context.Context, service string, enrolled []string, by string) ([]Unpinned, error) {
	unlock, err := r.Records.Lock(ctx, service)
	if err != nil {
		return nil, err
	}
	defer unlock()
	svc, err := r.Records.Service(service)
	if err != nil {
		return nil, err
	}
	next, changed, err := svc.Unpin()
	if err != nil {
		return nil, err
	}
	units, err := r.pinnedUnits(svc, enrolled)
	if err != nil {
		return nil, err
	}
	if changed {
		if err := r.Records.Put(next); err != nil {
			return nil, err
		}
		if svc.Operation != nil {
			r.note(*svc.Operation, "warn", unpinnedEvent, "unpinned by "+by+"; the units are their operator's own", nil)
		}
	}
	if err := r.removePins(ctx, units); err != nil {
		return nil, err
	}
	var all []Unpinned
	for _, unit := range units {
		u, bad := r.unpinned(ctx, unit)
		err = errors.Join(err, bad)
		all = append(all, u)
	}
	return all, err
}

// unpinnedEvent is the log's word for an unpin.
const unpinnedEvent = "unpinned"

// pinnedUnits are the units of which a service may have pinned something: those it is enrolled with, those of its latest
// operation, and those whose pin says so.
func (r *Rollout) pinnedUnits(svc probation.Service, enrolled []string) ([]string, error) {
	units := slices.Clone(enrolled)
	if svc.Operation != nil {
		units = append(units, svc.Operation.Enrollment.Units...)
		for _, b := range svc.Operation.Before {
			units = append(units, b.Unit)
		}
	}
	pinned, err := r.Quadlet.Pins().Units()
	if err != nil {
		return nil, err
	}
	for _, unit := range pinned {
		text, _, err := r.Quadlet.Pins().Read(unit)
		if err != nil {
			return nil, err
		}
		if p, err := quadlet.ParsePin(text); err == nil && p.Service == svc.Name {
			units = append(units, unit)
		}
	}
	slices.Sort(units)
	return slices.Compact(units), nil
}

func (r *Rollout) removePins(ctx context.Context, units []string) error {
	unlock, err := r.Records.LockReload(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	for _, unit := range units {
		if err := r.Quadlet.Pins().Remove(unit); err != nil {
			return err
		}
	}
	return r.Manager.Reload(ctx)
}

// unpinned reads a unit back.
func (r *Rollout) unpinned(ctx context.Context, unit string) (Unpinned, error) {
	u := Unpinned{Unit: unit}
	service, err := r.serviceUnit(unit)
	if err != nil {
		return u, nil // no such file: nothing of it is pinned
	}
	s, err := r.Units.State(ctx, service)
	if err != nil {
		return u, err
	}
	u.Service, u.Running = service, s.Running()
	u.Image, err = quadlet.VerifyUnpinned(generated(s))
	return u, err
}
