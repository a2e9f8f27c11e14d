//go:build e2e

package failure

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"toad/tests/scene"
)

// Whatever becomes of toad's own processes, systemd holds the deadline. Each case is done to a deployment on probation
// that never becomes ready.
func TestTheDeadlineIsEnforcedWithoutTheDaemon(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	w.MustDeploy(t, 0, "v2")
	w.Enroll(t, ready, short)
	rounds := 1
	if os.Getenv("TOAD_ALL") != "" {
		rounds = 10
	}
	for _, c := range []struct {
		name     string
		do, undo func()
	}{
		{"nothing", func() {}, func() {}},
		{"the daemon killed", func() { kill(t, w, syscall.SIGKILL, "toad.service") }, func() {}},
		{"the daemon stopped by SIGSTOP", func() { kill(t, w, syscall.SIGSTOP, "toad.service") },
			func() { kill(t, w, syscall.SIGCONT, "toad.service") }},
		{"the daemon masked", func() {
			w.MustUser(t, "systemctl", "--user", "mask", "toad.service", "toad.socket")
			w.MustUser(t, "systemctl", "--user", "stop", "toad.service", "toad.socket")
		}, func() {
			w.MustUser(t, "systemctl", "--user", "unmask", "toad.service", "toad.socket")
			w.MustUser(t, "systemctl", "--user", "start", "toad.socket")
		}},
		{"the daemon in a crash loop", func() {
			w.WriteFile(t, "~/.config/systemd/user/toad.service.d/crash.conf", "[Service]\nExecStart=\nExecStart=/bin/false\nRestartSec=100ms\n", 0o644)
			w.MustUser(t, "systemctl", "--user", "daemon-reload")
			w.User(t, "systemctl", "--user", "restart", "toad.service")
		}, func() {
			w.MustUser(t, "rm", "-r", ".config/systemd/user/toad.service.d")
			w.MustUser(t, "systemctl", "--user", "daemon-reload")
			w.MustUser(t, "systemctl", "--user", "restart", "toad.service")
		}},
		{"the binary gone from PATH", func() { w.MustExec(t, "mv", "/usr/local/bin/toad", "/root/toad") },
			func() { w.MustExec(t, "mv", "/root/toad", "/usr/local/bin/toad") }},
		{"the check killed", func() { kill(t, w, syscall.SIGKILL, "toad-check-*") }, func() {}},
		{"the check stopped by SIGSTOP", func() { kill(t, w, syscall.SIGSTOP, "toad-check-*") }, func() {}},
		{"the act killed", func() { killAct(t, w, syscall.SIGKILL) }, func() {}},
		{"the act stopped by SIGSTOP", func() { killAct(t, w, syscall.SIGSTOP) }, func() {}},
		{"reloads all the time", func() {
			w.MustUser(t, "systemd-run", "--user", "-q", "--collect", "--unit", fmt.Sprintf("reloader-%d", w.Record(t).Generation), "sh", "-c", "while :; do systemctl --user daemon-reload; sleep 0.3; done")
		}, func() { w.User(t, "systemctl", "--user", "stop", "reloader-*.service") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range rounds {
				flags := []string{"--detach"}
				if len(w.Status(t).Refusals) > 0 {
					flags = append(flags, "--retry")
				}
				w.MustDeploy(t, 0, "never", flags...)
				w.WaitPhase(t, "probation")
				c.do()
				phase := w.WaitPhase(t, "rolled_back", "promoted", "rollback_failed", "withdrawn", "failed")
				c.undo()
				if phase != "rolled_back" {
					t.Fatalf("it ended %s\n%s", phase, w.Log(t))
				}
				w.MustServe(t, "v2")
				w.Quiet(t)
				w.Untouched(t)
				onTime(t, w)
			}
		})
	}
}

func kill(t *testing.T, w *scene.Web, sig syscall.Signal, units string) {
	t.Helper()
	if units == "toad.service" {
		w.MustUser(t, "toad", "status") // it may have nothing to do
	}
	pids := w.Pids(t, units)
	if len(pids) == 0 {
		t.Fatalf("no process of %s", units)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, sig); err != nil {
			t.Fatal(err)
		}
	}
}

// killAct waits for the act that takes the verdict, and hits it once it has been executed: until then the user manager
// waits for the new process, and would be stopped with it.
func killAct(t *testing.T, w *scene.Web, sig syscall.Signal) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		for _, pid := range append(w.Pids(t, "toad-act-*"), w.Pids(t, "toad-probation-*")...) {
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
			if err == nil && string(comm) == "toad\n" && syscall.Kill(pid, sig) == nil {
				return
			}
		}
	}
	t.Fatal("no act came")
}

// onTime asserts that the restore began after the deadline, and tells how long after.
func onTime(t *testing.T, w *scene.Web) {
	t.Helper()
	rec := w.Record(t)
	for line := range strings.Lines(w.MustUser(t, "cat", ".local/state/toad/operations/"+rec.Operation.ID+".log")) {
		var l struct {
			At    time.Time
			Event string
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Event == "restoring" {
			late := l.At.Sub(rec.Operation.Deadline.At)
			if late < 0 {
				t.Errorf("it was restored %v before the deadline", -late)
			}
			t.Logf("the restore began %v after the deadline", late.Round(time.Millisecond))
			return
		}
	}
	t.Error("no restore in the log")
}

// A name that toad will use is taken: by a failed unit, and by a timer.
func TestALeftOverUnitOfTheSameName(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	for _, name := range []string{"toad-probation-web-g1.service", "toad-check-web-g1.service", "toad-prepare-web-g1.service"} {
		w.User(t, "systemd-run", "--user", "-q", "--wait", "--unit", name, "false")
	}
	w.MustDeploy(t, 0, "v2")
	w.MustServe(t, "v2")
	w.MustUser(t, "systemctl", "--user", "reset-failed")
	w.Quiet(t)
	for i := range 4 {
		w.MustDeploy(t, 0, []string{"v3", "v2"}[i%2])
	}
	w.Quiet(t)
}

// A container that others remove is not the release's failure.
func TestAContainerRemovedByOthersRefusesNothing(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: "deadline = \"20s\"\nstable = \"8s\""})
	w.MustDeploy(t, 0, "v2", "--detach")
	w.WaitPhase(t, "probation")
	w.Serves(t, "v2")
	w.MustUser(t, "podman", "rm", "-f", "-t", "0", "systemd-web")
	if phase := w.WaitPhase(t, "rolled_back", "promoted", "withdrawn", "rollback_failed"); phase != "rolled_back" {
		t.Fatalf("want rolled_back, have %s\n%s", phase, w.Log(t))
	}
	w.MustServe(t, "v1")
	if s := w.Status(t); len(s.Refusals) != 0 {
		t.Errorf("refused: %+v", s.Refusals)
	}
	w.Quiet(t)
}
