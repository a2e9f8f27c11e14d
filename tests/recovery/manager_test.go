//go:build e2e

package recovery

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

// trialReady and trial are of a deployment that something is done to in the middle.
const (
	trialReady = `http = "http://127.0.0.1:8080/healthz"
interval = "200ms"
timeout = "1s"`
	trial = "deadline = \"90s\"\nstable = \"1s\""
)

// ends is how the user manager goes down and comes back.
var ends = []struct {
	name string
	do   func(t *testing.T, w *scene.Web, down func())
}{
	{"a restart of the user manager", func(t *testing.T, w *scene.Web, down func()) {
		w.MustExec(t, "systemctl", "stop", "user@1000.service")
		down()
		w.MustExec(t, "systemctl", "start", "user@1000.service")
	}},
	{"a crash of the user manager", func(t *testing.T, w *scene.Web, down func()) {
		w.MustExec(t, "sh", "-c", "kill -KILL $(systemctl show user@1000.service -p MainPID --value)")
		gone(t, w)
		down()
		w.MustExec(t, "systemctl", "start", "user@1000.service")
	}},
	{"a crash of all that the user runs", func(t *testing.T, w *scene.Web, down func()) {
		w.MustExec(t, "sh", "-c", "echo 1 > /sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/cgroup.kill")
		gone(t, w)
		down()
		w.MustExec(t, "systemctl", "start", "user@1000.service")
	}},
}

func gone(t *testing.T, w *scene.Web) {
	t.Helper()
	host.Eventually(t, "the manager to be gone", time.Minute, func() bool {
		return w.Exec(t, "systemctl", "is-active", "user@1000.service").Stdout == "failed\n"
	})
}

func nothing() {}

// Wherever a deployment stands when the user manager goes down, it goes on when it is back: the candidate starts only when
// reconcile has admitted it, nothing is held against a release, and the deadline is what it was.
func TestTheUserManagerGoesDownInEveryPhase(t *testing.T) {
	t.Parallel()
	cases := []struct {
		tag, phase, hang, ends string
		end                    int // which of the ends the default run has there; none if it is -1
	}{
		{"v3", "switching", "record.saved.switching", "promoted", -1},
		{"v3", "switching", "bus.RestartUnit.after", "promoted", 1},
		{"v3", "probation", "", "promoted", 2},
		{"v3", "promoting", "record.saved.promoting", "promoted", 0},
		{"v3", "promoting", "file.rename.zz-toad.conf 2", "promoted", -1},
		{"v3", "promoting", "bus.Reload.after 2", "promoted", -1},
		{"crash", "restoring", "record.saved.restoring", "rolled_back", -1},
		{"crash", "restoring", "bus.Reload.after 2", "rolled_back", 1},
		{"crash", "restoring", "bus.RestartUnit.after 2", "rolled_back", -1},
	}
	w := scene.New(t, scene.Options{Faults: true, Ready: trialReady, Limits: trial})
	w.MustDeploy(t, 0, "v2")
	w.Quiet(t)
	for _, c := range cases {
		for i, end := range ends {
			if os.Getenv("TOAD_ALL") == "" && i != c.end {
				continue
			}
			t.Run(c.phase+", "+c.hang+", "+end.name, func(t *testing.T) {
				w.Enroll(t, trialReady, trial)
				if c.phase == "probation" {
					w.Enroll(t, trialReady, "deadline = \"90s\"\nstable = \"4s\"")
				}
				begin(t, w, c.tag, c.phase, c.hang)
				before := w.Record(t).Operation
				end.do(t, w, nothing)
				phase := settle(t, w)
				after := w.Record(t)
				if phase != c.ends {
					t.Fatalf("it ended %s\n%s", phase, w.Log(t))
				}
				if before.Deadline != nil && !after.Operation.Deadline.At.Equal(before.Deadline.At) {
					t.Errorf("the deadline moved from %v to %v", before.Deadline.At, after.Operation.Deadline.At)
				}
				for _, f := range after.Refusals {
					if f.Operation == after.Operation.ID && c.tag != "crash" {
						t.Errorf("refused: %+v", f)
					}
				}
				holds(t, w, phase)
				w.NoneUnadmitted(t, after.Operation.ID)
				back(t, w)
			})
		}
	}
}

