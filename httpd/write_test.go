package httpd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"toad/httpd/api"
	"toad/probation"
	"toad/probation/record"
)

func TestADeploymentIsAcceptedOnce(t *testing.T) {
	f := start(t)
	first := f.deploy(one, "k1")
	op := first.operation(t, http.StatusAccepted)
	if op.ID != "web-g1" || op.Phase != "accepted" || op.Digest != one || op.Deadline != nil || op.Kind != "deployment" {
		t.Errorf("have %+v", op)
	}
	if want, have := fmt.Sprintf("uid %d", os.Getuid()), op.By; want != have {
		t.Errorf("by: want %q, have %q", want, have)
	}
	if want, have := "/v1/operations/web-g1", first.header.Get("Location"); want != have {
		t.Errorf("location: want %q, have %q", want, have)
	}
	if again := f.deploy(one, "k1").operation(t, http.StatusOK); again.ID != op.ID {
		t.Errorf("want a replay of %s, have %s", op.ID, again.ID)
	}
	spaced := f.post("/v1/services/web/deployments", "k1", fmt.Sprintf("{ \"retry\": false,\n\"digest\": %q }", one))
	if again := spaced.operation(t, http.StatusOK); again.ID != op.ID {
		t.Errorf("the same meaning: want a replay of %s, have %s", op.ID, again.ID)
	}
	f.deploy(two, "k1").problem(t, 422, "idempotency_mismatch")
	if p := f.deploy(two, "k2").problem(t, 409, "operation_active"); p.Operation != op.ID {
		t.Errorf("want the active operation named, have %+v", p)
	}
	f.promote()
	if again := f.deploy(one, "k3").operation(t, http.StatusOK); again.ID != op.ID || again.Phase != "promoted" {
		t.Errorf("already promoted: have %+v", again)
	}
	if again := f.deploy(one, "k1").operation(t, http.StatusOK); again.ID != op.ID {
		t.Errorf("want a replay after the end, have %s", again.ID)
	}
	p := f.post("/v1/services/web/deployments", "k4", fmt.Sprintf(`{"digest":%q,"expected_generation":0}`, two)).
		problem(t, 409, "generation_mismatch")
	if p.Generation == nil || *p.Generation != 1 {
		t.Errorf("want the current generation, have %+v", p)
	}
}

func TestOfManyEqualRequestsOneIsAccepted(t *testing.T) {
	f := start(t)
	var all sync.WaitGroup
	statuses := make(chan int, 20)
	for range 20 {
		all.Go(func() { statuses <- f.deploy(one, "k1").status })
	}
	all.Wait()
	close(statuses)
	accepted := 0
	for s := range statuses {
		switch s {
		case http.StatusAccepted:
			accepted++
		case http.StatusOK:
		default:
			t.Errorf("want 200 or 202, have %d", s)
		}
	}
	if accepted != 1 {
		t.Errorf("want 1 accepted, have %d", accepted)
	}
}

