//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// behindTheProxy are the options of a service whose registry is behind the fault proxy.
func behindTheProxy(t *testing.T, pull string) bed {
	t.Helper()
	b := lay(t, scene.Options{Quadlet: image(host.Proxied + ":v1"), Limits: "deadline = \"2m\"\nstable = \"500ms\"\npull = \"" + pull + "\""})
	text := b.ReadFile(t, enrollment)
	b.WriteFile(t, enrollment, strings.Replace(text, host.Repository, host.Proxied, 1), 0o644)
	return b
}

// forget makes sure that images must be pulled.
func (b bed) forget(t *testing.T, tags ...string) {
	t.Helper()
	for _, tag := range tags {
		b.User(t, "podman", "rmi", "-f", strings.TrimPrefix(b.Image(t, tag).ID, "sha256:"))
	}
}

// C12: a blob comes half, or the pull is killed half way, and after that the store misses layers until somebody cleans it
// by hand. A pull that failed on the way is temporary trouble, nothing is held against the digest, and the next one works.
func TestC12ThePullIsCutShort(t *testing.T) {
	b := behindTheProxy(t, "90s")
	b.forget(t, "v2", "v3", "v4")

	b.Fault(t, "cut", "/blobs/", 0, "")
	b.deploy(t, "v2", untouched("pull_unavailable", "v1", "registry is unavailable", "try again later"))
	b.Fault(t, "", "", 0, "")
	b.deploy(t, "v2", promoted("v2"))

	// toad is killed while a blob stalls: what was begun is carried on.
	b.Fault(t, "stall", "/blobs/", 1, "")
	b.MustUser(t, "toad", "deploy", "web", b.Digest(t, "v3"), "--detach")
	b.WaitPhase(t, "preparing")
	b.pulling(t)
	b.MustUser(t, "sh", "-c", "systemctl --user kill -s KILL toad.service 'toad-act-*'")
	if phase := b.WaitPhase(t, "promoted", "failed", "rolled_back"); phase != "promoted" {
		t.Fatalf("want promoted, have %s\n%s", phase, b.Log(t))
	}
	b.Quiet(t)

	// Podman is killed while a blob stalls.
	before := b.state(t)
	b.Fault(t, "stall", "/blobs/", 0, "")
	b.MustUser(t, "toad", "deploy", "web", b.Digest(t, "v4"), "--detach")
	b.WaitPhase(t, "preparing")
	b.pulling(t)
	b.MustUser(t, "systemctl", "--user", "kill", "-s", "KILL", "podman.service")
	b.WaitPhase(t, "failed")
	b.MustUser(t, "systemctl", "--user", "reset-failed", "podman.service")
	b.ended(t, b.Digest(t, "v4"), ending{phase: "failed", code: "pull_unavailable", serves: "v3"}, before, host.Result{})
	b.Fault(t, "", "", 0, "")
	b.deploy(t, "v4", promoted("v4"))
}

// pulling waits until the fault has been met.
func (b bed) pulling(t *testing.T) {
	t.Helper()
	host.Eventually(t, "Podman to ask for a blob", host.Limit, func() bool { return b.FaultsMet(t) > 0 })
}
