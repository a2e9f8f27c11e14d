//go:build e2e

package cases

import (
	"testing"
	"time"

	"toad/tests/scene"
)

// C28: a job ends while the manager reloads, and who waited for its result waits for ever; or a start that is given up holds
// the next one. toad waits for no job: it looks.
func TestC28ReloadsAllTheTime(t *testing.T) {
	b := lay(t, scene.Options{})
	b.MustUser(t, "systemd-run", "--user", "-q", "--unit", "foreign-reload", "sh", "-c", "while :; do systemctl --user daemon-reload; sleep 0.3; done")
	rounds := 4
	for i := range rounds {
		tag := []string{"v2", "v3"}[i%2]
		b.deploy(t, tag, promoted(tag))
	}
	b.deploy(t, "crash", rolledBack("candidate_exited", "v3"))
	b.MustUser(t, "systemctl", "--user", "stop", "foreign-reload")

	// A start that waits for its readiness is given up at the deadline, not at its own timeout.
	b.put(t, map[string]string{folder + "web.container.d/start.conf": "[Container]\nNotify=healthy\nHealthCmd=[\"/app\",\"health\"]\nHealthInterval=2s\n[Service]\nTimeoutStartSec=90\n"})
	b.Enroll(t, ready, "deadline = \"12s\"\nstable = \"300ms\"")
	began := time.Now()
	b.deploy(t, "never", ending{exit: 3, phase: "rolled_back", code: "deadline_exceeded", refused: true, serves: "v3"})
	if took := time.Since(began); took > time.Minute {
		t.Errorf("it took %v", took)
	}
}
