package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"toad/agent/bao"
	"toad/agent/protocol"
	"toad/internal/redact"
	"toad/probation"
)

// Control is the control plane.
type Control interface {
	CheckIn(ctx context.Context, in protocol.CheckIn) (protocol.Answer, error)
	Bundle(ctx context.Context, sha string) (io.ReadCloser, error)
	Lease(ctx context.Context, reason, bundleSHA string) (protocol.Lease, error)
	Report(ctx context.Context, r protocol.Report) error
}

// Services are those of this host, put on trial and put back by the rollout.
type Services interface {
	// Standing is how a service stands by its record; one without a record is empty.
	Standing(service string) (probation.Service, error)
	// Deploy puts a release on trial, or with a request that says so the one before back, and follows it to its end. A
	// request that is not accepted is a *probation.Rejection. The same key finds the same operation.
	Deploy(ctx context.Context, e probation.Enrollment, req probation.Request) (probation.Operation, error)
	// Retire gives up what is under way for a service, stops the units, and takes their pins away.
	Retire(ctx context.Context, service string, units []string) error
}

// Ground is what a bundle's units stand on.
type Ground interface {
	// Install makes these the files that the agent has where Podman's generator looks, and these services those that
	// bundles have brought; then it has them loaded. What it installed before and is not named goes.
	Install(ctx context.Context, files map[string]string, services []probation.Enrollment) error
	// Taken names what the operator has himself, of these services and files.
	Taken(ctx context.Context, services []probation.Enrollment, files []string) ([]string, error)
	// Free says how many bytes are free where the bundle and its images would lie.
	Free() (uint64, error)
}

// Podman keeps secrets and volumes.
type Podman interface {
	// FindSecret returns a secret's value, and whether it is the agent's; ok is false if there is none.
	FindSecret(ctx context.Context, name string) (value string, own, ok bool, err error)
	PutSecret(ctx context.Context, name, value string) error
	// DropSecrets takes away the agent's secrets but for these.
	DropSecrets(ctx context.Context, keep []string) error
	DropVolumes(ctx context.Context, names []string) error
}

// Agent is a box of an environment. Every field is set by the caller.
type Agent struct {
	Config   Config
	Folder   Folder
	Store    Store
	Control  Control
	Vault    bao.Store
	Services Services
	Ground   Ground
	Podman   Podman
	Redactor *redact.Redactor
	Version  string // of toad
	Retry    bool   // what failed here is tried once more
	Now      func() time.Time
	Log      *slog.Logger

	st State
}

// Outcome is how a tick ended; it is the contract with the timer.
type Outcome int

// The exit codes.
const (
	Converged Outcome = 0
	Refused   Outcome = 1  // or failed, and what was before is in force
	Later     Outcome = 75 // temporary: the timer is the retry
	Stopped   Outcome = 78 // another environment, or a configuration that cannot be right
)

// Bounds of the pause after temporary failures, which doubles with each.
const (
	firstPause = 2 * time.Minute
	maxPause   = time.Hour
)

// room is what must be free before anything is staged, in bytes.
const room = 256 << 20

// Tick is one run: what was begun is carried on, then the box checks in and converges.
func (a *Agent) Tick(ctx context.Context) (Outcome, error) {
	unlock, err := a.Store.Lock(ctx)
	if err != nil {
		return Later, err
	}
	defer unlock()
	if a.st, err = a.Store.Load(); err != nil {
		return Stopped, err
	}
	if out, err := a.gone(); out || err != nil {
		return outcomeOf(err), err
	}
	fingerprint := a.Folder.Fingerprint(a.Config)
	if a.st.Stopped == fingerprint && a.st.Applying == nil {
		return Stopped, fmt.Errorf("nothing was tried, for the configuration has not changed since: %s", a.st.LastError)
	}
	if wait := a.st.NotBefore.Sub(a.Now()); wait > 0 && wait <= 25*time.Hour && !a.Retry && a.st.Applying == nil {
		return Later, fmt.Errorf("not before %s: %s", a.st.NotBefore.UTC().Format(time.RFC3339), a.st.LastError)
	}
	a.st.Stopped, a.st.LastTick = "", a.Now().UTC()
	err = a.converge(ctx)
	return a.ended(fingerprint, err)
}

// errOther says that the box was moved without being brought out.
var errOther = fmt.Errorf("%w: what runs here came from there", protocol.ErrEnvironment)

