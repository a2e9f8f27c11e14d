//go:build e2e

package doctor

import (
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

const pin = ".config/containers/systemd/web.container.d/zz-toad.conf"

// A tool that copies the operator's folder over, and deletes what it does not know, takes the pins with it.
func TestTheFencePutsRightWhatOthersDoToThePins(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	w.MustDeploy(t, 0, "v2")
	w.Quiet(t)
	text, invocation := w.ReadFile(t, "~/"+pin), w.Invocation(t)
	isBack := func(what string) {
		t.Helper()
		host.Eventually(t, "the pin to be back after "+what, time.Minute, func() bool {
			r := w.User(t, "cat", pin)
			return r.Exit == 0 && r.Stdout == text && w.Show(t, "toad-fence.service", "ActiveState") == "inactive"
		})
	}
	told := func(what string) int { return strings.Count(w.MustUser(t, "toad", "log", "web"), what) }

	for n, do := range []string{
		"rm -r .config/containers/systemd/web.container.d && systemctl --user daemon-reload", // rsync --delete, then a reload
		"cp -r .config/containers/systemd new && rm -r new/web.container.d && mv .config/containers/systemd old && mv new .config/containers/systemd",
	} {
		w.MustUser(t, "sh", "-c", do)
		isBack(do)
		host.Eventually(t, "the log to tell it", time.Minute, func() bool { return told("taken away by others") == n+1 })
	}
	w.MustUser(t, "sh", "-c", "sed -i s/never/always/ "+pin)
	isBack("an edit")
	host.Eventually(t, "the log to tell of the edit", time.Minute, func() bool { return told("was changed by others") == 1 })
	unwatchedEdit(t, w)
	isBack("an edit between the last look and the end of the fence")
	if w.Invocation(t) != invocation {
		t.Error("the unit was restarted")
	}
	w.MustUser(t, "systemctl", "--user", "restart", "web.service")
	w.Serves(t, "v2")
	w.Untouched(t)

	// What wins over a pin is told once, and left alone.
	w.WriteFile(t, "~/.config/containers/systemd/web.container.d/zzz.conf", "[Container]\nImage="+host.Repository+":v1\n", 0o644)
	w.MustUser(t, "systemctl", "--user", "daemon-reload")
	for range 2 {
		w.MustUser(t, "systemctl", "--user", "start", "toad-tick.service")
	}
	if n := told("zzz.conf:2 wins over the pin"); n != 1 {
		t.Errorf("what wins was told %d times:\n%s", n, w.Log(t))
	}
	w.MustUser(t, "sh", "-c", "rm .config/containers/systemd/web.container.d/zzz.conf; systemctl --user daemon-reload; systemctl --user start toad-tick.service")
	if told("counts again") != 1 {
		t.Errorf("that it holds again was not told:\n%s", w.Log(t))
	}

	// Silent when all is as recorded; a service that is enrolled later is watched too.
	lines := w.MustUser(t, "sh", "-c", "wc -l < .local/state/toad/operations/web-g1.log")
	w.MustUser(t, "toad", "reconcile", "--look")
	if have := w.MustUser(t, "sh", "-c", "wc -l < .local/state/toad/operations/web-g1.log"); have != lines {
		t.Errorf("it is not silent: %s lines, then %s", lines, have)
	}
	enrollment := w.ReadFile(t, "~/.config/toad/enrollment.toml")
	w.WriteFile(t, "~/.config/toad/enrollment.toml", enrollment+"\n[service.more]\nunits = [\"more.container\"]\nimage = \"127.0.0.1:5000/more\"\n", 0o644)
	host.Eventually(t, "the fence to watch the new unit", time.Minute, func() bool {
		return strings.Contains(w.Show(t, "toad-fence.path", "Paths"), "more.container.d")
	})
	failedWatch(t, w)

	// toad can be taken away; what it pinned stays, and runs.
	out := w.MustUser(t, "toad", "setup", "--uninstall")
	if !strings.Contains(out, "toad unpin web") || !strings.Contains(out, pin) {
		t.Errorf("uninstall says:\n%s", out)
	}
	if left := w.MustUser(t, "sh", "-c", "systemctl --user list-unit-files --no-legend 'toad*'; ls .local/share/systemd/user"); left != "" {
		t.Errorf("left behind: %s", left)
	}
	w.MustUser(t, "systemctl", "--user", "restart", "web.service")
	w.Serves(t, "v2")
	w.MustUser(t, "toad", "unpin", "web")
	w.MustUser(t, "systemctl", "--user", "restart", "web.service")
	w.Serves(t, "v1")
}

// unwatchedEdit changes the pin while the path unit does not watch: after the last look, and before the fence's unit ends.
func unwatchedEdit(t *testing.T, w *scene.Web) {
	t.Helper()
	const held = "~/.config/systemd/user/toad-fence.service.d/held.conf"
	w.WriteFile(t, held, "[Service]\nExecStopPost=/bin/sh -c 'test ! -p %t/held || { cat %t/held; rm %t/held; }'\n", 0o644)
	w.MustUser(t, "sh", "-c", "mkfifo $XDG_RUNTIME_DIR/held; systemctl --user daemon-reload; touch "+pin)
	host.Eventually(t, "the fence to be held at its end", time.Minute, func() bool {
		return w.Show(t, "toad-fence.service", "SubState") == "stop-post"
	})
	w.MustUser(t, "sh", "-c", "sed -i s/never/always/ "+pin+"; echo > $XDG_RUNTIME_DIR/held")
}

// failedWatch has the watch fail, as it does without an inotify instance, and looks whether the next tick starts it again.
func failedWatch(t *testing.T, w *scene.Web) {
	t.Helper()
	const limit = "~/.config/systemd/user/toad-fence.service.d/limit.conf"
	w.WriteFile(t, limit, "[Unit]\nStartLimitIntervalSec=1h\nStartLimitBurst=1\n", 0o644)
	w.MustUser(t, "systemctl", "--user", "daemon-reload")
	host.Eventually(t, "the watch to fail", time.Minute, func() bool {
		w.MustUser(t, "touch", pin)
		return w.Show(t, "toad-fence.path", "ActiveState") == "failed"
	})
	w.MustUser(t, "sh", "-c", "rm -r .config/systemd/user/toad-fence.service.d; systemctl --user daemon-reload; systemctl --user start toad-tick.service")
	if have := w.Show(t, "toad-fence.path", "ActiveState"); have != "active" {
		t.Errorf("after a tick the watch is %s", have)
	}
}