func TestARequestThatIsNotInOrderChangesNothing(t *testing.T) {
	f := start(t)
	good := fmt.Sprintf(`{"digest":%q}`, one)
	const path = "/v1/services/web/deployments"
	header := func(name string, values ...string) http.Header { return http.Header{name: values} }
	for _, c := range []struct {
		name   string
		r      request
		status int
		code   string
	}{
		{"no content type", request{"POST", path, good, header("Content-Type")}, 415, "unsupported_media_type"},
		{"a form", request{"POST", path, good, header("Content-Type", "application/x-www-form-urlencoded")}, 415, "unsupported_media_type"},
		{"a large body", request{"POST", path, `{"digest":"` + strings.Repeat("a", 64<<10) + `"}`, nil}, 413, "body_too_large"},
		{"no body", request{"POST", path, "", nil}, 422, "invalid_request"},
		{"not JSON", request{"POST", path, "digest=" + one, nil}, 422, "invalid_request"},
		{"null", request{"POST", path, "null", nil}, 422, "invalid_request"},
		{"an array", request{"POST", path, "[" + good + "]", nil}, 422, "invalid_request"},
		{"two objects", request{"POST", path, good + good, nil}, 422, "invalid_request"},
		{"a cut off object", request{"POST", path, good[:20], nil}, 422, "invalid_request"},
		{"an unknown field", request{"POST", path, fmt.Sprintf(`{"digest":%q,"force":true}`, one), nil}, 422, "invalid_request"},
		{"a field of the wrong type", request{"POST", path, fmt.Sprintf(`{"digest":%q,"retry":"yes"}`, one), nil}, 422, "invalid_request"},
		{"no digest", request{"POST", path, "{}", nil}, 422, "invalid_request"},
		{"a tag", request{"POST", path, `{"digest":"latest"}`, nil}, 422, "invalid_request"},
		{"upper-case digits", request{"POST", path, fmt.Sprintf(`{"digest":%q}`, "sha256:"+strings.Repeat("A", 64)), nil}, 422, "invalid_request"},
		{"63 digits", request{"POST", path, fmt.Sprintf(`{"digest":%q}`, one[:len(one)-1]), nil}, 422, "invalid_request"},
		{"sha512", request{"POST", path, fmt.Sprintf(`{"digest":%q}`, "sha512:"+strings.Repeat("1", 128)), nil}, 422, "invalid_request"},
		{"a digest with a line feed", request{"POST", path, fmt.Sprintf(`{"digest":%q}`, one+"\n"), nil}, 422, "invalid_request"},
		{"wait_proof", request{"POST", path, fmt.Sprintf(`{"digest":%q,"wait_proof":"soon"}`, one), nil}, 422, "invalid_request"},
		{"retry of what is not refused", request{"POST", path, fmt.Sprintf(`{"digest":%q,"retry":true}`, one), nil}, 422, "invalid_request"},
		{"another generation", request{"POST", path, fmt.Sprintf(`{"digest":%q,"expected_generation":3}`, one), nil}, 409, "generation_mismatch"},
		{"no key", request{"POST", path, good, header("Idempotency-Key")}, 422, "invalid_request"},
		{"an empty key", request{"POST", path, good, header("Idempotency-Key", "")}, 422, "invalid_request"},
		{"two keys", request{"POST", path, good, header("Idempotency-Key", "a", "b")}, 422, "invalid_request"},
		{"a long key", request{"POST", path, good, header("Idempotency-Key", strings.Repeat("k", 201))}, 422, "invalid_request"},
		{"a key with a blank", request{"POST", path, good, header("Idempotency-Key", "a b")}, 422, "invalid_request"},
		{"a key that is not ASCII", request{"POST", path, good, header("Idempotency-Key", "schlüssel")}, 422, "invalid_request"},
		{"an unknown service", request{"POST", "/v1/services/wbe/deployments", good, nil}, 404, "unknown_service"},
		{"a name that is none", request{"POST", "/v1/services/web-g7/deployments", good, nil}, 404, "unknown_service"},
		{"a path for a name", request{"POST", "/v1/services/..%2f..%2fetc/deployments", good, nil}, 404, "unknown_route"},
		{"an Origin", request{"POST", path, good, header("Origin", "http://evil.example")}, 403, "forbidden"},
		{"a null Origin", request{"POST", path, good, header("Origin", "null")}, 403, "forbidden"},
		{"a cross-site request", request{"POST", path, good, header("Sec-Fetch-Site", "cross-site")}, 403, "forbidden"},
		{"a wrong method", request{"PUT", path, good, nil}, 405, "method_not_allowed"},
		{"no such route", request{"POST", "/v2/services/web/deployments", good, nil}, 404, "unknown_route"},
		{"rollback of nothing", request{"POST", "/v1/services/web/rollback", "{}", nil}, 409, "no_way_back"},
		{"rollback with a digest", request{"POST", "/v1/services/web/rollback", good, nil}, 422, "invalid_request"},
		{"rollback of another's operation", request{"POST", "/v1/services/web/rollback", `{"operation":"db-g1"}`, nil}, 422, "invalid_request"},
		{"rollback of an unknown operation", request{"POST", "/v1/services/web/rollback", `{"operation":"web-g9"}`, nil}, 404, "unknown_operation"},
		{"rollback of an unknown service", request{"POST", "/v1/services/wbe/rollback", "{}", nil}, 404, "unknown_service"},
		{"an unknown service to read", request{"GET", "/v1/services/wbe", "", nil}, 404, "unknown_service"},
		{"an unknown operation", request{"GET", "/v1/operations/web-g9", "", nil}, 404, "unknown_operation"},
		{"an id that is none", request{"GET", "/v1/operations/..%2fweb-g1", "", nil}, 404, "unknown_route"},
		{"a log of an id that is none", request{"GET", "/v1/operations/web/log", "", nil}, 404, "unknown_operation"},
		{"no number of operations", request{"GET", "/v1/services/web/operations?limit=many", "", nil}, 422, "invalid_request"},
		{"too many operations", request{"GET", "/v1/services/web/operations?limit=1000", "", nil}, 422, "invalid_request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := f.snapshot()
			p := f.do(c.r).problem(t, c.status, c.code)
			if p.Detail == "" || p.Type != "urn:toad:problem:"+c.code {
				t.Errorf("have %+v", p)
			}
			if !maps.Equal(before, f.snapshot()) {
				t.Errorf("the state folder changed")
			}
		})
	}
}

