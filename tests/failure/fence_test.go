//go:build e2e

package failure

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

// The fence is systemd's: with toad gone after a boot, nobody starts a candidate, and it is said which unit is held.
func TestWithoutReconcileACandidateStaysDown(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: "deadline = \"60s\"\nstable = \"15s\""})
	w.MustDeploy(t, 0, "v2", "--detach")
	w.WaitPhase(t, "probation")
	w.Serves(t, "v2")
	w.Off(t)
	toad := filepath.Join(w.Root, host.Home, ".local/state/toad/libexec/toad")
	binary, err := os.ReadFile(toad)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(toad, []byte("#!/bin/false\n"), 0); err != nil { // its owner and mode stay
		t.Fatal(err)
	}
	w.Boot(t)
	host.Eventually(t, "somebody to tell what is held down", time.Minute, func() bool {
		return strings.Contains(w.MustExec(t, "journalctl", "-b", "-p", "emerg", "-o", "cat", "--no-pager"), "web.container is held down")
	})
	for _, start := range []string{"start", "restart", "try-restart"} {
		w.User(t, "systemctl", "--user", start, "web.service")
		if have := w.Show(t, "web.service", "ActiveState"); have != "inactive" {
			t.Errorf("systemctl %s: the candidate is %s", start, have)
		}
	}
	if status, body := w.Get("http://127.0.0.1:8080/"); status == 200 {
		t.Errorf("%q is served", body)
	}
	if err := os.WriteFile(toad, binary, 0); err != nil {
		t.Fatal(err)
	}
	w.Reboot(t)
	served := map[string]string{"promoted": "v2", "rolled_back": "v1"}
	phase := w.WaitPhase(t, "promoted", "rolled_back", "withdrawn", "rollback_failed", "failed")
	if served[phase] == "" {
		t.Fatalf("it ended %s\n%s", phase, w.Log(t))
	}
	w.MustServe(t, served[phase])
	w.Quiet(t)
}
