package httpd

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"toad/httpd/api"
	"toad/probation"
)

// Planner finds out what a deployment would do.
type Planner interface {
	Plan(ctx context.Context, e probation.Enrollment, req probation.Request, say func(level, event, message string)) (probation.Plan, error)
}

// plan is POST /v1/services/:service/plan: all of a deployment that comes before the switch, and nothing of it recorded.
// It may take as long as a pull, so the answer is lines of JSON: progress, then the plan.
func (s *Server) plan(c *call) error {
	var body api.DeployRequest
	name := c.param("service")
	if err := s.body(c, name, &body); err != nil {
		return err
	}
	if err := checkDeploy(body); err != nil {
		return err
	}
	if err := mayOverride(c, name, body); err != nil {
		return err
	}
	e, err := s.enrollment(name)
	if err != nil {
		return err
	}
	out := &planStream{c: c, control: http.NewResponseController(c)}
	stop := out.beat(s.beat)
	plan, err := s.Planner.Plan(c.r.Context(), e, asked(name, body, "", c), func(level, event, message string) {
		out.say(api.PlanEvent{Line: &api.Line{At: s.now().UTC(), Level: level, Event: event, Message: c.say(message)}})
	})
	stop()
	switch {
	case err != nil && !out.begun():
		return err
	case err != nil:
		p := problemOf(err)
		p.Detail, c.code = c.say(p.Detail), p.Code
		out.say(api.PlanEvent{Problem: p})
	default:
		wired := wirePlan(plan, e)
		out.say(api.PlanEvent{Plan: &wired})
	}
	return nil
}

// planStream is begun by the first line, so that what is refused at once is answered as any other request.
type planStream struct {
	c       *call
	control *http.ResponseController

	mu      sync.Mutex
	started bool
}

func (p *planStream) begun() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.started
}

// say has nobody to tell an error to: who asked is gone, and the context with it.
func (p *planStream) say(ev api.PlanEvent) {
	if data, err := json.Marshal(ev); err == nil {
		p.write(append(data, '\n'))
	}
}

func (p *planStream) write(line []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.started {
		p.started = true
		_ = p.control.SetReadDeadline(time.Time{})
		p.c.Header().Set("Content-Type", "application/x-ndjson")
		p.c.Header().Set("Cache-Control", "no-store")
		p.c.WriteHeader(http.StatusOK)
	}
	_ = p.control.SetWriteDeadline(time.Now().Add(sayLimit))
	_, _ = p.c.Write(line)
	_ = p.control.Flush()
}

// beat sends a sign of life now and then.
func (p *planStream) beat(every time.Duration) (stop func()) {
	tick, done := time.NewTicker(every), make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				p.write([]byte("\n"))
			}
		}
	})
	return func() { tick.Stop(); close(done); over.Wait() }
}

func wirePlan(p probation.Plan, e probation.Enrollment) api.Plan {
	op := p.Operation
	out := api.Plan{Service: op.Service, Operation: op.ID, Generation: op.Generation, Digest: op.Candidate.Digest, Image: e.Image,
		Already: p.Already, Code: string(p.Code), Reason: withoutPaths(p.Reason), Program: op.Program, InForce: wireRelease(op.Previous), Units: []api.PlanUnit{},
		Readiness: readiness(e.Ready), Stable: e.Limit.Stable.String(), Deadline: e.Limit.Deadline.String(), Restarts: e.Limit.Restarts}
	for _, u := range p.Units {
		out.Units = append(out.Units, api.PlanUnit{Unit: u.Unit, Service: u.Service, Running: u.Running, Reference: u.Reference,
			Dependents: append([]string{}, u.Dependents...)})
	}
	return out
}

// readiness is what is asked to find out whether a service is ready.
func readiness(r probation.Ready) string {
	switch {
	case r.HTTP != "":
		return withoutPaths(r.HTTP)
	case r.TCP != "":
		return "tcp " + r.TCP
	case r.Unix != "":
		return "unix " + withoutPaths(r.Unix)
	case r.Health:
		return "Podman's health check"
	case r.Notify:
		return "READY=1 from the application"
	}
	return "it stays active"
}
