//go:build e2e

package failure

import (
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

// A disk that fills up in the middle loses no service: the previous release is put back even where that cannot be saved,
// and the record says so when there is space again.
func TestADiskThatFillsUpDuringProbation(t *testing.T) {
	t.Parallel()
	w := &scene.Web{Host: host.Up(t, host.Options{})}
	w.MustUser(t, "mkdir", "-p", ".local/state/toad")
	w.MustExec(t, "mount", "-t", "tmpfs", "-o", "size=200m,uid=1000,gid=1000,mode=700", "tmpfs", host.Home+"/.local/state/toad")
	w.Up(t, scene.Options{Ready: ready, Limits: limits})
	w.MustDeploy(t, 0, "v2")
	w.Enroll(t, ready, short)
	w.MustDeploy(t, 0, "never", "--detach")
	w.WaitPhase(t, "probation")
	host.Eventually(t, "the candidate to run", time.Minute, func() bool {
		status, _ := w.Get("http://127.0.0.1:8080/healthz")
		return status == 503
	})
	w.User(t, "sh", "-c", "cat /dev/zero > .local/state/toad/full 2>/dev/null")
	if r := w.User(t, "sh", "-c", "echo x > .local/state/toad/more"); r.Exit == 0 {
		t.Fatal("the disk is not full; the test shows nothing")
	}
	w.Serves(t, "v2")
	if r := w.Deploy(t, "v3"); r.Exit != 5 && r.Exit != 75 {
		t.Errorf("a deployment that cannot be recorded: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	invocation := w.Invocation(t)
	w.MustUser(t, "rm", ".local/state/toad/full")
	if phase := w.WaitPhase(t, "rolled_back", "promoted", "withdrawn", "rollback_failed"); phase != "rolled_back" {
		t.Fatalf("want rolled_back, have %s\n%s", phase, w.Log(t))
	}
	w.MustServe(t, "v2")
	if have := w.Invocation(t); have != invocation {
		t.Error("the restore was made twice")
	}
	w.MustUser(t, "rm", "-f", ".local/state/toad/more")
	w.Quiet(t)
	w.Enroll(t, ready, limits)
	w.MustDeploy(t, 0, "v3")
}

// Damage to a record is told once, makes that one service take no deployment, and touches nothing that runs.
func TestADamagedRecordIsOneServicesTrouble(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	w.MustDeploy(t, 0, "v2")
	w.Quiet(t) // no act is left that would save once more
	w.WriteFile(t, "~/.local/state/toad/services/web.json", "", 0o600)
	r := w.Deploy(t, "v3")
	if r.Exit != 5 || !strings.Contains(r.Stderr, "damaged") {
		t.Errorf("want exit 5 and why, have %d %s", r.Exit, r.Stderr)
	}
	if r := w.User(t, "toad", "status"); !strings.Contains(r.Stdout, "damaged") {
		t.Errorf("toad status:\n%s", r.Stdout)
	}
	w.MustServe(t, "v2")
	for range 2 {
		w.MustUser(t, "systemctl", "--user", "start", "toad-tick.service")
	}
	journal := w.MustExec(t, "journalctl", "-p", "crit", "-o", "cat", "--no-pager")
	if n := strings.Count(journal, "damaged record"); n != 1 {
		t.Errorf("it was told %d times:\n%s", n, journal)
	}
	w.Reboot(t)
	w.Serves(t, "v2")
}
