// Package watch looks at a service on probation until it knows: it samples units, containers and readiness, and feeds
// what it sees to the pure window and budget of probation.Watch.
package watch

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"toad/probation"
	"toad/probation/record"
	"toad/unitgen"
)

// Units looks at units of the user manager, and tells when to look again.
type Units interface {
	State(ctx context.Context, name string) (unitgen.State, error)
	Invocation(ctx context.Context, name string) (string, error)
	Watch(ctx context.Context, names ...string) (<-chan unitgen.Change, error)
	Stopping(ctx context.Context) (bool, error)
}

// Containers looks at containers by id.
type Containers interface {
	Container(ctx context.Context, id string) (Container, error)
}

// Container is what is judged of a container.
type Container struct {
	ImageID   string // 64 hex digits
	Operation string // the io.toad.operation label
	Health    string // Podman's word: "", starting, healthy, unhealthy
}

// Check is one observer of one operation. Every field is set by the caller.
type Check struct {
	Records    *record.Store
	Units      Units
	Containers Containers
	Runs       func(unitgen.State) string // names what runs as a unit, a container or a process; empty when nothing does
	Now        func() probation.Instant
	// MemoryLimit reports whether a unit or its container has a limit of memory of its own.
	MemoryLimit func(unitgen.State) bool
	// Foreign reports whether the port that the probe asks is held by a process outside of the unit.
	Foreign func(unitgen.State, probation.Ready) bool
	Manager string       // which run of the user manager this is
	Runtime string       // the runtime folder, %t in a side's address
	Status  func(string) // the unit's status line
	Log     *slog.Logger
	// PodmansLines returns the last lines of an invocation that Podman wrote about itself, redacted. What the application
	// says is no word of Podman's, however it begins.
	PodmansLines func(ctx context.Context, op probation.Operation, invocation string) []string

	op    probation.Operation
	phase probation.Phase
	probe probe
	known map[string]Container // by id; what is judged of a container never changes, but for its health
	stops map[string]bool      // units for which a stop job was seen since the last sample
	file  record.Watch

	foreign bool // the probe's port was somebody else's at the last sample
}

// saveEvery bounds how much of the deadline's progress a power cut can hide.
const saveEvery = 30 * time.Second

// Run watches an operation until there is a verdict or the context ends. The verdict is in the operation's watch file,
// under the check's number.
func (c *Check) Run(ctx context.Context, id string, number int) (probation.Verdict, error) {
	if err := c.begin(id, number); err != nil {
		return probation.Verdict{}, err
	}
	names := make([]string, len(c.op.Before))
	for i, b := range c.op.Before {
		names[i] = b.Service
	}
	// The unit's own timeout is coarse. This bound is exact, and a little late, so that the act which follows finds the
	// deadline past.
	ctx, cancel := context.WithTimeout(ctx, c.file.Deadline.LeftAt(c.Now())+10*time.Millisecond)
	defer cancel()
	changes, err := c.Units.Watch(ctx, names...)
	if err != nil {
		return probation.Verdict{}, err
	}
	w := probation.NewWatch(c.op.Enrollment, probation.Wants(c.op), c.carried())
	tick := time.NewTicker(w.Interval)
	defer tick.Stop()
	for {
		var verdict probation.Verdict
		w.Queued = w.Queued || c.queued()
		sample, err := c.sample(ctx, w)
		switch {
		case ctx.Err() != nil:
			return probation.Verdict{}, ctx.Err()
		case err != nil: // the bus or Podman: a gap, not a verdict
			c.tell(w, "cannot look: "+err.Error())
		default:
			w, verdict = w.Next(sample)
			beside := c.op.Sided() && c.phase == probation.Probation // the side in force serves meanwhile
			c.file.Outage = c.file.Outage.See(sample.Serving || beside, c.Now())
			verdict = c.takenPort(c.podmansWords(ctx, w, verdict))
			if err := c.keep(w, verdict); err != nil {
				return verdict, err
			}
		}
		if verdict.Kind != "" {
			return verdict, nil
		}
		if err := c.wait(ctx, tick, changes); err != nil {
			return probation.Verdict{}, err
		}
	}
}

// begin reads what is to be watched.
func (c *Check) begin(id string, number int) error {
	op, err := c.Records.Operation(id)
	if err != nil {
		return err
	}
	if op.Checks != number {
		return fmt.Errorf("check %d of %s is not the current one (%d)", number, id, op.Checks)
	}
	c.op, c.phase = op, probation.Probation
	c.op.Enrollment.Ready = op.Asks()
	deadline := op.Deadline
	if op.Phase == probation.Restoring {
		c.phase, deadline = probation.Restoring, op.RestoreBy
	}
	if deadline == nil || op.Phase.Terminal() {
		return fmt.Errorf("%s is in %s, there is nothing to watch", id, op.Phase)
	}
	c.probe, err = newProbe(c.op.Enrollment.Ready.Of(op.Asked(), c.Runtime))
	if err != nil {
		return err
	}
	c.known, c.stops = map[string]Container{}, map[string]bool{}
	c.file = record.Watch{Check: number, Phase: c.phase, Manager: c.Manager, Deadline: *deadline,
		Outage: op.Outage(c.Records.Watch(id).Outage)}
	return nil
}

