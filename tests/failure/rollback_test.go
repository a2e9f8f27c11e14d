//go:build e2e

package failure

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

func TestRollbackGivesUpWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: "deadline = \"60s\"\nstable = \"10s\""})
	w.MustDeploy(t, 0, "v2", "--detach")
	w.WaitPhase(t, "probation")
	w.Serves(t, "v2")
	r := w.User(t, "toad", "rollback", "web", "--key", "one")
	if r.Exit != 0 {
		t.Fatalf("toad rollback: exit %d\n%s%s\n%s", r.Exit, r.Stdout, r.Stderr, w.Log(t))
	}
	s := w.Status(t)
	if s.Phase() != "rolled_back" || s.Operation.Code != "aborted" || len(s.Refusals) != 0 {
		t.Errorf("want rolled_back by an abort that refuses nothing, have %+v", s)
	}
	w.MustServe(t, "v1")
	w.Quiet(t)
	// The same call, retried by a job that lost its answer, does not go back one release further.
	body := `{"operation":"web-g1"}`
	for range 2 {
		out := w.User(t, "curl", "-sS", "--unix-socket", "/run/user/1000/toad/toad.sock", "-H", "Content-Type: application/json",
			"-H", "Idempotency-Key: one", "-d", body, "http://toad/v1/services/web/rollback").Stdout
		if !strings.Contains(out, `"web-g1"`) {
			t.Errorf("the answer to a retried call: %s", out)
		}
	}
	if s := w.Status(t); s.Generation != 1 {
		t.Errorf("a retried call made generation %d", s.Generation)
	}
	w.MustServe(t, "v1")
}

func TestRollbackWithNothingUnderWay(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	if r := w.User(t, "toad", "rollback", "web"); r.Exit != 5 || !strings.Contains(r.Stderr, "no earlier release") {
		t.Errorf("with nothing to go back to: exit %d %s", r.Exit, r.Stderr)
	}
	w.MustDeploy(t, 0, "v2")
	w.MustDeploy(t, 0, "v3")
	for _, want := range []string{"v2", "v3"} { // the one before; then the one before that one was put in force
		if r := w.User(t, "toad", "rollback", "web"); r.Exit != 0 {
			t.Fatalf("toad rollback: exit %d\n%s%s\n%s", r.Exit, r.Stdout, r.Stderr, w.Log(t))
		}
		w.MustServe(t, want)
		w.Quiet(t)
	}
	if s := w.Status(t); s.Phase() != "promoted" || len(s.Refusals) != 0 {
		t.Errorf("status: %+v", s)
	}
	w.Untouched(t)
}

// A pull that hangs is given up without a trace, and goes on without the daemon and over a reboot.
func TestAbortDuringThePreparationLeavesTheHostUntouched(t *testing.T) {
	t.Parallel()
	w := proxied(t)
	folder, invocation := w.Folder(t), w.Invocation(t)
	w.Fault(t, "stall", "blobs", 100, "")
	w.MustDeploy(t, 0, "v2", "--detach")
	w.WaitPhase(t, "preparing")
	r := w.User(t, "toad", "rollback", "web")
	if r.Exit != 0 {
		t.Fatalf("toad rollback: exit %d\n%s%s\n%s", r.Exit, r.Stdout, r.Stderr, w.Log(t))
	}
	if s := w.Status(t); s.Phase() != "failed" || s.Operation.Code != "aborted" {
		t.Errorf("status: %+v", s)
	}
	if w.Folder(t) != folder || w.Invocation(t) != invocation {
		t.Error("the host was touched")
	}
	w.Quiet(t)
	w.Fault(t, "none", "", 0, "")
	w.MustDeploy(t, 0, "v2")
	w.MustServe(t, "v2")
}

