//go:build e2e

package recovery

import (
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

// settle waits until no operation is under way.
func settle(t *testing.T, w *scene.Web) string {
	t.Helper()
	return w.WaitPhase(t, "promoted", "rolled_back", "withdrawn", "rollback_failed", "failed")
}

// holds asserts that the running image is the one that the record names, that it answers, that the operator's file is
// what it was, and that nothing is left.
func holds(t *testing.T, w *scene.Web, phase string) {
	t.Helper()
	rec := w.Record(t)
	want := rec.Operation.Previous.ImageID
	if phase == "promoted" {
		want = rec.Operation.Candidate.ImageID
	}
	var have string
	host.Eventually(t, "the release that the record names to run", time.Minute, func() bool {
		have = w.User(t, "podman", "inspect", "--format", "{{.Image}}", "systemd-web").Stdout
		return strings.TrimSpace(have) == want
	})
	host.Eventually(t, "it to answer", time.Minute, func() bool {
		status, _ := w.Get("http://127.0.0.1:8080/healthz")
		return status == 200
	})
	pin := w.ReadFile(t, "~/.config/containers/systemd/web.container.d/zz-toad.conf")
	if strings.Contains(pin, "TOAD_ADMITTED") {
		t.Errorf("a decided pin is fenced:\n%s", pin)
	}
	w.Untouched(t)
	// A write that was cut short leaves a hidden temporary file, which nobody reads; toad sweeps it when it is a minute old.
	w.MustUser(t, "find", ".config/containers/systemd", "-name", ".toad-tmp-*", "-delete")
	w.Quiet(t)
}
