//go:build e2e

package promote

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

const quick = `http = "http://127.0.0.1:8080/healthz"
interval = "200ms"
timeout = "1s"`

// The daemon and the acts may die at any moment: a healthy deployment that nobody follows is promoted all the same.
func TestKilledAtAnyMomentAHealthyDeploymentIsPromoted(t *testing.T) {
	t.Parallel()
	const seed = 20261129
	rounds := 6
	if os.Getenv("TOAD_ALL") != "" {
		rounds = 20
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	w := scene.New(t, scene.Options{Ready: quick, Limits: "deadline = \"60s\"\nstable = \"500ms\""})
	killed := 0
	for round := range rounds {
		tag := fmt.Sprintf("v%d", 2+round%3)
		act, after := "toad-act-*-[0-9]*", time.Duration(rnd.IntN(400))*time.Millisecond // the one that switches
		if rnd.IntN(2) == 1 {
			act, after = "toad-act-*-c[0-9]*", time.Duration(rnd.IntN(150))*time.Millisecond // the one that promotes
		}
		t.Run(fmt.Sprintf("%d %s %v", round, act, after), func(t *testing.T) {
			w.MustDeploy(t, 0, tag, "--detach")
			var pids []int
			for end := time.Now().Add(30 * time.Second); len(pids) == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
				pids = w.Pids(t, act)
			}
			time.Sleep(after) // the random moment itself
			pids = append(w.Pids(t, act), w.Pids(t, "toad.service")...)
			for _, pid := range pids {
				if syscall.Kill(pid, syscall.SIGKILL) == nil {
					killed++
				}
			}
			promotedWhole(t, w, tag)
		})
	}
	t.Logf("%d processes killed in %d rounds (seed %d)", killed, rounds, seed)
	if killed < rounds {
		t.Errorf("only %d processes were killed in %d rounds", killed, rounds)
	}
}

// promotedWhole asserts that the deployment ended promoted, without a restart of the candidate and after one whole
// window, and that nothing is left.
func promotedWhole(t *testing.T, w *scene.Web, tag string) {
	t.Helper()
	if phase := w.WaitPhase(t, "promoted", "rolled_back", "failed", "withdrawn", "rollback_failed"); phase != "promoted" {
		t.Fatalf("it ended %s\n%s", phase, w.Log(t))
	}
	w.MustServe(t, tag)
	id := w.Record(t).Operation.ID
	var watch struct {
		Seen    []struct{ Automatic, Invocations, Containers int }
		Verdict struct{ Kind, Reason string }
	}
	text := w.MustUser(t, "cat", ".local/state/toad/operations/"+id+".watch.json")
	if err := json.Unmarshal([]byte(text), &watch); err != nil {
		t.Fatal(err)
	}
	if len(watch.Seen) != 1 || watch.Seen[0].Automatic+watch.Seen[0].Invocations+watch.Seen[0].Containers != 0 {
		t.Errorf("the candidate was restarted: %+v", watch.Seen)
	}
	for _, word := range strings.Fields(watch.Verdict.Reason) { // "ready for 520ms without a break"
		if window, err := time.ParseDuration(word); err == nil && window < 500*time.Millisecond {
			t.Errorf("the window was %v", window)
		}
	}
	if watch.Verdict.Kind != "stable" || !strings.Contains(watch.Verdict.Reason, "without a break") {
		t.Errorf("the verdict: %+v", watch.Verdict)
	}
	if last := lastReadiness(t, w, id); last != "ready" {
		t.Errorf("it was promoted when it was last told to be %s\n%s", last, w.Log(t))
	}
	w.Quiet(t)
}

// lastReadiness is the last change of readiness of which the operation's log tells.
func lastReadiness(t *testing.T, w *scene.Web, id string) (last string) {
	t.Helper()
	for line := range strings.Lines(w.MustUser(t, "cat", ".local/state/toad/operations/"+id+".log")) {
		var l struct{ Event string }
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		if l.Event == "ready" || l.Event == "unready" {
			last = l.Event
		}
	}
	return last
}

// The same with a death right after each save: the state is then ahead of everything that follows from it.
func TestKilledRightAfterEachSaveAHealthyDeploymentIsPromoted(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Faults: true, Ready: quick, Limits: "deadline = \"60s\"\nstable = \"500ms\""})
	saves := 0
	for n := 1; ; n++ {
		tag := fmt.Sprintf("v%d", 2+n%3)
		w.WriteFile(t, "~/.local/state/toad/fault", fmt.Sprintf("record.saved.* %d kill\n", n), 0o600)
		w.MustDeploy(t, 0, tag, "--detach")
		promotedWhole(t, w, tag)
		if r := w.User(t, "rm", ".local/state/toad/fault"); r.Exit == 0 {
			break // it was not reached: there are fewer saves
		}
		saves++
	}
	t.Logf("killed after each of %d saves", saves)
	if saves < 6 {
		t.Errorf("only %d saves were found", saves)
	}
}

// Only a hang kills the daemon: the watchdog is pinged when a bus call and a state write came back, however they ended.
func TestAHangKillsTheDaemon(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Faults: true})
	pid := func() string {
		w.MustUser(t, "toad", "status")
		return w.Show(t, "toad.service", "MainPID")
	}
	restarts := func() string { return w.Show(t, "toad.service", "NRestarts") }
	pid()
	before := restarts()

	w.WriteFile(t, "~/.local/state/toad/fault", "serve.heartbeat 1 hang\n", 0o600)
	host.Eventually(t, "the watchdog to kill a daemon whose state write hangs", time.Minute, func() bool { return restarts() != before })
	if have := w.Journal(t, "toad.service"); !strings.Contains(have, "watchdog") {
		t.Errorf("the journal does not name the watchdog:\n%s", have)
	}
	before = restarts()
	pid()

	bus := w.MustUser(t, "systemctl", "--user", "show", "-P", "MainPID", "dbus.service")
	w.MustUser(t, "kill", "-STOP", bus)
	defer w.User(t, "kill", "-CONT", bus)
	host.Eventually(t, "the watchdog to kill a daemon whose bus hangs", time.Minute, func() bool { return restarts() != before })
	w.MustUser(t, "kill", "-CONT", bus)
	host.Eventually(t, "the daemon to answer again", time.Minute, func() bool { return w.User(t, "toad", "status").Exit == 0 })

	// An error is not a hang: the daemon lives on without a bus.
	before = restarts()
	w.WriteFile(t, "~/.local/state/toad/fault", "serve.heartbeat 1 error\n", 0o600)
	host.Eventually(t, "the daemon to tell of the error", time.Minute, func() bool {
		return strings.Contains(w.Journal(t, "toad.service"), "injected fault at serve.heartbeat")
	})
	if have := restarts(); have != before {
		t.Errorf("an error killed the daemon: %s restarts, then %s", before, have)
	}
}
