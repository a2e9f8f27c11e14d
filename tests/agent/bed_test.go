//go:build e2e

package agent

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"toad/agent"
	"toad/agent/protocol"
	"toad/tests/control"
	"toad/tests/host"
	"toad/tests/scene"
)

const env = "env-prod-01"

// net of the boxes: the control plane and OpenBao are on its bridge.
type site struct {
	*control.World
	net          string
	control, bao string
	made         time.Time // of the last bundle
}

var sites atomic.Int32

// newSite makes a world; it is served once there is a box in its net.
func newSite() *site {
	s := &site{World: control.New(), net: fmt.Sprintf("agent%d-%d", os.Getpid(), sites.Add(1)), made: time.Now().Add(-time.Hour).UTC().Truncate(time.Second)}
	s.Set(env, func(e *control.Env) { e.Variables, e.Leases = map[string]string{"REGION": "north"}, 100 })
	return s
}

// serve listens on the bridge of the net, which is in a namespace of its own.
func (s *site) serve(t *testing.T) {
	t.Helper()
	names, err := filepath.Glob("/run/netns/toad-*-" + s.net)
	if err != nil || len(names) != 1 {
		t.Fatalf("the net's namespace: %v, %v", names, err)
	}
	listen := func() net.Listener {
		type result struct {
			net.Listener
			error
		}
		done := make(chan result)
		go func() {
			runtime.LockOSThread() // never unlocked: the thread has moved and ends here
			ns, err := os.Open(names[0])
			if err == nil {
				defer ns.Close()
				err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
			}
			var l net.Listener
			if err == nil {
				l, err = net.Listen("tcp", "10.99.0.1:0")
			}
			done <- result{l, err}
		}()
		r := <-done
		if r.error != nil {
			t.Fatal(r.error)
		}
		return r.Listener
	}
	c, b := listen(), listen()
	t.Cleanup(s.Serve(c, s.Control()))
	t.Cleanup(s.Serve(b, s.Bao()))
	s.control, s.bao = "https://"+c.Addr().String(), "https://"+b.Addr().String()
}

// box is one host of the site.
type box struct {
	*scene.Web
	site *site
	name string
}

// boxes boots so many hosts in the net, and sets toad up on each.
func (s *site) boxes(t *testing.T, n int, faults bool) []*box {
	t.Helper()
	all := make([]*box, n)
	for i := range all { // one after another: each writes the names of all into all
		all[i] = &box{Web: &scene.Web{Host: host.Up(t, host.Options{Net: s.net})}, site: s, name: fmt.Sprintf("box-%d", i+1)}
	}
	s.serve(t)
	each(all, func(b *box) {
		if faults {
			b.Faults(t)
		}
		b.WriteFile(t, "/etc/toad-ca.pem", string(s.CA()), 0o644)
		b.MustUser(t, "toad", "setup")
	})
	return all
}

func each(all []*box, do func(*box)) {
	var wg sync.WaitGroup
	for _, b := range all {
		wg.Go(func() { do(b) })
	}
	wg.Wait()
}

// bootstrap is what an operator does with a grant; the timer is left to those who want it.
func (b *box) bootstrap(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), host.Limit)
	defer cancel()
	cmd := b.UserCommand(ctx, t, "toad", "agent", "bootstrap", "--control", b.site.control, "--bao", b.site.bao, "--env", env, "--box", b.name, "--ca", "/etc/toad-ca.pem")
	cmd.Stdin = strings.NewReader(b.site.Grant(env, b.name))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("bootstrap: %v\n%s", err, &out)
	}
	b.MustUser(t, "systemctl", "--user", "stop", "toad-agent.timer")
	b.settled(t)
}

// settled waits until no tick runs.
func (b *box) settled(t *testing.T) {
	t.Helper()
	host.Eventually(t, "the tick to end", 2*time.Minute, func() bool {
		return !strings.Contains(b.MustUser(t, "sh", "-c", "systemctl --user show -P ActiveState toad-agent.service"), "activating")
	})
}

// tick is one run of the unit, and has to end so.
func (b *box) tick(t *testing.T, want int) {
	t.Helper()
	b.User(t, "systemctl", "--user", "start", "toad-agent.service")
	have := b.MustUser(t, "systemctl", "--user", "show", "-P", "ExecMainStatus", "toad-agent.service")
	b.MustUser(t, "systemctl", "--user", "reset-failed", "toad-agent.service") // that it failed is told; no failed unit is to be left
	if have != fmt.Sprint(want) {
		t.Errorf("%s: the tick ended %s, want %d\n%s\n%s", b.name, have, want, b.Journal(t, "toad-agent.service"), b.Log(t))
	}
}