// gone reports whether the box is out of its environment, with nothing left to be told. A new grant brings it into one.
func (a *Agent) gone() (bool, error) {
	grant, err := a.Folder.Grant()
	if err != nil {
		return false, err
	}
	token, err := a.Store.Bearer()
	if err != nil {
		return false, err
	}
	if a.st.Gone && a.st.Applying == nil && grant != "" {
		a.st = State{Schema: 1, Attempts: a.st.Attempts}
	}
	if a.st.EnvID != "" && a.st.EnvID != a.Config.EnvID {
		return false, fmt.Errorf("agent.toml says %s, and this box is still of %s (%w); have it brought out first: let its control plane answer down",
			a.Config.EnvID, a.st.EnvID, errOther)
	}
	a.st.EnvID = a.Config.EnvID
	return a.st.Gone && a.st.Applying == nil && token == "", nil
}

// ended saves how the tick ended, and when the next may try.
func (a *Agent) ended(fingerprint string, err error) (Outcome, error) {
	outcome := outcomeOf(err)
	switch outcome {
	case Later:
		a.st.Failures++
		pause := min(firstPause<<min(a.st.Failures-1, 10), maxPause)
		pause = pause/2 + rand.N(pause/2) // boxes that failed together do not come back together
		a.st.NotBefore = a.Now().Add(max(pause, protocol.RetryAfter(err))).UTC()
	case Stopped:
		a.st.Stopped = fingerprint
		fallthrough
	default:
		a.st.Failures, a.st.NotBefore = 0, time.Time{}
	}
	if a.st.LastError = ""; err != nil {
		a.st.LastError = a.Redactor.Line(err.Error())
	}
	return outcome, errors.Join(err, a.Store.Put(a.st))
}

// later is an error that may pass.
type later struct{ error }

func (l later) Unwrap() error { return l.error }

// failedError says that a bundle was put back, now or at an earlier tick.
type failedError struct{ Failure }

func (f *failedError) Error() string {
	return fmt.Sprintf("bundle %.12s failed here at %s: %s: %s; publish another, or try it once more: toad agent run --retry",
		f.Bundle, f.At.UTC().Format(time.RFC3339), f.Code, f.Detail)
}

func outcomeOf(err error) Outcome {
	is := func(classes ...error) bool {
		return slices.ContainsFunc(classes, func(c error) bool { return errors.Is(err, c) })
	}
	var failed *failedError
	var temporary later
	switch {
	case err == nil:
		return Converged
	case refusalOf(err) != nil, errors.As(err, &failed), is(protocol.ErrRejected, protocol.ErrLeaseShape):
		return Refused
	case is(protocol.ErrEnvironment, protocol.ErrGrant, protocol.ErrDenied, protocol.ErrUnauthenticated, errNoGrant):
		return Stopped
	case errors.As(err, &temporary), is(protocol.ErrTemporary, protocol.ErrRateLimited, protocol.ErrNotFound, context.Canceled, context.DeadlineExceeded):
		return Later
	}
	return Later // the host's trouble: a full disk, a bus that is restarting
}

// converge is a tick within its lock.
func (a *Agent) converge(ctx context.Context) error {
	if err := a.Store.sweepTorn(); err != nil {
		return err
	}
	// What has begun to change the host needs nobody else to come to its end; how it ended is told all the same.
	if a.st.Applying != nil {
		if err := a.carryOn(ctx); err != nil {
			if a.st.Applying != nil {
				return err
			}
			return errors.Join(err, a.tell(ctx))
		}
	} else if a.st.Untidy {
		if err := a.tidy(ctx); err != nil {
			return err
		}
	}
	if a.st.Gone {
		return a.leave(ctx)
	}
	if err := a.login(ctx); err != nil {
		return err
	}
	answer, err := a.checkIn(ctx)
	if err != nil {
		return err
	}
	if err := a.sendReport(ctx); err != nil {
		return err
	}
	switch answer.Action {
	case protocol.ActionDown:
		return a.down(ctx, answer.Purge)
	case protocol.ActionApply:
		return a.apply(ctx, answer.BundleSHA, answer)
	}
	if a.st.InForce == nil {
		return nil
	}
	return a.apply(ctx, a.st.InForce.Bundle, answer) // its secrets may have changed
}

// tell sends the report of what an earlier tick had begun.
func (a *Agent) tell(ctx context.Context) error {
	if err := a.login(ctx); err != nil {
		return err
	}
	return a.sendReport(ctx)
}

// checkIn tells how the box stands. A token that the control plane does not take any more gets one new lease.
func (a *Agent) checkIn(ctx context.Context) (protocol.Answer, error) {
	in := protocol.CheckIn{Version: a.Version}
	if a.st.InForce != nil {
		in.BundleSHA = a.st.InForce.Bundle
		if p, err := a.Store.plan(a.st.InForce); err == nil {
			in.Services = a.standing(p)
		}
	}
	answer, err := a.Control.CheckIn(ctx, in)
	if errors.Is(err, protocol.ErrUnauthenticated) {
		if err := a.lease(ctx, protocol.ReasonUnauthenticated, ""); err != nil {
			return answer, err
		}
		answer, err = a.Control.CheckIn(ctx, in)
	}
	if err == nil {
		a.st.LastCheckIn = a.Now().UTC()
	}
	return answer, err
}

