package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/alert"
	"toad/internal/redact"
	"toad/podmanc"
	"toad/probation"
	"toad/probation/record"
	"toad/quadlet"
	"toad/unitgen"
)

func alertCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad alert", flag.ContinueOnError)
	deliver := fs.Bool("deliver", false, "send what waits in the spool to the targets of the enrollment's [alerts]")
	return &ffcli.Command{
		Name: "alert", ShortUsage: "toad alert UNIT | toad alert --deliver", FlagSet: fs,
		ShortHelp: "tell that a unit failed after its promotion, or deliver what was told; started by systemd",
		LongHelp: "With a unit's name it raises one alert per incident: a crash loop is one. It is silent while a deployment is\n" +
			"under way, whose end tells more. With --deliver it sends what waits, and fails while something is left.\n\n" +
			"Example: toad alert web",
		Exec: func(ctx context.Context, args []string) error {
			if (len(args) == 1) == *deliver {
				return usagef("alert takes one unit name without its ending, e.g. web, or --deliver")
			}
			h, err := wire(ctx, g)
			if err != nil {
				return err
			}
			defer h.close()
			if *deliver {
				return h.deliver(ctx)
			}
			return h.failedAfterPromotion(ctx, args[0])
		},
	}
}

const deliverUnit = "toad-deliver.service"

// raise puts an alert into the journal and the spool, and has it delivered. An incident that was told is not told again.
func (h *host) raise(ctx context.Context, a alert.Alert) error {
	a.At = time.Now().UTC()
	if name, err := os.Hostname(); err == nil {
		a.Host = name
	}
	a.Text = fmt.Sprintf("%s on %s: %s: %s", a.Service, a.Host, strings.ReplaceAll(a.Kind, "_", " "), a.Reason)
	raised, err := h.alerts.Raise(a)
	if err != nil || !raised {
		return err
	}
	level := slog.LevelError
	if a.Severity == alert.Critical {
		level = levelCritical
	}
	h.log.Log(ctx, level, a.Text, "service", a.Service, "operation", a.Operation, "unit", a.Unit, "candidate", a.Candidate, "in_force", a.InForce)
	h.nudge(ctx)
	return nil
}

// nudge starts the delivery if anything waits. One that cannot be started now is started by the next alert or tick.
func (h *host) nudge(ctx context.Context) {
	n, err := h.alerts.Waiting()
	if err == nil && n > 0 {
		err = h.bus.Start(ctx, deliverUnit)
	}
	if err != nil {
		h.log.Warn("alerts wait to be delivered", "err", err)
	}
}

func (h *host) deliver(ctx context.Context) error {
	targets, err := h.enrolled.Alerts()
	if err != nil {
		return configError{err}
	}
	return h.alerts.Deliver(ctx, alert.Targets{WebhookFile: targets.WebhookFile, Command: targets.Command})
}

// tellDamaged raises an alert for each record that cannot be read.
func (h *host) tellDamaged(ctx context.Context) {
	names, err := h.records.Names()
	if err != nil {
		h.log.Error("damaged records", "err", err)
		return
	}
	for _, n := range names {
		_, err := h.records.Service(n)
		if !errors.Is(err, record.ErrDamaged) {
			continue
		}
		_, aside, _ := strings.Cut(err.Error(), ".corrupt-") // the same damage is told once
		aside, _, _ = strings.Cut(aside, ";")
		if errors.Is(err, record.ErrNewer) {
			aside = "newer"
		}
		err = h.raise(ctx, alert.Alert{ID: fmt.Sprintf("%s-damaged-%s", n, aside), Kind: "damaged_record", Severity: alert.Critical,
			Service: n, Reason: err.Error()})
		if err != nil {
			h.log.Error("alert of a damaged record", "service", n, "err", err)
		}
	}
}

// tellEnd is the alert of an operation that did not end promoted, or that was held back at boot.
func (h *host) tellEnd(ctx context.Context, op probation.Operation, inForce *probation.Release) error {
	a := alert.Alert{ID: op.ID + "-" + string(op.Phase), Kind: string(op.Phase), Severity: alert.Warning, Service: op.Service,
		Operation: op.ID, Candidate: op.Candidate.Digest, InForce: digestOf(inForce), Reason: op.Reason}
	switch op.Phase {
	case probation.Restoring:
		a.ID, a.Kind = op.ID+"-held_at_boot", "held_at_boot"
	case probation.RollbackFailed:
		a.Severity = alert.Critical
		a.Reason += "; nothing more is tried: look at toad log " + op.Service + ", then toad rollback " + op.Service
	}
	return h.raise(ctx, a)
}

func digestOf(r *probation.Release) string {
	switch {
	case r == nil:
		return ""
	case r.Digest == "":
		return r.ImageID
	}
	return r.Digest
}

