//go:build e2e

package recovery

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

// What is left over of nobody is named, and put right or left alone as docs/recovery-rules.md says; the second look finds
// what the first one has left alone, and no more.
func strays(t *testing.T, w *scene.Web) {
	const state = ".local/state/toad"
	text := w.ReadFile(t, "~/"+pinned)
	operation := w.Record(t).Operation.ID
	since := w.MustExec(t, "date", "+%s")
	w.MustUser(t, "sh", "-c", `
		systemd-run --user -q --on-active=1h --unit toad-probation-web-g77 true
		systemd-run --user -q --on-active=1h --unit toad-restore-gone-g3 true
		mkdir -p `+quadlets+`/x.container.d
		sed s/web/gone/g `+pinned+` > `+quadlets+`/x.container.d/zz-toad.conf
		sed -i s/never/always/ `+pinned+`
		for f in `+state+`/services/.toad-tmp-123 `+quadlets+`/web.container.d/.toad-tmp-456; do echo > $f; touch -d -1hour $f; done
		podman run -q -d --name beside --label io.toad.operation=`+operation+` --label PODMAN_SYSTEMD_UNIT=web.service $(podman inspect --format '{{.Image}}' systemd-web) good`)
	for range 2 {
		w.MustUser(t, "systemctl", "--user", "start", "toad-tick.service")
	}
	journal := w.MustExec(t, "journalctl", "--since", "@"+since, "-o", "cat", "--no-pager")
	for what, n := range map[string]int{
		"a timer of an operation that is over is stopped\" unit=toad-probation-web-g77.timer": 1,
		"a timer of an operation that is over is stopped\" unit=toad-restore-gone-g3.timer":   1,
		"/x.container.d/zz-toad.conf is of gone-g1, which has no record here":                 2,
		".toad-tmp-123": 1,
		"container beside carries the label of " + operation: 2,
	} {
		if have := strings.Count(journal, what); have < n || n == 1 && have != 1 {
			t.Errorf("want %q told %d times, have %d", what, n, have)
		}
	}
	if have := w.ReadFile(t, "~/"+pinned); have != text {
		t.Errorf("the pin is not as recorded:\n%s", have)
	}
	left := w.MustUser(t, "sh", "-c", "systemctl --user list-units --all --plain --no-legend 'toad-probation-*' 'toad-restore-*'; find "+state+" "+quadlets+" -name '.toad-tmp-*'")
	if left != "" {
		t.Errorf("left behind:\n%s", left)
	}
	w.MustUser(t, "podman", "container", "exists", "beside")
	if out := w.User(t, "toad", "doctor").Stdout; !strings.Contains(out, "podman rm -f beside") || !strings.Contains(out, "gone-g1") {
		t.Errorf("the doctor:\n%s", out)
	}
	w.MustUser(t, "sh", "-c", "podman rm -f -t 0 beside; rm -r "+quadlets+"/x.container.d")
}

