package rollout

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toad/probation"
	"toad/quadlet"
	"toad/unitgen"
)

// minFree is what must be free where state, pins and images lie before anything is switched.
const minFree = 64 << 20

// failure ends a preparation with a code.
type failure struct {
	code probation.Code
	err  error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func fail(code probation.Code, format string, args ...any) error {
	return &failure{code, fmt.Errorf(format, args...)}
}

// prepare brings the image here and proves the way back, the old release serving all the while. It moves image bytes,
// so it holds the service's lock only to save what it came to.
func (r *Rollout) prepare(ctx context.Context, op probation.Operation) error {
	unlock, err := r.Records.LockPrepare(op.ID)
	if err != nil {
		return nil // another act is at it, and carries on
	}
	defer unlock()
	// A little less than the timer has, which knows nothing of why it was not done.
	work, cancel := context.WithTimeout(ctx, max(0, op.PrepareBy.LeftAt(r.Now())-500*time.Millisecond))
	defer cancel()
	go r.dropWhenMovedOn(work, cancel, op)

	svc, err := r.Records.Service(op.Service)
	if err != nil {
		return err
	}
	ev, err := r.preparedInTime(work, svc, op)
	var f *failure
	var p *PullError
	switch {
	case err == nil:
	case errors.As(err, &f):
		ev = probation.Event{Kind: probation.PrepareFailed, Code: f.code, Reason: f.Error()}
	case errors.As(err, &p):
		ev = probation.Event{Kind: probation.PrepareFailed, Code: p.Code, Reason: err.Error()}
	default:
		ev = r.event(probation.PrepareTimeout, notInTime)
	}
	return r.finishPrepare(ctx, op, ev)
}

// notInTime is what is said of a preparation at its limit, behind what held it up.
const notInTime = "it was not done within the limit of the preparation"

// preparedInTime tries again, until the context ends, what the bus or Podman itself did not let be done, and tells why.
func (r *Rollout) preparedInTime(ctx context.Context, svc probation.Service, op probation.Operation) (probation.Event, error) {
	told, program := "", ""
	for {
		ev, err := r.prepared(ctx, svc, op, program == "")
		program = ev.Program
		var f *failure
		var p *PullError
		if err == nil || errors.As(err, &f) || errors.As(err, &p) || ctx.Err() != nil {
			return ev, err
		}
		if err.Error() != told {
			told = err.Error()
			r.trouble(ctx, op, told)
		}
		if pause(ctx, time.Second) != nil {
			return ev, err
		}
	}
}

// trouble tells what holds a preparation up, and saves it: whoever ends the operation at its limit can say why.
func (r *Rollout) trouble(ctx context.Context, op probation.Operation, what string) {
	r.note(op, "warn", "step", "this is tried again while the preparation may last: "+what, nil)
	unlock, err := r.Records.Lock(ctx, op.Service)
	if err != nil {
		return
	}
	defer unlock()
	svc, err := r.Records.Service(op.Service)
	if err != nil || svc.Operation == nil || svc.Operation.ID != op.ID || svc.Operation.Phase != probation.Preparing {
		return
	}
	held := *svc.Operation
	held.Reason = what
	svc.Operation = &held
	if err := r.Records.Put(svc); err != nil {
		r.note(op, "warn", "step", err.Error(), nil)
	}
}

// finishPrepare saves what a preparation came to, unless the operation has moved on meanwhile.
func (r *Rollout) finishPrepare(ctx context.Context, op probation.Operation, ev probation.Event) error {
	unlock, err := r.Records.Lock(ctx, op.Service)
	if err != nil {
		return err
	}
	defer unlock()
	svc, err := r.Records.Service(op.Service)
	if err != nil {
		return err
	}
	if svc.Operation == nil || svc.Operation.ID != op.ID || svc.Operation.Phase != probation.Preparing {
		return nil
	}
	if found, stopped := r.find(*svc.Operation); stopped && (found.Kind == probation.Aborted || ev.Kind == probation.Prepared) {
		return nil // aborted, or past its limit: the next look says so
	}
	ev.At = r.Now()
	_, err = r.apply(ctx, svc, svc.Judged(ev))
	return err
}

// dropWhenMovedOn ends the work of a preparation when its operation is given up.
func (r *Rollout) dropWhenMovedOn(ctx context.Context, cancel func(), op probation.Operation) {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			now, err := r.Records.Service(op.Service)
			if err == nil && (now.Operation == nil || now.Operation.ID != op.ID || now.Operation.Phase != probation.Preparing) {
				cancel()
				return
			}
		}
	}
}

// prepared is one try at what comes before a switch. What the image runs is told once.
func (r *Rollout) prepared(ctx context.Context, svc probation.Service, op probation.Operation, tell bool) (probation.Event, error) {
	ev := r.event(probation.Prepared, "")
	states, err := r.enrollable(ctx, op.Enrollment, op.Candidate.Definition == nil)
	if err != nil {
		return ev, err
	}
	if err := r.roomy(); err != nil {
		return ev, err
	}
	if err := r.sameKind(svc, op.Enrollment); err != nil {
		return ev, err
	}
	side, idle, err := r.sides(op.Enrollment, svc.Promoted, states)
	if err != nil {
		return ev, err
	}
	ev.InForce = svc.Promoted
	if ev.InForce == nil {
		if ev.InForce, err = r.adopt(ctx, op.Enrollment, side, states); err != nil {
			return ev, err
		}
	}
	if err := r.proven(ctx, svc, op, op.Candidate, op.WaitProof > 0); err != nil {
		return ev, err
	}
	var img Image
	ev.Candidate, img, err = r.pull(ctx, op)
	if err != nil {
		return ev, err
	}
	ev.Candidate.Side = idle
	// Once more, now that it is known what the digest stands for here.
	if err := r.proven(ctx, svc, op, ev.Candidate, false); err != nil {
		return ev, err
	}
	if has, decided := quadlet.HasHealthcheck(generated(states[0])); op.Enrollment.Ready.Health && op.Candidate.Definition == nil && !has && (decided || !img.Healthcheck) {
		return ev, fail(probation.CodeNoHealthcheck, "readiness is Podman's health check, but neither %s nor the image has one; add HealthCmd= to the unit, or choose another probe",
			op.Enrollment.Units[0])
	}
	if ev.Program, err = r.Identify(ctx, op, ev.Candidate.ImageID); err != nil {
		return ev, err
	}
	if tell {
		r.notePrograms(op, ev.Program)
	}
	if ev.InForce == nil {
		return ev, nil
	}
	if len(svc.Programs) == 0 {
		if ev.InForceProgram, err = r.Identify(ctx, op, ev.InForce.ImageID); err != nil {
			return ev, err
		}
	}
	return ev, r.wayBack(ctx, op, *ev.InForce)
}

