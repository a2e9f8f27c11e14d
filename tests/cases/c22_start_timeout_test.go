//go:build e2e

package cases

import (
	"testing"

	"toad/tests/scene"
)

// C22: with Notify=healthy systemd kills a slow but healthy container at TimeoutStartSec, again and again. It is the unit's
// own limit that was met, and the answer says so; toad's deadline waits for no start job.
func TestC22StartTimeout(t *testing.T) {
	const unit = "[Container]\nNotify=healthy\nHealthCmd=[\"/app\",\"health\"]\nHealthInterval=2s\nHealthStartPeriod=40s\n" +
		"[Unit]\nStartLimitIntervalSec=0\n[Service]\nTimeoutStartSec="
	b := lay(t, scene.Options{})
	with := func(timeout, limits string) {
		b.put(t, map[string]string{folder + "web.container.d/start.conf": unit + timeout + "\n"})
		b.Enroll(t, ready, "stable = \"300ms\"\n"+limits)
	}
	with("8", "deadline = \"60s\"")
	b.deploy(t, "slow", rolledBack("candidate_exited", "v1", "timeout", "TimeoutStartSec"))
	// The deadline passes while the start job still waits.
	with("300", "deadline = \"12s\"")
	b.deploy(t, "never", rolledBack("deadline_exceeded", "v1"))
	// With time enough it is promoted.
	with("90", "deadline = \"2m\"")
	b.deploy(t, "slow5", promoted("slow5"))
}
