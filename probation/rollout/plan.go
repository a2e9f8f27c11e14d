package rollout

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"toad/probation"
	"toad/quadlet"
)

// Plan does all of a deployment that comes before the switch, short of making it one: it asks the rules, brings the image
// here, proves the way back and looks at how the pins would bind. Nothing is recorded, and no unit is touched. A request
// that would not be accepted is a *probation.Rejection; a preparation that would fail is told by the plan's code.
func (r *Rollout) Plan(ctx context.Context, e probation.Enrollment, req probation.Request, say func(level, event, message string)) (probation.Plan, error) {
	svc, err := r.Records.Service(e.Name)
	if err != nil {
		return probation.Plan{}, err
	}
	next, changed, err := svc.Accept(e, req, r.Now())
	if err != nil {
		return probation.Plan{}, err
	}
	if !changed {
		return probation.Plan{Already: true, Operation: svc.Promotion()}, nil
	}
	op := *next.Operation
	ctx, cancel := context.WithTimeout(ctx, op.PrepareBy.LeftAt(r.Now()))
	defer cancel()
	dry := *r
	dry.say = say
	dry.Identify = func(ctx context.Context, op probation.Operation, id string) (string, error) {
		op.ID += "-dry" // the operation of that id may come meanwhile, and read the same
		return r.Identify(ctx, op, id)
	}
	plan := probation.Plan{Operation: op}
	ev, err := dry.prepared(ctx, svc, op, true)
	if err == nil {
		ev = next.Judged(ev)
	}
	if err == nil && ev.Kind == probation.PrepareFailed {
		err = fail(ev.Code, "%s", ev.Reason)
	}
	if err == nil {
		op.Candidate, op.Previous, op.Program, op.Prepared = ev.Candidate, ev.InForce, ev.Program, true
		plan.Operation = op
		plan.Units, err = dry.plannedUnits(ctx, op)
	}
	var f *failure
	var p *PullError
	switch {
	case errors.As(err, &f):
		plan.Code, plan.Reason = f.code, f.Error()
	case errors.As(err, &p):
		plan.Code, plan.Reason = p.Code, err.Error()
	case errors.Is(err, context.DeadlineExceeded):
		plan.Code, plan.Reason = probation.CodePullUnavailable, notInTime
	case err != nil:
		return plan, err
	}
	return plan, nil
}

// plannedUnits looks at how each unit stands, and whether anything would win over its pin.
func (r *Rollout) plannedUnits(ctx context.Context, op probation.Operation) ([]probation.PlannedUnit, error) {
	before, err := r.before(ctx, op)
	if err != nil {
		return nil, err
	}
	var units []probation.PlannedUnit
	var wins []string
	for _, b := range before {
		s, err := r.Units.State(ctx, b.Service)
		if err != nil {
			return nil, err
		}
		u := probation.PlannedUnit{UnitBefore: b, Reference: r.candidatePin(op, b).Reference}
		if u.Wins = quadlet.Foresee(r.Quadlet, b.Unit, generated(s)); u.Wins != "" {
			wins = append(wins, fmt.Sprintf("%s would win over the pin of %s: take the setting out there", u.Wins, b.Unit))
		}
		units = append(units, u)
	}
	if len(wins) > 0 {
		err = fail(probation.CodeBindingBroken, "%s", strings.Join(wins, "; "))
	}
	return units, err
}
