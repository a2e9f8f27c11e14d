package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"toad/probation"
	"toad/quadlet"
	"toad/unitgen"
)

// Files are the releases of a binary service: what Images says of images holds for files, an image's id being the sha256 of
// the file, and a container the main process of the unit. What selects a release is a link, and not the pin:
//
//	switching   the fenced pin is written, loaded and verified; the file is hashed; the link turns; the unit is restarted
//	promoting   the pin without the fence; the link is made to lead to the candidate, if others have changed it
//	restoring   the link turns back first, then the pin
//
// A kill between any two leaves the record, from which the same act goes on, and a boot in between a fenced pin.
type Files interface {
	Images
	// Adopt takes in the file that a process runs.
	Adopt(process, id string) error
	// Target is where the link leads when the file is in force, At where it leads now, "" where there is none.
	Target(id string) string
	At() (string, error)
	Turn(to string) (turned bool, err error)
	// Lay lays a link of the way back beside the one in force; "" takes it away.
	Lay(to string) error
}

// images are what a service's releases are kept in.
func (r *Rollout) images(e probation.Enrollment) Images {
	if e.Binary() {
		return r.Files(e)
	}
	return r.Images
}

// CheckUnit judges whether a unit can be pinned.
func (r *Rollout) CheckUnit(src quadlet.Source, g quadlet.Generated, e probation.Enrollment) error {
	if !e.Binary() {
		return quadlet.CheckEnrollable(src, g, e.Image)
	}
	if err := quadlet.CheckBinary(src, g, r.Quadlet.Link(e.Name)); err != nil {
		return err
	}
	if e.Ready.Notify && g.Type != "notify" && g.Type != "notify-reload" {
		return fmt.Errorf("%s has Type=%s, so nothing waits for the READY=1 that its readiness is; write Type=notify, or choose another probe", e.Units[0], g.Type)
	}
	if _, err := r.Files(e).At(); err != nil {
		return fmt.Errorf("%s is not a link: %w; move the file to a place of its own, and link it: ln -s FILE %[1]s", r.Quadlet.Link(e.Name), err)
	}
	return nil
}

// enrollmentOf is what the records of a service say it is.
func enrollmentOf(svc probation.Service) probation.Enrollment {
	if svc.Operation == nil {
		return probation.Enrollment{Name: svc.Name}
	}
	return svc.Operation.Enrollment
}

// sameKind refuses to go on with a service whose release in force is something else.
func (r *Rollout) sameKind(svc probation.Service, e probation.Enrollment) error {
	if svc.Promoted == nil || svc.Operation == nil {
		return nil
	}
	if last, found := r.lastTouched(svc); found && last.Enrollment.Kind != e.Kind {
		return fail(probation.CodeBindingBroken, "%s was deployed as another kind of service, with %s; give that back first: toad unpin %s",
			e.Name, strings.Join(last.Enrollment.Units, ", "), e.Name)
	}
	return nil
}

// adoptFile keeps what runs before the first deployment under its sha256.
func (r *Rollout) adoptFile(e probation.Enrollment, s unitgen.State, process, id string) error {
	if !e.Binary() {
		return nil
	}
	if err := r.Files(e).Adopt(process, id); err != nil {
		return fail(probation.CodeNoWayBack, "what runs as %s before the first deployment cannot be kept: %w; let it run a program, or stop it, and deploy again", s.Name, err)
	}
	return nil
}

// turnLink makes the link lead to the candidate, whose bytes are held against their name first.
func (r *Rollout) turnLink(ctx context.Context, op probation.Operation) error {
	if !op.Enrollment.Binary() {
		return nil
	}
	files := r.Files(op.Enrollment)
	if _, err := files.Image(ctx, op.Candidate.ImageID); err != nil {
		return err
	}
	_, err := files.Turn(files.Target(op.Candidate.ImageID))
	return err
}

// linkBefore is where the link leads when the candidate is not in force.
func (r *Rollout) linkBefore(op probation.Operation) string {
	for _, b := range op.Before {
		if b.Running && b.ImageID != "" {
			return r.Files(op.Enrollment).Target(b.ImageID)
		}
	}
	return op.DoorWas
}

// layLink makes the turn back one that needs no space.
func (r *Rollout) layLink(op probation.Operation) error {
	if !op.Enrollment.Binary() || op.Phase == probation.Promoting {
		return nil
	}
	return r.Files(op.Enrollment).Lay(r.linkBefore(op))
}

func (r *Rollout) dropLaid(op probation.Operation) error {
	if !op.Enrollment.Binary() {
		return nil
	}
	return r.Files(op.Enrollment).Lay("")
}

// linkBack turns the link back. It is made before the pin: what starts in between starts the release before.
func (r *Rollout) linkBack(op probation.Operation) error {
	if len(op.Before) == 0 {
		return nil
	}
	turned, err := r.Files(op.Enrollment).Turn(r.linkBefore(op))
	if turned && err == nil {
		r.note(op, "warn", "step", "the link leads to the release before again", nil)
	}
	return err
}

// wantedLink is where the link is to lead by the record. While a switch is under way it may be either.
func (r *Rollout) wantedLink(svc probation.Service) (to string, known bool) {
	if op := svc.Active(); op != nil && len(op.Before) > 0 {
		switch op.Phase {
		case probation.Probation, probation.Promoting:
			return r.Files(op.Enrollment).Target(op.Candidate.ImageID), true
		case probation.Restoring:
			return r.linkBefore(*op), true
		}
		return "", false
	}
	if svc.Promoted == nil || svc.Operation == nil {
		return "", false // it is its operator's
	}
	last, found := r.lastTouched(svc)
	switch {
	case !found || !last.Enrollment.Binary():
		return "", false
	case last.Phase == probation.Promoted:
		return r.Files(last.Enrollment).Target(last.Candidate.ImageID), true
	}
	return r.linkBefore(last), true
}

// keepLink makes the link lead where the record says, if others changed it, and tells. A file whose bytes have changed is
// not linked: a service that is up runs on.
func (r *Rollout) keepLink(ctx context.Context, svc probation.Service, to string) error {
	op := *svc.Operation
	files := r.Files(op.Enrollment)
	at, err := files.At()
	if err != nil {
		return fmt.Errorf("%s is not a link any more: %w; move the file away", r.Quadlet.Link(svc.Name), err)
	}
	if at == to {
		return nil
	}
	for _, rel := range append(svc.Retained, op.Candidate) {
		if rel.ImageID == "" || files.Target(rel.ImageID) != to {
			continue
		}
		if err := r.haveImage(ctx, op.Enrollment, rel.ImageID); err != nil {
			r.note(op, "error", bindingEvent, fmt.Sprintf("the link leads to %s, and is not put right: %v", orNowhere(at), err), nil)
			return nil
		}
		break
	}
	if _, err := files.Turn(to); err != nil {
		return err
	}
	r.note(op, "warn", bindingEvent, fmt.Sprintf("the link was changed by others, to %s; it leads to %s again", orNowhere(at), to), nil)
	return nil
}

func (r *Rollout) checkLink(e probation.Enrollment, to string) error {
	at, err := r.Files(e).At()
	if err == nil && at != to {
		err = errors.New("the link " + r.Quadlet.Link(e.Name) + " leads to " + orNowhere(at) + ", and should lead to " + orNowhere(to))
	}
	return err
}

func orNowhere(at string) string {
	if at == "" {
		return "nothing"
	}
	return at
}
