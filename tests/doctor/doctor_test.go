//go:build e2e

package doctor

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

type finding struct{ Level, What, Why, Mend string }

// doctor runs toad doctor and returns its findings that are not ok.
func doctor(t *testing.T, w *scene.Web, exit int) (bad []finding) {
	t.Helper()
	r := w.User(t, "toad", "doctor", "--json")
	var all []finding
	if err := json.Unmarshal([]byte(r.Stdout), &all); err != nil {
		t.Fatalf("%v: %s%s", err, r.Stdout, r.Stderr)
	}
	if r.Exit != exit {
		t.Errorf("want exit %d, have %d\n%s", exit, r.Exit, w.User(t, "toad", "doctor").Stdout)
	}
	for _, f := range all {
		if f.Level != "ok" {
			bad = append(bad, f)
		}
	}
	return bad
}

func TestDoctorFindsWhatIsWrongAndRepairsRecords(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	w.MustDeploy(t, 0, "v2")
	w.Quiet(t)
	if bad := doctor(t, w, 0); len(bad) > 0 {
		t.Errorf("on a healthy host: %+v", bad)
	}
	text := w.User(t, "toad", "doctor")
	t.Logf("on a healthy host it says\n%s", text.Stdout)

	for _, c := range []struct {
		name, do, undo string // as the user; what begins with ! as root
		exit           int
		level, what    string
		says, mend     string
	}{
		{"Podman's socket stopped", "systemctl --user stop podman.socket podman.service", "systemctl --user start podman.socket", 1, "fail", "podman", "podman.sock", "systemctl --user enable --now podman.socket"},
		{"a drop-in that wins", "printf '[Container]\\nImage=127.0.0.1:5000/app:v1\\n' > .config/containers/systemd/web.container.d/zzz.conf; systemctl --user daemon-reload",
			"rm .config/containers/systemd/web.container.d/zzz.conf; systemctl --user daemon-reload", 1, "fail", "web", "zzz.conf:2 wins over the pin", "take the setting out"},
		{"no linger", "!mv /var/lib/systemd/linger/toad /root/", "!mv /root/toad /var/lib/systemd/linger/", 1, "fail", "linger", "ends with the last login", "loginctl enable-linger toad"},
		{"a timer that prunes", timer + "podman system prune -af", noTimer, 0, "warn", "prune", "tidy.timer runs a podman prune that takes any image", "--filter label="},
		{"a timer that prunes by age", timer + "podman image prune -af --filter until=48h", noTimer, 0, "warn", "prune", "takes any image", "--filter label="},
		{"a timer that mirrors the Quadlets", timer + "rsync -a --delete --exclude zz-toad.conf q/ .config/containers/systemd/", noTimer, 0, "warn", "rsync", "takes the pins away", "--exclude zz-toad.previous"},
		{"a timer that restarts in groups", timer + "systemctl --user restart 'we*'", noTimer, 0, "warn", "restart", "tidy.timer restarts units that are enrolled", "ExecCondition="},
		{"a timer that updates", "systemctl --user start podman-auto-update.timer", "systemctl --user stop podman-auto-update.timer", 0, "warn", "auto-update", "passes over pinned units", "disable --now"},
		{"AutoUpdate= in a Quadlet", "printf '[Container]\\nAutoUpdate=registry\\n' > .config/containers/systemd/web.container.d/10-auto.conf; systemctl --user daemon-reload",
			"rm .config/containers/systemd/web.container.d/10-auto.conf; systemctl --user daemon-reload", 0, "warn", "web, web.container", "AutoUpdate=registry counts for nothing", "take it out"},
		{"a masked unit", "systemctl --user mask toad-tick.timer", "systemctl --user unmask toad-tick.timer; toad setup", 1, "fail", "toad's units", "toad-tick.timer is masked", "unmask"},
		{"a pin of nobody", "mkdir .config/containers/systemd/x.container.d; sed s/web/gone/ " + pin + " > .config/containers/systemd/x.container.d/zz-toad.conf", "rm -r .config/containers/systemd/x.container.d", 0, "warn", "strays", "has no record here", ""},
		{"an enrollment that is not valid", "cp .config/toad/enrollment.toml e; echo '[servic.x]' >> .config/toad/enrollment.toml", "mv e .config/toad/enrollment.toml", 0, "warn", "enrollment", "last good enrollment", "enrollment.toml"},
	} {
		run := func(script string) {
			if root, ok := strings.CutPrefix(script, "!"); ok {
				w.MustExec(t, "sh", "-c", root)
				return
			}
			w.MustUser(t, "sh", "-c", script)
		}
		run(c.do)
		bad, found := doctor(t, w, c.exit), false
		for _, f := range bad {
			found = found || (f.Level == c.level && f.What == c.what && strings.Contains(f.Why, c.says) && strings.Contains(f.Mend, c.mend))
		}
		if !found {
			t.Errorf("%s: want %s %s, have %+v", c.name, c.level, c.what, bad)
		}
		run(c.undo)
	}
	if bad := doctor(t, w, 0); len(bad) > 0 {
		t.Errorf("when all is mended: %+v", bad)
	}
	for _, fenced := range []string{fence + "podman system prune -af", fence + "systemctl --user restart 'we*'", "podman image prune -af --filter label=disposable",
		"rsync -a --delete --exclude zz-toad.conf --exclude zz-toad.previous --exclude .toad-made q/ .config/containers/systemd/"} {
		w.MustUser(t, "sh", "-c", timer+fenced)
		if bad := doctor(t, w, 0); len(bad) > 0 {
			t.Errorf("of %s: %+v", fenced, bad)
		}
		w.MustUser(t, "sh", "-c", noTimer)
	}
	holds(t, w)
	repairs(t, w)
}

