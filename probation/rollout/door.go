package rollout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"toad/internal/atomicfile"
	"toad/probation"
	"toad/quadlet"
	"toad/unitgen"
)

// A door's proxy connects to a link in the state folder. The rename of a new link over it is the whole of a turn: open
// connections stay where they are, and every new one reaches a side, before as after.

// DoorLink is the link of a service's door.
func (r *Rollout) DoorLink(service string) string {
	return filepath.Join(r.DoorLinks(), service+".sock")
}

// DoorLinks is the folder of all such links.
func (r *Rollout) DoorLinks() string { return filepath.Join(r.Records.Dir(), "live") }

// doorAt is where a door leads; "" if there is no link.
func (r *Rollout) doorAt(service string) (string, error) {
	target, err := os.Readlink(r.DoorLink(service))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return target, err
}

// turnDoor makes a door lead to a path; with "" there is none.
func (r *Rollout) turnDoor(service, to string) (turned bool, err error) {
	at, err := r.doorAt(service)
	if err == nil && at == to {
		return false, nil
	}
	if to == "" {
		return true, atomicfile.Remove(r.DoorLink(service))
	}
	if err := atomicfile.MkdirAll(r.DoorLinks(), 0o700); err != nil {
		return false, err
	}
	if _, err := atomicfile.Sweep(r.DoorLinks()); err != nil {
		return false, err
	}
	return true, atomicfile.Link(to, r.DoorLink(service))
}

// wantedDoor is where a service's door is to lead by its record. known is false where the record does not tell.
func (r *Rollout) wantedDoor(svc probation.Service) (to string, known bool) {
	if enrollmentOf(svc).Binary() {
		return r.wantedLink(svc)
	}
	op := svc.Active()
	switch {
	case op != nil && op.Sided() && len(op.Before) > 0:
		if op.Phase == probation.Promoting {
			return op.Enrollment.Door.Address(op.Candidate.Side, r.Runtime), true
		}
		was := r.doorWas(*op)
		return was, was != ""
	case svc.Operation == nil || svc.Promoted == nil || svc.Promoted.Side == "":
		return "", false
	}
	last, found := r.lastTouched(svc)
	if !found || last.Enrollment.Door == nil {
		return "", false
	}
	return last.Enrollment.Door.Address(svc.Promoted.Side, r.Runtime), true
}

// keepDoor makes a door lead where the record says, if others changed it, and tells. In promoting that is the act's, which
// verifies the pin first.
func (r *Rollout) keepDoor(ctx context.Context, svc probation.Service) error {
	to, known := r.wantedDoor(svc)
	if !known {
		return nil
	}
	if enrollmentOf(svc).Binary() {
		return r.keepLink(ctx, svc, to)
	}
	at, err := r.doorAt(svc.Name)
	if err == nil && at == to {
		return nil
	}
	if op := svc.Active(); op != nil && op.Phase == probation.Promoting {
		return r.Begin(ctx, *op)
	}
	if _, err := r.turnDoor(svc.Name, to); err != nil {
		return err
	}
	r.note(*svc.Operation, "warn", bindingEvent, fmt.Sprintf("the door was changed by others; it leads to %s again", to), nil)
	return nil
}

// CheckDoor says in what a door is not as recorded.
func (r *Rollout) CheckDoor(svc probation.Service) error {
	to, known := r.wantedDoor(svc)
	if !known {
		return nil
	}
	if e := enrollmentOf(svc); e.Binary() {
		return r.checkLink(e, to)
	}
	switch at, err := r.doorAt(svc.Name); {
	case err != nil:
		return err
	case at == "":
		return fmt.Errorf("there is no link %s, so the door leads nowhere", r.DoorLink(svc.Name))
	case at != to:
		return fmt.Errorf("the door leads to %s, and %s is in force", at, to)
	}
	return nil
}

// sides finds out what an operation has to do with: the side in force, if any, and the one that the candidate is to take.
func (r *Rollout) sides(e probation.Enrollment, promoted *probation.Release, states []unitgen.State) (inForce, idle string, err error) {
	if e.Door == nil {
		if promoted != nil && promoted.Side != "" {
			return "", "", fail(probation.CodeBindingBroken, "%s was deployed to two sides, and is enrolled without now; give the units back first: toad unpin %s", e.Name, e.Name)
		}
		return "", "", nil
	}
	at, err := r.doorAt(e.Name)
	if err != nil {
		return "", "", fail(probation.CodeBindingBroken, "%w; make it a link to the socket of the side that serves", err)
	}
	address := func(side string) string { return e.Door.Address(side, r.Runtime) }
	leads := slices.IndexFunc(e.Units, func(side string) bool { return address(side) == at })
	switch {
	case promoted != nil && !slices.Contains(e.Units, promoted.Side):
		return "", "", fail(probation.CodeBindingBroken, "%s was not deployed to %s or %s so far; let its door lead to one of them, then give the former units back: toad unpin %s",
			e.Name, e.Units[0], e.Units[1], e.Name)
	case promoted != nil:
		return promoted.Side, e.Other(promoted.Side), nil
	case leads >= 0:
		return e.Units[leads], e.Other(e.Units[leads]), nil
	case at != "":
		return "", "", fail(probation.CodeBindingBroken, "the door leads to %s, which is no side's; let it lead to the side that serves: ln -sfn %s %s",
			at, address(e.Units[0]), r.DoorLink(e.Name))
	case states[0].Running() && states[1].Running():
		return "", "", fail(probation.CodeNoWayBack, "both sides run, and no door tells which of them serves; stop the other, or: ln -s %s %s",
			address(e.Units[0]), r.DoorLink(e.Name))
	case states[1].Running():
		return e.Units[1], e.Units[0], nil
	case states[0].Running():
		return e.Units[0], e.Units[1], nil
	}
	return "", e.Units[0], nil // nothing ever ran
}

