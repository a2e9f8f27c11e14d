//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/scene"
)

// C21: Podman's health stays "starting" since nothing runs the check, or there is no check at all.
func TestC21HealthThatNeverComes(t *testing.T) {
	const check = "[Container]\nHealthCmd=[\"/app\",\"health\"]\n"
	const health = "health = true\ninterval = \"200ms\""
	b := lay(t, scene.Options{Ready: ready})
	with := func(lines, deadline string) {
		b.put(t, map[string]string{folder + "web.container.d/health.conf": lines})
		b.Enroll(t, health, "stable = \"300ms\"\ndeadline = \""+deadline+"\"")
	}
	// Without any check nothing is stopped: the image is known by then.
	with("", "20s")
	b.deploy(t, "v2", untouched("no_healthcheck", "v1", "neither web.container nor the image has one", "add HealthCmd="))
	with("[Container]\nHealthCmd=none\n", "20s")
	b.deploy(t, "healthcheck", untouched("no_healthcheck", "v1", "neither web.container nor the image has one"))

	// The image's own check counts.
	with("", "2m")
	b.deploy(t, "healthcheck", promoted("healthcheck"))

	// One that nobody runs never says anything. toad does not run it itself.
	with(check+"HealthInterval=disable\n", "12s")
	r := b.deploy(t, "v3", ending{exit: 4, phase: "rollback_failed", code: "rollback_failed", refused: true, serves: "healthcheck"})
	if !strings.Contains(r.Stderr, "its health check never ran") && !strings.Contains(r.Stderr, "its health is starting") {
		t.Errorf("it does not say why:\n%s", r.Stderr)
	}
}
