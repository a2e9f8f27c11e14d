//go:build e2e

package userbus_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"toad/unitgen"
	"toad/unitgen/userbus"
)

// install puts the units where toad setup does, with a program that writes down how it was run.
func install(t *testing.T) (b *userbus.Bus, p unitgen.Program, pins string) {
	home := os.Getenv("HOME")
	b, p = dial(t), script(t, `echo "$@" >>$DIR/log`)
	pins = filepath.Join(home, ".config/containers/systemd/web.container.d")
	units := filepath.Join(home, ".local/share/systemd/user")
	p.Enrollment = filepath.Join(home, ".config/toad/enrollment.toml")
	for _, dir := range []string{pins, units, filepath.Dir(p.Enrollment)} {
		must(t, os.MkdirAll(dir, 0o700))
	}
	files := unitgen.Installed(p, pins, "/nonexistent/a b%/x.container.d")
	for _, f := range files {
		must(t, os.WriteFile(filepath.Join(units, f.Name), []byte(f.Text), 0o600))
	}
	must(t, b.Reload(t.Context()))
	t.Cleanup(func() {
		for _, f := range files {
			_ = b.Stop(context.Background(), f.Name)
			_ = os.Remove(filepath.Join(units, f.Name))
		}
	})
	return b, p, pins
}

func TestInstalledUnitsAreTakenWithoutAWord(t *testing.T) {
	b, p, _ := install(t)
	args := []string{"systemd-analyze", "--user", "verify"}
	for _, f := range unitgen.Installed(p) {
		name := strings.Replace(f.Name, "@", "@web", 1)
		args = append(args, name)
		if s := state(t, b, name); !s.Exists() || s.NeedDaemonReload {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if out := run(t, args...); out != "" {
		t.Error(out)
	}
	for _, name := range []string{"toad.socket", "toad-reconcile.service", "toad-fence.path", "toad-tick.timer"} {
		run(t, "systemctl", "--user", "enable", name)
		if want, have := "enabled", state(t, b, name).UnitFileState; want != have {
			t.Errorf("%s: want %s have %s", name, want, have)
		}
	}
	run(t, "systemctl", "--user", "disable", "toad.socket", "toad-reconcile.service", "toad-fence.path", "toad-tick.timer")
}

func TestNobodyStartsReconcileByHand(t *testing.T) {
	b, p, _ := install(t)
	if err := b.Start(t.Context(), "toad-reconcile.service"); err == nil {
		t.Error("started")
	}
	if have := log(t, p); have != "" {
		t.Error(have)
	}
}

func TestFenceLooksAtEveryBurstOfChanges(t *testing.T) {
	b, p, pins := install(t)
	must(t, b.Start(t.Context(), "toad-fence.path"))
	eventually(t, "it watches", func() bool { return state(t, b, "toad-fence.path").SubState == "waiting" })
	pin := filepath.Join(pins, "zz-toad.conf")
	for i := range 40 {
		must(t, os.WriteFile(pin, []byte(strconv.Itoa(i)), 0o600))
	}
	eventually(t, "it looks", func() bool { return strings.HasPrefix(log(t, p), "reconcile --look\n") })
	must(t, os.Remove(pin))
	must(t, os.Remove(pins))
	must(t, os.Mkdir(pins, 0o700))
	eventually(t, "it waits again", func() bool { return state(t, b, "toad-fence.path").SubState == "waiting" })
	before := log(t, p)
	must(t, os.WriteFile(p.Enrollment, []byte("x"), 0o600))
	eventually(t, "it looks at the enrollment", func() bool { return len(log(t, p)) > len(before) })
	if s := state(t, b, "toad-fence.path"); !s.Up() {
		t.Errorf("%+v", s)
	}
}

func TestAlertIsToldTheUnit(t *testing.T) {
	b, p, _ := install(t)
	must(t, b.Start(t.Context(), "toad-alert@web@a.service"))
	eventually(t, "it runs", func() bool { return log(t, p) == "alert web@a\n" })
}

func TestTickAndSocketRunTheirCommands(t *testing.T) {
	b, p, _ := install(t)
	must(t, b.Start(t.Context(), "toad-tick.service"))
	eventually(t, "tick runs", func() bool { return log(t, p) == "tick\n" })
	must(t, b.Start(t.Context(), "toad.socket"))
	eventually(t, "it listens", func() bool { return state(t, b, "toad.socket").SubState == "listening" })
	socket := filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "toad/toad.sock")
	conn, err := net.Dial("unix", socket)
	must(t, err)
	defer conn.Close()
	eventually(t, "the daemon is started", func() bool { return strings.Contains(log(t, p), "serve\n") })
	for path, want := range map[string]os.FileMode{socket: 0o600, filepath.Dir(socket): 0o700} {
		info, err := os.Stat(path)
		must(t, err)
		if have := info.Mode().Perm(); want != have {
			t.Errorf("%s: want %o have %o", path, want, have)
		}
	}
}

func TestHeldUnitsAreNamed(t *testing.T) {
	b, _, pins := install(t)
	pin := "[Unit]\nConditionEnvironment=TOAD_ADMITTED_web_g7=1\n[Service]\nExecCondition=/usr/bin/test -n ${TOAD_ADMITTED_web_g7}\n"
	must(t, os.WriteFile(filepath.Join(pins, "zz-toad.conf"), []byte(pin), 0o600))
	t.Cleanup(func() { os.Remove(filepath.Join(pins, "zz-toad.conf")) })
	// Not by unit: journald may miss whose a line is when the process that wrote it has ended.
	said := func(priority string) string {
		return run(t, "journalctl", "--user", "-o", "cat", "-p", priority, "--since=-1min")
	}
	must(t, b.Start(t.Context(), "toad-held.service"))
	eventually(t, "it names web", func() bool { return strings.Contains(said("emerg"), "toad: web.container is held down") })
	eventually(t, "it is done", func() bool { return state(t, b, "toad-held.service").ActiveState == "inactive" })

	must(t, b.SetEnvironment(t.Context(), "TOAD_ADMITTED_web_g7=1"))
	t.Cleanup(func() { _ = b.UnsetEnvironment(context.Background(), "TOAD_ADMITTED_web_g7") })
	before := strings.Count(said("emerg"), "held down")
	must(t, b.Start(t.Context(), "toad-held.service"))
	eventually(t, "it says what failed, again", func() bool { return strings.Count(said("err"), "toad-reconcile failed; run: journalctl") >= 2 })
	if have := strings.Count(said("emerg"), "held down"); have != before {
		t.Errorf("an admitted unit is called held: %d times, before %d", have, before)
	}
}