// failedAfterPromotion finds the service of a failed unit. Nothing is rolled back: the release was good when it was
// watched, and another one may be no better.
func (h *host) failedAfterPromotion(ctx context.Context, unit string) error {
	svc, err := h.serviceOf(unit + ".service")
	if err != nil || svc.Active() != nil || idleSide(svc, unit+".service") {
		return err
	}
	if h.rollout.Lost(ctx, svc) {
		if err := h.rollout.Begin(ctx, *svc.Operation); err != nil {
			h.log.Error("load the image back", "service", svc.Name, "err", err)
		}
	}
	if state, err := h.bus.State(ctx, unit+".service"); err == nil && stoppedInOrder(state) {
		return nil
	}
	began, err := h.alerts.Incident(unit, time.Now())
	if err != nil {
		return err
	}
	return h.raise(ctx, alert.Alert{ID: fmt.Sprintf("%s-failed-%d", unit, began.UnixNano()), Kind: "failed_after_promotion",
		Severity: alert.Warning, Service: svc.Name, Operation: svc.Operation.ID, Unit: unit + ".service", InForce: digestOf(svc.Promoted),
		Reason: unit + ".service failed; it is not rolled back by itself: toad rollback " + svc.Name})
}

// stoppedInOrder says of a failed unit that it only did what it was asked to: 143 is how shells tell of the SIGTERM of a
// stop, and systemd takes it for a failure.
func stoppedInOrder(s unitgen.State) bool {
	const exited, terminated = 1, 143
	return s.ActiveState == "failed" && !s.Running() && s.ExecMainCode == exited && s.ExecMainStatus == terminated
}

// serviceOf finds the service that a unit was last switched with.
func (h *host) serviceOf(unit string) (probation.Service, error) {
	names, err := h.records.Names()
	if err != nil {
		return probation.Service{}, err
	}
	for _, n := range names {
		svc, err := h.records.Service(n)
		if err != nil || svc.Operation == nil {
			continue
		}
		for _, b := range svc.Operation.Before {
			if b.Service == unit {
				return svc, nil
			}
		}
		for _, u := range svc.Operation.Enrollment.Units { // it may have ended before it touched them
			if src, err := quadlet.Find(h.rollout.Quadlet, u); err == nil && src.ServiceUnit == unit {
				return svc, nil
			}
		}
	}
	return probation.Service{}, fmt.Errorf("no service has the unit %s", unit)
}

// idleSide reports whether a unit is the side that the door of its service does not lead to.
func idleSide(svc probation.Service, unit string) bool {
	if svc.Promoted == nil || svc.Promoted.Side == "" {
		return false
	}
	for _, b := range svc.Operation.Before {
		if b.Service == unit {
			return b.Unit != svc.Promoted.Side
		}
	}
	return false
}

// lastLines are the last lines of an invocation, without what must not be told.
func (h *host) lastLines(ctx context.Context, op probation.Operation, invocation string) []string {
	return h.redacted(ctx, op, journalLines(ctx, invocation, entry.worthTelling))
}

// podmansLines are those of them that Podman wrote about itself. An application's output comes through conmon, or under
// its own name.
func (h *host) podmansLines(ctx context.Context, op probation.Operation, invocation string) []string {
	return h.redacted(ctx, op, journalLines(ctx, invocation, entry.ofPodman))
}

func (h *host) redacted(ctx context.Context, op probation.Operation, lines []string) []string {
	r := h.redactor(ctx, op)
	for i, l := range lines {
		lines[i] = r.Line(l)
	}
	return lines
}

// redactor knows the values that the units of an operation hand to their containers, and the registry's logins.
func (h *host) redactor(ctx context.Context, op probation.Operation) *redact.Redactor {
	r := &redact.Redactor{}
	for _, login := range podmanc.Logins(op.Enrollment.Image) {
		r.Add("", login)
	}
	for _, b := range op.Before {
		state, err := h.bus.State(ctx, b.Service)
		if err != nil {
			continue
		}
		s := quadlet.SecretsOf(quadlet.Generated{ExecStart: state.ExecStart})
		for name, value := range s.Environment {
			r.Add(name, value)
		}
		for _, file := range s.Files {
			addFile(r, file)
		}
		for _, name := range s.Names {
			if value, err := h.podman.Secret(ctx, name); err == nil {
				r.Add(name, value)
			}
		}
	}
	return r
}

// addFile makes the values of an environment file known.
func addFile(r *redact.Redactor, path string) {
	data, err := os.ReadFile(path)
	if err != nil || len(data) > 1<<20 {
		return
	}
	for line := range strings.Lines(string(data)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(name, "#") {
			r.Add(name, strings.Trim(value, `"'`))
		}
	}
}
