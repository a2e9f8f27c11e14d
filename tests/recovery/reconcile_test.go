//go:build e2e

package recovery

import (
	"os"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

// more is a second service, which is promoted and has nothing to do with what happens to web.
const more = `[Container]
Image={image}
Network=none

[Service]
Restart=always

[Install]
WantedBy=default.target
`

// moreServices adds the service more to a scene; its unit runs v2, promoted.
func moreServices(t *testing.T, w *scene.Web) {
	t.Helper()
	w.WriteFile(t, "~/.config/containers/systemd/more.container", strings.Replace(more, "{image}", host.Repository+":v1", 1), 0o644)
	w.User(t, "sh", "-c", `printf '\n[service.more]\nunits = ["more.container"]\nimage = "`+host.Repository+`"\n[service.more.probation]\ndeadline = "60s"\nstable = "1s"\n' >> .config/toad/enrollment.toml
		systemctl --user daemon-reload; systemctl --user start --no-block more.service`)
	host.Eventually(t, "more to run", time.Minute, func() bool { return w.Show(t, "more.service", "ActiveState") == "active" })
	if r := w.User(t, "toad", "deploy", "more", w.Digest(t, "v2")); r.Exit != 0 {
		t.Fatalf("exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	w.MustUser(t, "toad", "setup")
}

// Whatever keeps reconcile from deciding, at whichever of its points, candidates stay down and promoted units start as ever;
// who is held is told at emerg, and when it can be decided it is, without anybody's help.
func TestWhateverKeepsReconcileFromDeciding(t *testing.T) {
	t.Parallel()
	const state = ".local/state/toad"
	w := scene.New(t, scene.Options{Faults: true, Ready: trialReady, Limits: "deadline = \"120s\"\nstable = \"1s\""})
	moreServices(t, w)
	// A hang is to be over before a test's patience is.
	w.WriteFile(t, "~/.config/systemd/user/toad-reconcile.service.d/short.conf", "[Service]\nTimeoutStartSec=3s\n", 0o644)
	w.MustUser(t, "systemctl", "--user", "daemon-reload")
	cases := []struct {
		name, do, undo string // as the user, while the user manager is down; undo: nothing is to be undone, it goes on by itself
		long           bool
	}{
		{"the binary is gone", "mv " + state + "/libexec/toad t", "mv t " + state + "/libexec/toad", false},
		{"the state folder cannot be read", "chmod 0 " + state, "chmod 700 " + state, true},
		{"the records cannot be listed", "chmod 0 " + state + "/services", "chmod 700 " + state + "/services", true},
		{"the state folder is no folder", "mv " + state + " s; echo > " + state, "rm " + state + "; mv s " + state, true},
		{"a record that cannot be read", "mv " + state + "/services/web.json r; mkdir " + state + "/services/web.json", "rmdir " + state + "/services/web.json; mv r " + state + "/services/web.json", true},
		{"it hangs before a save", "echo record.put.probation 1 hang > " + state + "/fault", "", true},
		{"it hangs before it admits", "echo bus.SetEnvironment.before 1 hang > " + state + "/fault", "", false},
		{"it is killed before it admits", "echo bus.SetEnvironment.before 1 kill > " + state + "/fault", "", true},
		{"it is killed when it has armed", "echo bus.StartTransientUnit.after 1 kill > " + state + "/fault", "", true},
	}
	run := 0
	for _, c := range cases {
		if c.long && os.Getenv("TOAD_ALL") == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			tag := []string{"v2", "v3"}[run%2] // never the one in force
			run++
			text := strings.ReplaceAll(w.ReadFile(t, "~/.config/toad/enrollment.toml"), `stable = "1s"`, `stable = "4s"`)
			w.WriteFile(t, "~/.config/toad/enrollment.toml", text, 0o644)
			w.MustDeploy(t, 0, tag, "--detach")
			w.WaitPhase(t, "probation")
			w.Serves(t, tag)
			rec := w.Record(t).Operation
			ran := count(t, w, rec.ID)
			w.MustExec(t, "systemctl", "stop", "user@1000.service")
			w.MustUser(t, "sh", "-c", c.do)
			since := w.MustExec(t, "date", "+%s")
			w.MustExec(t, "systemctl", "start", "user@1000.service")
			host.Eventually(t, "somebody to tell what is held down", time.Minute, func() bool {
				return strings.Contains(w.MustExec(t, "journalctl", "--since", "@"+since, "-p", "emerg", "-o", "cat", "--no-pager"), "web.container is held down")
			})
			host.Eventually(t, "the promoted unit to run", time.Minute, func() bool { return w.Show(t, "more.service", "ActiveState") == "active" })
			if c.undo != "" {
				w.User(t, "systemctl", "--user", "restart", "web.service")
				if have := w.Show(t, "web.service", "ActiveState"); have != "inactive" || count(t, w, rec.ID) != ran {
					t.Errorf("the candidate is %s", have)
				}
				w.MustUser(t, "sh", "-c", c.undo)
				w.MustUser(t, "systemctl", "--user", "start", "toad-tick.service")
			}
			if phase := settle(t, w); phase != "promoted" {
				t.Fatalf("it ended %s\n%s", phase, w.Log(t))
			}
			if have := w.Record(t).Operation.Deadline.At; !have.Equal(rec.Deadline.At) {
				t.Errorf("the deadline moved from %v to %v", rec.Deadline.At, have)
			}
			w.MustUser(t, "systemctl", "--user", "reset-failed")
			holds(t, w, "promoted")
			w.NoneUnadmitted(t, rec.ID)
		})
	}
}
