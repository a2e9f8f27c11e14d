//go:build e2e

package doctor

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	ready = `http = "http://127.0.0.1:8080/healthz"
interval = "200ms"
timeout = "1s"`
	limits = "deadline = \"60s\"\nstable = \"1s\""
)

func TestUnpinGivesTheUnitsBack(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	if r := w.User(t, "toad", "unpin", "other"); r.Exit != 78 {
		t.Errorf("of a service that is not there: exit %d %s", r.Exit, r.Stderr)
	}
	w.MustDeploy(t, 3, "crash")
	w.MustDeploy(t, 0, "v2")
	w.Enroll(t, ready, "deadline = \"30s\"\nstable = \"10s\"")
	w.MustDeploy(t, 0, "v3", "--detach")
	w.WaitPhase(t, "probation")
	if r := w.User(t, "toad", "unpin", "web"); r.Exit != 5 || !strings.Contains(r.Stderr, "toad rollback web") {
		t.Errorf("during a deployment: exit %d %s", r.Exit, r.Stderr)
	}
	w.User(t, "toad", "rollback", "web")
	w.Quiet(t)
	w.MustServe(t, "v2")

	invocation := w.Invocation(t)
	out := w.MustUser(t, "toad", "unpin", "web")
	if !strings.Contains(out, "its next restart runs "+host.Repository+":v1") {
		t.Errorf("unpin says: %s", out)
	}
	if w.Invocation(t) != invocation {
		t.Error("the unit was restarted")
	}
	w.MustServe(t, "v2")
	if left := w.MustUser(t, "find", ".config/containers/systemd"); strings.Contains(left, "web.container.d") {
		t.Errorf("left behind:\n%s", left)
	}
	w.Untouched(t)
	s := w.Status(t)
	if s.Promoted != nil || s.Generation != 3 || len(s.Refusals) != 1 {
		t.Errorf("status: %+v", s)
	}
	w.MustUser(t, "toad", "unpin", "web") // again
	w.MustUser(t, "systemctl", "--user", "restart", "web.service")
	w.Serves(t, "v1")

	// The next deployment adopts what runs, and goes back to it.
	w.Enroll(t, ready, limits)
	w.MustDeploy(t, 5, "crash")
	w.MustDeploy(t, 3, "other", "--program-change")
	w.MustServe(t, "v1")
	if s := w.Status(t); s.Promoted == nil || s.Promoted.Generation != 0 || s.Promoted.Digest != w.Digest(t, "v1") {
		t.Errorf("status: %+v", s)
	}
}
