package protocol_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"toad/agent/bao"
	"toad/agent/protocol"
	"toad/agent/transport"
	"toad/internal/redact"
	"toad/tests/control"
)

const (
	env = "env-staging-01"
	box = "edge1"
)

var sha = strings.Repeat("ab", 32)

// joined is a box that has logged in.
type joined struct {
	*control.World
	*protocol.Client
	store    *bao.Client
	redactor *redact.Redactor
}

func join(t *testing.T, change ...func(*protocol.Config)) *joined {
	t.Helper()
	w := control.New()
	w.Publish(env, sha, []byte("a tar"))
	plane, vault := w.Loopback(t)
	roots, err := transport.Roots(w.CA())
	if err != nil {
		t.Fatal(err)
	}
	j := &joined{World: w, redactor: &redact.Redactor{}}
	client := transport.Client(transport.Direct, roots)
	t.Cleanup(client.CloseIdleConnections)
	client.Transport = promised{t, client.Transport}
	if j.store, err = bao.New(bao.Config{Address: vault, HTTP: client, EnvID: env, Redactor: j.redactor}); err != nil {
		t.Fatal(err)
	}
	if _, err = j.store.Login(t.Context(), control.Role, w.Grant(env, box)); err != nil {
		t.Fatal(err)
	}
	c := protocol.Config{Address: plane, HTTP: client, EnvID: env, Box: box, Token: j.store.Token, Redactor: j.redactor}
	for _, f := range change {
		f(&c)
	}
	if j.Client, err = protocol.New(c); err != nil {
		t.Fatal(err)
	}
	return j
}

// calls are the four exchanges, by the path that a fault matches.
var calls = map[string]func(context.Context, *joined) error{
	"check-in": func(ctx context.Context, j *joined) error {
		_, err := j.CheckIn(ctx, protocol.CheckIn{Version: "v1"})
		return err
	},
	"bundles": func(ctx context.Context, j *joined) error {
		r, err := j.Bundle(ctx, sha)
		if err != nil {
			return err
		}
		defer r.Close()
		_, err = io.ReadAll(r)
		return err
	},
	"lease": func(ctx context.Context, j *joined) error {
		_, err := j.Lease(ctx, protocol.ReasonApply, sha)
		return err
	},
	"report": func(ctx context.Context, j *joined) error {
		return j.Client.Report(ctx, protocol.Report{ID: "1", Result: protocol.ResultApplied, BundleSHA: sha})
	},
}

func TestABoxLearnsWhatIsPublished(t *testing.T) {
	j := join(t)
	j.Set(env, func(e *control.Env) { e.Variables = map[string]string{"REGION": "north"} })
	a, err := j.CheckIn(t.Context(), protocol.CheckIn{Version: "v1"})
	if err != nil || a.Action != protocol.ActionApply || a.BundleSHA != sha || a.Variables["REGION"] != "north" {
		t.Fatalf("%+v %v", a, err)
	}
	r, err := j.Bundle(t.Context(), sha)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if body, err := io.ReadAll(r); err != nil || string(body) != "a tar" {
		t.Errorf("%q %v", body, err)
	}
	l, err := j.Lease(t.Context(), protocol.ReasonApply, sha)
	if err != nil || l.Role != control.Role || time.Until(l.Expires) < time.Minute {
		t.Fatalf("%+v %v", l, err)
	}
	if have := j.redactor.String("so " + l.JWT); have != "so "+redact.Mark {
		t.Errorf("the grant is told: %s", have)
	}
	a, err = j.CheckIn(t.Context(), protocol.CheckIn{Version: "v1", BundleSHA: sha})
	if err != nil || a.Action != protocol.ActionNone {
		t.Errorf("%+v %v", a, err)
	}
	j.Set(env, func(e *control.Env) { e.Action, e.Purge = protocol.ActionDown, true })
	if a, err = j.CheckIn(t.Context(), protocol.CheckIn{Version: "v1"}); err != nil || a.Action != protocol.ActionDown || !a.Purge {
		t.Errorf("%+v %v", a, err)
	}
}

