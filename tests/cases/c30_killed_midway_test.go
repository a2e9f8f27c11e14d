//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C30: a deployment that is killed half way holds its lock for weeks, or leaves a container's name or id file behind that
// keeps the next one from starting. The long list of points is the recovery suite's; these are the stages by name.
func TestC30KilledMidway(t *testing.T) {
	b := lay(t, scene.Options{Faults: true, Limits: "deadline = \"2m\"\nstable = \"500ms\"\npull = \"40s\""})
	for i, c := range []struct{ stage, point string }{
		{"pulled", "podman.pull.after"},
		{"pinned", "file.rename.zz-toad.conf"},
		{"reloaded", "bus.Reload.after"},
		{"stopped", "bus.RestartUnit.before"},
		{"started", "bus.RestartUnit.after"},
		{"observing", "record.saved.probation"},
	} {
		tag := []string{"v2", "v3"}[i%2]
		b.forget(t, tag)
		b.WriteFile(t, "~/.local/state/toad/fault", c.point+" 1 kill\n", 0o600)
		b.MustUser(t, "toad", "deploy", "web", b.Digest(t, tag), "--detach")
		phase := b.WaitPhase(t, "promoted", "rolled_back", "failed", "rollback_failed", "withdrawn")
		if b.User(t, "test", "-e", ".local/state/toad/fault").Exit == 0 {
			t.Fatalf("%s: %s was not passed", c.stage, c.point)
		}
		// A write that was cut short leaves a hidden temporary file, which nobody reads; toad sweeps it when it is a minute old.
		b.MustUser(t, "find", ".config/containers/systemd", "-name", ".toad-tmp-*", "-delete")
		b.Quiet(t)
		b.Untouched(t)
		if phase != "promoted" {
			t.Fatalf("%s: it ended %s\n%s", c.stage, phase, b.Log(t))
		}
		if b.running(t) != b.Image(t, tag).ID || !strings.Contains(b.ReadFile(t, pin), "\nImage="+b.at(t, tag)+"\n") {
			t.Errorf("%s: %s runs\n%s\n%s", c.stage, b.running(t), b.ReadFile(t, pin), b.Log(t))
		}
	}

	// Podman dies with its container, and leaves the name and the id file behind.
	b.MustUser(t, "sh", "-c", `systemctl --user kill -s KILL web.service; true`)
	host.Eventually(t, "the service to be back", host.Limit, func() bool {
		status, _ := b.Get("http://127.0.0.1:8080/healthz")
		return status == 200
	})
	// A container of the unit's name that somebody made, and an old id file, are in nobody's way.
	b.MustUser(t, "systemctl", "--user", "stop", "web.service")
	b.MustUser(t, "sh", "-c", "podman create --name systemd-web "+host.Repository+":v1 >/dev/null; echo 0123456789abcdef > /run/user/1000/web.cid")
	b.deploy(t, "v1", promoted("v1"))
}
