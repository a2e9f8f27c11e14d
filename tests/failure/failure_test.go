//go:build e2e

package failure

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	ready = `http = "http://127.0.0.1:8080/healthz"
interval = "200ms"
timeout = "1s"`
	limits = "deadline = \"60s\"\nstable = \"1s\"" // nobody waits for this deadline, so that a busy machine has time
	short  = "deadline = \"12s\"\nstable = \"1s\"" // for what never gets ready
)

// want is how a deployment is to end.
type want struct {
	exit        int
	phase, code string
	refused     bool
	serves      string // afterwards; nothing if empty
	says        string // part of the reason
}

// deploy deploys a tag and asserts how it ended: phase, code, exit status, refusal, what serves, and that nothing is left.
func deploy(t *testing.T, w *scene.Web, tag string, x want, flags ...string) {
	t.Helper()
	r := w.Deploy(t, tag, flags...)
	s := w.Status(t)
	if r.Exit != x.exit || s.Phase() != x.phase || s.Operation.Code != x.code {
		t.Fatalf("deploy %s: want exit %d, %s %s; have exit %d, %s %s\n%s%s\n%s",
			tag, x.exit, x.phase, x.code, r.Exit, s.Phase(), s.Operation.Code, r.Stdout, r.Stderr, w.Log(t))
	}
	if !strings.Contains(s.Operation.Reason, x.says) {
		t.Errorf("deploy %s: the reason is %q, want %q in it", tag, s.Operation.Reason, x.says)
	}
	refused := false
	for _, f := range s.Refusals {
		refused = refused || f.Digest == w.Digest(t, tag)
	}
	if refused != x.refused {
		t.Errorf("deploy %s: want refused %v, have %+v", tag, x.refused, s.Refusals)
	}
	if x.serves != "" {
		w.MustServe(t, x.serves)
		image := "sha256:" + w.MustUser(t, "podman", "inspect", "--format", "{{.Image}}", "systemd-web")
		if image != w.Image(t, x.serves).ID {
			t.Errorf("%s is served, but its image is not what runs: %s", x.serves, image)
		}
	}
	w.Quiet(t)
	w.Untouched(t)
}

func TestBadReleasesArePutBack(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	w.MustDeploy(t, 0, "v2")
	for _, c := range []struct {
		tag string
		want
	}{
		{"crash", want{3, "rolled_back", "candidate_exited", true, "v2", "exited with status 2"}},
		{"late-crash", want{3, "rolled_back", "candidate_exited", true, "v2", "exited with status 3"}},
		{"never", want{3, "rolled_back", "deadline_exceeded", true, "v2", "it answers 503"}},
		{"flap", want{3, "rolled_back", "deadline_exceeded", true, "v2", "undecided at the deadline"}},
		{"silent", want{3, "rolled_back", "deadline_exceeded", true, "v2", ""}},
		{"late-exit0", want{3, "rolled_back", "candidate_exited", true, "v2", "restart is over the budget"}},
		{"arm64", want{1, "failed", "wrong_platform", false, "v2", ""}},
		{"arm64-plain", want{1, "failed", "wrong_platform", false, "v2", "arm64"}},
		{"slow5", want{0, "promoted", "", false, "slow5", ""}},
		{"deaf", want{0, "promoted", "", false, "deaf", ""}},
		{"crash", want{5, "promoted", "", true, "deaf", ""}}, // still refused
		{"v2", want{0, "promoted", "", false, "v2", ""}},     // deaf is killed in the end
		{"t143", want{0, "promoted", "", false, "t143", ""}},
		{"v3", want{0, "promoted", "", false, "v3", ""}}, // exit 143 on SIGTERM is no failure
		{"other", want{5, "failed", "program_mismatch", true, "v3", "the image runs go:toad/tests/sample/other, web has run go:toad/tests/sample"}},
	} {
		t.Run(c.tag, func(t *testing.T) {
			stable, deadline := "1s", "30s" // time enough for a good release on a busy machine
			if c.code == "deadline_exceeded" {
				deadline = "12s"
			}
			if c.tag == "late-crash" || c.tag == "late-exit0" {
				stable = "6s" // longer than it lives
			}
			w.Enroll(t, ready, "deadline = \""+deadline+"\"\nstable = \""+stable+"\"")
			deploy(t, w, c.tag, c.want)
		})
	}
}