// What else is automated on the host; the condition is that of docs/host.md.
const (
	timer   = "systemd-run --user -q --unit tidy --on-active=1h "
	noTimer = "systemctl --user stop tidy.timer"
	fence   = `-p 'ExecCondition=/bin/sh -c "! systemctl --user -q is-active toad-prepare-* toad-probation-* toad-restore-*"' `
)

// holds asserts that the fence lets a job run when nothing is under way, and does not while a timer of toad's is there.
func holds(t *testing.T, w *scene.Web) {
	t.Helper()
	job := func() string {
		w.MustUser(t, "sh", "-c", "rm -f ran; systemd-run --user -q --wait --unit tidy "+fence+"touch $HOME/ran || true")
		return w.MustUser(t, "sh", "-c", "ls ran 2>/dev/null || true")
	}
	if have := job(); have != "ran" {
		t.Error("the fence holds though nothing is under way")
	}
	w.MustUser(t, "systemd-run", "--user", "-q", "--unit", "toad-probation-web-g99", "--on-active=1h", "true")
	if have := job(); have != "" {
		t.Error("the fence does not hold")
	}
	w.MustUser(t, "systemctl", "--user", "stop", "toad-probation-web-g99.timer")
}

// repairs damages the record in the ways that a host may, and has it rebuilt.
func repairs(t *testing.T, w *scene.Web) {
	t.Helper()
	damage := func(text string) {
		t.Helper()
		w.WriteFile(t, "~/.local/state/toad/services/web.json", text, 0o600)
		found := false
		for _, f := range doctor(t, w, 1) {
			found = found || f.Mend == "toad doctor --repair web"
		}
		if !found {
			t.Error("the doctor does not name the repair")
		}
	}
	if out := w.MustUser(t, "toad", "doctor", "--repair", "web"); !strings.Contains(out, "whole") {
		t.Errorf("of a whole record: %s", out)
	}

	// A promotion of which only the pin is left.
	invocation := w.Invocation(t)
	w.MustUser(t, "rm", ".local/state/toad/operations/web-g1.json")
	damage("")
	t.Log(w.MustUser(t, "toad", "doctor", "--repair", "web"))
	w.Quiet(t)
	s := w.Status(t)
	if s.Promoted == nil || s.Promoted.Digest != w.Digest(t, "v2") || s.Generation != 1 || s.Phase() != "promoted" {
		t.Errorf("after a promotion: %+v", s)
	}
	if w.Invocation(t) != invocation {
		t.Error("the unit was restarted")
	}
	if bad := doctor(t, w, 0); len(bad) > 0 {
		t.Errorf("after a repair: %+v", bad)
	}

	// A refusal in the part of the record that is whole, and in the operation; then in the log alone.
	w.MustDeploy(t, 3, "crash")
	w.Quiet(t)
	record := w.ReadFile(t, "~/.local/state/toad/services/web.json")
	damage(record[:len(record)*2/3])
	w.MustUser(t, "toad", "doctor", "--repair", "web")
	w.MustDeploy(t, 5, "crash")
	w.MustUser(t, "rm", ".local/state/toad/operations/web-g2.json")
	damage("\x00\x00\x00")
	t.Log(w.MustUser(t, "toad", "doctor", "--repair", "web"))
	w.MustDeploy(t, 5, "crash")
	w.MustServe(t, "v2")

	// A release on trial is given up.
	w.Enroll(t, ready, "deadline = \"60s\"\nstable = \"20s\"")
	w.MustDeploy(t, 0, "v3", "--detach")
	w.WaitPhase(t, "probation")
	w.Serves(t, "v3")
	// No doctor is asked before, and the damage comes at once: the check, or the look that the edit of the enrollment has
	// brought on, may meet it first, and then an act gives the release up.
	w.MustUser(t, "sh", "-c", "umask 077; : > empty; mv empty .local/state/toad/services/web.json")
	t.Log(w.MustUser(t, "toad", "doctor", "--repair", "web"))
	w.Enroll(t, ready, limits)
	if phase := w.WaitPhase(t, "rolled_back", "promoted", "rollback_failed", "withdrawn"); phase != "rolled_back" {
		t.Fatalf("it ended %s\n%s", phase, w.Log(t))
	}
	w.MustServe(t, "v2")
	w.Quiet(t)
	w.Untouched(t)
	s = w.Status(t)
	if s.Promoted == nil || s.Promoted.Digest != w.Digest(t, "v2") || s.Generation != 3 || len(s.Refusals) != 1 {
		t.Errorf("after a trial: %+v", s)
	}
	if kept := w.MustUser(t, "sh", "-c", "ls .local/state/toad/services | grep -c repaired"); kept == "0" {
		t.Error("no damaged file was kept")
	}
	w.MustDeploy(t, 0, "v3")
	host.Eventually(t, "nothing to be left to mend", time.Minute, func() bool { return w.User(t, "toad", "doctor").Exit == 0 })
}
