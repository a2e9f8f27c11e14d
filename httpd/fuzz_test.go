package httpd

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"toad/authstore"
	"toad/probation"
	"toad/probation/record"
)

// aside is a server without listeners, and one who asks it over TCP.
type aside struct {
	*fixture
	handler http.Handler
	bearer  string
}

func newAside(f *testing.F) aside {
	f.Helper()
	a := aside{fixture: assemble(f)}
	a.handler = a.server.handler()
	_, bearer, err := a.tokens.Issue(f.Context(), authstore.Token{Name: "fuzz", Services: []string{"*"}, Verbs: authstore.Verbs})
	if err != nil {
		f.Fatal(err)
	}
	a.bearer = bearer
	// An operation that has ended, so that a stream of it ends too; its words hold what must not get out.
	svc := probation.Service{Name: "web"}
	ended := time.Now().Add(-time.Hour)
	svc.Generation, svc.Operation = 1, &probation.Operation{ID: "web-g1", Service: "web", Generation: 1, Phase: probation.Failed,
		Reason: "open /home/toad/.config/x: denied", AcceptedAt: ended, EndedAt: &ended, Key: "S3NT1NEL-key"}
	line := record.Line{At: ended, Level: "error", Event: "failed", Message: "open /run/user/1000/toad/x: denied"}
	if err := errors.Join(a.store.Put(svc), a.store.Log("web-g1", line)); err != nil {
		f.Fatal(err)
	}
	return a
}

// patient is a recorder whose deadlines can be set.
type patient struct{ *httptest.ResponseRecorder }

func (patient) SetReadDeadline(time.Time) error  { return nil }
func (patient) SetWriteDeadline(time.Time) error { return nil }

// ask makes a request over TCP and asserts what holds of every answer.
func (a aside) ask(t *testing.T, r *http.Request) *httptest.ResponseRecorder {
	t.Helper()
	r.Host = "localhost"
	r = r.WithContext(context.WithValue(r.Context(), peerKey{}, peer{from: "127.0.0.1:1"}))
	w := patient{httptest.NewRecorder()}
	a.handler.ServeHTTP(w, r)
	body := w.Body.String()
	for _, never := range []string{"/home/", "/run/user", a.store.Dir(), a.bearer[11:], "S3NT1NEL", "goroutine "} {
		if strings.Contains(body, never) {
			t.Errorf("%s %q is answered with %q: %s", r.Method, r.URL, never, body)
		}
	}
	if w.Code == http.StatusInternalServerError || w.Code == http.StatusServiceUnavailable {
		t.Errorf("%s %q: %d %s\n%s", r.Method, r.URL, w.Code, body, a.logged)
	}
	if err := promise().Check(r, w.Code, w.Result().Header, w.Body.Bytes()); err != nil {
		t.Error(err)
	}
	return w.ResponseRecorder
}

func (a aside) request(method, path, body string) *http.Request {
	r := httptest.NewRequest(method, "http://localhost/", strings.NewReader(body))
	r.URL = &url.URL{Path: path}
	r.Header.Set("Authorization", "Bearer "+a.bearer)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", "k1")
	return r
}

// taking accepts what gets as far as that, and saves nothing: the disk would leave time for a few tries only.
type taking struct{ Deployments }

func (taking) Accept(_ context.Context, e probation.Enrollment, req probation.Request) (probation.Operation, bool, error) {
	if err := probation.CheckDigest(req.Digest); err != nil && !req.Rollback {
		return probation.Operation{}, false, errors.New("a digest that is none was accepted: " + req.Digest)
	}
	now := time.Now()
	return probation.Operation{ID: e.Name + "-g1", Service: e.Name, Generation: 1, Phase: probation.Accepted, AcceptedAt: now,
		Candidate: probation.Release{Digest: req.Digest}, By: req.By}, false, nil
}

func FuzzBody(f *testing.F) {
	a := newAside(f)
	a.server.Deployments = taking{a.server.Deployments}
	for _, seed := range []string{`{"digest":"` + one + `"}`, `{"digest":"` + one + `","retry":true}`, `{"expected_generation":7}`, `{"operation":"web-g1"}`,
		`{"digest":1}`, `{}`, `[]`, `{"a":{}}`, "\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		w := a.ask(t, a.request("POST", "/v1/services/db/deployments", body))
		if w.Code < 300 && !bytes.Contains([]byte(body), []byte("sha256:")) {
			t.Errorf("%q was accepted", body)
		}
		a.ask(t, a.request("POST", "/v1/services/web/rollback", body))
	})
}

func FuzzPath(f *testing.F) {
	a := newAside(f)
	for _, seed := range []string{"/v1/services/web", "/v1/services/../../etc/passwd", "/v1/operations/web-g1/log", "/v1/services/web/tags/%2e%2e", "//", "",
		"/v1/tokens/x", "/v1/services/web/", "/v1/operations/web-g99999999999999999999", "/home/toad", "/v1/services/a\x00b", "/V1/services", "/v1/services/web;x"} {
		f.Add("GET", seed)
		f.Add("POST", seed)
	}
	f.Add("DELETE", "/v1/tokens/0123456789")
	f.Fuzz(func(t *testing.T, method, path string) {
		if strings.Contains(path, "/home/") || strings.Contains(path, "/run/user") || strings.Contains(path, "goroutine ") || !validMethod(method) {
			return // the answer repeats what was asked for
		}
		a.ask(t, a.request(method, path, "{}"))
	})
}

func validMethod(m string) bool {
	_, err := http.NewRequest(m, "http://localhost/", nil)
	return err == nil && m != ""
}

func FuzzResume(f *testing.F) {
	a := newAside(f)
	for _, seed := range []string{"0", "1", "-1", "99999999999999999999", "9223372036854775807", "1e3", " 1", "0x10", "\x00", "web-g1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, last string) {
		r := a.request("GET", "/v1/operations/web-g1/log", "")
		r.Header.Set("Accept", "text/event-stream")
		r.Header["Last-Event-Id"] = []string{last}
		w := a.ask(t, r)
		if w.Code == http.StatusOK && !strings.Contains(w.Body.String(), "event: end\n") {
			t.Errorf("%q: the stream has no end: %s", last, w.Body)
		}
	})
}
