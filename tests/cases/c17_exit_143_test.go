//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C17: an application that exits with 143 on SIGTERM makes systemd mark an orderly stop as a failure. It is nobody's.
func TestC17ACleanStopThatLooksFailed(t *testing.T) {
	b := lay(t, scene.Options{Tag: "t143"})
	b.deploy(t, "v2", promoted("v2"))
	b.deploy(t, "t143", promoted("t143"))
	b.deploy(t, "crash", rolledBack("candidate_exited", "t143"))

	// A stop by an operator is no incident either.
	b.MustUser(t, "systemctl", "--user", "stop", "web.service")
	if result := b.Show(t, "web.service", "Result"); result != "exit-code" {
		t.Fatalf("the stop left the result %s; the test shows nothing", result)
	}
	host.Eventually(t, "toad alert to have looked", host.Limit, func() bool {
		return b.Show(t, "toad-alert@web.service", "InactiveExitTimestampMonotonic") != "0" && b.Show(t, "toad-alert@web.service", "ActiveState") == "inactive"
	})
	if out := b.MustUser(t, "sh", "-c", "toad status; toad status web; journalctl --user -b -o cat --no-pager -u toad-alert@web.service"); strings.Contains(out, "failed after promotion") {
		t.Errorf("an orderly stop is told as a failure:\n%s", out)
	}
	// One that is killed while it serves is an incident.
	b.MustUser(t, "systemctl", "--user", "start", "--no-block", "web.service")
	b.Serves(t, "t143")
	b.MustUser(t, "podman", "kill", "-s", "KILL", "systemd-web")
	host.Eventually(t, "the failure to be told", host.Limit, func() bool {
		return strings.Contains(b.Journal(t, "toad-alert@web.service"), "failed after promotion")
	})
}
