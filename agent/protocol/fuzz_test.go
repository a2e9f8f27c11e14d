package protocol

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"toad/internal/redact"
)

// said is a control plane that answers one thing.
type said struct {
	status int
	media  string
	body   string
}

func (s said) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: s.status, Header: http.Header{"Content-Type": {s.media}}, ContentLength: -1,
		Body: io.NopCloser(strings.NewReader(s.body)), Request: r}, nil
}

func hearing(t *testing.T, s said) *Client {
	c, err := New(Config{Address: "https://control.example", HTTP: &http.Client{Transport: s}, EnvID: "env-prod-01", Box: "b",
		Token: func() string { return "s.the-token-of-it" }, Redactor: &redact.Redactor{}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// classed fails for an error that a tick could not end by, or whose text would spoil a log.
func classed(t *testing.T, err error) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Class == nil {
		t.Fatalf("no class: %v", err)
	}
	if text := err.Error(); len(text) > 800 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) || strings.Contains(text, "the-token-of-it") {
		t.Errorf("its text: %q", text)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add(200, "application/json", `{"env_id":"env-prod-01","action":"apply","bundle_sha":"`+strings.Repeat("ab", 32)+`","variables":{"A":"b"}}`)
	f.Add(200, "application/json", `{"env_id":"env-prod-01","action":"down","purge":true}`)
	f.Add(200, "application/json", `{"env_id":"env-dev-01","action":"none"}`)
	f.Add(200, "text/html", `<html>`)
	f.Add(403, "application/problem+json", `{"code":"env_mismatch","detail":"s.the-token-of-it\u001b[2J"}`)
	f.Fuzz(func(t *testing.T, status int, media, body string) {
		a, err := hearing(t, said{status, media, body}).CheckIn(t.Context(), CheckIn{})
		if err != nil {
			if a.Action != "" || a.BundleSHA != "" {
				t.Errorf("an answer with an error: %+v", a)
			}
			if strings.Contains(body, "the-token-of-it") {
				return // this client's redactor has not been told of it
			}
			classed(t, err)
			return
		}
		if a.EnvID != "env-prod-01" || (a.Action != ActionApply && a.Action != ActionNone && a.Action != ActionDown) ||
			(a.Action == ActionApply) && !ValidSHA(a.BundleSHA) {
			t.Errorf("taken: %+v", a)
		}
	})
}

func FuzzLease(f *testing.F) {
	f.Add(`{"kind":"jwt","env_id":"env-prod-01","role":"deploy","jwt":"aaaaaaaa.bb.cc","expires":"2030-01-01T00:00:00Z"}`)
	f.Add(`{"kind":"approle","role_id":"r-1234567","secret_id":"s-1234567"}`)
	f.Add(`{"kind":"jwt","jwt":["a","b"],"expires":7}`)
	f.Fuzz(func(t *testing.T, body string) {
		c := hearing(t, said{200, "application/json", body})
		l, err := c.Lease(t.Context(), ReasonApply, strings.Repeat("ab", 32))
		if err != nil {
			classed(t, err)
		} else if l.JWT == "" || l.Role == "" || l.Kind != KindJWT || l.EnvID != "env-prod-01" {
			t.Errorf("taken: %+v", l)
		}
		// Whatever became of it, a text that could be a secret is known.
		var all map[string]any
		if json.Unmarshal([]byte(body), &all) != nil {
			return
		}
		for name, v := range all {
			secret, ok := v.(string)
			if !ok || len(secret) < 6 || strings.Contains(redact.Mark, secret) || name == "kind" || name == "env_id" || name == "role" || name == "expires" {
				continue
			}
			if have := c.Redactor.String(secret); strings.Contains(have, secret) {
				t.Errorf("%q is told: %s", secret, have)
			}
		}
	})
}