func TestAReportIsRedactedCutAndCountsOnce(t *testing.T) {
	j := join(t)
	j.redactor.Add("DB", "hunter2-hunter2")
	r := protocol.Report{ID: "a1", Result: protocol.ResultFailed, BundleSHA: sha, Code: "SHA", Detail: "no hunter2-hunter2\x1b[2J",
		LogTail: append(slices.Repeat([]string{"old"}, 60), "DB=hunter2-hunter2 "+strings.Repeat("é", 900))}
	for range 2 {
		if err := j.Client.Report(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	have := j.Reports(env, box)
	if len(have) != 1 {
		t.Fatalf("%d reports", len(have))
	}
	last := have[0].LogTail[len(have[0].LogTail)-1]
	if have[0].Detail != `no `+redact.Mark+`\x1b[2J` || len(have[0].LogTail) != protocol.MaxLogLines || len(last) > protocol.MaxLogLine ||
		strings.Contains(last, "hunter2") || !strings.HasPrefix(last, "DB="+redact.Mark) || !strings.HasSuffix(last, "é…") {
		t.Errorf("%+v", have[0])
	}
}

func TestEveryWayToFailHasAClass(t *testing.T) {
	temporary := protocol.ErrTemporary
	for kind, c := range map[string]struct {
		fault control.Fault
		class error
		cause error
		after time.Duration
	}{
		"401":                {control.Fault{Kind: control.Status, Status: 401}, protocol.ErrUnauthenticated, nil, 0},
		"403":                {control.Fault{Kind: control.Status, Status: 403}, protocol.ErrEnvironment, nil, 0},
		"404":                {control.Fault{Kind: control.Status, Status: 404}, protocol.ErrNotFound, nil, 0},
		"422":                {control.Fault{Kind: control.Status, Status: 422}, protocol.ErrRejected, nil, 0},
		"429":                {control.Fault{Kind: control.Status, Status: 429, RetryAfter: "90"}, protocol.ErrRateLimited, nil, 90 * time.Second},
		"429 without a time": {control.Fault{Kind: control.Status, Status: 429}, protocol.ErrRateLimited, nil, time.Second},
		"500":                {control.Fault{Kind: control.Status, Status: 500}, temporary, nil, 0},
		"503":                {control.Fault{Kind: control.Status, Status: 503, RetryAfter: "20"}, temporary, nil, 20 * time.Second},
		"a portal's page":    {control.Fault{Kind: control.HTML}, temporary, nil, 0},
		"a portal elsewhere": {control.Fault{Kind: control.Moved}, temporary, nil, 0},
		"stalled":            {control.Fault{Kind: control.Stall}, temporary, transport.ErrStalled, 0},
		"silent":             {control.Fault{Kind: control.Silent}, temporary, transport.ErrStalled, 0},
		"10 MB":              {control.Fault{Kind: control.Huge}, temporary, transport.ErrTooLarge, 0},
		"cut":                {control.Fault{Kind: control.Cut}, temporary, nil, 0},
		"dropped":            {control.Fault{Kind: control.Drop}, temporary, nil, 0},
	} {
		t.Run(kind, func(t *testing.T) {
			impatient := c.cause == transport.ErrStalled
			j := join(t, func(c *protocol.Config) {
				if c.Idle = time.Minute; impatient {
					c.Idle = 200 * time.Millisecond
				}
			})
			for _, match := range slices.Sorted(maps.Keys(calls)) {
				if match == "report" && kind == "cut" {
					continue // there is no half of a 204
				}
				c.fault.Match, c.fault.Times = match, 1
				j.Fault(c.fault)
				err := calls[match](t.Context(), j)
				j.ClearFaults() // an impatient client may be gone before its fault is met
				e, ok := errors.AsType[*protocol.Error](err)
				if match == "report" && slices.Contains([]string{"stalled", "10 MB"}, kind) {
					// No content is wanted, so what kind of content it is has been enough.
					c.cause = nil
				}
				if !ok || !errors.Is(err, c.class) || (c.cause != nil && !errors.Is(err, c.cause)) || e.RetryAfter != c.after {
					t.Errorf("%s: %#v %v", match, e, err)
				}
				if text := err.Error(); strings.Contains(text, j.store.Token()) || strings.ContainsAny(text, "\n\x1b") || len(text) > 500 {
					t.Errorf("%s: the text is %q", match, text)
				}
				if impatient {
					continue // so short a patience may end a good answer too
				}
				if err := calls[match](t.Context(), j); err != nil {
					t.Errorf("%s, next: %v", match, err)
				}
			}
			if n := len(j.Requests(control.Portal)); n != 0 {
				t.Errorf("%d requests went to the portal", n)
			}
			for match := range calls {
				if n := len(j.Requests(match)); n > 2 {
					t.Errorf("%s: %d requests: something was tried twice", match, n)
				}
			}
		})
	}
}

func TestNothingIsSentInVain(t *testing.T) {
	j := join(t, func(c *protocol.Config) { c.Token = func() string { return "with a space\n" } })
	for name, call := range calls {
		if err := call(t.Context(), j); !errors.Is(err, protocol.ErrUnauthenticated) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if have := j.Requests("/v1/agent"); have != nil {
		t.Errorf("sent: %+v", have)
	}
}

func TestAnotherEnvironmentIsNeverTaken(t *testing.T) {
	j := join(t, func(c *protocol.Config) { c.EnvID = "env-prod-01" })
	for _, name := range []string{"check-in", "lease", "report"} {
		if err := calls[name](t.Context(), j); !errors.Is(err, protocol.ErrEnvironment) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A server that says yes, and then answers for another.
	j = join(t)
	j.Set(env, func(e *control.Env) {
		e.LeaseBody = `{"kind":"jwt","env_id":"env-prod-01","role":"deploy","jwt":"x.y.z","expires":"2030-01-01T00:00:00Z"}`
	})
	if err := calls["lease"](t.Context(), j); !errors.Is(err, protocol.ErrEnvironment) {
		t.Errorf("lease: %v", err)
	}
}

func TestALeaseOfAnotherShapeIsLoud(t *testing.T) {
	j := join(t)
	for _, body := range []string{
		`{"kind":"approle","env_id":"env-staging-01","role_id":"r-1234567","secret_id":"S3CR3T-VALUE"}`,
		`{"kind":"jwt","env_id":"env-staging-01","role":"deploy","jwt":"S3CR3T-VALUE","role_id":"r"}`,
		`{"kind":"jwt","env_id":"env-staging-01","role":"deploy","jwt":"S3CR3T-VALUE","auth":{"client_token":"S3CR3T-VALUE"}}`,
		`{"env_id":"env-staging-01","wrap_info":{"token":"S3CR3T-VALUE"}}`,
		`{"kind":"S3CR3T-VALUE","env_id":"env-staging-01","jwt":"S3CR3T-VALUE"}`,
		`{"kind":"jwt","env_id":"env-staging-01","role":"deploy"}`,
		`{"kind":"oidc","env_id":"env-staging-01","role":"deploy","jwt":"S3CR3T-VALUE","expires":"2030-01-01T00:00:00Z"}`,
		`{"kind":"jwt","env_id":"env-staging-01","role":"deploy","jwt":{"a":["S3CR3T-VALUE"]}}`,
		`{}`,
	} {
		j.Set(env, func(e *control.Env) { e.LeaseBody, e.Leases = body, 100 })
		_, err := j.Lease(t.Context(), protocol.ReasonApply, sha)
		if !errors.Is(err, protocol.ErrLeaseShape) || strings.Contains(err.Error(), "S3CR3T") {
			t.Errorf("%s: %v", body, err)
		}
		if strings.Contains(body, "S3CR3T") && strings.Contains(j.redactor.String("x S3CR3T-VALUE"), "S3CR3T") {
			t.Errorf("%s: the redactor has not learnt it", body)
		}
	}
	if len(j.Requests("login")) != 1 {
		t.Error("there was a login")
	}
}

func TestTheBudgetOfLeases(t *testing.T) {
	j := join(t)
	for range 5 {
		if err := calls["lease"](t.Context(), j); err != nil {
			t.Fatal(err)
		}
	}
	err := calls["lease"](t.Context(), j)
	if wait := protocol.RetryAfter(err); !errors.Is(err, protocol.ErrRateLimited) || wait < 59*time.Minute || wait > time.Hour+time.Second {
		t.Errorf("%v", err)
	}
	j.Advance(61 * time.Minute) // the token's hour is over too; a lease is what helps
	if err := calls["lease"](t.Context(), j); err != nil {
		t.Error(err)
	}
}

func TestALeaseHelpsABoxWhoseTokenEnded(t *testing.T) {
	j := join(t)
	j.Fault(control.Fault{Match: "check-in", Kind: control.Expire, Times: 1})
	if err := calls["check-in"](t.Context(), j); !errors.Is(err, protocol.ErrUnauthenticated) {
		t.Fatal(err)
	}
	l, err := j.Lease(t.Context(), protocol.ReasonUnauthenticated, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.store.Login(t.Context(), l.Role, l.JWT); err != nil {
		t.Fatal(err)
	}
	if err := calls["check-in"](t.Context(), j); err != nil {
		t.Error(err)
	}
	j.Remove(env, box)
	if err := calls["lease"](t.Context(), j); !errors.Is(err, protocol.ErrUnauthenticated) {
		t.Errorf("a removed box: %v", err)
	}
}

func TestABundleIsOfItsEnvironmentAndOfItsSize(t *testing.T) {
	j := join(t)
	other := strings.Repeat("cd", 32)
	j.Publish("env-prod-01", other, []byte("x"))
	if _, err := j.Bundle(t.Context(), other); !errors.Is(err, protocol.ErrNotFound) {
		t.Errorf("another environment's: %v", err)
	}
	if _, err := j.Bundle(t.Context(), "../"+other); err == nil {
		t.Error("a path was taken for a sha")
	}
	for size, fits := range map[int]bool{protocol.MaxBundle: true, protocol.MaxBundle + 1: false} {
		j.Publish(env, other, bytes.Repeat([]byte("x"), size))
		r, err := j.Bundle(t.Context(), other)
		if (err == nil) != fits {
			t.Errorf("%d bytes are announced: %v", size, err)
		}
		if err == nil {
			var n int64
			n, err = io.Copy(io.Discard, r)
			r.Close()
			if n > protocol.MaxBundle {
				t.Errorf("%d bytes were read", n)
			}
		}
		if (err == nil) != fits || (!fits && !(errors.Is(err, transport.ErrTooLarge) && errors.Is(err, protocol.ErrTemporary))) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestAnUnknownActionIsNoAction(t *testing.T) {
	j := join(t)
	for _, change := range []func(*control.Env){
		func(e *control.Env) { e.Action = "destroy" },
		func(e *control.Env) { e.Action, e.Published = protocol.ActionApply, "" },
		func(e *control.Env) { e.Action, e.Published = protocol.ActionApply, "ABC" },
		func(e *control.Env) { e.Action, e.Variables = "none", map[string]string{"a b": "c"} },
	} {
		j.Set(env, change)
		if a, err := j.CheckIn(t.Context(), protocol.CheckIn{}); !errors.Is(err, protocol.ErrRejected) || a.Action != "" {
			t.Errorf("%+v %v", a, err)
		}
		j.Set(env, func(e *control.Env) { *e = control.Env{Published: sha} })
	}
}

func TestAnAddressThatSendsTheTokenInClearIsRefused(t *testing.T) {
	for address, fine := range map[string]bool{"https://c.example": true, "https://c.example:8443/toad/": true, "http://c.example": false,
		"https://u:p4ssw0rd@c.example": false, "https://": false, "c.example": false, "ftp://c.example": false, "https://c.example/?a=b": false} {
		_, err := protocol.ParseAddress(address, false)
		if (err == nil) != fine || (err != nil && strings.Contains(err.Error(), "p4ssw0rd")) {
			t.Errorf("%s: %v", address, err)
		}
	}
}
