//go:build e2e

package install

import (
	"os"
	"strings"
	"testing"
)

// The application that moves in belongs to the host's user toad; it moves to the user apps, whose toad it is.
func TestAWorkloadOfAnotherUserMovesIn(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.movesIn(t, "toad", "~/.config/containers/systemd/", "--user", func(script string) string { return b.MustUser(t, "bash", "-c", script) })
	b.another(t)

	b.Reboot(t)
	b.serves(t, storePort, "v2")
	b.kept(t)
	b.serves(t, 8082, "v2")
	b.step(t, "all is there after a reboot\n%s", b.toad(t, 0, "status"))
}

func TestAWorkloadOfRootMovesIn(t *testing.T) {
	if os.Getenv("TOAD_ALL") == "" {
		t.Log("the short form is TestAWorkloadOfAnotherUserMovesIn")
		return
	}
	t.Parallel()
	b := newBed(t)
	b.movesIn(t, "root", "/etc/containers/systemd/", "--system", func(script string) string { return b.MustExec(t, "bash", "-c", script) })
	b.Reboot(t)
	b.serves(t, storePort, "v2")
	b.kept(t)
}

// movesIn moves the application store from a user to apps, as docs/enrolling.md says, and goes on there. does runs a script
// as that user.
func (b *bed) movesIn(t *testing.T, from, there, manager string, does func(script string) string) {
	t.Helper()
	b.mustInstall(t, "make the user apps", "--user", user)
	b.Push(t, "store-v1", "data1", "v1")
	b.Push(t, "store-v2", "data1", "v2")
	b.Push(t, "store-bad", "data-kept", "v3")

	// Where it was.
	does("printf s3cr3t | podman secret create store-key - >/dev/null")
	b.WriteFile(t, there+"store.container", store, 0o644)
	b.WriteFile(t, there+"store.volume", "[Volume]\n", 0o644)
	b.WriteFile(t, there+"store.network", "[Network]\n", 0o644)
	does("systemctl " + manager + " daemon-reload && systemctl " + manager + " start --no-block store.service")
	b.serves(t, storePort, "v1")
	history := `d=$(podman volume inspect systemd-store --format '{{.Mountpoint}}'); echo since 2019 > $d/history; chown 7:8 $d/history`
	if from != "root" {
		history = "podman unshare sh -c '" + strings.ReplaceAll(history, "'", `'\''`) + "'"
	}
	does(history)

	b.MustExec(t, "env", "TOAD_AS=/usr/local/lib/toad/toad-as", "FROM="+from, "TO="+user, "bash", "-euo", "pipefail", "-c", fenced(t, "sh"))
	b.serves(t, storePort, "v1")
	b.kept(t)
	if left := does("podman ps -q; find " + strings.Replace(there, "~", "$HOME", 1) + " -type f"); left != "" {
		t.Errorf("left where it was: %s", left)
	}
	b.toad(t, 0, "doctor")
	b.toad(t, 0, "deploy", "store", b.Digest(t, "store-v2"))
	b.kept(t)
	b.toad(t, 3, "deploy", "store", b.Digest(t, "store-bad"))
	b.serves(t, storePort, "v2")
	b.kept(t)
}

// another enrolls an application with data and a sidecar that reads it.
func (b *bed) another(t *testing.T) {
	t.Helper()
	b.write(t, ".config/containers/systemd/shop.volume", "[Volume]\n")
	b.write(t, ".config/containers/systemd/shop.container", `[Container]
Image=127.0.0.1:5000/app:store-v1
PublishPort=127.0.0.1:8082:8080
Volume=shop.volume:/data
HealthCmd=["/app","health"]
HealthInterval=1s
[Service]
Restart=always
TimeoutStopSec=3
[Install]
WantedBy=default.target
`)
	b.write(t, ".config/containers/systemd/shop-side.container", `[Unit]
BindsTo=shop.service
After=shop.service
[Container]
Image=127.0.0.1:5000/app:silent
Volume=shop.volume:/data:ro
[Service]
Restart=always
TimeoutStopSec=3
[Install]
WantedBy=default.target
`)
	b.sh(t, "systemctl --user daemon-reload && systemctl --user start --no-block shop.service shop-side.service")
	b.serves(t, 8082, "v1")
	b.toad(t, 0, "enroll", "shop.container", "--write")
	b.toad(t, 0, "deploy", "shop", b.Digest(t, "store-v2"))
	b.toad(t, 3, "deploy", "shop", b.Digest(t, "store-bad"))
	b.serves(t, 8082, "v2")
	if side := b.sh(t, "systemctl --user show -P ActiveState shop-side.service"); side != "active" {
		t.Errorf("the sidecar is %s", side)
	}
}

// kept asserts that the data is there with its owner, and that the running container is handed the secret.
func (b *bed) kept(t *testing.T) {
	t.Helper()
	if have := b.sh(t, "podman unshare sh -c 'cd $(podman volume inspect systemd-store --format {{.Mountpoint}}) && cat history format && stat -c %u:%g history'"); have != "since 2019\n1\n7:8" {
		t.Errorf("the data is %q", have)
	}
	pid := b.sh(t, "podman inspect systemd-store --format {{.State.Pid}}")
	if have := b.MustExec(t, "cat", "/proc/"+pid+"/root/run/secrets/store-key"); have != "s3cr3t" {
		t.Errorf("the secret is %q", have)
	}
}

// fenced returns the one block of docs/enrolling.md in a language: what is tested is what is told.
func fenced(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/enrolling.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "\n```"+language+"\n")
	block, _, end := strings.Cut(block, "\n```\n")
	if !ok || !end || strings.Contains(string(text), "\n```"+language+"\n"+block+"\n```"+language) {
		t.Fatalf("docs/enrolling.md has no block of %s", language)
	}
	return block
}
