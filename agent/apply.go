package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"toad/agent/protocol"
	"toad/probation"
)

// begin saves that the host is about to be changed. From here on a tick that dies is carried on without anybody else.
func (a *Agent) begin(b *Bundle, p *Plan) error {
	if err := a.Store.putPlan(p); err != nil {
		return err
	}
	a.st.Attempts++
	a.st.Applying = &Attempt{ID: a.attemptID(), Started: a.Now().UTC(), To: &Stand{Bundle: b.SHA, Plan: p.SHA(), Created: b.Manifest.Created}}
	a.Log.Info("applying", "bundle", b.SHA, "attempt", a.st.Applying.ID)
	return a.Store.Put(a.st)
}

// carryOn brings what is under way to its end: forward, and if a service fails back. What is owed is a function of the
// saved state and of the services' records.
func (a *Agent) carryOn(ctx context.Context) error {
	at := a.st.Applying
	if at == nil {
		return nil
	}
	if at.To == nil {
		return a.goOut(ctx)
	}
	to, err := a.Store.plan(at.To)
	if err != nil {
		return err
	}
	from, err := a.Store.plan(a.st.InForce)
	if err != nil {
		return err
	}
	if !at.Back {
		why, err := a.forward(ctx, from, to)
		if err != nil {
			return err
		}
		if why == nil {
			return a.arrived(ctx, from, to)
		}
		at.Back, at.Code, at.Detail, at.Later = true, string(why.code), a.Redactor.Line(why.Error()), why.later
		for _, line := range why.tail {
			at.Tail = append(at.Tail, a.Redactor.Line(line))
		}
		a.Log.Error("a service failed; what was before is put back", "bundle", at.To.Bundle, "code", at.Code, "err", at.Detail)
		if err := a.Store.Put(a.st); err != nil {
			return err
		}
	}
	return a.back(ctx, from, to)
}

// mishap is why a service did not come up in its new release.
type mishap struct {
	service string
	code    probation.Code
	reason  string
	later   bool // the host's trouble, or the registry's
	tail    []string
}

func (m *mishap) Error() string { return m.service + ": " + m.reason }

// forward installs what both plans need and puts each service that changes on trial, one after another.
func (a *Agent) forward(ctx context.Context, from, to *Plan) (*mishap, error) {
	if err := a.Store.turn(to.Bundle); err != nil {
		return nil, err
	}
	if err := a.install(ctx, to, from); err != nil {
		return nil, err
	}
	for _, s := range to.Services {
		why, err := a.deploy(ctx, s, "", a.Retry)
		if why != nil || err != nil {
			return why, err
		}
	}
	return nil, nil
}

// install has the files of both plans there, and the services of the first enrolled; those of the second that are not in
// it stay as they are until they are retired.
func (a *Agent) install(ctx context.Context, first, second *Plan) error {
	files, services := map[string]string{}, first.enrollments()
	for _, p := range []*Plan{second, first} {
		for name, text := range p.Support {
			files[name] = text
		}
		for _, s := range p.Services {
			for _, unit := range s.Enrollment.Units {
				files[unit] = stub(s.Enrollment)
			}
		}
	}
	for _, s := range second.Services {
		if first.service(s.Enrollment.Name) == nil {
			services = append(services, s.Enrollment)
		}
	}
	return a.Ground.Install(ctx, files, services)
}

// stub is a unit's own file. It is the same for all releases: what a release brings stands in its pin. Without one it
// names an image that nobody has, so that nothing runs that was not on trial.
func stub(e probation.Enrollment) string {
	return "# Installed by toad agent, and not to be edited: what this unit is stands in its pin, and comes with the release.\n" +
		"[Unit]\nDescription=" + e.Name + ", which no release of a bundle has been put in force of\n" +
		"[Container]\nImage=" + e.Image + "@sha256:" + strings.Repeat("0", 64) + "\nPull=never\n"
}

