package httpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toad/httpd/api"
	"toad/probation"
)

// sight is a host that counts how often it is looked at, and how many services.
type sight struct {
	looks, asked atomic.Int32
	silent       string // of this service it tells nothing
}

func (s *sight) Ready(_ context.Context, all []probation.Enrollment, tell func(i int, ready bool, why string)) {
	s.looks.Add(1)
	for i, e := range all {
		s.asked.Add(1)
		if e.Name != s.silent {
			tell(i, true, "it answers 200")
		}
	}
}

func (s *sight) Config(_ context.Context, e probation.Enrollment, r probation.Release) (api.ImageConfig, error) {
	if r.Digest == d3 {
		return api.ImageConfig{}, &TagError{Code: probation.CodePullFailed, Err: errors.New("manifest unknown")}
	}
	return api.ImageConfig{Digest: r.Digest, Command: []string{r.Digest[7:9]}, Env: []string{"PATH"}, Labels: map[string]string{"of": e.Image}}, nil
}

func (s *sight) LastAlerts() map[string]api.Alert {
	return map[string]api.Alert{"web": {Kind: "rolled_back", Reason: "it exited"}}
}

var d1, d2, d3 = "sha256:" + strings.Repeat("1", 64), "sha256:" + strings.Repeat("2", 64), "sha256:" + strings.Repeat("3", 64)

func TestReadinessIsProbedWhenItIsAskedForAndOncePerInterval(t *testing.T) {
	s := &sight{}
	now := time.Now()
	f := start(t, func(server *Server) { server.Host = s; server.now = func() time.Time { return now } })
	f.get("/v1/services")
	f.get("/v1/services/web")
	if s.asked.Load() != 0 {
		t.Errorf("nobody asked how it is, and it was probed")
	}
	for range 3 {
		var svc api.Service
		if r := f.get("/v1/services/web?live=1"); r.status != 200 || json.Unmarshal([]byte(r.body), &svc) != nil || svc.Live == nil ||
			!svc.Live.Ready || svc.Live.Why != "it answers 200" || svc.LastAlert == nil || svc.LastAlert.Kind != "rolled_back" {
			t.Fatalf("have %+v", r)
		}
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("3 requests at once: want 1 probe, have %d", n)
	}
	now = now.Add(time.Second)
	f.get("/v1/services?live=1")
	if n := s.asked.Load(); n != 3 {
		t.Errorf("an interval later, of both services: want 3 probes in all, have %d", n)
	}
}

// countedEnrolled counts how often the operator's file is looked at.
type countedEnrolled struct {
	enrolled
	looks atomic.Int32
}

func (c *countedEnrolled) All() []probation.Enrollment { c.looks.Add(1); return c.enrolled.All() }
func (c *countedEnrolled) Invalid() error              { c.looks.Add(1); return nil }
func (c *countedEnrolled) Enrollment(name string) (probation.Enrollment, error) {
	c.looks.Add(1)
	return c.enrolled.Enrollment(name)
}

func TestAListLooksOnceAtWhatAllServicesShare(t *testing.T) {
	s, e := &sight{}, &countedEnrolled{enrolled: enrolled{}}
	for i := range 300 {
		name := fmt.Sprintf("svc-%d", i)
		e.enrolled[name] = probation.Enrollment{Name: name}
	}
	f := start(t, func(server *Server) { server.Host, server.Enrolled = s, e })
	all, err := f.client().AllLive(t.Context())
	if err != nil || len(all.Services) != 300 || !slices.IsSortedFunc(all.Services, func(a, b api.Service) int { return strings.Compare(a.Service, b.Service) }) {
		t.Fatalf("have %d services, %v", len(all.Services), err)
	}
	for _, svc := range all.Services {
		if svc.Live == nil || !svc.Live.Ready || svc.Unenrolled {
			t.Fatalf("have %+v", svc)
		}
	}
	if have := e.looks.Load(); have != 2 {
		t.Errorf("want 2 looks at the enrollment, for what it says and for what is wrong with it; have %d", have)
	}
	if looks, asked := s.looks.Load(), s.asked.Load(); looks != 1 || asked != 300 {
		t.Errorf("want 300 services looked at together, have %d in %d looks", asked, looks)
	}
}