func TestARetryRunsOnce(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	r := w.Deploy(t, "crash", "--retry")
	if r.Exit != 64 {
		t.Errorf("a retry of nothing: want exit 64, have %d %s", r.Exit, r.Stderr)
	}
	deploy(t, w, "crash", want{3, "rolled_back", "candidate_exited", true, "v1", ""})
	w.MustDeploy(t, 5, "crash")
	w.MustUser(t, "systemctl", "--user", "restart", "toad.socket")
	w.User(t, "systemctl", "--user", "stop", "toad.service")
	w.MustDeploy(t, 5, "crash")
	deploy(t, w, "crash", want{3, "rolled_back", "candidate_exited", true, "v1", ""}, "--retry")
	w.MustDeploy(t, 5, "crash")
	log := w.MustUser(t, "toad", "log", "web")
	if !strings.Contains(log, "sample: fatal: cannot read configuration") {
		t.Errorf("the log does not hold the release's last words:\n%s", log)
	}
}

// A crash that uses up the start limit, or units that never read failed, are no different.
func TestHoweverTheUnitRestarts(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	for _, c := range []struct {
		name, lines string
		long        bool // tests/cases tries it as well, C15 or C16
	}{
		{"no start limit", "[Unit]\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=100ms\n", true},
		{"a long RestartSec", "[Service]\nRestart=always\nRestartSec=600\n", true},
		{"RestartMode=direct", "[Service]\nRestart=always\nRestartSec=100ms\nRestartMode=direct\n", true},
		{"a used-up limit", "[Unit]\nStartLimitIntervalSec=300\nStartLimitBurst=3\n[Service]\nRestart=always\nRestartSec=100ms\n", false},
		{"no restart", "[Service]\nRestart=no\n", false},
		{"notify, never ready", "[Service]\nRestart=always\nRestartSec=100ms\nTimeoutStartSec=30\n[Container]\nNotify=true\n", false},
	} {
		if c.long && os.Getenv("TOAD_ALL") == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			w.WriteFile(t, "~/.config/containers/systemd/web.container.d/10-case.conf", c.lines, 0o644)
			w.MustUser(t, "systemctl", "--user", "daemon-reload")
			w.MustUser(t, "systemctl", "--user", "reset-failed")
			w.MustUser(t, "systemctl", "--user", "restart", "web.service")
			w.Serves(t, "v1")
			w.Enroll(t, ready, "deadline = \"30s\"\nstable = \"1s\"\nrestarts = 2")
			flags := []string{}
			if len(w.Status(t).Refusals) > 0 {
				flags = append(flags, "--retry")
			}
			deploy(t, w, "crash", want{3, "rolled_back", "candidate_exited", true, "v1", ""}, flags...)
		})
	}
}

func TestAStopByAnOperatorWithdraws(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: "deadline = \"30s\"\nstable = \"10s\""})
	w.MustDeploy(t, 0, "v2", "--detach")
	w.WaitPhase(t, "probation")
	w.Serves(t, "v2")
	w.MustUser(t, "systemctl", "--user", "stop", "web.service")
	if phase := w.WaitPhase(t, "withdrawn", "rolled_back", "promoted", "rollback_failed"); phase != "withdrawn" {
		t.Fatalf("want withdrawn, have %s\n%s", phase, w.Log(t))
	}
	w.Quiet(t)
	if s := w.Status(t); len(s.Refusals) != 0 || s.Operation.Code != "stopped" {
		t.Errorf("a stop says nothing of the release: %+v", s)
	}
	if have := w.Show(t, "web.service", "ActiveState"); have != "inactive" {
		t.Errorf("the unit was to be left stopped, it is %s", have)
	}
	w.MustUser(t, "systemctl", "--user", "start", "--no-block", "web.service")
	w.Serves(t, "v1")
}