func TestARollbackGivesUpWhatIsUnderWay(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	f.promote()
	f.deploy(two, "k2").operation(t, http.StatusAccepted)
	const path = "/v1/services/web/rollback"
	f.post(path, "r0", `{"expected_generation":1}`).problem(t, 409, "generation_mismatch")
	if _, aborted := f.store.Aborted("web-g2"); aborted {
		t.Fatal("the wrong generation aborted the operation")
	}
	op := f.post(path, "r1", `{"expected_generation":2}`).operation(t, http.StatusAccepted)
	if op.ID != "web-g2" || !op.Aborts {
		t.Errorf("want web-g2 given up, have %+v", op)
	}
	if joined := f.post(path, "r1", `{"expected_generation":2}`).operation(t, http.StatusOK); joined.ID != "web-g2" || !joined.Aborts {
		t.Errorf("want the same answer again, have %+v", joined)
	}
	f.event(probation.Event{Kind: probation.Aborted, Reason: "given up"})
	// The repetition of a request whose answer was lost must not go back further than was meant.
	if late := f.post(path, "r1", `{"expected_generation":2}`).operation(t, http.StatusOK); late.ID != "web-g2" || late.Phase != "failed" {
		t.Errorf("want web-g2 as it ended, have %+v", late)
	}
	if late := f.post(path, "r2", `{"operation":"web-g2"}`).operation(t, http.StatusOK); late.ID != "web-g2" {
		t.Errorf("want the named operation as it ended, have %+v", late)
	}
	svc, err := f.store.Service("web")
	if err != nil || svc.Generation != 2 {
		t.Errorf("want generation 2, have %d (%v)", svc.Generation, err)
	}
}

func TestARollbackWithNothingUnderWayIsADeploymentOfThePreviousRelease(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	f.promote()
	f.deploy(two, "k2").operation(t, http.StatusAccepted)
	f.promote()
	const path = "/v1/services/web/rollback"
	op := f.post(path, "r1", `{"expected_generation":2}`).operation(t, http.StatusAccepted)
	if op.ID != "web-g3" || op.Digest != one || op.Kind != "rollback" || op.Aborts {
		t.Errorf("have %+v", op)
	}
	// The replay comes before any look at what is under way, or it would give up what it began.
	if again := f.post(path, "r1", `{"expected_generation":2}`).operation(t, http.StatusOK); again.ID != "web-g3" || again.Aborts {
		t.Errorf("want a replay, have %+v", again)
	}
	if _, aborted := f.store.Aborted("web-g3"); aborted {
		t.Error("the replay aborted its own operation")
	}
	f.post(path, "r1", `{}`).problem(t, 422, "idempotency_mismatch")
	f.deploy(two, "r1").problem(t, 422, "idempotency_mismatch")
}

// What is saved is accepted, whether or not an act could be started; a repetition of the request starts one.
func TestWhatIsSavedIsAcceptedAndBegunByARepetition(t *testing.T) {
	f := start(t)
	f.units.refuse("toad-act-")
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	if n := f.units.acts(); n != 0 {
		t.Fatalf("%d acts were started", n)
	}
	if !strings.Contains(f.logged.String(), "nothing could be started that carries it on") {
		t.Errorf("the log does not tell: %s", f.logged)
	}
	f.units.refuse("")
	f.deploy(one, "k1").operation(t, http.StatusOK)
	if n := f.units.acts(); n != 1 {
		t.Errorf("the repetition: want 1 act, have %d", n)
	}
	f.units.refuse("toad-act-")
	op := f.post("/v1/services/web/rollback", "r1", "{}").operation(t, http.StatusAccepted)
	if !op.Aborts {
		t.Errorf("have %+v", op)
	}
	f.units.refuse("")
	f.post("/v1/services/web/rollback", "r1", "{}").operation(t, http.StatusOK)
	if n := f.units.acts(); n != 2 {
		t.Errorf("the repetition of the abort: want 2 acts, have %d", n)
	}
	f.event(probation.Event{Kind: probation.Aborted, Reason: "given up"})
	f.deploy(one, "k1").operation(t, http.StatusOK)
	if n := f.units.acts(); n != 2 {
		t.Errorf("what is decided was begun again: %d acts", n)
	}
}

