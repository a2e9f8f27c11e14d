// Package stage plays a toad with services in every state, so that a browser can be shown what a host would need days
// for.
package stage

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"

	"toad/webui"
)

// Stage is a webui.Source whose services a test sets up.
type Stage struct {
	mu       sync.Mutex
	services []webui.Detail
	invalid  []webui.Text
	waiting  map[chan struct{}]bool
	looked   bool // since somebody follows
}

// Put adds a service, or replaces the one of that name, and wakes who follows.
func (s *Stage) Put(d webui.Detail) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.services {
		if s.services[i].Name == d.Name {
			s.services[i] = d
			s.wake()
			return
		}
	}
	s.services = append(s.services, d)
	s.wake()
}

// Remove takes a service away.
func (s *Stage) Remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.services {
		if s.services[i].Name.String() == name {
			s.services = append(s.services[:i], s.services[i+1:]...)
			break
		}
	}
	s.wake()
}

// Invalid says that the enrollment is not in force.
func (s *Stage) Invalid(lines ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range lines {
		s.invalid = append(s.invalid, webui.Clean(l))
	}
	s.wake()
}

func (s *Stage) wake() {
	for w := range s.waiting {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// Followers is how many follow.
func (s *Stage) Followers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// Settled says that somebody follows and has looked since.
func (s *Stage) Settled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting) > 0 && s.looked
}

// Overview is every service.
func (s *Stage) Overview(context.Context) (webui.Overview, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = len(s.waiting) > 0
	o := webui.Overview{Invalid: s.invalid}
	for _, d := range s.services {
		o.Services = append(o.Services, d.Card)
	}
	return o, nil
}

// Service is one of them; an operation is found by its id.
func (s *Stage) Service(_ context.Context, name, operation string) (webui.Detail, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looked = len(s.waiting) > 0
	for _, d := range s.services {
		if d.Name.String() != name {
			continue
		}
		d.Invalid, d.Latest = s.invalid, operation == "" || (d.Operation != nil && d.Operation.ID.String() == operation)
		if !d.Latest {
			for _, op := range d.History {
				if op.ID.String() == operation {
					d.Operation, d.Log = &op, log(op)
					return d, nil
				}
			}
			break
		}
		return d, nil
	}
	return webui.Detail{}, fmt.Errorf("%w: %s", webui.ErrUnknown, name)
}

// Follow wakes at every Put.
func (s *Stage) Follow(string) (<-chan struct{}, func()) {
	w := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = map[chan struct{}]bool{}
	}
	s.waiting[w] = true
	return w, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting, w)
	}
}

// Digest is one that is told from others by a number.
func Digest(n int) webui.ID {
	return webui.IDOf(fmt.Sprintf("sha256:%x", sha256.Sum256([]byte{byte(n), byte(n >> 8)})))
}

const reason = "web.service exited with status 2 (exit-code) and its restart is over the budget of 0"

// In makes a service that is in a state.
func In(state, name string, n int) webui.Detail {
	now := time.Now().Truncate(time.Second)
	d := webui.Detail{Latest: true}
	d.Name, d.State, d.Generation = webui.NameOf(name), webui.StateOf(state), 7
	d.Ready = webui.Readiness{Known: true, OK: true, Why: webui.Clean("it answers 200")}
	d.InForce = &webui.Release{Digest: Digest(n), Generation: 6, PromotedAt: now.Add(-50 * time.Hour)}
	d.Config = &webui.Config{Repository: webui.Clean("registry.example.org/team/" + name), Units: []webui.Term{webui.TermOf(name + ".container")},
		Probe: webui.TermOf("http"), Port: 8080, Interval: 500 * time.Millisecond, Timeout: 2 * time.Second,
		Deadline: 5 * time.Minute, Stable: 10 * time.Second, Pull: 10 * time.Minute, Keep: 2}
	d.Units = []webui.Unit{{Name: webui.TermOf(name + ".service"), Known: true, Active: webui.TermOf("active"), Sub: webui.TermOf("running"),
		Invocation: webui.IDOf(Digest(n + 2000).String()[7:39]), Since: now.Add(-50 * time.Hour)}}
	d.Containers = []webui.Container{{Unit: d.Units[0].Name, ID: webui.IDOf(Digest(n + 3000).String()[7:]), Image: Digest(n + 500),
		Status: webui.TermOf("running"), Started: now.Add(-50 * time.Hour)}}
	d.History = history(name, now)
	if state == "never" || state == "damaged" {
		d.Generation, d.InForce, d.History, d.Ready, d.Containers = 0, nil, nil, webui.Readiness{}, nil
		d.Units[0].Active, d.Units[0].Sub, d.Units[0].Since, d.Units[0].Invocation = webui.TermOf("inactive"), webui.TermOf("dead"), time.Time{}, webui.ID{}
		if state == "damaged" {
			d.Reason = webui.Clean("the record of " + name + " is damaged (unexpected end of JSON input) and was set aside; toad doctor --repair " + name + " rebuilds it")
		}
		return d
	}
	op := operation(name, state, now)
	d.Operation, d.Since, d.Reason = &op, now.Add(-12*time.Second), op.Reason
	d.Log = log(op)
	d.History = append([]webui.Operation{op}, d.History...)
	switch state {
	case "promoted":
		d.Since, d.Reason = op.EndedAt, webui.Text{}
		d.InForce = &webui.Release{Digest: op.Candidate, Generation: 7, PromotedAt: op.EndedAt}
	case "accepted", "preparing":
		d.Trial = &webui.Trial{Candidate: op.Candidate, Bound: webui.TermOf("preparation"), From: now.Add(-14 * time.Second), Until: now.Add(586 * time.Second)}
	case "switching", "probation", "promoting":
		d.Trial = &webui.Trial{Candidate: op.Candidate, Bound: webui.TermOf("deadline"), From: now.Add(-48 * time.Second), Until: now.Add(252 * time.Second), Stable: 10 * time.Second}
		if state == "switching" {
			d.Ready = webui.Readiness{Known: true, Why: webui.Clean("web.service is starting")}
		} else {
			d.Trial.ReadyFrom = now.Add(-6 * time.Second)
		}
	case "restoring":
		d.Trial = &webui.Trial{Candidate: op.Candidate, Bound: webui.TermOf("restore"), From: now.Add(-3 * time.Second), Until: now.Add(300 * time.Second)}
		d.Ready = webui.Readiness{Known: true, Why: webui.Clean("web.service is activating (start)")}
	case "withdrawn":
		d.InForce, d.Ready = nil, webui.Readiness{Known: true, Why: webui.Clean("web.service is inactive")}
	case "rollback_failed":
		d.Ready = webui.Readiness{Known: true, Why: webui.Clean("it answers 503")}
		d.Units[0].Active, d.Units[0].Sub, d.Units[0].Restarts = webui.TermOf("activating"), webui.TermOf("auto-restart"), 14
	}
	if state == "rolled_back" || state == "rollback_failed" || state == "restoring" {
		d.Refusals = []webui.Refusal{{Digest: op.Candidate, Operation: op.ID, Code: op.Code, Reason: op.Reason, At: now.Add(-10 * time.Second)}}
	}
	return d
}