func TestOfAServiceForWhichThereWasNoTimeNothingIsTold(t *testing.T) {
	s := &sight{silent: "db"}
	f := start(t, func(server *Server) { server.Host = s })
	for want := int32(1); want <= 2; want++ { // and the next one is free to look at it
		all, err := f.client().AllLive(t.Context())
		if err != nil || len(all.Services) != 2 || all.Services[0].Live != nil || all.Services[1].Live == nil {
			t.Fatalf("have %+v, %v", all, err)
		}
	}
	if have := s.asked.Load(); have != 3 {
		t.Errorf("want db asked twice and web once, have %d", have)
	}
}

func TestWhatAnotherReleaseWouldChange(t *testing.T) {
	f := start(t, func(server *Server) { server.Host = &sight{} })
	f.get("/v1/services/web/diff").problem(t, http.StatusConflict, "nothing_to_compare")
	f.deploy(d1, "k1").operation(t, http.StatusAccepted)
	f.promote()
	f.deploy(d2, "k2").operation(t, http.StatusAccepted)
	var d api.Diff
	for _, path := range []string{"/v1/services/web/diff", "/v1/services/web/diff?to=" + d2} {
		if r := f.get(path); r.status != 200 || json.Unmarshal([]byte(r.body), &d) != nil || d.From == nil || d.From.Digest != d1 ||
			d.To.Digest != d2 || len(d.Changes) != 1 || d.Changes[0] != (api.Change{What: "command", From: "11", To: "22"}) {
			t.Errorf("%s: have %+v", path, r)
		}
	}
	f.get("/v1/services/web/diff?to="+d3).problem(t, http.StatusBadGateway, "pull_failed")
	f.get("/v1/services/web/diff?to=v2").problem(t, http.StatusUnprocessableEntity, "invalid_request")
	f.get("/v1/services/none/diff").problem(t, http.StatusNotFound, "unknown_service")
}

// planner plans what it is told to.
type planner func(say func(level, event, message string)) (probation.Plan, error)

func (p planner) Plan(_ context.Context, _ probation.Enrollment, _ probation.Request, say func(level, event, message string)) (probation.Plan, error) {
	return p(say)
}

func TestAPlanIsToldAsItIsMade(t *testing.T) {
	var does planner
	f := start(t, func(server *Server) {
		server.Planner = planner(func(say func(level, event, message string)) (probation.Plan, error) { return does(say) })
	})
	op := probation.Operation{ID: "web-g1", Service: "web", Generation: 1, Candidate: probation.Release{Digest: d1}}
	does = func(say func(level, event, message string)) (probation.Plan, error) {
		say("info", "pull", "pulling")
		return probation.Plan{Operation: op}, nil
	}
	before := f.snapshot()
	var lines []string
	p, err := f.client().Plan(t.Context(), "web", api.DeployRequest{Digest: d1}, func(ev api.PlanEvent) error {
		if ev.Line != nil {
			lines = append(lines, ev.Line.Message)
		}
		return nil
	})
	if err != nil || p.Operation != "web-g1" || p.Digest != d1 || len(lines) != 1 || lines[0] != "pulling" {
		t.Errorf("have %+v, %q, %v", p, lines, err)
	}
	for name, say := range map[string]bool{"at once": false, "on the way": true} {
		does = func(tell func(level, event, message string)) (probation.Plan, error) {
			if say {
				tell("info", "pull", "pulling")
			}
			return probation.Plan{}, &probation.Rejection{Code: probation.CodeDigestRefused, Detail: "it failed here"}
		}
		_, err := f.client().Plan(t.Context(), "web", api.DeployRequest{Digest: d1}, func(api.PlanEvent) error { return nil })
		var problem *api.Problem
		if !errors.As(err, &problem) || problem.Code != "digest_refused" || problem.Status != 409 {
			t.Errorf("%s: have %v", name, err)
		}
	}
	f.do(request{method: http.MethodPost, path: "/v1/services/web/plan", body: `{"digest":"v2"}`}).problem(t, http.StatusUnprocessableEntity, "invalid_request")
	if after := f.snapshot(); len(after) != len(before) {
		t.Errorf("it was recorded: %v", after)
	}
}
