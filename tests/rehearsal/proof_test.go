//go:build e2e

package rehearsal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	ready  = `http = "http://127.0.0.1:8080/healthz"`
	limits = "deadline = \"30s\"\nstable = \"1s\""
)

// traffic is what a host said to the registry that it shares with another.
type traffic struct {
	mu   sync.Mutex
	said bytes.Buffer
}

func (s *traffic) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.Write(p)
}

func (s *traffic) asksForProofs() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.said.String(), "/referrers/")
}

// share puts one host's registry in the place of another's.
func share(t *testing.T, from, to *host.Host) *traffic {
	t.Helper()
	to.MustExec(t, "systemctl", "stop", "registry.service", "registry-proxy.service")
	said := &traffic{}
	l := to.Listen(t, "127.0.0.1:5000")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go relay(t, from, c, said)
		}
	}()
	return said
}

func relay(t *testing.T, from *host.Host, c net.Conn, said *traffic) {
	defer c.Close()
	up, err := from.Dial(t.Context(), "tcp", "127.0.0.1:5000")
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		_, _ = io.Copy(up, io.TeeReader(c, said))
		_ = up.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, up)
}

// Two hosts share a registry: what production takes has run well on dev.
func TestProductionTakesOnlyWhatRanWellOnDev(t *testing.T) {
	dev := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	prod := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	said := share(t, dev.Host, prod.Host)

	// Without a policy nothing is asked for.
	prod.MustDeploy(t, 0, "v2")
	if n := said.asksForProofs(); n != 0 {
		t.Errorf("%d requests for proofs without a policy", n)
	}

	key := dev.MustUser(t, "toad", "proof", "keygen", ".config/toad/proof.key")
	if mode := dev.MustUser(t, "stat", "-c", "%a", ".config/toad/proof.key"); mode != "600" {
		t.Errorf("the private key has mode %s", mode)
	}
	if r := dev.User(t, "toad", "proof", "keygen", ".config/toad/proof.key"); r.Exit != 1 {
		t.Errorf("a key was replaced: exit %d", r.Exit)
	}
	dev.WriteFile(t, "~/.config/toad/proof-policy.toml", "[prove]\nprover = \"dev\"\nkey = \"proof.key\"\nafter = \"6s\"\ncarry = \"registry\"\n", 0o600)
	require := fmt.Sprintf("[[require]]\nservices = [\"web\"]\nprover = \"dev\"\nkey = %q\ncarry = \"registry\"\n", key)
	prod.WriteFile(t, "/etc/toad/proof-policy.toml", require, 0o644)

	// What never ran anywhere else is not taken, and nothing is touched.
	ran := prod.Invocation(t)
	r := prod.MustDeploy(t, 5, "v3")
	if !strings.Contains(r.Stderr, "not proven by dev yet") {
		t.Errorf("it is not said what is missing: %s", r.Stderr)
	}
	if now := prod.Invocation(t); now != ran {
		t.Error("the unit was restarted")
	}
	prod.Untouched(t)

	// A deployment that waits goes on when the proof is there.
	prod.MustUser(t, "toad", "deploy", "web", prod.Digest(t, "v3"), "--wait-proof", "5m", "--detach")
	host.Eventually(t, "status to say what is waited for", 30*time.Second, func() bool {
		s := prod.Status(t)
		return s.Operation != nil && s.Phase() == "preparing" && strings.Contains(s.Operation.Reason, "waiting for a proof")
	})
	dev.MustDeploy(t, 0, "v3")
	if r := dev.User(t, "toad", "proof", "get", "web", dev.Digest(t, "v3")); r.Exit == 5 && !strings.Contains(r.Stderr, "not proven yet: on dev since") {
		t.Errorf("it is not said since when it runs: %s", r.Stderr)
	}
	if phase := prod.WaitPhase(t, "promoted", "failed", "rolled_back"); phase != "promoted" {
		t.Fatalf("production ended %s\n%s", phase, prod.Log(t))
	}
	prod.MustServe(t, "v3")
	envelope := dev.MustUser(t, "toad", "proof", "get", "web", dev.Digest(t, "v3"))
	if n := said.asksForProofs(); n == 0 {
		t.Error("the registry was not asked")
	}

	// What was tampered with, or is about another service, is not taken.
	for what, text := range map[string]string{
		"changed since the key":        forged(t, envelope, `"restarts":0`, `"restarts":9`),
		"it is about the service shop": forged(t, envelope, `"service":"web"`, `"service":"shop"`),
		"is not a proof":               "{}",
	} {
		prod.WriteFile(t, "~/forged", text, 0o600)
		if r := prod.User(t, "toad", "proof", "put", "web", "forged"); r.Exit != 64 || !strings.Contains(r.Stderr, what) {
			t.Errorf("%s: exit %d, %s", what, r.Exit, r.Stderr)
		}
	}
	prod.WriteFile(t, "~/good", envelope, 0o600)
	prod.MustUser(t, "toad", "proof", "put", "web", "good") // it may be carried by hand as well
	if show := prod.MustUser(t, "toad", "proof", "show", "good"); !strings.Contains(show, prod.Digest(t, "v3")) || !strings.Contains(show, "on dev") {
		t.Errorf("show: %s", show)
	}

	roll(t, dev, prod, "v5")
	brokenPolicy(t, prod, require)
}