func operation(name, state string, now time.Time) webui.Operation {
	op := webui.Operation{ID: webui.TermOf(name + "-g7"), Generation: 7, State: webui.StateOf(state), Candidate: Digest(1000),
		By: webui.Clean("uid 1000"), AcceptedAt: now.Add(-62 * time.Second)}
	switch state {
	case "promoted":
		op.EndedAt, op.Reason = now.Add(-4*time.Second), webui.Clean("it was ready for 10s without a break")
	case "rolled_back", "rollback_failed", "withdrawn", "restoring":
		op.Reason, op.Code = webui.Clean(strings.ReplaceAll(reason, "web", name)), webui.TermOf("candidate_exited")
		if state != "restoring" {
			op.EndedAt = now.Add(-4 * time.Second)
		}
		if state == "rollback_failed" {
			op.Reason = webui.Clean(op.Reason.String() + "; then: the previous release was not ready within 5m3s: it answers 503")
		}
	case "failed":
		op.EndedAt, op.Code = now.Add(-4*time.Second), webui.TermOf("pull_unavailable")
		op.Reason = webui.Clean("pull registry.example.org/team/" + name + ": no answer from the registry: dial tcp: connection refused")
	}
	return op
}

func log(op webui.Operation) []webui.Line {
	var all []webui.Line
	at := op.AcceptedAt
	say := func(after time.Duration, level, event, message string) {
		at = at.Add(after)
		all = append(all, webui.Line{At: at, Level: webui.TermOf(level), Event: webui.TermOf(event), Message: webui.Clean(message)})
	}
	end := op.State.String()
	say(0, "info", "accepted", "deployment of "+op.Candidate.String()+" accepted from uid 1000")
	if end == "accepted" {
		return all
	}
	say(40*time.Millisecond, "info", "preparing", "preparing")
	say(80*time.Millisecond, "info", "pull", "pulling registry.example.org/team/web@"+op.Candidate.String())
	if end == "failed" {
		say(3*time.Second, "warn", "step", "this is tried again while the preparation may last: connection refused")
		say(30*time.Second, "error", "failed", op.Reason.String())
		return all
	}
	if end == "preparing" {
		return all
	}
	say(9*time.Second, "info", "switching", "switching to "+op.Candidate.String()+", undecided until 2026-11-29T22:19:29Z")
	say(300*time.Millisecond, "info", "probation", "on probation")
	say(200*time.Millisecond, "info", "unready", "not ready: web.service is starting")
	say(900*time.Millisecond, "info", "ready", "ready")
	switch end {
	case "promoting", "promoted":
		say(10*time.Second, "info", "promoting", "ready for 10.1s without a break")
		if end == "promoted" {
			say(100*time.Millisecond, "info", "promoted", op.Candidate.String()+" is in force")
		}
	case "restoring", "rolled_back", "rollback_failed", "withdrawn":
		say(4*time.Second, "warn", "unready", "not ready: web.service is activating (auto-restart)")
		say(20*time.Millisecond, "warn", "restoring", "restoring the previous release: "+op.Reason.String())
		for range 3 {
			say(time.Millisecond, "info", "application", "what the application said is not shown")
		}
		if end != "restoring" {
			say(5*time.Second, map[bool]string{true: "error", false: "warn"}[end == "rollback_failed"], end, map[string]string{
				"rolled_back":     "the previous release is in force again",
				"withdrawn":       "nothing ran before; the unit is left stopped",
				"rollback_failed": "the previous release did not come up: it answers 503"}[end])
		}
	}
	return all
}

func history(name string, now time.Time) []webui.Operation {
	var all []webui.Operation
	ends := []string{"promoted", "promoted", "rolled_back", "promoted", "failed", "promoted"}
	for i := range 6 {
		op := operation(name, ends[i], now.Add(-time.Duration(i*i*7+50)*time.Hour))
		op.ID, op.Generation, op.Candidate = webui.TermOf(fmt.Sprintf("%s-g%d", name, 6-i)), 6-i, Digest(i*3)
		op.EndedAt = op.AcceptedAt.Add(time.Duration(i*i*11+12) * time.Second)
		op.Rollback = i == 3
		all = append(all, op)
	}
	return all
}