// begin deploys a tag, and returns when the operation is in a phase, with its act stopped at a fault point of that phase.
func begin(t *testing.T, w *scene.Web, tag, phase, hang string) {
	t.Helper()
	if hang != "" {
		if !strings.Contains(hang, " ") {
			hang += " 1"
		}
		w.WriteFile(t, "~/.local/state/toad/fault", hang+" hang\n", 0o600)
	}
	w.MustDeploy(t, 0, tag, detached(t, w, tag)...)
	if hang != "" {
		host.Eventually(t, "the act to come to "+hang, time.Minute, func() bool {
			return w.User(t, "test", "-e", ".local/state/toad/fault").Exit != 0
		})
	}
	w.WaitPhase(t, phase)
	if phase == "probation" {
		w.Serves(t, tag)
	}
}

// detached are the flags of a deployment that nobody follows, of what may have been refused before.
func detached(t *testing.T, w *scene.Web, tag string) []string {
	t.Helper()
	flags := []string{"--detach"}
	if slices.ContainsFunc(w.Status(t).Refusals, func(r struct{ Digest, Reason string }) bool { return r.Digest == w.Digest(t, tag) }) {
		flags = append(flags, "--retry")
	}
	return flags
}

// back has v2 in force again, for the next case.
func back(t *testing.T, w *scene.Web) {
	t.Helper()
	if w.Record(t).Operation.Phase == "promoted" {
		w.Enroll(t, trialReady, trial)
		w.MustDeploy(t, 0, "v2")
		w.Quiet(t)
	}
}

// A candidate whose deadline passes while the user manager is down never starts again; the previous release does.
func TestTheDeadlinePassesWhileTheUserManagerIsDown(t *testing.T) {
	t.Parallel()
	files, others := map[string]string{}, []string{"one.service", "two.service", "three.service"}
	for _, other := range others { // are not toad's, and come back too
		files["~/.config/containers/systemd/"+strings.TrimSuffix(other, ".service")+".container"] =
			"[Container]\nImage=" + host.Repository + ":v1\nNetwork=none\n[Service]\nRestart=always\nRestartSec=1\n[Install]\nWantedBy=default.target\n"
	}
	w := scene.New(t, scene.Options{Ready: trialReady, Limits: trial, Files: files})
	w.MustUser(t, append([]string{"systemctl", "--user", "start"}, others...)...)
	w.MustDeploy(t, 0, "v2")
	w.Quiet(t)
	for i, end := range ends {
		if os.Getenv("TOAD_ALL") == "" && i < 2 {
			continue
		}
		t.Run(end.name, func(t *testing.T) {
			w.Enroll(t, trialReady, "deadline = \"30s\"\nstable = \"8s\"")
			w.MustDeploy(t, 0, "v3", "--detach")
			w.WaitPhase(t, "probation")
			w.Serves(t, "v3")
			rec := w.Record(t).Operation
			ran := count(t, w, rec.ID)
			end.do(t, w, func() { time.Sleep(time.Until(rec.Deadline.At) + 200*time.Millisecond) }) // it is down for that long
			if phase := settle(t, w); phase != "rolled_back" {
				t.Fatalf("it ended %s\n%s", phase, w.Log(t))
			}
			holds(t, w, "rolled_back")
			if again := count(t, w, rec.ID) - ran; again != 0 {
				t.Errorf("past its deadline the candidate was started %d times", again)
			}
			for _, other := range others {
				host.Eventually(t, other+" to be back", time.Minute, func() bool { return w.Show(t, other, "ActiveState") == "active" })
			}
			if s := w.Status(t); len(s.Refusals) != 0 {
				t.Errorf("refused: %+v", s.Refusals)
			}
		})
	}
}

// count is how often an operation's container was started.
func count(t *testing.T, w *scene.Web, op string) (n int) {
	t.Helper()
	all, _ := w.Starts(t)
	for _, s := range all {
		if s == op {
			n++
		}
	}
	return n
}
