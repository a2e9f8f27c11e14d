package bao_test

import (
	"errors"
	"os"
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
	env = "env-prod-01"
	box = "edge1"
)

// no environment decides where the token goes.
func TestMain(m *testing.M) {
	for _, name := range []string{"BAO_ADDR", "VAULT_ADDR", "BAO_PROXY_ADDR", "HTTPS_PROXY"} {
		os.Setenv(name, "http://127.0.0.1:1")
	}
	os.Setenv("BAO_TOKEN", "from-the-environment")
	os.Setenv("BAO_SKIP_VERIFY", "true")
	os.Exit(m.Run())
}

func open(t *testing.T, change ...func(*bao.Config)) (*control.World, *bao.Client, *redact.Redactor) {
	t.Helper()
	w, r := control.New(), &redact.Redactor{}
	_, address := w.Loopback(t)
	roots, err := transport.Roots(w.CA())
	if err != nil {
		t.Fatal(err)
	}
	http := transport.Client(transport.Direct, roots)
	t.Cleanup(http.CloseIdleConnections)
	conf := bao.Config{Address: address, HTTP: http, EnvID: env, Redactor: r, Idle: time.Minute}
	for _, f := range change {
		f(&conf)
	}
	c, err := bao.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	if c.Token() != "" {
		t.Fatalf("a token from somewhere: %s", c.Token())
	}
	return w, c, r
}

func TestAGrantBecomesATokenThatReadsItsEnvironment(t *testing.T) {
	w, c, r := open(t)
	w.PutSecret(env, "db", "first-value")
	w.PutSecret(env, "db", "second-value")
	w.PutSecret("env-prod-02", "db", "of another")
	grant := w.Grant(env, box)
	a, err := c.Login(t.Context(), control.Role, grant)
	if err != nil || a.Token == "" || a.Token != c.Token() || a.TTL != time.Hour || !a.Renewable {
		t.Fatalf("%+v %v", a, err)
	}
	s, err := c.Read(t.Context(), "db")
	if err != nil || s != (bao.Secret{Name: "db", Value: "second-value", Version: 2}) {
		t.Fatalf("%+v %v", s, err)
	}
	if n, err := c.Version(t.Context(), "db"); n != 2 || err != nil {
		t.Errorf("%d %v", n, err)
	}
	if _, err := c.Login(t.Context(), control.Role, grant); err != nil {
		t.Error(err)
	}
	for _, r := range w.Requests("login") {
		if r.Box != "" {
			t.Error("a login carries a token")
		}
	}
	w.Advance(30 * time.Minute)
	if a, err = c.Renew(t.Context()); err != nil || a.TTL != time.Hour || a.Token != c.Token() {
		t.Errorf("%+v %v", a, err)
	}
	for _, name := range []string{"none", "../env-prod-02/db", "..", "a/b", "", "x\n"} {
		_, err := c.Read(t.Context(), name)
		_, err2 := c.Version(t.Context(), name)
		want := protocol.ErrRejected
		if name == "none" {
			want = protocol.ErrNotFound
		}
		if !errors.Is(err, want) || !errors.Is(err2, want) {
			t.Errorf("%q: %v, %v", name, err, err2)
		}
	}
	w.Advance(-30 * time.Minute) // a deletion ahead of this box's clock has yet to come
	w.DeleteSecret(env, "db")
	_, err = c.Read(t.Context(), "db")
	_, err2 := c.Version(t.Context(), "db")
	if !errors.Is(err, protocol.ErrNotFound) || !errors.Is(err2, protocol.ErrNotFound) {
		t.Errorf("deleted: %v, %v", err, err2)
	}
	for _, secret := range []string{grant, a.Token, "second-value"} {
		if have := r.String("x " + secret); strings.Contains(have, secret) {
			t.Errorf("the redactor does not know %s", secret)
		}
	}
	if err := c.Revoke(t.Context()); err != nil || c.Token() != "" || w.Live(env, box) != 1 {
		t.Errorf("%v %q", err, c.Token())
	}
	if err := c.Revoke(t.Context()); err != nil {
		t.Errorf("again: %v", err)
	}
}

func TestAGrantThatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*control.World, *bao.Client) (role, jwt string)
		want  error
	}{
		"superseded": {func(w *control.World, _ *bao.Client) (string, string) {
			old := w.Grant(env, box)
			w.Grant(env, box)
			return control.Role, old
		}, protocol.ErrGrant},
		"used": {func(w *control.World, c *bao.Client) (string, string) {
			w.Set(env, func(e *control.Env) { e.SingleUse = true })
			g := w.Grant(env, box)
			if _, err := c.Login(t.Context(), control.Role, g); err != nil {
				t.Error(err)
			}
			return control.Role, g
		}, protocol.ErrGrant},
		"expired": {func(w *control.World, _ *bao.Client) (string, string) {
			g := w.Grant(env, box)
			w.Advance(11 * time.Minute)
			return control.Role, g
		}, protocol.ErrGrant},
		"of another role": {func(w *control.World, _ *bao.Client) (string, string) { return "admin", w.Grant(env, box) }, protocol.ErrGrant},
		"made up":         {func(w *control.World, _ *bao.Client) (string, string) { return control.Role, "aaaaaaa.b.c" }, protocol.ErrGrant},
		"of another environment": {func(w *control.World, _ *bao.Client) (string, string) {
			return control.Role, w.Grant("env-prod-02", box)
		}, protocol.ErrEnvironment},
	} {
		t.Run(name, func(t *testing.T) {
			w, client, r := open(t)
			role, jwt := c.spoil(w, client)
			before := client.Token()
			_, err := client.Login(t.Context(), role, jwt)
			if !errors.Is(err, c.want) || strings.Contains(err.Error(), jwt) || client.Token() != before {
				t.Errorf("%v", err)
			}
			if strings.Contains(r.String(jwt), jwt) {
				t.Error("the redactor does not know the grant")
			}
			if n := w.Live("env-prod-02", box); n != 0 {
				t.Errorf("%d tokens of another environment live on", n)
			}
		})
	}
}