// A restart by hand may end the attempt, but it is not held against the release.
func TestARestartByAnOperatorRefusesNothing(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: "deadline = \"30s\"\nstable = \"10s\""})
	w.MustDeploy(t, 0, "v2", "--detach")
	w.WaitPhase(t, "probation")
	w.Serves(t, "v2")
	w.MustUser(t, "systemctl", "--user", "restart", "web.service")
	phase := w.WaitPhase(t, "withdrawn", "rolled_back", "promoted", "rollback_failed")
	if phase != "rolled_back" {
		t.Fatalf("want rolled_back, have %s\n%s", phase, w.Log(t))
	}
	w.MustServe(t, "v1")
	w.Quiet(t)
	if s := w.Status(t); len(s.Refusals) != 0 || s.Operation.Code != "interrupted" {
		t.Errorf("a restart by hand says nothing of the release: %+v", s)
	}
}

func TestSomethingElseOnTheReadinessPort(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits, Stopped: true})
	foreign(t, w)
	// The port is taken, so the candidate cannot start, and the answer that comes is not its own.
	deploy(t, w, "v2", want{3, "withdrawn", "interrupted", false, "", "Address already in use"})
}

// foreign puts another program on the service's port.
func foreign(t *testing.T, w *scene.Web) {
	t.Helper()
	w.MustUser(t, "systemd-run", "--user", "-q", "--unit", "foreign", "-E", "PORT=8080", "/usr/local/lib/toad-tests/sample", "good")
	host.Eventually(t, "the other program to answer", time.Minute, func() bool {
		status, _ := w.Get("http://127.0.0.1:8080/healthz")
		return status == 200
	})
}

// seize is a script that kills the container, and has another program take its port before systemd starts the next one.
const seize = `
	id=$(podman ps -q)
	systemd-run --user -q --unit foreign -E PORT=8080 -p Restart=always -p RestartSec=20ms -p StartLimitIntervalSec=0 /usr/local/lib/toad-tests/sample good
	sleep 0.2
	podman kill -s KILL $id`

func TestARestoreOutlastsAPortThatIsTakenForAMoment(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: "deadline = \"60s\"\nstable = \"10s\""})
	w.MustDeploy(t, 0, "v2", "--detach")
	w.WaitPhase(t, "probation")
	w.Serves(t, "v2")
	w.MustUser(t, "sh", "-c", seize)
	w.WaitPhase(t, "restoring", "rollback_failed")
	host.Eventually(t, "a start of the release before to fail", time.Minute, func() bool {
		_, after, _ := strings.Cut(w.Look(t, "~/.local/state/toad/operations/web-g1.log"), `"restoring"`)
		return strings.Contains(after, "(auto-restart)")
	})
	w.MustUser(t, "systemctl", "--user", "stop", "foreign.service")
	if phase := w.WaitPhase(t, "rollback_failed", "rolled_back", "promoted", "withdrawn"); phase != "rolled_back" {
		t.Fatalf("want rolled_back, have %s\n%s", phase, w.Log(t))
	}
	if s := w.Status(t); len(s.Refusals) != 0 {
		t.Errorf("the port was not the candidate's fault: %+v", s.Refusals)
	}
	w.MustServe(t, "v1")
	w.Quiet(t)
}

