//go:build e2e

package host

import (
	"strings"
	"testing"
	"time"
)

const web = `[Container]
Image=127.0.0.1:5000/app:v1
PublishPort=127.0.0.1:8080:8080

[Service]
Restart=always
RestartSec=1

[Install]
WantedBy=default.target
`

func TestAQuadletComesBackAfterARebootAndAPowerCut(t *testing.T) {
	t.Parallel()
	h := Up(t, Options{NoToad: true})
	h.WriteFile(t, "~/.config/containers/systemd/web.container", web, 0o644)
	h.MustUser(t, "systemctl", "--user", "daemon-reload")
	h.MustUser(t, "systemctl", "--user", "start", "--no-block", "web.service")
	serves(t, h, "v1")
	if have, want := h.MustUser(t, "podman", "image", "inspect", "-f", "{{.Id}}", Repository+":v1"), h.Image(t, "v1").ID; "sha256:"+have != want {
		t.Errorf("image id: want %s, have %s", want, have)
	}

	before := boot(t, h)
	h.Reboot(t)
	serves(t, h, "v1")
	after := boot(t, h)
	if before == after {
		t.Error("a reboot kept the boot id")
	}
	h.Crash(t)
	serves(t, h, "v1")
	if boot(t, h) == after {
		t.Error("a power cut kept the boot id")
	}
	if log := h.Journal(t, "web.service"); !strings.Contains(log, "sample v1 (good) starts") {
		t.Errorf("journal of web.service: %s", log)
	}
}

func TestCommandsGiveTheirStatusAndOutput(t *testing.T) {
	t.Parallel()
	h := Up(t, Options{NoToad: true, NoRegistry: true})
	r := h.User(t, "sh", "-c", "id -un; echo no >&2; exit 7")
	if want := (Result{"toad\n", "no\n", 7}); r != want {
		t.Errorf("want %+v, have %+v", want, r)
	}
	if r := h.Exec(t, "sh", "-c", "kill -9 $$"); r.Exit != 137 {
		t.Errorf("killed: want exit 137, have %d", r.Exit)
	}
	h.WriteFile(t, "~/a/b/c", "text", 0o600)
	if have, want := h.MustUser(t, "stat", "-c", "%U %a %n", "a/b", "a/b/c"), "toad 755 a/b\ntoad 600 a/b/c"; have != want {
		t.Errorf("want %q, have %q", want, have)
	}
	h.Off(t)
	h.Boot(t)
	if have := h.ReadFile(t, "~/a/b/c"); have != "text" {
		t.Errorf("after a power cut: %q", have)
	}
}

func TestAnImageCanBeMadeOnTheWay(t *testing.T) {
	t.Parallel()
	h := Up(t, Options{NoToad: true})
	img := h.Push(t, "extra", "crash", "17")
	if img.Digest == h.Digest(t, "crash") {
		t.Error("another version has the same digest")
	}
	h.MustExec(t, "systemctl", "restart", "registry.service")
	h.MustUser(t, "podman", "pull", "-q", Repository+"@"+img.Digest)
	h.RegistryArgs(t, "--auth=user:secret")
	if r := h.User(t, "podman", "pull", "-q", Repository+":v2"); r.Exit == 0 {
		t.Error("pulled without credentials")
	}
	h.MustUser(t, "podman", "pull", "-q", "--creds=user:secret", Repository+":v2")
}

func BenchmarkUser(b *testing.B) {
	h := Up(b, Options{NoToad: true, NoRegistry: true})
	for b.Loop() {
		h.MustUser(b, "true")
	}
}

func serves(t *testing.T, h *Host, version string) {
	t.Helper()
	Eventually(t, "web answers as "+version, time.Minute, func() bool {
		status, body := h.Get("http://127.0.0.1:8080/healthz")
		return status == 200 && strings.Contains(body, "version "+version)
	})
}

func boot(t *testing.T, h *Host) string {
	t.Helper()
	return h.ReadFile(t, "/proc/sys/kernel/random/boot_id")
}

func TestTheProxyBreaksAnswersUntilToldToStop(t *testing.T) {
	t.Parallel()
	h := Up(t, Options{NoToad: true})
	for _, kind := range []string{"cut", "status"} {
		h.Fault(t, kind, "/blobs/", 0, "503")
		if r := h.User(t, "podman", "pull", "--retry=0", "-q", Proxied+":v3"); r.Exit == 0 {
			t.Errorf("%s: the pull came through", kind)
		}
	}
	h.Fault(t, "", "", 0, "")
	h.MustUser(t, "podman", "pull", "-q", Proxied+":v3")
}