// What happens to one service is no other's affair: neither a lock, nor a pull, nor a stop, nor a damaged record of one holds
// up the deadline of another.
func TestOneServiceDoesNotHoldUpAnother(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: trialReady, Limits: trial})
	moreServices(t, w)
	w.MustDeploy(t, 0, "v2")
	w.Quiet(t)
	t.Run("strays", func(t *testing.T) { strays(t, w) })
	t.Run("a dead daemon's lock is free", func(t *testing.T) {
		w.MustUser(t, "toad", "status")
		holder := "pid " + w.Show(t, "toad.service", "MainPID")
		if os.Getenv("TOAD_SHAPE") == "container" {
			holder = "in a container"
		}
		if r := w.User(t, "toad", "serve"); r.Exit != 78 || !strings.Contains(r.Stderr, holder) {
			t.Errorf("a second one: exit %d %s", r.Exit, r.Stderr)
		}
		for _, pid := range w.Pids(t, "toad.service") {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		w.MustUser(t, "toad", "status")
	})

	phaseOf := func(service string) string {
		return w.MustUser(t, "jq", "-r", ".operation.phase", ".local/state/toad/services/"+service+".json")
	}
	// fails deploys what is never ready, and waits for its deadline.
	fails := func(t *testing.T) {
		t.Helper()
		w.MustUser(t, "sh", "-c", `sed -i '/service.web.probation/,$s/deadline = .*/deadline = "12s"/' .config/toad/enrollment.toml`)
		flags := []string{"--detach"}
		if len(w.Status(t).Refusals) > 0 {
			flags = append(flags, "--retry")
		}
		w.MustDeploy(t, 0, "never", flags...)
		if phase := settle(t, w); phase != "rolled_back" {
			t.Fatalf("it ended %s\n%s", phase, w.Log(t))
		}
		w.MustServe(t, "v2")
	}
	t.Run("a pull that hangs", func(t *testing.T) {
		w.MustUser(t, "sh", "-c", "sed -i '/service.more/,$s|"+host.Repository+"|"+host.Proxied+"|' .config/toad/enrollment.toml; sed -i 's|"+host.Repository+"|"+host.Proxied+"|' .config/containers/systemd/more.container; systemctl --user daemon-reload")
		w.Fault(t, "stall", "blobs", 100, "")
		if r := w.User(t, "toad", "deploy", "more", w.Digest(t, "slow5"), "--detach"); r.Exit != 0 {
			t.Fatalf("exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
		}
		host.Eventually(t, "the pull to begin", time.Minute, func() bool { return phaseOf("more") == "preparing" })
		fails(t)
		if have := phaseOf("more"); have != "preparing" {
			t.Errorf("the pull did not hang: %s", have)
		}
		w.Fault(t, "none", "", 0, "")
		w.User(t, "toad", "rollback", "more")
	})
	t.Run("a stop that takes long", func(t *testing.T) {
		// As of a pod that takes its time: the job of more lasts until somebody takes the file away.
		w.MustUser(t, "sh", "-ec", `
			printf 'ExecStopPost=/bin/sh -c "while test -e %%t/slow; do sleep 0.1; done"\nTimeoutStopSec=10min\n' >slow
			sed -i '/Restart=always/r slow' .config/containers/systemd/more.container
			sed -i '/service.more.probation/,$s/deadline = .*/deadline = "10m"/' .config/toad/enrollment.toml
			touch $XDG_RUNTIME_DIR/slow
			systemctl --user daemon-reload`)
		if r := w.User(t, "toad", "deploy", "more", w.Digest(t, "v3"), "--detach"); r.Exit != 0 {
			t.Fatalf("exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
		}
		stopping := func() bool { return w.Show(t, "more.service", "SubState") == "stop-post" }
		host.Eventually(t, "the stop to begin", time.Minute, stopping)
		fails(t)
		if !stopping() {
			t.Errorf("the stop did not take long; more is %s, its unit %s", phaseOf("more"), w.Show(t, "more.service", "SubState"))
		}
		w.MustUser(t, "sh", "-c", "rm $XDG_RUNTIME_DIR/slow")
		host.Eventually(t, "more to be promoted", 2*time.Minute, func() bool { return phaseOf("more") == "promoted" })
	})
	t.Run("a damaged record during a deployment", func(t *testing.T) {
		w.MustUser(t, "sh", "-c", `sed -i '/service.web.probation/,$s/deadline = .*/deadline = "60s"/; /service.web.probation/,/service.more/s/stable = .*/stable = "5s"/' .config/toad/enrollment.toml`)
		w.MustDeploy(t, 0, "v3", "--detach")
		w.WaitPhase(t, "probation")
		w.Serves(t, "v3")
		id, refused := w.Record(t).Operation.ID, len(w.Status(t).Refusals)
		w.MustUser(t, "sh", "-c", "cd .local/state/toad/services && head -c 700 web.json > x && cat x > web.json && rm x")
		if r := w.User(t, "toad", "deploy", "more", w.Digest(t, "v2")); strings.Contains(r.Stderr, "damaged") {
			t.Errorf("the other service: %s", r.Stderr)
		}
		if phase := settle(t, w); phase != "rolled_back" {
			t.Fatalf("it ended %s\n%s", phase, w.Log(t))
		}
		w.Serves(t, "v2")
		w.Quiet(t)
		s := w.Status(t)
		if s.Operation.ID != id || len(s.Refusals) != refused || s.Promoted == nil || s.Promoted.Digest != w.Digest(t, "v2") {
			t.Errorf("status: %+v", s)
		}
		log := w.MustUser(t, "toad", "log", "web")
		if !strings.Contains(log, "the record was damaged during the deployment") || !strings.Contains(log, "the copy of "+id) {
			t.Errorf("the log does not tell it:\n%s", log)
		}
		w.MustDeploy(t, 0, "v3")
		w.Untouched(t)
	})
	t.Run("a group whose pins differ", func(t *testing.T) { group(t, w) })
}
