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

// A folder whose disk fills up takes no deployment, and gives up the one that is under way. (Of the state folder, see
// tests/failure.)
func TestADiskThatIsFull(t *testing.T) {
	t.Parallel()
	w := &scene.Web{Host: host.Up(t, host.Options{})}
	w.MustUser(t, "mkdir", "-p", quadlets, ".local/share/containers")
	for dir, size := range map[string]string{quadlets: "80m", ".local/share/containers": "200m"} {
		w.MustExec(t, "mount", "-t", "tmpfs", "-o", "size="+size+",uid=1000,gid=1000,mode=755", "tmpfs", host.Home+"/"+dir)
	}
	w.Up(t, scene.Options{Ready: trialReady, Limits: trial})
	w.MustDeploy(t, 0, "v2")
	w.Quiet(t)

	t.Run("the Quadlet folder, during a deployment", func(t *testing.T) {
		w.Enroll(t, trialReady, "deadline = \"60s\"\nstable = \"5s\"")
		w.MustDeploy(t, 0, "v3", "--detach")
		w.WaitPhase(t, "probation")
		w.Serves(t, "v3")
		empty := fill(t, w, quadlets)
		defer empty()
		if phase := settle(t, w); phase != "rolled_back" {
			t.Fatalf("it ended %s\n%s", phase, w.Log(t))
		}
		w.MustServe(t, "v2")
		if s := w.Status(t); len(s.Refusals) != 0 {
			t.Errorf("a full disk refused %+v", s.Refusals)
		}
		folder, invocation := w.Folder(t), w.Invocation(t)
		r := w.MustDeploy(t, 1, "v3")
		if !strings.Contains(r.Stderr, "free some space") || w.Folder(t) != folder || w.Invocation(t) != invocation {
			t.Errorf("a deployment that cannot be pinned: %s", r.Stderr)
		}
		empty()
		w.Quiet(t)
	})
	t.Run("Podman's storage", func(t *testing.T) {
		folder, invocation := w.Folder(t), w.Invocation(t)
		empty := fill(t, w, ".local/share/containers")
		defer empty()
		r := w.MustDeploy(t, 1, "slow5") // its image is not here
		if s := w.Status(t); s.Phase() != "failed" || w.Folder(t) != folder || w.Invocation(t) != invocation {
			t.Errorf("it ended %+v\n%s", s, r.Stderr)
		}
		w.MustServe(t, "v2")
		empty()
	})
	t.Run("the runtime folder", func(t *testing.T) {
		if os.Getenv("TOAD_ALL") == "" {
			return
		}
		generation := w.Status(t).Generation
		empty := fill(t, w, "/run/user/1000")
		defer empty()
		if r := w.Deploy(t, "v3"); r.Exit != 75 {
			t.Errorf("a deployment whose limit cannot be armed: exit %d\n%s", r.Exit, r.Stderr)
		}
		empty()
		if have := w.Status(t).Generation; have != generation {
			t.Errorf("it was accepted all the same: generation %d", have)
		}
	})
	t.Run("Podman's storage, in the middle of a trial", func(t *testing.T) { inTheMiddle(t, w, ".local/share/containers") })
	t.Run("the runtime folder, in the middle of a trial", func(t *testing.T) {
		if os.Getenv("TOAD_ALL") != "" {
			inTheMiddle(t, w, "/run/user/1000")
		}
	})
	w.Enroll(t, trialReady, trial)
	w.MustDeploy(t, 0, "v3")
	holds(t, w, "promoted")
	sideFiles(t, w)
}

// fill leaves no space in a folder, until undone.
func fill(t *testing.T, w *scene.Web, dir string) (empty func()) {
	t.Helper()
	w.User(t, "sh", "-c", "cat /dev/zero > "+dir+"/full 2>/dev/null")
	if r := w.User(t, "sh", "-c", "head -c 100000 /dev/zero > "+dir+"/more"); r.Exit == 0 {
		t.Fatalf("%s is not full; the test shows nothing", dir)
	}
	return func() { w.MustUser(t, "rm", "-f", dir+"/full", dir+"/more") }
}

// inTheMiddle fills a folder while a release that is never ready is on trial. The release before it is put back, or it is
// said loudly that it cannot be; then it can, as soon as there is space.
func inTheMiddle(t *testing.T, w *scene.Web, dir string) {
	t.Helper()
	w.Enroll(t, trialReady, "deadline = \"15s\"\nstable = \"1s\"")
	w.MustDeploy(t, 0, "never", detached(t, w, "never")...)
	w.WaitPhase(t, "probation")
	host.Eventually(t, "the candidate to run", time.Minute, func() bool {
		status, _ := w.Get("http://127.0.0.1:8080/healthz")
		return status == 503
	})
	empty := fill(t, w, dir)
	defer empty()
	phase := settle(t, w)
	t.Logf("%s full: it ended %s: %s", dir, phase, w.Record(t).Operation.Reason)
	switch phase {
	case "rolled_back":
		w.MustServe(t, "v2")
	case "rollback_failed":
		id := w.Record(t).Operation.ID
		host.Eventually(t, "it to be said at crit", time.Minute, func() bool {
			return strings.Contains(w.MustExec(t, "journalctl", "-b", "-p", "crit", "-o", "cat", "--no-pager"), id)
		})
		empty()
		w.User(t, "systemctl", "--user", "reset-failed")
		w.Enroll(t, trialReady, trial)
		if r := w.User(t, "toad", "rollback", "web"); r.Exit != 0 {
			t.Fatalf("rollback: exit %d\n%s%s\n%s", r.Exit, r.Stdout, r.Stderr, w.Log(t))
		}
		w.MustServe(t, "v2")
	default:
		t.Fatalf("it ended %s\n%s", phase, w.Log(t))
	}
	empty()
	w.Quiet(t)
}

// sideFiles damages what lies beside the records, during a deployment: none of it is needed.
func sideFiles(t *testing.T, w *scene.Web) {
	t.Helper()
	w.Enroll(t, trialReady, "deadline = \"60s\"\nstable = \"3s\"")
	w.MustDeploy(t, 0, "v2", "--detach")
	w.WaitPhase(t, "probation")
	w.Serves(t, "v2")
	id := w.Record(t).Operation.ID
	w.MustUser(t, "sh", "-c", "cd .local/state/toad/operations && for f in *.json; do printf '\\0\\0' > $f; done; printf '{\"torn' >> "+id+".log")
	if phase := settle(t, w); phase != "promoted" {
		t.Fatalf("it ended %s\n%s", phase, w.Log(t))
	}
	w.Quiet(t)
	w.MustUser(t, "toad", "log", "web")
	began := time.Now()
	w.MustDeploy(t, 0, "v3")
	t.Logf("the next one took %v", time.Since(began).Round(time.Second))
}
