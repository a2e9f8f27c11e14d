//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/scene"
)

// C25: the transient unit of the deadline cannot be made: an earlier one of its name failed, or its file survived. What is
// left of toad's own is cleared; what cannot be armed stops the deployment before it touches anything.
func TestC25TheDeadlinesNameIsTaken(t *testing.T) {
	b := lay(t, scene.Options{})
	failed := func(name string) {
		b.User(t, "systemd-run", "--user", "-q", "--unit", name, "--wait", "false")
		if b.Show(t, name, "ActiveState") != "failed" {
			t.Fatalf("%s is not failed; the test shows nothing", name)
		}
	}
	for _, name := range []string{"toad-probation-web-g1", "toad-prepare-web-g1", "toad-check-web-g1", "toad-act-web-g1-c1"} {
		failed(name + ".service")
	}
	b.deploy(t, "v2", promoted("v2"))

	// A file without its unit, as a manager that crashed leaves it.
	const transient = "/run/user/1000/systemd/transient/"
	b.WriteFile(t, transient+"toad-probation-web-g2.timer", "[Timer]\nOnCalendar=2099-01-01\n", 0o644)
	b.WriteFile(t, transient+"toad-probation-web-g2.service", "[Service]\nExecStart=false\n", 0o644)
	b.deploy(t, "crash", rolledBack("candidate_exited", "v2"))
	b.MustUser(t, "sh", "-c", "rm -f "+transient+"toad-probation-web-g2.*; systemctl --user daemon-reload")

	for i := range 4 {
		tag := []string{"v3", "v2"}[i%2]
		b.deploy(t, tag, promoted(tag))
	}
	for line := range strings.Lines(b.MustUser(t, "systemctl", "--user", "list-units", "--all", "--plain", "--no-legend", "toad-*")) {
		if name, _, _ := strings.Cut(line, " "); strings.Contains(name, "-web-") {
			t.Errorf("left behind: %s", line)
		}
	}
}