func TestNothingIsSavedWithoutItsLimit(t *testing.T) {
	f := start(t)
	f.units.refuse("toad-prepare-")
	before := f.snapshot()
	f.deploy(one, "k1").problem(t, 503, "state_unavailable")
	if !maps.Equal(before, f.snapshot()) {
		t.Error("the state folder changed")
	}
	f.units.refuse("")
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
}

// Between the look and the lock the operation may have ended and another one begun.
func TestOnlyTheNamedOperationIsGivenUp(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	f.event(probation.Event{Kind: probation.Aborted, Reason: "given up"})
	f.deploy(two, "k2").operation(t, http.StatusAccepted)
	op, err := f.server.Deployments.Abort(t.Context(), "web-g1", "uid 1000")
	if err != nil || op.ID != "web-g1" || !op.Phase.Terminal() {
		t.Errorf("want web-g1 as it ended, have %+v, %v", op, err)
	}
	if _, aborted := f.store.Aborted("web-g2"); aborted {
		t.Error("the one that came next was given up")
	}
	if _, err := f.server.Deployments.Abort(t.Context(), "web-g9", "uid 1000"); !errors.Is(err, record.ErrUnknown) {
		t.Errorf("have %v", err)
	}
}

func TestEachOfTwoWhoGiveUpIsKnownAgain(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	f.promote()
	f.deploy(two, "k2").operation(t, http.StatusAccepted)
	for _, key := range []string{"r1", "r2"} {
		f.post("/v1/services/web/rollback", key, "{}").operation(t, http.StatusAccepted)
	}
	f.event(probation.Event{Kind: probation.Aborted, Reason: "given up"})
	for _, key := range []string{"r1", "r2"} {
		if late := f.post("/v1/services/web/rollback", key, "{}").operation(t, http.StatusOK); late.ID != "web-g2" || !late.Aborts {
			t.Errorf("%s: want web-g2 as it ended, have %+v", key, late)
		}
	}
}

func TestWhatWasPromotedLongAgoIsInForceStill(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	f.promote()
	svc, err := f.store.Service("web")
	if err != nil {
		t.Fatal(err)
	}
	late := *svc.Operation
	late.Generation, late.ID, late.Key, late.Phase = 150, "web-g150", "k150", probation.Failed
	svc.Generation, svc.Operation = 150, &late
	if err := f.store.Put(svc); err != nil {
		t.Fatal(err)
	}
	op := f.deploy(one, "k2").operation(t, http.StatusOK)
	if op.ID != "web-g1" || op.Phase != "promoted" || op.Digest != one || !op.Ended() || op.EndedAt.IsZero() {
		t.Errorf("have %+v", op)
	}
}

func TestARepetitionIsAnsweredAfterTheServiceWasTakenOut(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	delete(f.server.Enrolled.(enrolled), "web")
	f.deploy(one, "k1").operation(t, http.StatusOK)
	f.deploy(two, "k1").problem(t, 422, "idempotency_mismatch")
}

func TestAPromotionIsNotGivenUp(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	svc, _ := f.store.Service("web")
	svc.Operation.Phase = probation.Promoting
	if err := f.store.Put(svc); err != nil {
		t.Fatal(err)
	}
	f.post("/v1/services/web/rollback", "r1", "{}").problem(t, 409, "operation_active")
}

func TestARefusedReleaseNeedsARetry(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	svc, _ := f.store.Service("web")
	f.event(probation.Event{Kind: probation.Prepared, Candidate: svc.Operation.Candidate})
	f.event(probation.Event{Kind: probation.SwitchBegun})
	f.event(probation.Event{Kind: probation.Unfit, Code: probation.CodeCandidateExited, Reason: "it exited with 2",
		Evidence: &probation.Evidence{Unit: "web.service", Lines: []string{"S3NT1NEL"}}})
	f.event(probation.Event{Kind: probation.LeftStopped})
	f.deploy(one, "k2").problem(t, 409, "digest_refused")
	shown := f.get("/v1/services/web")
	for _, want := range []string{`"refusals":[{"digest":"` + one, `"code":"candidate_exited"`, `"promoted":null`, `"phase":"withdrawn"`} {
		if !strings.Contains(shown.body, want) {
			t.Errorf("want %s in %s", want, shown.body)
		}
	}
	if strings.Contains(shown.body, "S3NT1NEL") {
		t.Error("what the application logged is told")
	}
	f.post("/v1/services/web/deployments", "k3", fmt.Sprintf(`{"digest":%q,"retry":true}`, one)).operation(t, http.StatusAccepted)
}

