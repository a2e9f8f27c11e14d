//go:build e2e

package cases

import (
	"testing"

	"toad/tests/scene"
)

// C16: the candidate's crashes use up the start limit, and the good image cannot be started: "start request repeated too
// quickly".
func TestC16TheStartLimitIsUsedUp(t *testing.T) {
	b := lay(t, scene.Options{Limits: "deadline = \"60s\"\nstable = \"500ms\"\nrestarts = 10", Files: map[string]string{
		folder + "web.container.d/limit.conf": "[Unit]\nStartLimitIntervalSec=300\nStartLimitBurst=3\n[Service]\nRestartSec=100ms\n",
	}})
	// The limit ends it, not the budget: the unit is failed, with the first cause as its result, and waits for no restart.
	b.deploy(t, "crash", rolledBack("candidate_exited", "v1", "failed with exit status 2"))
	if state := b.Show(t, "web.service", "ActiveState"); state != "active" {
		t.Errorf("the unit is %s", state)
	}
	// A good image after it does not pay for the bad one, nor for the starts of toad itself.
	b.deploy(t, "v2", promoted("v2"))
	b.deploy(t, "crash", rolledBack("candidate_exited", "v2"), "--retry")
	b.deploy(t, "v3", promoted("v3"))
}
