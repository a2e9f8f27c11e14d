//go:build e2e

package recovery

import (
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	quadlets = ".config/containers/systemd"
	pinned   = quadlets + "/web.container.d/zz-toad.conf"
)

// What hosts and their operators do to a service, during a deployment and after it: each is told, what toad owns is kept or
// put back, and nothing is held against a release.
func TestWhatOthersDoToAService(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: trialReady, Limits: trial})
	w.MustDeploy(t, 0, "v2")
	w.Quiet(t)
	told := func(what string) int { return strings.Count(w.MustUser(t, "toad", "log", "web"), what) }

	t.Run("a prune takes the image of a stopped unit", func(t *testing.T) {
		w.MustUser(t, "systemctl", "--user", "stop", "web.service")
		// As on a timer: nobody asks for it just then.
		w.MustUser(t, "systemd-run", "--user", "-q", "--wait", "--collect", "-p", "Type=oneshot", "podman", "system", "prune", "-af")
		w.MustExec(t, "systemctl", "stop", "registry.service")
		w.MustUser(t, "systemctl", "--user", "start", "--no-block", "web.service")
		w.Serves(t, "v2")
		w.MustExec(t, "systemctl", "start", "registry.service")
		if have := w.ImageID(t); have != w.Image(t, "v2").ID {
			t.Errorf("the running image is %s, want %s", have, w.Image(t, "v2").ID)
		}
		if told("loaded back from its archive") != 1 {
			t.Errorf("it was not told once:\n%s", w.Log(t))
		}
		w.User(t, "systemctl", "--user", "reset-failed")
		w.Quiet(t)
		if bad := w.User(t, "toad", "doctor"); bad.Exit != 0 {
			t.Errorf("the doctor: %s", bad.Stdout)
		}
	})

	w.Enroll(t, trialReady, "deadline = \"60s\"\nstable = \"12s\"")
	w.MustDeploy(t, 0, "v3", "--detach")
	w.WaitPhase(t, "probation")
	w.Serves(t, "v3")
	id := w.Record(t).Operation.ID
	text, invocation := w.ReadFile(t, "~/"+pinned), w.Invocation(t)

	t.Run("the pins go during a deployment", func(t *testing.T) {
		w.MustUser(t, "sh", "-c", "mkdir -p src && cp "+quadlets+"/web.container src/ && rsync -r --delete src/ "+quadlets+"/ && systemctl --user daemon-reload")
		host.Eventually(t, "the pin to be back", time.Minute, func() bool {
			r := w.User(t, "cat", pinned)
			return r.Exit == 0 && r.Stdout == text
		})
		host.Eventually(t, "it to be told", time.Minute, func() bool { return told("was changed by others during the deployment") == 1 })
	})
	t.Run("a drop-in takes the fence away during a deployment", func(t *testing.T) {
		w.WriteFile(t, "~/.config/systemd/user/web.service.d/x.conf", "[Unit]\nConditionEnvironment=\n[Service]\nExecCondition=\n", 0o644)
		host.Eventually(t, "it to be told", time.Minute, func() bool { return told("x.conf:2 wins over the pin") == 1 })
		w.MustUser(t, "rm", "-r", ".config/systemd/user/web.service.d")
		host.Eventually(t, "it to be told that the pin counts", time.Minute, func() bool { return told("counts again") == 1 })
	})
	if phase := settle(t, w); phase != "promoted" {
		t.Fatalf("it ended %s\n%s", phase, w.Log(t))
	}
	if have := w.Invocation(t); have != invocation {
		t.Error("the candidate was restarted")
	}
	w.NoneUnadmitted(t, id)

	t.Run("a drop-in for all containers, not loaded yet", func(t *testing.T) {
		w.WriteFile(t, "~/"+quadlets+"/container.d/zzz.conf", "[Container]\nImage="+host.Repository+":v1\n", 0o644)
		host.Eventually(t, "it to be told", time.Minute, func() bool { return told("zzz.conf:2 wins over the pin") == 1 })
		w.MustUser(t, "rm", "-r", quadlets+"/container.d")
		host.Eventually(t, "it to be told that the pin counts", time.Minute, func() bool { return told("counts again") == 2 })
	})
	t.Run("a restart by hand, and a removed container", func(t *testing.T) {
		w.MustUser(t, "systemctl", "--user", "restart", "web.service")
		w.Serves(t, "v3")
		w.MustUser(t, "podman", "rm", "-f", "-t", "0", "systemd-web")
		w.Serves(t, "v3")
	})
	if s := w.Status(t); len(s.Refusals) != 0 || s.Phase() != "promoted" {
		t.Errorf("status: %+v", s)
	}
	w.User(t, "systemctl", "--user", "reset-failed")
	w.Quiet(t)
	w.Untouched(t)
	doctorNames(t, w)
}

// doctorNames asserts that the doctor names what would do such things on a schedule.
func doctorNames(t *testing.T, w *scene.Web) {
	t.Helper()
	for _, argv := range [][]string{
		{"--unit", "tidy", "podman", "system", "prune", "-af"},
		{"--unit", "update", "podman", "auto-update"},
		{"--unit", "copy", "rsync", "-a", "--delete", "/srv/quadlets/", host.Home + "/" + quadlets + "/"},
		{"--unit", "wipe", "sh", "-c", "podman rm -fa"},
	} {
		w.MustUser(t, append([]string{"systemd-run", "--user", "-q", "--on-active=1h"}, argv...)...)
	}
	out := w.User(t, "toad", "doctor").Stdout
	for _, want := range []string{"tidy.timer runs a podman prune", "update.timer runs podman auto-update", "copy.timer runs rsync --delete", "wipe.timer removes containers"} {
		if !strings.Contains(out, want) {
			t.Errorf("the doctor does not say %q:\n%s", want, out)
		}
	}
}
