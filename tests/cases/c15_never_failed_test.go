//go:build e2e

package cases

import (
	"fmt"
	"strings"
	"testing"

	"toad/tests/scene"
)

// C15: with Restart=always a bad image never makes its unit "failed", and whoever waits for that waits for ever. toad counts
// what it sees, and its own deadline ends the rest.
func TestC15NeverFailed(t *testing.T) {
	const budget = "stable = \"500ms\"\ndeadline = "
	b := lay(t, scene.Options{Limits: budget + `"60s"`})
	for _, c := range []struct {
		name, unit, image string
		restarts          int
		says              string
	}{
		{"no start limit", "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=100ms\n", "crash", 2, "budget"},
		{"RestartMode=direct", "[Service]\nRestartSec=100ms\nRestartMode=direct\n", "crash", 2, "budget"},
		{"never ready by notify", "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestartSec=100ms\nTimeoutStartSec=8\n[Container]\nNotify=true\n", "never", 0, "budget"},
		// The budget allows the restart, which comes too late for any deadline.
		{"a long RestartSec", "[Service]\nRestartSec=600\n", "crash", 2, "its restart would come after the deadline"},
	} {
		b.put(t, map[string]string{folder + "web.container.d/10-case.conf": c.unit})
		b.Enroll(t, ready, fmt.Sprintf(budget+"\"60s\"\nrestarts = %d", c.restarts))
		var flags []string
		if strings.Contains(b.state(t).Refusals, b.Digest(t, c.image)) {
			flags = append(flags, "--retry")
		}
		b.deploy(t, c.image, rolledBack("candidate_exited", "v1", c.says), flags...)
	}
}
