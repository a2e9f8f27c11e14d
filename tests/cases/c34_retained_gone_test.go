//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C34: a nightly prune takes the image that nothing runs just then, the registry has deleted it, and the rollback finds
// nothing to go back to.
func TestC34TheRetainedImageIsGone(t *testing.T) {
	b := lay(t, scene.Options{Limits: "deadline = \"20s\"\nstable = \"300ms\"", Quadlet: strings.Replace(image(host.Repository+":v1"), "[Container]\n", "[Container]\nPull=always\n", 1)})
	b.deploy(t, "v2", promoted("v2"))
	dropped := func() {
		b.MustUser(t, "podman", "image", "prune", "-af")
		b.MustUser(t, "podman", "system", "prune", "-af")
		if b.User(t, "podman", "image", "exists", strings.TrimPrefix(b.Image(t, "v2").ID, "sha256:")).Exit == 0 {
			t.Fatal("the prune has left the image; the test shows nothing")
		}
	}
	begin := func(flags ...string) {
		b.MustUser(t, append([]string{"toad", "deploy", "web", b.Digest(t, "never"), "--detach"}, flags...)...)
		host.Eventually(t, "the candidate to run", host.Limit, func() bool {
			status, _ := b.Get("http://127.0.0.1:8080/healthz")
			return status == 503
		})
		b.MustExec(t, "systemctl", "stop", "registry.service", "registry-proxy.service")
		dropped()
	}
	// Pruned while the candidate is watched, without a registry.
	begin()
	before := b.state(t)
	b.WaitPhase(t, "rolled_back", "rollback_failed", "promoted")
	b.ended(t, b.Digest(t, "never"), ending{phase: "rolled_back", code: "deadline_exceeded", refused: true, serves: "v2"}, before, host.Result{})
	b.MustExec(t, "systemctl", "start", "registry.service", "registry-proxy.service")

	// Lost all the same: the archive too. That is told, once, and nothing goes round in circles.
	begin("--retry")
	b.MustUser(t, "sh", "-c", "rm -rf .local/state/toad/images")
	if phase := b.WaitPhase(t, "rolled_back", "rollback_failed", "promoted"); phase != "rollback_failed" {
		t.Fatalf("want rollback_failed, have %s\n%s", phase, b.Log(t))
	}
	if s := b.Status(t); !strings.Contains(s.Operation.Reason, "did not settle") && !strings.Contains(s.Operation.Reason, "had not settled") {
		t.Errorf("the reason is %q", s.Operation.Reason)
	}
	if log := b.MustUser(t, "toad", "log", b.Status(t).Operation.ID); strings.Count(log, "restoring the previous release") != 1 || !strings.Contains(log, "the image that web.container goes back to: ") {
		t.Errorf("the log:\n%s", log)
	}
	b.MustUser(t, "systemctl", "--user", "stop", "web.service")
	b.MustUser(t, "systemctl", "--user", "reset-failed")
	b.Quiet(t)
	b.MustExec(t, "systemctl", "start", "registry.service", "registry-proxy.service")

	// With no way back there is no switch at all.
	b.deploy(t, "v3", promoted("v3"), "--retry")
	b.MustUser(t, "sh", "-c", "rm -rf .local/state/toad/images && touch .local/state/toad/images")
	b.deploy(t, "v4", untouched("no_way_back", "v3", "cannot be looked at"))
	b.MustUser(t, "rm", ".local/state/toad/images")
	b.deploy(t, "v4", promoted("v4"))
}
