package webui

import (
	"slices"
	"time"
)

// step is one phase on the line that a deployment walks along.
type step struct {
	State State
	Mark  string // done, now, ahead, good or bad
	At    time.Time
	Took  time.Duration // until the next one; 0 if it is the last
}

var (
	forward  = []string{"accepted", "preparing", "switching", "probation", "promoting", "promoted"}
	backward = []string{"restoring", "rolled_back"}
	ends     = []string{"promoted", "rolled_back", "withdrawn", "rollback_failed", "failed"}
)

// Steps are the phases that an operation has passed, by its log, and those that lie ahead if all goes well.
func (d Detail) Steps() []step {
	op := d.Operation
	if op == nil {
		return nil
	}
	steps := []step{{State: StateOf("accepted"), At: op.AcceptedAt}}
	has := func(phase string) bool {
		return slices.ContainsFunc(steps, func(s step) bool { return s.State.s == phase })
	}
	for _, l := range d.Log {
		if phase := l.Event.s; (slices.Contains(forward, phase) || slices.Contains(backward, phase) || slices.Contains(ends, phase)) && !has(phase) {
			steps = append(steps, step{State: StateOf(phase), At: l.At})
		}
	}
	if !has(op.State.s) { // its line is written after the record
		steps = append(steps, step{State: op.State, At: op.EndedAt})
	}
	// What the record does not know of yet has not happened.
	if i := slices.IndexFunc(steps, func(s step) bool { return s.State == op.State }); i >= 0 {
		steps = steps[:i+1]
	}
	last := len(steps) - 1
	for i := range steps {
		steps[i].Mark = "done"
		if i < last && !steps[i+1].At.IsZero() {
			steps[i].Took = steps[i+1].At.Sub(steps[i].At)
		}
	}
	switch now := &steps[last]; {
	case !slices.Contains(ends, now.State.s):
		now.Mark = "now"
	case now.State.s == "promoted":
		now.Mark = "good"
	default:
		now.Mark = "bad"
	}
	for _, way := range [][]string{forward, backward} {
		if at := slices.Index(way, op.State.s); at >= 0 {
			for _, phase := range way[at+1:] {
				steps = append(steps, step{State: StateOf(phase), Mark: "ahead"})
			}
		}
	}
	return steps
}

// shownLines is how much of a log a page carries.
const shownLines = 300

// logLine is a line as the page shows it.
type logLine struct {
	Line
	Number  int
	Of      Term // the operation
	After   time.Duration
	Failing bool // the one to look at first
}

// lines are the last lines of the log without the application's own, and how many there were of either.
func (d Detail) lines() (lines []logLine, earlier, application int) {
	if d.Operation == nil {
		return nil, 0, 0
	}
	failing := d.failing()
	for i, l := range d.Log {
		if l.Event.s == "application" {
			application++
			continue
		}
		lines = append(lines, logLine{Line: l, Number: i, Of: d.Operation.ID, After: l.At.Sub(d.Operation.AcceptedAt), Failing: i == failing})
	}
	earlier = max(len(lines)-shownLines, 0)
	return lines[earlier:], earlier, application
}

// failing is the line that says why the operation went wrong: the one that turned it, else the last error; -1 if none.
func (d Detail) failing() int {
	last := -1
	for i, l := range d.Log {
		switch l.Event.s {
		case "restoring", "failed":
			return i
		case "application":
			continue
		}
		if l.Level.s == "error" {
			last = i
		}
	}
	return last
}