func TestWithRestoreMadeImpossibleItSaysSoOnce(t *testing.T) {
	t.Parallel()
	// Without a restart of systemd's own, every start is toad's.
	w := scene.New(t, scene.Options{Ready: ready, Limits: "deadline = \"20s\"\nstable = \"10s\"",
		Quadlet: strings.Replace(scene.Quadlet, "Restart=always", "Restart=no", 1)})
	w.MustDeploy(t, 0, "v2", "--detach")
	w.WaitPhase(t, "probation")
	w.Serves(t, "v2")
	w.MustUser(t, "sh", "-c", seize)
	phase := w.WaitPhase(t, "rollback_failed", "rolled_back", "promoted", "withdrawn")
	if phase != "rollback_failed" {
		t.Fatalf("want rollback_failed, have %s\n%s", phase, w.Log(t))
	}
	s := w.Status(t)
	if len(s.Refusals) != 0 {
		t.Errorf("the port was not the candidate's fault: %+v", s.Refusals)
	}
	id := s.Operation.ID
	follow := w.User(t, "toad", "log", id)
	if n := strings.Count(follow.Stdout, "restoring the previous release"); n != 1 {
		t.Errorf("%d restores were begun, want one\n%s", n, follow.Stdout)
	}
	if r := w.Deploy(t, "v3"); r.Exit != 5 {
		t.Errorf("a deployment after a failed restore: want exit 5, have %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	journal := w.MustExec(t, "journalctl", "-p", "crit", "-o", "cat", "--no-pager")
	if !strings.Contains(journal, "rollback failed") {
		t.Errorf("nothing critical in the journal:\n%s", journal)
	}
	before, quiet := w.Invocation(t), 10*time.Second
	if os.Getenv("TOAD_ALL") != "" {
		quiet = time.Minute
	}
	time.Sleep(quiet) // nothing is to happen in this time
	if have := w.Invocation(t); have != before {
		t.Errorf("the unit was started again: %s, then %s", before, have)
	}
	w.MustUser(t, "systemctl", "--user", "stop", "foreign.service")
	if r := w.User(t, "toad", "rollback", "web"); r.Exit != 0 {
		t.Fatalf("toad rollback: exit %d\n%s%s\n%s", r.Exit, r.Stdout, r.Stderr, w.Log(t))
	}
	w.MustServe(t, "v1")
	w.Quiet(t)
}

// Many services that fail at the same time are all put back; one that is slow to stop holds nobody up.
func TestManyServicesFailAtOnce(t *testing.T) {
	t.Parallel()
	n := 8
	if os.Getenv("TOAD_ALL") != "" {
		n = 20
	}
	h := host.Up(t, host.Options{})
	w := &scene.Web{Host: h}
	var enrollment strings.Builder
	for i := range n {
		stop := ""
		if i == 0 {
			stop = "TimeoutStopSec=20\n"
		}
		h.WriteFile(t, fmt.Sprintf("~/.config/containers/systemd/s%d.container", i), fmt.Sprintf(
			"[Container]\nImage=%s:v1\nNetwork=none\n[Service]\nRestart=always\nRestartSec=1\n%s", host.Repository, stop), 0o644)
		fmt.Fprintf(&enrollment, "[service.s%d]\nunits = [\"s%d.container\"]\nimage = \"%s\"\n[service.s%d.ready]\ninterval = \"500ms\"\n"+
			"[service.s%d.probation]\ndeadline = \"120s\"\nstable = \"20s\"\n", i, i, host.Repository, i, i)
	}
	h.WriteFile(t, "~/.config/toad/enrollment.toml", enrollment.String(), 0o644)
	h.MustUser(t, "systemctl", "--user", "daemon-reload")
	h.MustUser(t, "sh", "-c", fmt.Sprintf("podman pull -q %s:v1 >/dev/null; systemctl --user start $(seq -f s%%.0f.service 0 %d)", host.Repository, n-1))
	h.MustUser(t, "toad", "setup")
	h.MustUser(t, "sh", "-c", fmt.Sprintf("for i in $(seq 0 %d); do toad deploy s$i %s --detach & done; wait", n-1, h.Digest(t, "late-crash")))
	ended := func(i int) string {
		r := h.User(t, "sh", "-c", fmt.Sprintf(`jq -r .operation.phase .local/state/toad/services/s%d.json`, i))
		return strings.TrimSpace(r.Stdout)
	}
	for i := range n {
		phase := ""
		host.Eventually(t, fmt.Sprintf("s%d to end", i), 4*time.Minute, func() bool {
			phase = ended(i)
			return phase != "accepted" && phase != "preparing" && phase != "switching" && phase != "probation" && phase != "restoring"
		})
		if phase != "rolled_back" {
			t.Errorf("s%d ended %s\n%s", i, phase, h.User(t, "sh", "-c", fmt.Sprintf("toad log s%d; cat .local/state/toad/operations/s%d-g1.watch.json; journalctl --user -o short-precise --no-pager | grep -w s%d | tail -60", i, i, i)).Stdout)
		}
	}
	reloads := h.MustExec(t, "sh", "-c", "journalctl --user-unit=init.scope -o cat --no-pager 2>/dev/null | grep -c '^Reloading' || true")
	t.Logf("%d services rolled back, %s reloads", n, reloads)
	w.Quiet(t)
	for i := range n {
		if image := h.MustUser(t, "podman", "inspect", "--format", "{{.Image}}", fmt.Sprintf("systemd-s%d", i)); "sha256:"+image != h.Image(t, "v1").ID {
			t.Errorf("s%d runs %s", i, image)
		}
	}
}
