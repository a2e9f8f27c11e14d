package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"toad/httpd/api"
	"toad/probation"
)

// follow tells what happens to an operation until it is decided. It returns the operation as it ended.
func (g *globals) follow(ctx context.Context, c *api.Client, op api.Operation) (api.Operation, error) {
	p := &progress{g: g, op: op, columns: g.width()}
	if g.JSON {
		p.silent = true
	}
	stop := p.start()
	err := c.Follow(ctx, op.ID, "", p.take)
	stop()
	switch {
	case err != nil && ctx.Err() != nil:
		return p.op, hint(exitError{exitAgain, fmt.Errorf("%s: no longer followed; it goes on without this command", op.ID)},
			"toad log %s --follow, or toad status %s", op.Service, op.Service)
	case errors.Is(err, api.ErrUnreachable):
		return p.op, hint(fmt.Errorf("%s goes on, but its outcome is not known: %w", op.ID, err), "toad status %s", op.Service)
	case err != nil:
		return p.op, fmt.Errorf("follow %s: %w", op.ID, reached(c, err))
	}
	return p.op, nil
}

// progress prints an operation's log as it grows, and on a terminal a last line that is alive.
type progress struct {
	g       *globals
	columns int  // 0: not a terminal, no live line
	silent  bool // no live line either: what is printed is for a program

	mu     sync.Mutex
	op     api.Operation
	ready  time.Time // since when, as the log tells; zero while not ready
	why    string    // it is not ready, or what a pull is at
	pulled int       // lines of the pull
	drawn  bool
}

// streamed is one line of JSON of what is followed.
type streamed struct {
	Line      json.RawMessage `json:"line,omitempty"`
	Operation *api.Operation  `json:"operation,omitempty"`
	End       *ending         `json:"end,omitempty"`
}

type ending struct {
	Exit      int           `json:"exit"`
	Outcome   string        `json:"outcome"`
	Operation api.Operation `json:"operation"`
}

// start draws the live line now and then, so that its times go on between events.
func (p *progress) start() (stop func()) {
	if p.columns == 0 || p.silent {
		return func() {}
	}
	done := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				p.mu.Lock()
				p.draw()
				p.mu.Unlock()
			}
		}
	})
	return func() {
		close(done)
		over.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		p.erase()
	}
}

func (p *progress) take(ev api.Event) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ev.Operation != nil {
		p.op = *ev.Operation
	}
	if ev.Line != nil {
		p.note(*ev.Line)
	}
	if p.silent {
		return printLine(p.g.Stdout, streamed{Line: ev.Raw, Operation: ev.Operation})
	}
	p.erase()
	if ev.Line != nil && p.shown(*ev.Line) {
		if _, err := fmt.Fprintln(p.g.Stdout, p.g.line(p.op.AcceptedAt, *ev.Line)); err != nil {
			return err
		}
	}
	if !ev.End {
		p.draw()
	}
	return nil
}

// limit is the instant by which something will have happened; nil while none is set.
func limit(op api.Operation) *time.Time {
	switch {
	case op.Ended():
		return nil
	case op.RestoreBy != nil:
		return op.RestoreBy
	}
	return op.Deadline
}

// line is one line of a log: time since acceptance, a mark for trouble, event, message.
func (g *globals) line(accepted time.Time, l api.Line) string {
	mark := " "
	switch l.Level {
	case "warn":
		mark = "!"
	case "error":
		mark = "E"
	}
	columns, s := g.width(), g.style()
	event := clean(l.Event)
	how := ofEvent(l.Level, l.Event)
	text := wrap(brief(clean(l.Message), columns), 23, columns)
	return fmt.Sprintf("%s %s %s %s", s.paint(dim, fmt.Sprintf("%8s", "+"+span(l.At.Sub(accepted)))), s.paint(how, mark),
		s.paint(how, fmt.Sprintf("%-11s", event)), text)
}

