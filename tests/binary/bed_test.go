//go:build e2e

package binary

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	unit  = scene.PlainUnit
	ready = `http = "http://127.0.0.1:8080/healthz"
interval = "200ms"
timeout = "1s"`
	limits = "deadline = \"20s\"\nstable = \"1s\""

	live = "~/.local/state/toad/live/web"
)

// bed is a host with the plain unit web.service, enrolled as the service web.
type bed struct{ *scene.Web }

// up brings a host up on which web.service runs v1 by the operator's own link.
func up(t *testing.T, faults bool) bed {
	t.Helper()
	return bed{scene.NewBinary(t, scene.Binary{Faults: faults, Ready: ready, Limits: limits})}
}

func (b bed) enroll(t *testing.T, limits string) {
	t.Helper()
	b.Enroll(t, ready, limits)
}

// ship ships a program, and wants this exit status.
func (b bed) ship(t *testing.T, exit int, name string, flags ...string) host.Result {
	t.Helper()
	b.Put(t, name)
	r := b.User(t, append([]string{"toad", "ship", "web", "files/" + name}, flags...)...)
	if r.Exit != exit {
		t.Fatalf("toad ship web %s %v: want exit %d, have %d\n%s%s\n%s", name, flags, exit, r.Exit, r.Stdout, r.Stderr, b.Log(t))
	}
	return r
}

// inForce asserts that a program is what the link leads to, what runs, and what the record says.
func (b bed) inForce(t *testing.T, name string) {
	t.Helper()
	id := b.Program(t, name).ID
	b.MustServe(t, name)
	if to := b.MustUser(t, "sh", "-c", "readlink "+live); to != "../releases/"+id+"/web" {
		t.Errorf("the link leads to %s, want %s", to, id)
	}
	pid := b.Show(t, "web.service", "MainPID")
	if exe := b.MustUser(t, "readlink", "/proc/"+pid+"/exe"); !strings.HasPrefix(exe, host.Home+"/.local/state/toad/releases/"+id+"/web") {
		t.Errorf("%s runs, want %s", exe, id)
	}
	if s := b.Status(t); s.Promoted == nil || s.Promoted.Digest != "sha256:"+id {
		t.Errorf("in force by the record: %+v, want %s", s.Promoted, id)
	}
	if have := b.ReadFile(t, "~/.config/systemd/user/web.service"); have != unit {
		t.Errorf("the operator's file has changed:\n%s", have)
	}
	if out := b.MustUser(t, "sh", "-c", "toad doctor || true"); strings.Contains(out, "not as recorded") || strings.Contains(out, "the link ") {
		t.Errorf("doctor:\n%s", out)
	}
}