// standing is what is in force of each service of a plan.
func (a *Agent) standing(p *Plan) (all []protocol.Service) {
	for _, s := range p.Services {
		out := protocol.Service{Name: s.Enrollment.Name}
		if svc, err := a.Services.Standing(s.Enrollment.Name); err == nil {
			if out.Generation = svc.Generation; svc.Promoted != nil {
				out.Digest = svc.Promoted.Digest
			}
		}
		all = append(all, out)
	}
	return all
}

// sendReport sends what waits to be told.
func (a *Agent) sendReport(ctx context.Context) error {
	if a.st.Report == nil {
		return nil
	}
	if err := a.Control.Report(ctx, *a.st.Report); err != nil {
		if errors.Is(err, protocol.ErrRejected) { // it would be rejected each time
			a.Log.Error("the control plane does not take the report", "err", err)
			a.st.Report = nil
			return a.Store.Put(a.st)
		}
		return err
	}
	a.st.Report = nil
	return a.Store.Put(a.st)
}

// apply converges to a bundle: everything that can refuse it comes before a lease.
func (a *Agent) apply(ctx context.Context, sha string, answer protocol.Answer) error {
	b, plan, err := a.look(ctx, sha, answer)
	if err == nil && a.known(plan) {
		return a.kept(plan)
	}
	if err == nil && (a.st.InForce == nil || a.st.InForce.Bundle != sha) && a.st.Leased != sha {
		if err = a.lease(ctx, protocol.ReasonApply, sha); err == nil {
			a.st.Leased = sha
			err = a.Store.Put(a.st)
		}
	}
	if err == nil {
		plan, err = a.fillSecrets(ctx, b, plan)
	}
	if err == nil && a.known(plan) {
		return a.kept(plan)
	}
	if err != nil {
		return a.refused(ctx, sha, err)
	}
	if err := a.begin(b, plan); err != nil {
		return err
	}
	if err := a.carryOn(ctx); err != nil {
		return errors.Join(err, a.sendReport(ctx))
	}
	return a.sendReport(ctx)
}

// known reports whether there is nothing to be done for a plan, as it is in force or has failed.
func (a *Agent) known(p *Plan) bool {
	if p == nil || slices.Contains(values(p.Secrets), unknown) {
		return false
	}
	sha := p.SHA()
	return a.st.InForce != nil && a.st.InForce.Plan == sha || a.failed(sha)
}

func (a *Agent) failed(plan string) bool {
	return a.st.Failed != nil && a.st.Failed.Plan == plan && !a.Retry
}

// kept ends a tick that has found nothing to do.
func (a *Agent) kept(p *Plan) error {
	if sha := p.SHA(); a.failed(sha) && (a.st.InForce == nil || a.st.InForce.Plan != sha) {
		return &failedError{*a.st.Failed}
	}
	a.st.Failed = nil
	return nil
}

// refused tells of a refusal, once.
func (a *Agent) refused(ctx context.Context, sha string, err error) error {
	r := refusalOf(err)
	if errors.Is(err, protocol.ErrLeaseShape) {
		r = &Refusal{Code: CodeLeaseShape, What: err.Error()}
	}
	if r == nil {
		return err
	}
	detail := a.Redactor.Line(r.Error())
	if f := a.st.Failed; f != nil && f.Bundle == sha && f.Code == string(r.Code) && f.Detail == detail {
		return err
	}
	a.Log.Error("the bundle is refused", "bundle", sha, "code", r.Code, "err", detail)
	now := a.Now().UTC()
	a.st.Failed = &Failure{Bundle: sha, Code: string(r.Code), Detail: detail, At: now}
	a.st.Attempts++
	a.st.Report = &protocol.Report{ID: a.attemptID(), EnvID: a.Config.EnvID, Box: a.Config.Box, BundleSHA: sha, Result: protocol.ResultFailed,
		Code: string(r.Code), Detail: detail, InForce: a.inForce(), Started: now, Ended: now}
	if bad := a.Store.Put(a.st); bad != nil {
		return errors.Join(err, bad)
	}
	return errors.Join(err, a.sendReport(ctx))
}

func (a *Agent) attemptID() string {
	return fmt.Sprintf("%s-%d-%d", a.Config.Box, a.st.Attempts, a.Now().Unix())
}

func (a *Agent) inForce() string {
	if a.st.InForce == nil {
		return ""
	}
	return a.st.InForce.Bundle
}