func TestAPullGoesOnWithoutTheDaemonAndOverAReboot(t *testing.T) {
	t.Parallel()
	w := proxied(t)
	for _, tag := range []string{"v2", "v3"} {
		w.Fault(t, "delay", "blobs", 100, "4s")
		w.MustDeploy(t, 0, tag, "--detach")
		w.WaitPhase(t, "preparing")
		w.MustUser(t, "systemctl", "--user", "mask", "toad.service", "toad.socket")
		w.MustUser(t, "systemctl", "--user", "stop", "toad.service", "toad.socket")
		if tag == "v3" {
			w.Reboot(t)
		}
		if phase := w.WaitPhase(t, "promoted", "failed", "rolled_back"); phase != "promoted" {
			t.Fatalf("%s: want promoted, have %s\n%s", tag, phase, w.Log(t))
		}
		w.MustServe(t, tag)
		w.MustUser(t, "systemctl", "--user", "unmask", "toad.service", "toad.socket")
		w.MustUser(t, "systemctl", "--user", "start", "toad.socket")
	}
}

// proxied is a scene whose registry is behind the fault proxy.
func proxied(t *testing.T) *scene.Web {
	t.Helper()
	w := scene.New(t, scene.Options{Ready: ready, Limits: "deadline = \"30s\"\nstable = \"1s\"\npull = \"60s\"",
		Quadlet: strings.Replace(scene.Quadlet, "{image}", host.Proxied+":v1", 1)})
	text := w.ReadFile(t, "~/.config/toad/enrollment.toml")
	w.WriteFile(t, "~/.config/toad/enrollment.toml", strings.Replace(text, host.Repository, host.Proxied, 1), 0o644)
	return w
}

// A reboot during probation is nobody's failure: the candidate starts when it is admitted, and its window begins anew.
func TestARebootDuringProbation(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: "deadline = \"90s\"\nstable = \"5s\""})
	for i, cut := range []func(){func() { w.Reboot(t) }, func() { w.Crash(t) }} {
		tag := []string{"v2", "v3"}[i]
		w.MustDeploy(t, 0, tag, "--detach")
		w.WaitPhase(t, "probation")
		w.Serves(t, tag)
		at := w.Record(t).Operation.Deadline.At
		cut()
		if phase := w.WaitPhase(t, "promoted", "rolled_back", "withdrawn", "rollback_failed"); phase != "promoted" {
			t.Fatalf("want promoted, have %s\n%s", phase, w.Log(t))
		}
		w.MustServe(t, tag)
		if have := w.Record(t).Operation.Deadline.At; !have.Equal(at) {
			t.Errorf("the deadline moved from %v to %v", at, have)
		}
		if s := w.Status(t); len(s.Refusals) != 0 {
			t.Errorf("a reboot refused %+v", s.Refusals)
		}
		w.Quiet(t)
	}
}

// Past its deadline a candidate does not start at boot: the way back is written first.
func TestABootPastTheDeadline(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	w.MustDeploy(t, 0, "v2")
	w.Enroll(t, ready, short)
	w.MustDeploy(t, 0, "never", "--detach")
	w.WaitPhase(t, "probation")
	host.Eventually(t, "the candidate to run", time.Minute, func() bool {
		status, _ := w.Get("http://127.0.0.1:8080/healthz")
		return status == 503
	})
	deadline := w.Record(t).Operation.Deadline.At
	w.Off(t)
	time.Sleep(time.Until(deadline) + time.Second) // the host is off for that long
	w.Boot(t)
	if phase := w.WaitPhase(t, "rolled_back", "promoted", "withdrawn", "rollback_failed"); phase != "rolled_back" {
		t.Fatalf("want rolled_back, have %s\n%s", phase, w.Log(t))
	}
	w.MustServe(t, "v2")
	out := w.MustExec(t, "journalctl", "-b", "-o", "json", "--no-pager", "CONTAINER_NAME=systemd-web")
	for line := range strings.Lines(out) {
		var e struct{ MESSAGE any }
		if json.Unmarshal([]byte(line), &e) == nil {
			if text, ok := e.MESSAGE.(string); ok && strings.Contains(text, "(never)") {
				t.Errorf("the candidate ran after the boot: %s", text)
			}
		}
	}
	w.Quiet(t)
}