// deploy puts a service's release on trial, unless it is in force.
func (a *Agent) deploy(ctx context.Context, s Planned, way string, retry bool) (*mishap, error) {
	e := s.Enrollment
	svc, err := a.Services.Standing(e.Name)
	if err != nil {
		return nil, err
	}
	want := probation.Release{Digest: s.Digest, Definition: e.Definition}
	if inForce(svc, want) {
		return nil, nil
	}
	req := probation.Request{Digest: s.Digest, Key: "agent-" + a.st.Applying.ID + way, Body: s.Digest + " " + e.Definition.SHA, By: "toad agent",
		From: "bundle " + a.st.Applying.To.Bundle[:12], ProgramChange: s.ProgramChange}
	if refused := svc.Refusal(want) != nil; refused {
		req.Retry = retry
	} else {
		req.Retry = afterFailure(svc)
	}
	if target, err := svc.RollbackTarget(); way != "" && err == nil && target.Definition.Same(want.Definition) && target.Names(s.Digest) {
		req.Rollback = true // its image is kept, and nobody else is needed
	}
	op, err := a.Services.Deploy(ctx, e, req)
	var rejected *probation.Rejection
	switch {
	case errors.As(err, &rejected):
		return &mishap{service: e.Name, code: rejected.Code, reason: rejected.Detail, later: rejected.Code == probation.CodeOperationActive}, nil
	case err != nil:
		return nil, err
	case op.Phase == probation.Promoted:
		return nil, nil
	}
	m := &mishap{service: e.Name, code: op.Code, reason: fmt.Sprintf("%s ended %s: %s", op.ID, op.Phase, op.Reason)}
	switch op.Code {
	case probation.CodePullUnavailable, probation.CodeUnavailable, probation.CodeInterrupted:
		m.later = op.Phase != probation.RollbackFailed
	}
	if op.Evidence != nil {
		m.tail = op.Evidence.Lines
	}
	return m, nil
}

func afterFailure(svc probation.Service) bool {
	return svc.Operation != nil && svc.Operation.Phase == probation.RollbackFailed
}

// inForce reports whether a release is what a service runs, with nothing under way.
func inForce(svc probation.Service, want probation.Release) bool {
	p := svc.Promoted
	return p != nil && p.Names(want.Digest) && p.Definition.Same(want.Definition) && svc.Active() == nil && !afterFailure(svc)
}

// arrived retires what the new plan does not have, and makes it the one in force.
func (a *Agent) arrived(ctx context.Context, from, to *Plan) error {
	if err := a.retire(ctx, from, to); err != nil {
		return err
	}
	at := a.st.Applying
	before := a.st.InForce
	results := a.results(to, protocol.ResultApplied)
	a.st.Report = a.report(protocol.ResultApplied, results, at.To.Bundle)
	a.st.InForce, a.st.Before, a.st.Applying, a.st.Failed, a.st.Leased, a.st.Untidy = at.To, before, nil, nil, "", true
	if err := a.Store.Put(a.st); err != nil {
		return err
	}
	a.Log.Info("applied", "bundle", at.To.Bundle, "attempt", at.ID)
	return a.tidy(ctx)
}

// tidy takes away what neither the bundle in force nor the one before needs. A bundle that failed stays staged, so that it is
// not fetched at each tick.
func (a *Agent) tidy(ctx context.Context) error {
	in, err := a.Store.plan(a.st.InForce)
	if err != nil {
		return err
	}
	before, err := a.Store.plan(a.st.Before)
	if err != nil {
		return err
	}
	if err := a.install(ctx, in, &Plan{Support: before.Support}); err != nil {
		return err
	}
	if err := a.Podman.DropSecrets(ctx, storeNames(before, in)); err != nil {
		return err
	}
	keep := []*Stand{a.st.InForce, a.st.Before}
	if f := a.st.Failed; f != nil {
		keep = append(keep, &Stand{Bundle: f.Bundle, Plan: f.Plan})
	}
	if err := a.Store.sweep(keep...); err != nil {
		return err
	}
	a.st.Untidy = false
	return a.Store.Put(a.st)
}

