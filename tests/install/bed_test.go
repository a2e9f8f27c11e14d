//go:build e2e

// Package install is what an administrator does on a clean host, from scripts/install to --uninstall, with applications
// of which toad knows no more than what is derived from their Quadlets.
package install

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
)

// user is whose containers toad manages; the host's own user toad is another one, who has nothing to do with it.
const user = "apps"

// bed is a host on which nothing of toad is installed; what the project is made of lies in /root/src.
type bed struct {
	*host.Host
	began time.Time
}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{Host: host.Up(t, host.Options{NoToad: true}), began: time.Now()}
	bin := os.Getenv("TOAD_BIN")
	for from, to := range map[string]string{
		"../../scripts/install": "scripts/install", "../../scripts/toad-as": "scripts/toad-as",
		bin: "bin/toad", filepath.Join(filepath.Dir(bin), "toad-faults"): "bin/toad-next",
	} {
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteFile(t, "/root/src/"+to, string(text), 0o755)
	}
	return b
}

// step tells what was seen, and when.
func (b *bed) step(t *testing.T, format string, args ...any) {
	t.Helper()
	t.Logf("%5.1fs  %s", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// install runs scripts/install.
func (b *bed) install(t *testing.T, args ...string) host.Result {
	t.Helper()
	return b.Exec(t, append([]string{"/root/src/scripts/install"}, args...)...)
}

// mustInstall is install with what it has to say.
func (b *bed) mustInstall(t *testing.T, says string, args ...string) {
	t.Helper()
	r := b.install(t, args...)
	if r.Exit != 0 || !strings.Contains(r.Stdout, says) {
		t.Fatalf("install %v: want %q, have exit %d\n%s%s", args, says, r.Exit, r.Stdout, r.Stderr)
	}
	b.step(t, "install %s\n%s", strings.Join(args, " "), r.Stdout)
}

// toad is the command as the administrator types it, with the exit status that is expected.
func (b *bed) toad(t *testing.T, exit int, args ...string) string {
	t.Helper()
	r := b.Exec(t, append([]string{"toad"}, args...)...)
	if r.Exit != exit {
		t.Fatalf("toad %s: want exit %d, have %d\n%s%s\n%s", strings.Join(args, " "), exit, r.Exit, r.Stdout, r.Stderr, b.state(t))
	}
	b.step(t, "toad %s: exit %d", strings.Join(args, " "), exit)
	return r.Stdout
}

func (b *bed) state(t *testing.T) string {
	return b.sh(t, "systemctl --user list-units --all 'toad*' web\\* store\\* --no-pager; journalctl --user -n 60 -o short-iso --no-pager")
}

// sh runs a script as the user whose containers these are.
func (b *bed) sh(t *testing.T, script string) string {
	t.Helper()
	return b.MustExec(t, "env", "TOAD=sh", "/root/src/scripts/toad-as", user, "-c", script)
}

// write writes a file of that user's.
func (b *bed) write(t *testing.T, name, text string) {
	t.Helper()
	b.sh(t, "mkdir -p \"$(dirname "+name+")\"; cat > "+name+" <<'END'\n"+text+"END\n")
}

func (b *bed) serves(t *testing.T, port int, version string) {
	t.Helper()
	var body string
	host.Eventually(t, fmt.Sprintf("port %d to serve %s", port, version), time.Minute, func() bool {
		var status int
		status, body = b.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		return status == 200 && strings.Contains(body, version)
	})
}

// Two applications that have nothing in common but Quadlets.
const (
	webPort, storePort = 8080, 8081

	web = `[Container]
Image=127.0.0.1:5000/app:v1
PublishPort=127.0.0.1:8080:8080
HealthCmd=["/app","health"]
HealthInterval=1s

[Service]
Restart=always
RestartSec=1
TimeoutStopSec=3

[Install]
WantedBy=default.target
`
	// The store keeps data, and is handed a secret.
	store = `[Container]
Image=127.0.0.1:5000/app:store-v1
PublishPort=127.0.0.1:8081:8080
Volume=store.volume:/data
Secret=store-key
Network=store.network

[Service]
Restart=always
RestartSec=1
TimeoutStopSec=3

[Install]
WantedBy=default.target
`
)

// applications are brought up by their operator and enrolled from their Quadlets alone.
func (b *bed) applications(t *testing.T) {
	t.Helper()
	b.Push(t, "store-v1", "data1", "v1")
	b.Push(t, "store-v2", "data1", "v2")
	b.Push(t, "store-bad", "data-kept", "v3")
	b.sh(t, "echo s3cr3t | podman secret create store-key - >/dev/null")
	quadlets := ".config/containers/systemd/"
	b.write(t, quadlets+"web.container", web)
	b.write(t, quadlets+"store.container", store)
	b.write(t, quadlets+"store.volume", "[Volume]\n")
	b.write(t, quadlets+"store.network", "[Network]\n")
	b.sh(t, "systemctl --user daemon-reload && systemctl --user start --no-block web.service store.service")
	b.serves(t, webPort, "v1")
	b.serves(t, storePort, "v1")
	b.toad(t, 0, "enroll", "web.container", "--write")
	b.toad(t, 0, "enroll", "store.container", "--write")
	b.toad(t, 0, "doctor")
}