// roll runs the script of the recipe, with the way into a test host in the place of ssh.
func roll(t *testing.T, dev, prod *scene.Web, tag string) {
	t.Helper()
	cmd := exec.Command("../../scripts/roll", "--wait", "5m", "web", dev.Digest(t, tag), dev.Name, prod.Name)
	cmd.Env = append(os.Environ(), "TOAD_SSH=../../scripts/testhost user")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, s := range []string{"not proven yet: on dev since", "== " + prod.Name} {
		if !strings.Contains(string(out), s) {
			t.Errorf("%q is not said:\n%s", s, out)
		}
	}
	prod.MustServe(t, tag)
}

// brokenPolicy closes the gate for new releases, and for nothing else.
func brokenPolicy(t *testing.T, prod *scene.Web, require string) {
	t.Helper()
	// While a release that was proven is on trial: it goes on.
	prod.Enroll(t, ready, "deadline = \"60s\"\nstable = \"5s\"")
	prod.MustUser(t, "toad", "rollback", "web") // no proof is asked of a way back
	prod.MustServe(t, "v3")
	prod.MustUser(t, "toad", "deploy", "web", prod.Digest(t, "v5"), "--detach")
	prod.WaitPhase(t, "probation", "promoting", "promoted")
	prod.WriteFile(t, "/etc/toad/proof-policy.toml", "[[require]\n", 0o644)
	if phase := prod.WaitPhase(t, "promoted", "failed", "rolled_back"); phase != "promoted" {
		t.Fatalf("a policy that broke during the probation ended it %s\n%s", phase, prod.Log(t))
	}
	r := prod.MustDeploy(t, 5, "v4")
	if !strings.Contains(r.Stderr, "the proof policy cannot be read") {
		t.Errorf("it is not said what keeps it: %s", r.Stderr)
	}
	prod.MustUser(t, "toad", "rollback", "web")
	prod.MustServe(t, "v3")
	// Without the requirement it is taken, and the tick says every hour that it was taken away.
	prod.MustExec(t, "rm", "/etc/toad/proof-policy.toml")
	prod.MustUser(t, "systemctl", "--user", "start", "toad-tick.service")
	prod.WriteFile(t, "/etc/toad/proof-policy.toml", require, 0o644)
	prod.MustUser(t, "systemctl", "--user", "start", "toad-tick.service")
	prod.MustExec(t, "rm", "/etc/toad/proof-policy.toml")
	prod.MustUser(t, "systemctl", "--user", "start", "toad-tick.service")
	// Of a line whose process has ended journald may not know the unit any more.
	if j := prod.MustExec(t, "journalctl", "-o", "cat", "--no-pager"); strings.Count(j, "no proof is required any more of web") != 1 {
		t.Error("the tick does not tell of a requirement that was taken away")
	}
	prod.MustDeploy(t, 0, "v4")
	prod.Quiet(t)
}

// forged is an envelope with something else in it.
func forged(t *testing.T, envelope, old, new string) string {
	t.Helper()
	var e map[string]any
	if err := json.Unmarshal([]byte(envelope), &e); err != nil {
		t.Fatal(err)
	}
	payload, err := base64.StdEncoding.DecodeString(e["payload"].(string))
	if err != nil || !bytes.Contains(payload, []byte(old)) {
		t.Fatalf("%q is not in %s", old, payload)
	}
	e["payload"] = base64.StdEncoding.EncodeToString(bytes.Replace(payload, []byte(old), []byte(new), 1))
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
