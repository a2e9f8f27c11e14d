//go:build e2e

package rehearsal

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	ready  = `http = "http://127.0.0.1:8080/healthz"`
	limits = "deadline = \"90s\"\nstable = \"1s\""
	policy = "/etc/toad/proof-policy.toml"
)

// stand is a host of the rehearsal, with the service web of either kind.
type stand struct {
	*scene.Web
	binary     bool
	repository string
	registry   *scene.Web        // whose registry both share
	pushed     map[string]string // of a binary service, by program
}

// pair are two hosts that share the registry of the first.
func pair(t *testing.T, binary bool) (dev, prod stand) {
	t.Helper()
	// What has failed is put back before systemd would start it again: how often it ran can be counted.
	slowly := func(unit string) string { return strings.Replace(unit, "RestartSec=1\n", "RestartSec=15\n", 1) }
	up := func() stand {
		if binary {
			return stand{Web: scene.NewBinary(t, scene.Binary{Pulled: true, Unit: slowly(scene.PlainUnit), Ready: ready, Limits: limits}),
				binary: true, repository: scene.Artifacts}
		}
		return stand{Web: scene.New(t, scene.Options{Quadlet: slowly(scene.Quadlet), Ready: ready, Limits: limits}), repository: host.Repository}
	}
	dev, prod = up(), up()
	share(t, dev.Host, prod.Host)
	dev.registry, prod.registry = dev.Web, dev.Web
	dev.pushed = map[string]string{}
	prod.pushed = dev.pushed
	return dev, prod
}

// share puts one host's registry in the place of another's.
func share(t *testing.T, from, to *host.Host) {
	t.Helper()
	to.MustExec(t, "systemctl", "stop", "registry.service", "registry-proxy.service")
	l := to.Listen(t, "127.0.0.1:5000")
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go relay(t, from, c)
		}
	}()
}

func relay(t *testing.T, from *host.Host, c net.Conn) {
	defer c.Close()
	up, err := from.Dial(t.Context(), "tcp", "127.0.0.1:5000")
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		_, _ = io.Copy(up, c)
		_ = up.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(c, up)
}

// digest of a release by its name: of a container the sample image of that tag, of a binary service the artifact of that
// program, which is pushed when it is first asked for.
func (s stand) digest(t *testing.T, name string) string {
	t.Helper()
	if !s.binary {
		return s.registry.Digest(t, name)
	}
	if s.pushed[name] == "" {
		s.pushed[name] = s.registry.PushFile(t, name, "")
	}
	return s.pushed[name]
}

// deploy deploys a release to its end, and wants this exit status.
func (s stand) deploy(t *testing.T, exit int, name string, flags ...string) host.Result {
	t.Helper()
	return s.deployAs(t, exit, s.digest(t, name), flags...)
}

func (s stand) deployAs(t *testing.T, exit int, what string, flags ...string) host.Result {
	t.Helper()
	r := s.User(t, append([]string{"toad", "deploy", "web", what}, flags...)...)
	if r.Exit != exit {
		t.Fatalf("toad deploy web %s %v: want exit %d, have %d\n%s%s\n%s", what, flags, exit, r.Exit, r.Stdout, r.Stderr, s.Log(t))
	}
	return r
}

// says asserts that all words are in what a command said.
func says(t *testing.T, r host.Result, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(r.Stdout+r.Stderr, word) {
			t.Errorf("%q is not said:\n%s%s", word, r.Stdout, r.Stderr)
		}
	}
}

// unmoved asserts that what is done restarts nothing.
func (s stand) unmoved(t *testing.T, do func()) {
	t.Helper()
	ran := s.Invocation(t)
	do()
	if now := s.Invocation(t); now != ran {
		t.Errorf("the unit was restarted: %s, then %s", ran, now)
	}
	s.Untouched(t)
}

// asked counts the requests for proofs that the shared registry has answered, whichever host they came from.
func (s stand) asked(t *testing.T) int {
	t.Helper()
	s.registry.MustExec(t, "journalctl", "--sync")
	log := s.registry.MustExec(t, "journalctl", "-u", "registry.service", "-o", "cat", "--no-pager")
	if !strings.Contains(log, "/manifests/") {
		t.Fatalf("the registry does not tell what it is asked for:\n%s", log)
	}
	return strings.Count(log, "/referrers/")
}

// runs counts how often a program of the sample has said this, on all boots.
func (s stand) runs(t *testing.T, words string) int {
	t.Helper()
	s.MustExec(t, "journalctl", "--sync")
	n := 0
	for line := range strings.Lines(s.MustExec(t, "journalctl", "-o", "cat", "--no-pager")) {
		if strings.TrimSpace(line) == words { // toad repeats it in lines of its own
			n++
		}
	}
	return n
}

func (s stand) tick(t *testing.T) {
	t.Helper()
	s.MustUser(t, "systemctl", "--user", "start", "toad-tick.service")
}

// alerted waits until an alert holds this word.
func (s stand) alerted(t *testing.T, word string) {
	t.Helper()
	host.Eventually(t, "an alert that tells of "+word, time.Minute, func() bool {
		return strings.Contains(s.User(t, "sh", "-c", "cat .local/state/toad/alerts/*").Stdout, word)
	})
}