// retire takes out of service what only the first of two plans has.
func (a *Agent) retire(ctx context.Context, from, to *Plan) error {
	for _, s := range from.Services {
		e := s.Enrollment
		other := to.service(e.Name)
		if other == nil {
			if err := a.Services.Retire(ctx, e.Name, e.Units); err != nil {
				return err
			}
			continue
		}
		gone := slices.DeleteFunc(slices.Clone(e.Units), func(u string) bool { return slices.Contains(other.Enrollment.Units, u) })
		if len(gone) > 0 {
			if err := a.Services.Retire(ctx, "", gone); err != nil {
				return err
			}
		}
	}
	return nil
}

// back puts the whole plan before into force again: each service of it by its own rollout, and what is new goes.
func (a *Agent) back(ctx context.Context, from, to *Plan) error {
	at := a.st.Applying
	at.Results = a.results(to, protocol.ResultFailed)
	if err := a.install(ctx, from, to); err != nil {
		return err
	}
	var stuck []string
	for _, s := range from.Services {
		why, err := a.deploy(ctx, s, "-back", true)
		if err != nil {
			return err
		}
		if why != nil {
			stuck = append(stuck, why.Error())
		}
	}
	if err := a.retire(ctx, to, from); err != nil {
		return err
	}
	if err := a.Store.turn(from.Bundle); err != nil {
		return err
	}
	detail := at.Detail
	if len(stuck) > 0 {
		detail += "; and the bundle before could not be put back whole: " + a.Redactor.Line(strings.Join(stuck, "; "))
		a.Log.Error("the bundle before could not be put back whole", "err", detail)
	}
	at.Detail = detail
	report := a.report(protocol.ResultFailed, at.Results, a.inForce())
	report.Code, report.Detail, report.LogTail = at.Code, detail, at.Tail
	failure := &Failure{Bundle: at.To.Bundle, Plan: at.To.Plan, Code: at.Code, Detail: detail, At: a.Now().UTC()}
	if at.Later {
		failure.Plan = "" // it is worth another try
	}
	later := at.Later
	a.st.Report, a.st.Applying, a.st.Failed, a.st.Untidy = report, nil, failure, true
	if err := a.Store.Put(a.st); err != nil {
		return err
	}
	if err := a.tidy(ctx); err != nil {
		return err
	}
	if later {
		return errLater(failure)
	}
	return &failedError{*failure}
}

func errLater(f *Failure) error { return later{errors.New(f.Code + ": " + f.Detail)} }

// results tells how each service of a plan stands.
func (a *Agent) results(p *Plan, otherwise protocol.Result) []protocol.Service {
	all := a.standing(p)
	for i, s := range p.Services {
		svc, err := a.Services.Standing(s.Enrollment.Name)
		if all[i].Result = otherwise; err == nil && inForce(svc, probation.Release{Digest: s.Digest, Definition: s.Enrollment.Definition}) {
			all[i].Result = protocol.ResultApplied
		} else if err == nil && svc.Operation != nil && a.st.Applying != nil && strings.HasPrefix(svc.Operation.Key, "agent-"+a.st.Applying.ID) {
			all[i].Code = string(svc.Operation.Code)
		}
	}
	return all
}

func (a *Agent) report(result protocol.Result, services []protocol.Service, inForce string) *protocol.Report {
	at := a.st.Applying
	r := &protocol.Report{ID: at.ID, EnvID: a.Config.EnvID, Box: a.Config.Box, Result: result, InForce: inForce, Started: at.Started,
		Ended: a.Now().UTC(), Services: services}
	if at.To != nil {
		r.BundleSHA = at.To.Bundle
	}
	return r
}