// unit is a Quadlet of the sample that listens on a port of the host.
func unit(port int, more string) string {
	return fmt.Sprintf("[Unit]\nDescription=sample\n[Container]\nImage=%s\nPublishPort=127.0.0.1:%d:8080\nEnvironment=REGION=${REGION}\n%s[Service]\nRestart=always\nRestartSec=1\nTimeoutStopSec=3\n[Install]\nWantedBy=default.target\n",
		host.Repository, port, more)
}

const (
	secret = "Secret=key\n"
	volume = "Volume=data.volume:/data\n"
)

type part struct {
	name, digest string
	port         int
	more         string
}

// publish makes a bundle with toad's own command and publishes it.
func (s *site) publish(t *testing.T, parts ...part) string {
	t.Helper()
	dir := t.TempDir()
	s.made = s.made.Add(time.Minute)
	var services []string
	for _, p := range parts {
		services = append(services, fmt.Sprintf(`{"name":%q,"units":["%s.container"],"image":%q,"digest":%q,
			"ready":{"http":"http://127.0.0.1:%d/healthz","interval":"200ms","timeout":"1s"},"probation":{"deadline":"20s","stable":"1s"}}`, p.name, p.name, host.Repository, p.digest, p.port))
		write(t, filepath.Join(dir, p.name+".container"), unit(p.port, p.more))
		if strings.Contains(p.more, volume) {
			write(t, filepath.Join(dir, "data.volume"), "[Volume]\n")
		}
	}
	write(t, filepath.Join(dir, agent.ManifestName), fmt.Sprintf(`{"env_id":%q,"created":%q,"services":[%s]}`, env, s.made.Format(time.RFC3339), strings.Join(services, ",")))
	out := filepath.Join(t.TempDir(), "bundle.tar")
	made, err := exec.Command(os.Getenv("TOAD_BIN"), "agent", "bundle", "--out", out, dir).CombinedOutput()
	if err != nil {
		t.Fatalf("toad agent bundle: %v\n%s", err, made)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	sha := strings.TrimSpace(string(made))
	s.Publish(env, sha, data)
	return sha
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// reported is a box's last report.
func (b *box) reported(t *testing.T) protocol.Report {
	t.Helper()
	all := b.site.Reports(env, b.name)
	if len(all) == 0 {
		t.Errorf("%s has reported nothing\n%s", b.name, b.Journal(t, "toad-agent.service"))
		return protocol.Report{}
	}
	return all[len(all)-1].Report
}

// inside is a secret as the application sees it.
func (b *box) inside(t *testing.T) string {
	t.Helper()
	pid := b.MustUser(t, "podman", "inspect", "--format", "{{.State.Pid}}", "systemd-web")
	return b.MustExec(t, "cat", "/proc/"+pid+"/root/run/secrets/key")
}

// noSecret looks for every value, grant and token there ever was wherever it must not be.
func (b *box) noSecret(t *testing.T) {
	t.Helper()
	words := b.site.Secrets()
	b.WriteFile(t, "/root/words", strings.Join(words, "\n")+"\n", 0o600)
	out := b.MustExec(t, "sh", "-c", `
		journalctl --sync
		journalctl -o export --no-pager | grep -aFf /root/words | head -n 3 | sed 's/^/journal: /'
		for f in $(find /home/toad/.local/state/toad /home/toad/.config -type f ! -name bearer ! -path '*/images/*' ! -path '*/libexec/*'); do
			grep -aqFf /root/words "$f" && echo "file: $f"; done
		for p in /proc/[0-9]*; do
			tr '\0' '\n' <$p/cmdline 2>/dev/null | grep -aqFf /root/words && echo "argv: $p"
			tr '\0' '\n' <$p/environ 2>/dev/null | grep -aqFf /root/words && echo "environ: $p $(tr '\0' ' ' <$p/cmdline)"; done
		true`)
	inspected := b.MustUser(t, "sh", "-c", "podman ps -aq | xargs -r podman inspect; podman secret ls -q | xargs -r podman secret inspect; toad status --json; toad agent status --json || true; systemctl --user show '*'")
	for _, w := range words {
		if strings.Contains(inspected, w) {
			out += "\ninspect: a secret"
		}
		for _, r := range b.site.Reports(env, b.name) {
			if strings.Contains(fmt.Sprintf("%+v", r), w) {
				out += "\nreport: a secret"
			}
		}
	}
	if strings.TrimSpace(out) != "" {
		t.Errorf("%s: secrets are in:\n%s", b.name, out)
	}
	mode := b.MustUser(t, "sh", "-c", "stat -c %a .local/state/toad/agent/state.json .local/share/containers/storage/secrets/filedriver/secretsdata.json 2>/dev/null | sort -u")
	if mode != "600" && mode != "" {
		t.Errorf("%s: modes %s", b.name, mode)
	}
}
