package main

import (
	"context"
	"fmt"
	"strings"

	"toad/httpd/api"
	"toad/probation"
)

// dryRun does what comes before a switch and prints what would come then.
func (d *deployment) dryRun(ctx context.Context, c *api.Client, req api.DeployRequest) error {
	plan, err := c.Plan(ctx, d.service, req, d.g.planLine)
	if err != nil {
		return reached(c, err)
	}
	if !d.g.JSON {
		if err := d.g.printPlan(ctx, c, plan); err != nil {
			return err
		}
	}
	if plan.Code != "" {
		return exitError{exitOf(probation.Failed, probation.Code(plan.Code)),
			fmt.Errorf("%s would fail before the switch: %s (%s)", plan.Service, strings.TrimSuffix(plan.Reason, "."), plan.Code)}
	}
	return nil
}

func (g *globals) planLine(ev api.PlanEvent) error {
	switch {
	case g.JSON:
		return printLine(g.Stdout, ev)
	case ev.Line == nil:
		return nil
	}
	_, err := fmt.Fprintf(g.Stdout, "  %-12s %s\n", clean(ev.Line.Event), wrap(brief(clean(ev.Line.Message), g.width()), 15, g.width()))
	return err
}

func (g *globals) printPlan(ctx context.Context, c *api.Client, p api.Plan) error {
	if p.Already {
		g.say("%s", brief(fmt.Sprintf("%s runs %s already (%s); a deployment would do nothing.", p.Service, p.Digest, p.Operation), g.width()))
		return nil
	}
	if p.Code != "" {
		return nil
	}
	d, diffErr := c.Diff(ctx, p.Service, p.Digest)
	rows := [][2]string{{"image", p.Image + "@" + p.Digest}}
	if diffErr == nil && d.To.File != "" {
		rows[0] = [2]string{"file", d.To.File}
	}
	if diffErr == nil {
		rows = append(rows, [2]string{"", about(d.To, g.now()) + ", on this host"})
	}
	if p.Program != "" {
		rows = append(rows, [2]string{"program", p.Program})
	}
	for _, u := range p.Units {
		rows = append(rows, [2]string{"restart", restarts(u)})
	}
	back := "nothing: nothing runs now, and a release that fails is stopped again"
	if p.InForce != nil {
		back = release(p.InForce) + ", which is kept on this host"
	}
	rows = append(rows, [2]string{"way back", back},
		[2]string{"readiness", p.Readiness},
		[2]string{"promoted", fmt.Sprintf("when ready for %s without a break, with at most %d restarts", tidy(p.Stable), p.Restarts)},
		[2]string{"rolled back", "if that has not happened " + tidy(p.Deadline) + " after the switch"})
	columns := g.width()
	for _, r := range rows {
		if _, err := fmt.Fprintf(g.Stdout, "  %-12s %s\n", r[0], wrap(brief(clean(r[1]), columns), 15, columns)); err != nil {
			return err
		}
	}
	if diffErr == nil && d.From != nil {
		g.say("")
		g.say("%s", brief(fmt.Sprintf("what it changes against %s, which is in force:", d.From.Digest), columns))
		if err := g.printChanges(d); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(g.Stdout, wrap(brief(fmt.Sprintf("%s would be deployed as %s. Nothing was changed.", p.Digest, p.Operation), columns), 0, columns))
	return err
}

func restarts(u api.PlanUnit) string {
	text := u.Service + " (" + u.Unit + ")"
	if !u.Running {
		text += ", which is down now"
	}
	if len(u.Dependents) > 0 {
		text += ", and with it " + strings.Join(u.Dependents, ", ")
	}
	return text
}