// outcome is the last word on an operation that is decided: a sentence, and the exit code. svc is the service as it
// stands after it.
func outcome(op api.Operation, svc api.Service) (sentence string, code int) {
	code = exitOf(probation.Phase(op.Phase), probation.Code(op.Code))
	now := "nothing of toad's is in force"
	if svc.Promoted != nil {
		now = fmt.Sprintf("%s (generation %d) is in force", release(svc.Promoted), svc.Promoted.Generation)
	}
	tried := candidate(op)
	switch probation.Phase(op.Phase) {
	case probation.Promoted:
		if svc.Promoted != nil && svc.Promoted.Generation != op.Generation {
			return fmt.Sprintf("%s was promoted, but by now %s.", op.ID, now), code
		}
		why := "it was promoted"
		if op.Stable != "" {
			why = "it was ready for " + tidy(op.Stable) + " without a break"
		}
		return fmt.Sprintf("%s runs %s (%s): %s%s.", op.Service, tried, op.ID, why, unserved(op, "in between")), code
	case probation.RolledBack:
		return fmt.Sprintf("%s was rolled back, %s: %s%s.", op.ID, now, because(op), unserved(op, "in all")), code
	case probation.Withdrawn:
		return fmt.Sprintf("%s was withdrawn, %s is left stopped as it was before: %s.", op.ID, op.Service, because(op)), code
	case probation.RollbackFailed:
		return fmt.Sprintf("%s could not be rolled back, %s is in trouble: %s.", op.ID, op.Service, because(op)), code
	case probation.Failed:
		return fmt.Sprintf("%s failed before anything was changed, %s: %s.", op.ID, now, because(op)), code
	}
	return fmt.Sprintf("%s is in %s.", op.ID, op.Phase), code
}

// unserved says how long nothing answered.
func unserved(op api.Operation, when string) string {
	gap, err := time.ParseDuration(op.Gap)
	switch {
	case err != nil:
		return "" // nothing ran before, or it is not on record
	case gap < 50*time.Millisecond:
		return "; no probe found it away"
	}
	return fmt.Sprintf("; it did not serve for %s %s", span(gap), when)
}

func candidate(op api.Operation) string {
	if op.Digest == "" {
		return "the release before"
	}
	return op.Digest
}

func because(op api.Operation) string {
	reason := strings.TrimSuffix(op.Reason, ".")
	switch {
	case reason != "" && op.Code != "":
		return fmt.Sprintf("%s (%s)", reason, op.Code)
	case reason != "":
		return reason
	case op.Code != "":
		return op.Code
	}
	return "no reason is on record"
}

// after says what to do about an outcome that is not the one that was wanted.
func after(op api.Operation) string {
	switch probation.Phase(op.Phase) {
	case probation.RollbackFailed:
		return fmt.Sprintf("toad log %s; then toad rollback %s, or deploy with --retry", op.ID, op.Service)
	case probation.Failed:
		switch probation.Code(op.Code) {
		case probation.CodePullUnavailable:
			return fmt.Sprintf("try again later; toad log %s tells more", op.ID)
		case probation.CodeAborted:
			return ""
		}
	}
	return "toad log " + op.ID
}

// tell ends a command that followed an operation: the sentence, or the JSON, and the exit code as an error. want is
// asked whether the outcome is what the command is for; its exit code is then 0.
func (g *globals) tell(ctx context.Context, c *api.Client, op api.Operation, wanted func(api.Operation) bool) error {
	svc, err := c.Service(ctx, op.Service)
	if err != nil {
		svc = api.Service{Service: op.Service} // the operation tells enough
		if op.Phase == string(probation.Promoted) {
			svc.Promoted = &api.Release{Digest: op.Digest, Generation: op.Generation}
		}
	}
	sentence, code := outcome(op, svc)
	if wanted(op) {
		code = 0
	}
	g.diffOfFailure(ctx, c, op)
	return g.last(op, code, sentence)
}

// last is the last word of a command: the sentence, or its line of JSON, and the exit status.
func (g *globals) last(op api.Operation, code int, sentence string) error {
	if g.JSON {
		if err := printLine(g.Stdout, streamed{End: &ending{code, sentence, op}}); err != nil {
			return err
		}
	}
	if code != 0 {
		failed := error(exitError{code, errors.New(strings.TrimSuffix(sentence, "."))})
		if h := after(op); h != "" {
			return hint(failed, "%s", h)
		}
		return failed
	}
	g.say("%s", sentence)
	return nil
}
