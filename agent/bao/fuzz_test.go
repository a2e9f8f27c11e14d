package bao

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"toad/agent/protocol"
	"toad/internal/redact"
)

type said struct {
	status int
	body   string
}

func (s said) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: s.status, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: -1,
		Body: io.NopCloser(strings.NewReader(s.body)), Request: r}, nil
}

// The library's own reader of versions panics over another shape, and KV calls every version deleted that has an end.
func TestTheLatestVersionIsReadWithCare(t *testing.T) {
	for data, want := range map[string]int{
		`{"current_version":2,"versions":{"2":{"deletion_time":"","destroyed":false}}}`:                     2,
		`{"current_version":2,"versions":{"2":{"deletion_time":"2999-01-01T00:00:00Z","destroyed":false}}}`: 2,
		`{"current_version":2,"versions":{"2":{"deletion_time":"2001-01-01T00:00:00Z","destroyed":false}}}`: 0,
		`{"current_version":2,"versions":{"2":{"deletion_time":"","destroyed":true}}}`:                      0,
		`{"current_version":2,"versions":{"2":{"deletion_time":"soon"}}}`:                                   0,
		`{"current_version":2,"versions":{"1":{"deletion_time":""}}}`:                                       0,
		`{"current_version":2,"versions":{"2":true}}`:                                                       0,
		`{"current_version":2,"versions":true}`:                                                             0,
		`{"current_version":"two","versions":{}}`:                                                           0,
		`{"current_version":0,"versions":{}}`:                                                               0,
		`{}`:                                                                                                0,
	} {
		c, err := New(Config{Address: "https://bao.example", HTTP: &http.Client{Transport: said{200, `{"data":` + data + `}`}}, EnvID: "env-prod-01", Redactor: &redact.Redactor{}})
		if err != nil {
			t.Fatal(err)
		}
		c.SetToken("s.the-token")
		if n, err := c.Version(t.Context(), "db"); n != want || (err == nil) != (want > 0) {
			t.Errorf("%s: %d %v", data, n, err)
		}
	}
}

func FuzzStore(f *testing.F) {
	f.Add(200, `{"data":{"data":{"value":"v-1234567"},"metadata":{"version":3,"created_time":"2030-01-01T00:00:00Z","deletion_time":"","destroyed":false}}}`)
	f.Add(200, `{"auth":{"client_token":"s.1234567","accessor":"a-1234567","lease_duration":3600,"renewable":true,"metadata":{"env_id":"env-prod-01"}}}`)
	f.Add(200, `{"data":{"current_version":2,"versions":{"2":{"deletion_time":"","destroyed":false}}}}`)
	f.Add(200, `{"data":{"ttl":"1h"},"auth":null}`)
	f.Add(404, `{"data":{"data":null,"metadata":{"version":1,"deletion_time":"2030-01-01T00:00:00Z"}}}`)
	f.Add(400, `{"errors":["error validating token"]}`)
	f.Add(403, `{"errors":["permission denied"]}`)
	f.Add(200, `{"data":{"data":7,"metadata":"x"}}`)
	f.Add(200, `{"data":{"current_version":2,"versions":{"2":true}}}`)
	f.Add(200, `{"data":{"current_version":2,"versions":true}}`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		if status < 100 || status > 999 {
			return // net/http lets none through
		}
		c, err := New(Config{Address: "https://bao.example", HTTP: &http.Client{Transport: said{status, body}}, EnvID: "env-prod-01", Redactor: &redact.Redactor{}})
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, err error) {
			if e, ok := errors.AsType[*protocol.Error](err); !ok || e.Class == nil || len(err.Error()) > 800 || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%s: %q", what, err)
			}
		}
		if a, err := c.Login(t.Context(), "deploy", "aaaaaaaa.bb.cc"); err != nil {
			check("login", err)
		} else if a.Token == "" || a.TTL < 0 {
			t.Errorf("taken: %+v", a)
		}
		c.SetToken("s.the-token")
		if _, err := c.Renew(t.Context()); err != nil {
			check("renew", err)
		}
		c.SetToken("s.the-token")
		if s, err := c.Read(t.Context(), "db"); err != nil {
			check("read", err)
		} else if s.Value == "" || s.Version < 1 || (len(s.Value) > 12 && strings.Contains(c.Redactor.String(s.Value), s.Value)) {
			t.Errorf("taken: %+v", s)
		}
		if n, err := c.Version(t.Context(), "db"); err != nil {
			check("version", err)
		} else if n < 1 {
			t.Errorf("version %d", n)
		}
		if err := c.Revoke(t.Context()); err != nil {
			check("revoke", err)
		}
	})
}
