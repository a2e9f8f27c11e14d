package unitgen_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"toad/unitgen"
)

var update = flag.Bool("update", false, "rewrite testdata")

var program = unitgen.Program{
	Exe:        "/home/toad/.local/state/toad/libexec/toad",
	State:      "/home/toad/.local/state/toad",
	Enrollment: "/home/toad/.config/toad/enrollment.toml",
}

// Properties are compared as text with their D-Bus signatures, since a wrong one is refused only by a real manager.
func TestTransientUnitsAreAsRecorded(t *testing.T) {
	at := time.Date(2026, 11, 29, 21, 10, 0, 123456001, time.FixedZone("CET", 3600))
	extra := program
	extra.Env = map[string]string{"TZ": "UTC", "A": "$HOME %i"}
	for file, u := range map[string]unitgen.Unit{
		"prepare":   unitgen.Timer(unitgen.Prepare, "web-g7", 1, at, program),
		"probation": unitgen.Timer(unitgen.Probation, "web-g7", 2, at, program),
		"drain":     unitgen.Pause(unitgen.Drain, "web-g7", 3, time.Second, program),
		"restore":   unitgen.Timer(unitgen.Restore, "web-g7", 0, at, program),
		"check":     unitgen.Check("web-g7", 3, 5*time.Minute, program),
		"act":       unitgen.Act("web-g7", 1795982400000000001, 10*time.Minute, extra),
	} {
		golden(t, filepath.Join("testdata", "transient", file), render(u))
	}
}

// systemd reads a timeout of 0 as none.
func TestNoTimeoutIsEverUnlimited(t *testing.T) {
	check := render(unitgen.Check("web-g7", 1, -time.Second, program))
	act := render(unitgen.Act("web-g7", 1, 0, program))
	if want := "TimeoutStartUSec = @t 1000\n"; !strings.Contains(check, want) {
		t.Errorf("want %s have\n%s", want, check)
	}
	if want := "WatchdogUSec = @t 20000000\n"; !strings.Contains(act, want) {
		t.Errorf("want %s have\n%s", want, act)
	}
}

func TestInstalledUnitsAreAsRecorded(t *testing.T) {
	for _, f := range unitgen.Installed(program, "/home/toad/.config/containers/systemd/web.container.d") {
		golden(t, filepath.Join("testdata", "installed", f.Name), f.Text)
	}
	joined := program
	joined.Agent = true
	for _, f := range unitgen.Installed(joined) {
		if strings.HasPrefix(f.Name, "toad-agent") {
			golden(t, filepath.Join("testdata", "installed", f.Name), f.Text)
		}
	}
	listening := program
	listening.Listen, listening.Hosts = []string{"127.0.0.1:8686", "[::1]:8686"}, []string{"box.example.org"}
	for _, f := range unitgen.Installed(listening) {
		if f.Name == unitgen.TCPSocket || f.Name == "toad.service" {
			golden(t, filepath.Join("testdata", "installed", "listening-"+f.Name), f.Text)
		}
	}
	inside := listening
	inside.Container = &unitgen.Container{Rootfs: "/data/toad/rootfs", Quadlets: "/home/toad/.config/containers", Config: "/home/toad/.config/toad",
		Home: "/home/toad", User: "toad"}
	for _, f := range unitgen.Installed(inside) {
		switch f.Name {
		case unitgen.ContainerFile, unitgen.LookSocket, unitgen.LookService:
			golden(t, filepath.Join("testdata", "installed", f.Name), f.Text)
		case "toad.service":
			t.Error("there are two daemons")
		}
	}
}

func TestInstalledUnitsSurviveSystemdAnalyze(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Fatal("systemd-analyze is missing; it comes with systemd")
	}
	dir := t.TempDir()
	p := unitgen.Program{Exe: filepath.Join(dir, "a b%i$HOME", "toad"), State: `/a "b' \x`, Enrollment: "/e f/100%.toml",
		Listen: []string{"127.0.0.1:8686", "[::1]:8686"}, Hosts: []string{"box.example.org"}, Agent: true}
	if err := os.MkdirAll(filepath.Dir(p.Exe), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p.Exe, []byte("#!/bin/sh\n"), 0o700); err != nil { // verify wants it to be there
		t.Fatal(err)
	}
	args := []string{"--user", "verify"}
	for _, f := range unitgen.Installed(p, "/x y/web.container.d") {
		name := filepath.Join(dir, f.Name)
		if err := os.WriteFile(name, []byte(f.Text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	cmd := exec.Command(analyze, args...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
	out, err := cmd.CombinedOutput()
	// systemd before 255 does not know these, which is no fault of the text.
	out = regexp.MustCompile(`(?m)^.*Unknown key '?(PollLimit|RestartSteps|RestartMaxDelay).*\n`).ReplaceAll(out, nil)
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

func render(u unitgen.Unit) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s]\n", u.Name)
	for _, p := range u.Properties {
		fmt.Fprintf(&b, "%s = @%s %s\n", p.Name, p.Value.Signature(), strings.TrimPrefix(p.Value.String(), "@"+p.Value.Signature().String()+" "))
	}
	for _, aux := range u.Aux {
		b.WriteString("\n" + render(aux))
	}
	return b.String()
}

func golden(t *testing.T, file, have string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != have {
		t.Errorf("%s: want\n%s\nhave\n%s", file, want, have)
	}
}
