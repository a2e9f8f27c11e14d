package rollout

import (
	"context"

	"toad/probation"
	"toad/quadlet"
)

// suits holds a unit, once it is loaded with the text that a release brings, against the enrollment: whether toad can run
// it, and whether readiness is asked of the unit itself. For all other units that is known before anything is pulled.
func (r *Rollout) suits(ctx context.Context, op probation.Operation, b probation.UnitBefore) error {
	if op.Candidate.Definition.Text(b.Unit) == "" {
		return nil
	}
	src, err := quadlet.Find(r.Quadlet, b.Unit)
	if err != nil {
		return err
	}
	s, err := r.Units.State(ctx, b.Service)
	if err != nil {
		return err
	}
	err = r.CheckUnit(src, generated(s), op.Enrollment)
	if err == nil && b.Unit == op.Enrollment.Units[0] {
		err = r.asked(ctx, op, s.Name, generated(s))
	}
	if err != nil {
		return &quadlet.BindingError{Unit: b.Unit, What: "the text of the release", Have: err.Error()}
	}
	return nil
}

// asked holds the probe against the unit that it asks.
func (r *Rollout) asked(ctx context.Context, op probation.Operation, unit string, g quadlet.Generated) error {
	if err := quadlet.CheckProbe(op.Enrollment, g); err != nil || !op.Enrollment.Ready.Health {
		return err
	}
	has, decided := quadlet.HasHealthcheck(g)
	if has {
		return nil
	}
	img, err := r.images(op.Enrollment).Image(ctx, op.Candidate.ImageID)
	if err == nil && (decided || !img.Healthcheck) {
		err = fail(probation.CodeNoHealthcheck, "readiness is Podman's health check, but neither %s nor the image has one; add HealthCmd= to the unit, or choose another probe", unit)
	}
	return err
}

// definition is what the pins of an operation say that its release brings. How readiness was asked for is not in them.
func (m remains) definition(operation string) *probation.Definition {
	texts := map[string]string{}
	for _, u := range m.Units {
		for _, text := range []string{u.Pin, u.HaveText} {
			if p, err := quadlet.ParsePin(text); err == nil && p.Operation == operation && p.Release != "" {
				texts[u.Unit] = p.Release
			}
		}
	}
	if len(texts) == 0 {
		return nil
	}
	return probation.Define(texts, m.Enrollment.Ready)
}