func (r *Rollout) notePrograms(op probation.Operation, program string) {
	if program == "" {
		r.note(op, "info", "gate", "what the "+op.Enrollment.Artefact()+" runs cannot be told, neither from the program's bytes nor from labels; it is held against nothing", nil)
		return
	}
	r.note(op, "info", "gate", "the "+op.Enrollment.Artefact()+" runs "+program, nil)
}

// enrollable looks at the units as the manager has them loaded, before anything is pulled. Where what they are to be is
// not loaded yet, their probe is left to be looked at when it is.
func (r *Rollout) enrollable(ctx context.Context, e probation.Enrollment, asLoaded bool) ([]unitgen.State, error) {
	if err := r.doorSocket(ctx, e); err != nil {
		return nil, err
	}
	var states []unitgen.State
	for i, unit := range e.Units {
		src, err := quadlet.Find(r.Quadlet, unit)
		if err != nil {
			return nil, &failure{probation.CodeBindingBroken, err}
		}
		s, err := r.Units.State(ctx, src.ServiceUnit)
		if err != nil {
			return nil, err
		}
		if err := r.CheckUnit(src, generated(s), e); err != nil {
			return nil, &failure{probation.CodeBindingBroken, err}
		}
		if e.Door != nil {
			if err := quadlet.CheckSide(src); err != nil {
				return nil, &failure{probation.CodeBindingBroken, err}
			}
		}
		if asLoaded && (i == 0 || e.Door != nil) {
			if err := quadlet.CheckProbe(SideOf(e, unit, r.Runtime), generated(s)); err != nil {
				return nil, &failure{probation.CodeProbeMismatch, err}
			}
		}
		states = append(states, s)
	}
	return states, nil
}

// SideOf is an enrollment with the addresses of one side.
func SideOf(e probation.Enrollment, unit, runtimeDir string) probation.Enrollment {
	if e.Door != nil {
		e.Ready = e.Ready.Of(unit, runtimeDir)
	}
	return e
}

func (r *Rollout) roomy() error {
	for _, dir := range []string{r.Records.Dir(), r.Quadlet.Config} {
		free, err := r.Free(dir)
		if err != nil {
			return fmt.Errorf("free space of %s: %w", filepath.Base(dir), err)
		}
		if free < minFree {
			return fail(probation.CodeUnavailable, "only %d MiB are free for toad's state and pins, a switch wants %d MiB; free some space and deploy again",
				free>>20, minFree>>20)
		}
	}
	return nil
}

// adopt takes what runs without toad for the release in force, as generation 0; of two sides what runs on the one in
// force. With nothing running there is none.
func (r *Rollout) adopt(ctx context.Context, e probation.Enrollment, side string, states []unitgen.State) (*probation.Release, error) {
	if e.Door != nil {
		i := slices.Index(e.Units, side)
		if i < 0 {
			return nil, nil
		}
		states = states[i : i+1]
	}
	for _, s := range states {
		id, err := r.container(ctx, e, s)
		if err != nil {
			return nil, err
		}
		if id == "" {
			continue
		}
		c, err := r.images(e).Container(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("look at what runs as %s: %w", s.Name, err)
		}
		if err := r.adoptFile(e, s, id, c.ImageID); err != nil {
			return nil, err
		}
		img, err := r.images(e).Image(ctx, c.ImageID)
		if err != nil {
			return nil, fmt.Errorf("look at the image that runs as %s: %w", s.Name, err)
		}
		rel := probation.Release{ImageID: img.ID, Digests: img.Digests, Side: side}
		for _, d := range img.RepoDigests {
			if repo, digest, ok := strings.Cut(d, "@"); ok && repo == e.Image && (rel.Digest == "" || digest == img.Digest) {
				rel.Digest = digest
			}
		}
		return &rel, nil
	}
	for _, s := range states {
		if s.Running() {
			return nil, fail(probation.CodeNoWayBack, "%s is %s and shows nothing that runs: what runs before the first deployment cannot be kept; start it, or stop it, and deploy again",
				s.Name, s.ActiveState)
		}
	}
	return nil, nil
}

// adoptPatience is how long a unit that starts, or waits for its next restart, may take to show a container.
const adoptPatience = 20 * time.Second

// container finds what runs as a unit. One that is just starting, as after a boot, is given some time.
func (r *Rollout) container(ctx context.Context, e probation.Enrollment, s unitgen.State) (string, error) {
	for end := r.Now().Boot + adoptPatience; ; {
		if id := r.Runs(s); id != "" || !s.Running() || r.Now().Boot > end {
			return id, nil
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return "", err
		}
		var err error
		if s, err = r.Units.State(ctx, s.Name); err != nil {
			return "", err
		}
	}
}