func TestADamagedRecordStopsOneServiceOnly(t *testing.T) {
	f := start(t)
	if err := os.WriteFile(filepath.Join(f.store.Dir(), "services", "web.json"), []byte("\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, r := range []response{f.deploy(one, "k1"), f.post("/v1/services/web/rollback", "k1", "{}"),
		f.get("/v1/operations/web-g1"), f.get("/v1/services/web/operations")} {
		p := r.problem(t, 409, "service_damaged")
		if strings.Contains(p.Detail, f.store.Dir()) {
			t.Errorf("the detail tells a path: %s", p.Detail)
		}
	}
	services, err := f.client().Services(context.Background())
	if err != nil || len(services.Services) != 2 || services.Services[1].Damaged == "" || services.Services[0].Damaged != "" {
		t.Errorf("have %+v, %v", services, err)
	}
	f.post("/v1/services/db/deployments", "k1", fmt.Sprintf(`{"digest":%q}`, one)).operation(t, http.StatusAccepted)
}

// broken is a host in trouble.
type broken struct {
	err   error
	panic bool
}

func (b broken) Accept(context.Context, probation.Enrollment, probation.Request) (op probation.Operation, replay bool, err error) {
	if b.panic {
		panic("S3NT1NEL")
	}
	return op, false, b.err
}
func (b broken) Abort(context.Context, string, string) (op probation.Operation, err error) {
	return op, b.err
}
func (b broken) Again(context.Context, probation.Operation) error { return b.err }

func TestTroubleOfTheHostIsToldWithoutItsPaths(t *testing.T) {
	full := fmt.Errorf("save web: %w", &fs.PathError{Op: "write", Path: "/home/toad/.local/state/toad/services/web.json", Err: syscall.ENOSPC})
	f := start(t, func(s *Server) { s.Deployments = broken{err: full} })
	p := f.deploy(one, "k1").problem(t, 503, "state_unavailable")
	if want := "save web: write web.json: no space left on device"; p.Detail != want {
		t.Errorf("want %q, have %q", want, p.Detail)
	}
	if !strings.Contains(p.Hint, "free some space") {
		t.Errorf("have hint %q", p.Hint)
	}
	if !strings.Contains(f.logged.String(), "/home/toad/.local/state/toad/services/web.json") {
		t.Error("the log does not tell the path")
	}
	if !strings.Contains(f.logged.String(), "level=INFO msg=request method=POST path=/v1/services/web/deployments") {
		t.Errorf("no audit line in %s", f.logged)
	}
}

func TestAPanicIsAnAnswerToo(t *testing.T) {
	f := start(t, func(s *Server) { s.Deployments = broken{panic: true} })
	r := f.deploy(one, "k1")
	r.problem(t, 500, "internal_error")
	if strings.Contains(r.body, "S3NT1NEL") || !strings.Contains(f.logged.String(), "S3NT1NEL") {
		t.Errorf("the cause belongs into the log alone: %s", r.body)
	}
	f.get("/healthz")
}

func TestPathsAreLeftOutOfMessages(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"open /a/b/c.json: permission denied", "open c.json: permission denied"},
		{`lock "/a/b/web.lock" held`, `lock "web.lock" held`},
		{"rename /a/b /c/d: no", "rename b d: no"},
		{"/etc/toad/enrollment.toml:3: bad key", "enrollment.toml:3: bad key"},
		{"web: a/b is no path, 1/2 neither", "web: a/b is no path, 1/2 neither"},
		{"see web.json.corrupt-1; repair", "see web.json.corrupt-1; repair"},
	} {
		if have := withoutPaths(c.text); have != c.want {
			t.Errorf("want %q, have %q", c.want, have)
		}
	}
}

func TestAServiceTakenOutOfTheEnrollmentKeepsItsHistory(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	delete(f.server.Enrolled.(enrolled), "web")
	svc, err := f.client().Service(context.Background(), "web")
	if err != nil || !svc.Unenrolled || svc.Operation == nil {
		t.Errorf("have %+v, %v", svc, err)
	}
	f.deploy(two, "k2").problem(t, 404, "unknown_service")
	op := f.post("/v1/services/web/rollback", "r1", "{}").operation(t, http.StatusAccepted)
	if !op.Aborts {
		t.Errorf("want the operation given up, have %+v", op)
	}
	_, err = f.client().Service(context.Background(), "other")
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != "unknown_service" {
		t.Errorf("have %v", err)
	}
}
