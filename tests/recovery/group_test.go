//go:build e2e

package recovery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

// group has a service of two units, whose pins are made to differ: while it is in force, while the user manager is down, and
// while a release is on trial. Each time both are made what the record says, and the unit is named.
func group(t *testing.T, w *scene.Web) {
	for _, unit := range []string{"one", "two"} {
		w.WriteFile(t, "~/"+quadlets+"/"+unit+".container", strings.Replace(more, "{image}", host.Repository+":v1", 1), 0o644)
	}
	w.MustUser(t, "sh", "-c", `printf '\n[service.pair]\nunits = ["one.container", "two.container"]\nimage = "`+host.Repository+`"\n[service.pair.probation]\ndeadline = "90s"\nstable = "5s"\n' >> .config/toad/enrollment.toml
		systemctl --user daemon-reload; systemctl --user start one.service two.service`)
	deploy := func(tag string, flags ...string) {
		t.Helper()
		if r := w.User(t, append([]string{"toad", "deploy", "pair", w.Digest(t, tag)}, flags...)...); r.Exit != 0 {
			t.Fatalf("exit %d\n%s%s\n%s", r.Exit, r.Stdout, r.Stderr, w.Log(t))
		}
	}
	deploy("v2")
	pinOf := func(unit string) string { return quadlets + "/" + unit + ".container.d/zz-toad.conf" }
	told := func(unit string) int {
		return strings.Count(w.MustUser(t, "toad", "log", "pair"), "the pin of "+unit+".container was changed by others")
	}
	// runs asserts that both units run the image of a tag.
	runs := func(tag string) {
		t.Helper()
		for _, unit := range []string{"one", "two"} {
			var have string
			host.Eventually(t, unit+" to run "+tag, time.Minute, func() bool {
				have = strings.TrimSpace(w.User(t, "podman", "inspect", "--format", "{{.Image}}", "systemd-"+unit).Stdout)
				return have == w.Image(t, tag).ID || "sha256:"+have == w.Image(t, tag).ID
			})
		}
	}
	// differ has a pin name another release.
	differ := func(unit, from, to string) (text string) {
		t.Helper()
		text = w.ReadFile(t, "~/"+pinOf(unit))
		w.MustUser(t, "sed", "-i", fmt.Sprintf("s/%s/%s/", w.Digest(t, from), w.Digest(t, to)), pinOf(unit))
		return text
	}
	back := func(unit, text string, n int) {
		t.Helper()
		host.Eventually(t, "the pin of "+unit+" to be put right", time.Minute, func() bool { return w.ReadFile(t, "~/"+pinOf(unit)) == text })
		host.Eventually(t, "it to be told", time.Minute, func() bool { return told(unit) == n })
	}

	text := differ("two", "v2", "v1")
	back("two", text, 1)

	w.MustExec(t, "systemctl", "stop", "user@1000.service")
	text = differ("two", "v2", "v1")
	w.MustExec(t, "systemctl", "start", "user@1000.service")
	runs("v2") // and not what the pin said: reconcile comes first
	back("two", text, 2)
	if out := w.MustExec(t, "sh", "-c", "journalctl -b -o cat --no-pager | grep 'container start' | grep systemd-two | tail -n 1"); strings.Contains(out, w.Digest(t, "v1")) {
		t.Errorf("the unit was started as another release first: %s", out)
	}

	deploy("v3", "--detach")
	host.Eventually(t, "the probation", time.Minute, func() bool {
		return w.MustUser(t, "jq", "-r", ".operation.phase", ".local/state/toad/services/pair.json") == "probation"
	})
	text = differ("one", "v3", "v2")
	host.Eventually(t, "the pin to be put right", time.Minute, func() bool { return !strings.Contains(w.ReadFile(t, "~/"+pinOf("one")), w.Digest(t, "v2")) })
	host.Eventually(t, "the end", 2*time.Minute, func() bool {
		return w.MustUser(t, "jq", "-r", ".operation.phase", ".local/state/toad/services/pair.json") == "promoted"
	})
	runs("v3")
	if told("one") != 1 || !strings.Contains(text, w.Digest(t, "v3")) {
		t.Errorf("it was not told once:\n%s", w.MustUser(t, "toad", "log", "pair"))
	}
	w.Quiet(t)
}
