//go:build e2e

package binary

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

const repository = scene.Artifacts

// An artifact of one file is pulled by its digest, and is its file from then on.
func TestAnArtifactIsPulledAndIsItsFile(t *testing.T) {
	t.Parallel()
	b := up(t, false)
	text := b.ReadFile(t, "~/.config/toad/enrollment.toml")
	b.WriteFile(t, "~/.config/toad/enrollment.toml", strings.Replace(text, "kind =", "image = \""+repository+"\"\nkind =", 1), 0o644)

	good, bad := b.PushFile(t, "v2", ""), b.PushFile(t, "crash", "")
	if r := b.User(t, "toad", "deploy", "web", repository+"@"+good); r.Exit != 0 {
		t.Fatalf("exit %d\n%s%s\n%s", r.Exit, r.Stdout, r.Stderr, b.Log(t))
	}
	b.MustServe(t, "v2")
	if to := b.MustUser(t, "sh", "-c", "readlink "+live); to != "../releases/"+b.Program(t, "v2").ID+"/web" {
		t.Errorf("the link leads to %s", to)
	}
	if r := b.User(t, "toad", "deploy", "web", bad); r.Exit != 3 {
		t.Fatalf("exit %d\n%s%s\n%s", r.Exit, r.Stdout, r.Stderr, b.Log(t))
	}
	b.MustServe(t, "v2")
	b.ship(t, 5, "crash") // the same file by another way is the same release

	// What is no such artifact, and what is not there, is told before anything is stopped.
	ran := b.Invocation(t)
	for digest, word := range map[string]string{
		b.Digest(t, "v3"):                   "pull_failed",
		"sha256:" + strings.Repeat("0", 64): "pull_failed",
	} {
		if r := b.User(t, "toad", "deploy", "web", digest); r.Exit != 1 || !strings.Contains(r.Stdout+r.Stderr, word) {
			t.Errorf("%s: exit %d\n%s%s", digest, r.Exit, r.Stdout, r.Stderr)
		}
	}
	if b.Invocation(t) != ran {
		t.Error("the unit was restarted")
	}
	b.Quiet(t)
}

// Two hosts: what production takes of a binary service has run well on dev, and the proof is about the bytes of the file.
func TestProductionTakesOnlyAFileThatRanWellOnDev(t *testing.T) {
	t.Parallel()
	dev, prod := up(t, false), up(t, false)
	prod.ship(t, 0, "v2")
	key := dev.MustUser(t, "toad", "proof", "keygen", ".config/toad/proof.key")
	dev.WriteFile(t, "~/.config/toad/proof-policy.toml", "[prove]\nprover = \"dev\"\nkey = \"proof.key\"\nafter = \"4s\"\n", 0o600)
	prod.WriteFile(t, "/etc/toad/proof-policy.toml", fmt.Sprintf("[[require]]\nservices = [\"web\"]\nprover = \"dev\"\nkey = %q\n", key), 0o644)

	ran := prod.Invocation(t)
	if r := prod.ship(t, 5, "v3"); !strings.Contains(r.Stderr, "not proven by dev yet") {
		t.Errorf("it is not said what is missing: %s", r.Stderr)
	}
	if prod.Invocation(t) != ran {
		t.Error("the unit was restarted")
	}

	prod.ship(t, 0, "v3", "--wait-proof", "5m", "--detach")
	host.Eventually(t, "status to say what is waited for", time.Minute, func() bool {
		s := prod.Status(t)
		return s.Operation != nil && s.Phase() == "preparing" && strings.Contains(s.Operation.Reason, "waiting for a proof")
	})
	dev.ship(t, 0, "v3")
	digest := "sha256:" + dev.Program(t, "v3").ID
	var envelope string
	host.Eventually(t, "the proof", time.Minute, func() bool {
		r := dev.User(t, "toad", "proof", "get", "web", digest)
		envelope = r.Stdout
		return r.Exit == 0
	})
	prod.WriteFile(t, "~/proof", envelope, 0o600)
	if show := prod.MustUser(t, "toad", "proof", "show", "proof"); !strings.Contains(show, digest) {
		t.Errorf("the proof is not about the file's bytes: %s", show)
	}
	prod.MustUser(t, "toad", "proof", "put", "web", "proof")
	if phase := prod.WaitPhase(t, "promoted", "failed", "rolled_back"); phase != "promoted" {
		t.Fatalf("production ended %s\n%s", phase, prod.Log(t))
	}
	prod.inForce(t, "v3")
	prod.MustUser(t, "toad", "rollback", "web") // no proof is asked of a way back
	prod.inForce(t, "v2")
	prod.Quiet(t)
}