// doorSocket makes sure that there is a door.
func (r *Rollout) doorSocket(ctx context.Context, e probation.Enrollment) error {
	if e.Door == nil {
		return nil
	}
	s, err := r.Units.State(ctx, e.Door.Socket)
	if err == nil && !s.Exists() {
		err = fail(probation.CodeBindingBroken, "the door %s is %s: write that socket unit, with a service that runs systemd-socket-proxyd %s",
			e.Door.Socket, s.LoadState, r.DoorLink(e.Name))
	}
	return err
}

// doorWas is where the door led before the candidate. A record that was rebuilt knows it by the release alone.
func (r *Rollout) doorWas(op probation.Operation) string {
	if op.DoorWas == "" && op.Previous != nil && op.Previous.Side != "" {
		return op.Enrollment.Door.Address(op.Previous.Side, r.Runtime)
	}
	return op.DoorWas
}

// doorBefore is where the door leads as long as the candidate is undecided, and after a restore.
func (r *Rollout) doorBefore(op probation.Operation) (string, error) {
	if op.Enrollment.Binary() {
		return r.Files(op.Enrollment).At()
	}
	if !op.Sided() {
		return "", nil
	}
	if op.Previous != nil {
		return op.Enrollment.Door.Address(op.Previous.Side, r.Runtime), nil
	}
	return r.doorAt(op.Service)
}

// turnBack makes the door lead where it led before the candidate.
func (r *Rollout) turnBack(op probation.Operation) error {
	if op.Enrollment.Binary() {
		return r.linkBack(op)
	}
	if !op.Sided() {
		return nil
	}
	was := r.doorWas(op)
	if was == "" {
		at, err := r.doorAt(op.Service)
		if err != nil || at != op.Enrollment.Door.Address(op.Candidate.Side, r.Runtime) {
			return err
		}
	}
	turned, err := r.turnDoor(op.Service, was)
	if turned && err == nil {
		r.note(op, "warn", "step", "the door leads to the side before again", nil)
	}
	return err
}

// idlePin is the pin of the side that is not in force: it names the release that is, and nothing may start it.
func (r *Rollout) idlePin(op probation.Operation, unit string, inForce probation.Release) quadlet.Pin {
	return quadlet.Pin{Operation: probation.OperationID(op.Service, inForce.Generation), Service: op.Service, Unit: unit,
		Digest: inForce.Digest, Reference: reference(op.Enrollment, inForce), Fenced: true, AdmissionVar: unitgen.IdleVar(op.Service)}
}

// stopSide queues the stop of a side that nobody is to reach, and of its sockets first: whoever still waits in a backlog
// would have systemd try to start it for ever.
func (r *Rollout) stopSide(ctx context.Context, s unitgen.State) error {
	for _, socket := range sockets(s) {
		if err := ignoreNoUnit(r.Jobs.Stop(ctx, socket)); err != nil {
			return err
		}
	}
	if s.ActiveState == "inactive" && s.Job == 0 {
		return nil
	}
	return ignoreNoUnit(r.Jobs.Stop(ctx, s.Name))
}

// openSide queues the start of a side's sockets, which stopSide has stopped.
func (r *Rollout) openSide(ctx context.Context, s unitgen.State) error {
	for _, socket := range sockets(s) {
		if err := r.Jobs.Start(ctx, socket); err != nil {
			return err
		}
	}
	return nil
}

func sockets(s unitgen.State) []string {
	return slices.DeleteFunc(slices.Clone(s.TriggeredBy), func(unit string) bool { return filepath.Ext(unit) != ".socket" })
}

// startSides queues the start of what a check waits for: no side starts by itself after a boot.
func (r *Rollout) startSides(ctx context.Context, op probation.Operation) error {
	if !op.Sided() {
		return nil
	}
	for _, want := range probation.Wants(op) {
		if want.Down {
			continue
		}
		s, err := r.Units.State(ctx, want.Service)
		if err == nil && !s.Running() && s.Job == 0 {
			err = r.Jobs.Start(ctx, want.Service)
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", want.Service, err)
		}
	}
	return nil
}
