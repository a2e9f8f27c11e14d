//go:build e2e

package cli

import (
	"strings"
	"testing"

	"toad/tests/host"
)

// The rehearsal of docs/enrolling.md: an application that keeps data, once with releases that keep to the rule and once
// with one that breaks it.
func TestTheRuleOfDataIsRehearsed(t *testing.T) {
	t.Parallel()
	h := host.Up(t, host.Options{})
	first := h.Push(t, "store-v1", "data1", "v1")
	keeps := h.Push(t, "store-v2", "data-kept", "v2")
	breaks := h.Push(t, "store-v3", "data-migrated", "v3")
	h.MustUser(t, "mkdir", "-p", "store-data")
	h.WriteFile(t, "~/.config/containers/systemd/store.container", `[Container]
Image=`+host.Repository+`@`+first.Digest+`
PublishPort=127.0.0.1:8080:8080
Volume=%h/store-data:/data
Secret=store-key
[Service]
Restart=always
RestartSec=1
TimeoutStopSec=3
`, 0o644)
	h.MustUser(t, "sh", "-c", "echo s3cr3t | podman secret create store-key - >/dev/null")
	h.MustUser(t, "systemctl", "--user", "daemon-reload")
	h.MustUser(t, "systemctl", "--user", "start", "--no-block", "store.service")
	serves(t, h, 8080, "v1")

	// It is enrolled by its Quadlet alone.
	r := h.User(t, "toad", "enroll", "store")
	t.Logf("$ toad enroll store\n%s%s", r.Stdout, r.Stderr)
	for _, want := range []string{"%h/store-data:/data", "store-key", "each release reads, and leaves behind, data that the retained ones can use"} {
		if r.Exit != 0 || !strings.Contains(r.Stderr, want) {
			t.Errorf("enroll: want %q, have exit %d\n%s", want, r.Exit, r.Stderr)
		}
	}
	h.MustUser(t, "toad", "enroll", "store.container", "--write")
	enrolled := h.ReadFile(t, "~/.config/toad/enrollment.toml")
	if enrolled != r.Stdout {
		t.Errorf("it printed\n%s\nand wrote\n%s", r.Stdout, enrolled)
	}
	if again := h.User(t, "toad", "enroll", "store", "--write"); again.Exit != 0 || !strings.Contains(again.Stdout, "is enrolled already") ||
		h.ReadFile(t, "~/.config/toad/enrollment.toml") != enrolled {
		t.Errorf("a second time: have %+v", again)
	}
	h.MustUser(t, "toad", "setup")
	if r := h.User(t, "toad", "doctor"); r.Exit != 0 {
		t.Errorf("doctor: have %+v", r)
	}

	// A release that keeps to the rule fails: what ran before reads its data, and runs again.
	r = h.User(t, "toad", "deploy", "store", keeps.Digest)
	t.Logf("$ toad deploy store %s\n%s%s", keeps.Digest, r.Stdout, r.Stderr)
	if r.Exit != 3 {
		t.Fatalf("want it rolled back, have exit %d", r.Exit)
	}
	serves(t, h, 8080, "v1")

	// One that breaks it fails too, and there is no way back: toad puts programs back, not data.
	h.MustUser(t, "cp", "-a", "store-data", "store-data.before")
	r = h.User(t, "toad", "deploy", "store", breaks.Digest)
	t.Logf("$ toad deploy store %s\n%s%s", breaks.Digest, r.Stdout, r.Stderr)
	if r.Exit != 4 || !strings.Contains(r.Stdout, "this release reads 1") {
		t.Fatalf("want the rollback to fail for its data, have exit %d", r.Exit)
	}
	r = h.User(t, "toad", "status")
	t.Logf("$ toad status\n%s", r.Stdout)
	if !strings.Contains(r.Stdout, "rollback_failed") {
		t.Errorf("status: have %s", r.Stdout)
	}

	// A person puts the data back, and then toad the program.
	h.MustUser(t, "sh", "-c", "cp store-data.before/* store-data/")
	r = h.User(t, "toad", "rollback", "store")
	t.Logf("$ toad rollback store\n%s%s", r.Stdout, r.Stderr)
	if r.Exit != 0 {
		t.Fatalf("want it back, have exit %d", r.Exit)
	}
	serves(t, h, 8080, "v1")
}