func TestATokenThatEndedIsNotOneThatMayNot(t *testing.T) {
	w, c, _ := open(t)
	w.PutSecret(env, "db", "a-value-of-it")
	if _, err := c.Login(t.Context(), control.Role, w.Grant(env, box)); err != nil {
		t.Fatal(err)
	}
	w.Restrict(env, box)
	if _, err := c.Read(t.Context(), "db"); !errors.Is(err, protocol.ErrDenied) {
		t.Errorf("restricted: %v", err)
	}
	w.Fault(control.Fault{Match: "/data/", Kind: control.Expire, Times: 1}) // in the middle of a tick
	if _, err := c.Read(t.Context(), "db"); !errors.Is(err, protocol.ErrUnauthenticated) {
		t.Errorf("ended: %v", err)
	}
	if _, err := c.Renew(t.Context()); !errors.Is(err, protocol.ErrUnauthenticated) {
		t.Errorf("renewed: %v", err)
	}
	for _, damaged := range []string{"", "s.with\nbreaks", strings.Repeat("x", 9000)} {
		c.SetToken(damaged)
		if _, err := c.Read(t.Context(), "db"); !errors.Is(err, protocol.ErrUnauthenticated) {
			t.Errorf("damaged: %v", err)
		}
	}
}

func TestASecretThatCannotBeOne(t *testing.T) {
	w, c, _ := open(t)
	if _, err := c.Login(t.Context(), control.Role, w.Grant(env, box)); err != nil {
		t.Fatal(err)
	}
	for value, want := range map[string]error{"": protocol.ErrRejected, strings.Repeat("v", bao.MaxValue): nil, strings.Repeat("v", bao.MaxValue+1): protocol.ErrRejected} {
		w.PutSecret(env, "big", value)
		if _, err := c.Read(t.Context(), "big"); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v", len(value), err)
		}
	}
}

func TestEveryWayOpenBaoFailsHasAClass(t *testing.T) {
	temporary := protocol.ErrTemporary
	for name, c := range map[string]struct {
		fault control.Fault
		want  error
		after time.Duration
	}{
		"429":     {control.Fault{Kind: control.Status, Status: 429, RetryAfter: "30"}, protocol.ErrRateLimited, 30 * time.Second},
		"500":     {control.Fault{Kind: control.Status, Status: 500}, temporary, 0},
		"503":     {control.Fault{Kind: control.Status, Status: 503, RetryAfter: "5"}, temporary, 5 * time.Second},
		"html":    {control.Fault{Kind: control.HTML}, temporary, 0},
		"moved":   {control.Fault{Kind: control.Moved}, temporary, 0},
		"stalled": {control.Fault{Kind: control.Stall}, temporary, 0},
		"silent":  {control.Fault{Kind: control.Silent}, temporary, 0},
		"10 MB":   {control.Fault{Kind: control.Huge}, temporary, 0},
		"cut":     {control.Fault{Kind: control.Cut}, temporary, 0},
		"dropped": {control.Fault{Kind: control.Drop}, temporary, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, client, _ := open(t)
			w.PutSecret(env, "db", "a-value-of-it")
			grant := w.Grant(env, box)
			patient := client
			if name == "stalled" || name == "silent" {
				conf := client.Config
				conf.Idle = 200 * time.Millisecond
				var err error
				if client, err = bao.New(conf); err != nil {
					t.Fatal(err)
				}
			}
			check := func(what string, err error) {
				t.Helper()
				if !errors.Is(err, c.want) || protocol.RetryAfter(err) != c.after {
					t.Errorf("%s: %v", what, err)
				} else if text := err.Error(); strings.Contains(text, grant) || strings.Contains(text, "a-value") || len(text) > 500 {
					t.Errorf("%s: %s", what, text)
				}
			}
			c.fault.Times = 1
			meet := func(match string) { w.ClearFaults(); c.fault.Match = match; w.Fault(c.fault) }
			meet("login")
			_, err := client.Login(t.Context(), control.Role, grant)
			check("login", err)
			w.ClearFaults()
			// A grant whose token was lost on the way is good until it expires.
			if _, err := patient.Login(t.Context(), control.Role, grant); err != nil {
				t.Fatal(err)
			}
			client.SetToken(patient.Token())
			meet("renew")
			_, err = client.Renew(t.Context())
			check("renew", err)
			meet("/data/")
			_, err = client.Read(t.Context(), "db")
			check("read", err)
			meet("/metadata/")
			_, err = client.Version(t.Context(), "db")
			check("version", err)
			if !slices.Contains([]string{control.Cut, control.Stall, control.Huge}, c.fault.Kind) { // the status is all that counts
				meet("revoke")
				check("revoke", client.Revoke(t.Context()))
				if client.Token() == "" {
					t.Error("a token that lives on was dropped")
				}
			}
			if len(w.Requests("/data/")) > 1 || len(w.Requests(control.Portal)) > 0 {
				t.Error("it was tried twice, or at the portal")
			}
		})
	}
}
