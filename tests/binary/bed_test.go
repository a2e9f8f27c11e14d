//go:build e2e

// Package binary runs a service whose releases are files, and shows that they are judged, put back, refused and proven as
// images are.
package binary

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	unit = `# the operator's unit
[Unit]
Description=web

[Service]
ExecStart=%h/.local/state/toad/live/web
Restart=always
RestartSec=1
TimeoutStopSec=3

[Install]
WantedBy=default.target
`
	ready = `http = "http://127.0.0.1:8080/healthz"
interval = "200ms"
timeout = "1s"`
	limits = "deadline = \"20s\"\nstable = \"1s\""

	live = "~/.local/state/toad/live/web"
)

// bed is a host with the plain unit web.service, enrolled as the service web.
type bed struct{ *scene.Web }

// program is a build of the sample.
type program struct{ path, id string }

var (
	building sync.Mutex
	built    = map[string]program{}
	folder   string
)

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "toad-binary-"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(folder)
	os.Exit(code)
}

// build makes a program that says its version, and behaves as its name tells: v1, v2 … are good.
func build(t *testing.T, name string) program {
	t.Helper()
	building.Lock()
	defer building.Unlock()
	if p, ok := built[name]; ok {
		return p
	}
	pkg, behaviour := "toad/tests/sample", name
	switch {
	case name == "other":
		pkg = "toad/tests/sample/other"
	case name[0] == 'v':
		behaviour = "good"
	}
	p := program{path: filepath.Join(folder, name)}
	cmd := exec.Command("go", "build", "-trimpath", "-o", p.path, "-ldflags", "-s -w -X main.builtVersion="+name+" -X main.builtBehaviour="+behaviour, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(p.path)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	p.id = hex.EncodeToString(sum[:])
	built[name] = p
	return p
}

// up brings a host up on which web.service runs v1 by the operator's own link.
func up(t *testing.T, faults bool) bed {
	t.Helper()
	b := bed{&scene.Web{Host: host.Up(t, host.Options{})}}
	if faults {
		b.Faults(t)
	}
	b.WriteFile(t, "~/.config/systemd/user/web.service", unit, 0o644)
	b.enroll(t, limits)
	b.put(t, "v1")
	b.MustUser(t, "sh", "-c", "mkdir -p .local/state/toad/live && chmod 700 .local/state/toad .local/state/toad/live && ln -s ~/files/v1 .local/state/toad/live/web && systemctl --user daemon-reload && systemctl --user enable --now web.service")
	b.Serves(t, "v1")
	b.MustUser(t, "toad", "setup")
	return b
}

func (b bed) enroll(t *testing.T, limits string) {
	t.Helper()
	b.WriteFile(t, "~/.config/toad/enrollment.toml", fmt.Sprintf("[service.web]\nkind = \"binary\"\nunits = [\"web.service\"]\n\n[service.web.ready]\n%s\n\n[service.web.probation]\n%s\n", ready, limits), 0o644)
}

// put lays a program on the host, as ~/files/NAME.
func (b bed) put(t *testing.T, name string) program {
	t.Helper()
	p := build(t, name)
	data, err := os.ReadFile(p.path)
	if err != nil {
		t.Fatal(err)
	}
	b.WriteFile(t, "~/files/"+name, string(data), 0o755)
	return p
}

// ship ships a program, and wants this exit status.
func (b bed) ship(t *testing.T, exit int, name string, flags ...string) host.Result {
	t.Helper()
	b.put(t, name)
	r := b.User(t, append([]string{"toad", "ship", "web", "files/" + name}, flags...)...)
	if r.Exit != exit {
		t.Fatalf("toad ship web %s %v: want exit %d, have %d\n%s%s\n%s", name, flags, exit, r.Exit, r.Stdout, r.Stderr, b.Log(t))
	}
	return r
}

// inForce asserts that a program is what the link leads to, what runs, and what the record says.
func (b bed) inForce(t *testing.T, name string) {
	t.Helper()
	id := build(t, name).id
	b.MustServe(t, name)
	if to := b.MustUser(t, "sh", "-c", "readlink "+live); to != "../releases/"+id+"/web" {
		t.Errorf("the link leads to %s, want %s", to, id)
	}
	pid := b.Show(t, "web.service", "MainPID")
	if exe := b.MustUser(t, "readlink", "/proc/"+pid+"/exe"); !strings.HasPrefix(exe, host.Home+"/.local/state/toad/releases/"+id+"/web") {
		t.Errorf("%s runs, want %s", exe, id)
	}
	if s := b.Status(t); s.Promoted == nil || s.Promoted.Digest != "sha256:"+id {
		t.Errorf("in force by the record: %+v, want %s", s.Promoted, id)
	}
	if have := b.ReadFile(t, "~/.config/systemd/user/web.service"); have != unit {
		t.Errorf("the operator's file has changed:\n%s", have)
	}
	if out := b.MustUser(t, "sh", "-c", "toad doctor || true"); strings.Contains(out, "not as recorded") || strings.Contains(out, "the link ") {
		t.Errorf("doctor:\n%s", out)
	}
}
