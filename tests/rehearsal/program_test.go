//go:build e2e

// Package rehearsal ships the wrong program, and what never ran anywhere else, and shows that neither is switched to.
package rehearsal

import (
	"strings"
	"testing"

	"toad/tests/scene"
)

// A release is shipped by hand, and it is the other program of the same repository.
func TestTheWrongProgramIsRefusedBeforeAnythingIsStopped(t *testing.T) {
	w := scene.New(t, scene.Options{Ready: `http = "http://127.0.0.1:8080/healthz"`, Limits: "deadline = \"20s\"\nstable = \"1s\""})
	invocation := func() string {
		return w.MustUser(t, "systemctl", "--user", "show", "-P", "InvocationID", "web.service")
	}
	ran := invocation()
	// Before toad's first deployment already: it reads what runs.
	r := w.MustDeploy(t, 5, "other")
	for _, word := range []string{"go:toad/tests/sample/other", "go:toad/tests/sample", "program_mismatch", "--program-change"} {
		if !strings.Contains(r.Stdout+r.Stderr, word) {
			t.Errorf("%q is not said:\n%s%s", word, r.Stdout, r.Stderr)
		}
	}
	if now := invocation(); now != ran {
		t.Errorf("the unit was restarted: %s, then %s", ran, now)
	}
	w.MustServe(t, "v1")
	w.Untouched(t)
	if left := w.User(t, "podman", "ps", "-a", "--format", "{{.Names}}").Stdout; strings.Contains(left, "toad-copy") {
		t.Errorf("a container is left: %s", left)
	}
	if !strings.Contains(w.MustUser(t, "sh", "-c", "cat .local/state/toad/alerts/*"), "program") {
		t.Error("no alert tells of it")
	}

	// It stays refused, a retry is not what was asked for, and the same holds once toad has promoted something.
	w.MustDeploy(t, 5, "other")
	w.MustDeploy(t, 5, "other", "--retry")
	w.MustDeploy(t, 0, "v2")
	ran = invocation()
	w.MustDeploy(t, 5, "other")
	if now := invocation(); now != ran {
		t.Errorf("the unit was restarted: %s, then %s", ran, now)
	}
	// Asked for by name it is tried like any release: it prints its usage and exits, and the old one is back.
	w.MustDeploy(t, 3, "other", "--program-change")
	w.MustServe(t, "v2")
	if s := w.Status(t); len(s.Refusals) != 1 || !strings.Contains(s.Refusals[0].Reason, "exited") {
		t.Errorf("refusals: %+v", s.Refusals)
	}
	w.Quiet(t)
}
