//go:build e2e

package beside

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"toad/tests/host"
)

// kinds are the three ways in which a side may listen, each with its section of the document.
var kinds = []string{
	"A side that takes its listener from systemd",
	"A side that listens on a Unix socket of its own",
	"A side that only speaks TCP",
}

// all says that the long forms are asked for.
var all = os.Getenv("TOAD_ALL") != ""

// Whatever the release does, clients are answered by one that was watched to the end.
func TestNobodyIsTurnedAwayWhateverTheReleaseDoes(t *testing.T) {
	t.Parallel()
	for i, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, kind, options{limits: "deadline = \"20s\"\nstable = \"1s\""})
			a := b.load(100)
			b.MustDeploy(t, 0, "v2")
			b.settled(t, 1)
			b.MustDeploy(t, 3, "crash")
			b.settled(t, 1)
			if i == 0 || all {
				b.MustDeploy(t, 3, "never")
				b.settled(t, 1)
			}
			if r := b.User(t, "toad", "rollback", "web"); r.Exit != 0 {
				t.Fatalf("rollback: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
			}
			b.settled(t, 0)
			a.none(t, b, "v1", "v2")
			b.MustServe(t, "v1")
			if r := b.User(t, "toad", "doctor"); strings.Contains(r.Stdout, "fail ") {
				t.Errorf("doctor:\n%s", r.Stdout)
			}
		})
	}
}

// The long form: at least ten thousand requests over every kind of release, slowly and fast.
func TestTenThousandRequests(t *testing.T) {
	if !all {
		t.Log("the short form is TestNobodyIsTurnedAwayWhateverTheReleaseDoes")
		return
	}
	for _, rate := range []int{100, 500} {
		t.Run(fmt.Sprintf("%d a second", rate), func(t *testing.T) {
			b := newBed(t, kinds[0], options{limits: "deadline = \"20s\"\nstable = \"4s\""})
			a, sent, side := b.load(rate), 0, 0
			for round := 0; sent < 10_000; round++ {
				b.MustDeploy(t, 0, []string{"v2", "v3"}[round%2])
				side = 1 - side
				for _, bad := range []string{"crash", "late-crash", "never", "slow"} {
					flags := []string{}
					if round > 0 {
						flags = append(flags, "--retry")
					}
					b.MustDeploy(t, 3, bad, flags...)
				}
				b.settled(t, side)
				sent += a.none(t, b, "v1", "v2", "v3").Sent
				a = b.load(rate)
			}
			a.none(t, b, "v2", "v3")
		})
	}
}

// An open connection stays with the release that it reached, and that release is not stopped before it has ended.
func TestAnOpenConnectionIsLetEnd(t *testing.T) {
	t.Parallel()
	b := newBed(t, kinds[0], options{})
	var slow sync.WaitGroup
	var status int
	var body string
	slow.Go(func() {
		client := b.Client()
		client.Timeout = 2 * time.Minute
		resp, err := client.Get("http://127.0.0.1:8080/?sleep=12s")
		if err != nil {
			body = err.Error()
			return
		}
		defer resp.Body.Close()
		var text [64]byte
		n, _ := resp.Body.Read(text[:])
		status, body = resp.StatusCode, string(text[:n])
	})
	time.Sleep(time.Second)
	began := time.Now()
	b.MustDeploy(t, 0, "v2")
	b.Serves(t, "v2")
	if have := b.Show(t, b.side(0), "ActiveState"); have != "active" && time.Since(began) < 8*time.Second {
		t.Errorf("the former side is %s while a request is under way there\n%s", have, b.Log(t))
	}
	slow.Wait()
	if status != http.StatusOK || !strings.Contains(body, "v1") {
		t.Errorf("the request that was under way: %d %q\n%s", status, body, b.Log(t))
	}
	b.settled(t, 1)
	if log := b.MustUser(t, "toad", "log", "web"); !strings.Contains(log, "its connections have ended") {
		t.Errorf("it was not stopped because its connections had ended:\n%s", log)
	}
}

// An operator who stops the candidate withdraws it; who changes the door finds it put back; and a rollback after a prune
// needs no registry.
func TestWhatAnOperatorDoesMeanwhile(t *testing.T) {
	t.Parallel()
	b := newBed(t, kinds[0], options{limits: "deadline = \"5m\"\nstable = \"2s\""})
	b.begin(t, "never")
	b.WaitPhase(t, "probation")
	host.Eventually(t, "the candidate to run", time.Minute, func() bool { return b.Show(t, b.side(1), "ActiveState") == "active" })
	a := b.load(20)
	b.MustUser(t, "systemctl", "--user", "stop", b.side(1))
	if phase := b.WaitPhase(t, "rolled_back", "withdrawn", "rollback_failed"); phase != "rolled_back" {
		t.Errorf("it ended %s\n%s", phase, b.Log(t))
	}
	if rec := b.Record(t); rec.Operation.Code != "stopped" || len(rec.Refusals) != 0 {
		t.Errorf("want it stopped and nothing refused, have %s, %v", rec.Operation.Code, rec.Refusals)
	}
	b.settled(t, 0)
	b.MustDeploy(t, 0, "v2")
	b.settled(t, 1)
	b.MustUser(t, "podman", "system", "prune", "-af")
	b.MustExec(t, "systemctl", "stop", "registry.service")
	if r := b.User(t, "toad", "rollback", "web"); r.Exit != 0 {
		t.Errorf("rollback: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	b.settled(t, 0)
	a.none(t, b, "v1", "v2")

	b.MustUser(t, "ln", "-sfn", "/run/user/1000/nowhere.sock", ".local/state/toad/live/web.sock")
	host.Eventually(t, "the door to be put back", time.Minute, func() bool {
		return b.MustUser(t, "readlink", ".local/state/toad/live/web.sock") == "/run/user/1000/web-"+b.sides[0]+".sock"
	})
	b.Serves(t, "v1")
	if log := b.MustUser(t, "toad", "log", "web"); !strings.Contains(log, "the door was changed by others") {
		t.Errorf("nothing is told of it:\n%s", log)
	}
	if r := b.User(t, "toad", "unpin", "web"); r.Exit != 0 {
		t.Errorf("unpin: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	b.MustServe(t, "v1")
}