// queued looks whether the act that started this check has queued its jobs.
func (c *Check) queued() bool {
	op, err := c.Records.Operation(c.op.ID)
	return err == nil && probation.Queued(op)
}

// carried are the counts of an earlier check of the same attempt: the budget is of the whole attempt. Invocations of
// another boot, or of another run of the user manager, are not restarts.
func (c *Check) carried() []probation.Seen {
	old := c.Records.Watch(c.op.ID)
	if old.Phase != c.phase {
		return nil
	}
	if old.At.BootID != c.Now().BootID || old.Manager != c.Manager {
		for i := range old.Seen {
			old.Seen[i].Invocation, old.Seen[i].Container, old.Seen[i].Restarts = "", "", 0
		}
	}
	return old.Seen
}

// wait ends with the next tick, or when a watched unit has changed. Changes that came meanwhile are taken at once.
func (c *Check) wait(ctx context.Context, tick *time.Ticker, changes <-chan unitgen.Change) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-tick.C:
		return nil
	case ch, ok := <-changes:
		if !ok {
			return ctx.Err()
		}
		c.take(ch)
	}
	for {
		select {
		case ch, ok := <-changes:
			if !ok {
				return ctx.Err()
			}
			c.take(ch)
		default:
			return nil
		}
	}
}

func (c *Check) take(ch unitgen.Change) {
	if ch.Kind == unitgen.JobNew && ch.JobType == "stop" {
		c.stops[ch.Unit] = true
	}
}

// keep saves what is worth saving: a verdict, a change of readiness, what is new of the units, and now and then the
// time. It tells of changes in the operation's log.
func (c *Check) keep(w probation.Watch, v probation.Verdict) error {
	now, ready := c.Now(), w.ReadySince != 0
	changed := ready != c.file.Ready || w.Why != c.file.Why || c.file.At.BootID == ""
	told := changed && (w.Queued || ready) // what is about to be restarted is no news
	due := now.Boot-c.file.At.Boot >= saveEvery
	if told {
		c.say(w, ready)
	}
	c.Status(status(c.op, w, v, now, c.file.Deadline))
	if !changed && !due && v.Kind == "" && sameSeen(w.Seen, c.file.Seen) {
		return nil
	}
	// An act that died may have left this check behind with another in its place, whose verdict is not to be overwritten.
	if op, err := c.Records.Operation(c.op.ID); err == nil && op.Checks != c.file.Check {
		return fmt.Errorf("check %d of %s was replaced by check %d", c.file.Check, c.op.ID, op.Checks)
	}
	c.file.Seen, c.file.Why, c.file.Ready, c.file.At = w.Seen, w.Why, ready, now
	c.file.Deadline, c.file.Verdict, c.file.Unready = c.file.Deadline.Seen(now), v, c.unready(w)
	return c.Records.PutWatch(c.op.ID, c.file)
}

func sameSeen(a, b []probation.Seen) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func (c *Check) say(w probation.Watch, ready bool) {
	event, level, message := "ready", "info", "ready: "+w.Why
	if !ready {
		event, message = "unready", "not ready: "+w.Why
		if c.file.Ready {
			level = "warn"
		}
	}
	c.line(level, event, message)
}

// tell says once that nothing can be seen.
func (c *Check) tell(w probation.Watch, why string) {
	if c.file.Why != why {
		c.file.Why = why
		c.line("warn", "unready", why)
	}
	c.Status(why)
}

func (c *Check) line(level, event, message string) {
	err := c.Records.Log(c.op.ID, record.Line{At: c.Now().Wall.UTC(), Level: level, Event: event, Message: message})
	attrs := []any{"service", c.op.Service, "operation", c.op.ID}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	c.Log.Info(message, attrs...)
}

func status(op probation.Operation, w probation.Watch, v probation.Verdict, now probation.Instant, d probation.Deadline) string {
	if v.Kind != "" {
		return fmt.Sprintf("%s: %s", v.Kind, v.Reason)
	}
	left := max(0, d.LeftAt(now)).Round(time.Second)
	if w.ReadySince == 0 {
		return fmt.Sprintf("not ready: %s; %d restarts of %d, deadline in %v", w.Why, w.Restarts(), w.Budget, left)
	}
	return fmt.Sprintf("ready for %v of %v, %d restarts of %d, deadline in %v",
		w.Filled().Round(100*time.Millisecond), w.Stable, w.Restarts(), w.Budget, left)
}
