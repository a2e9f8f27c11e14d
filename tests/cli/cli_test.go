//go:build e2e

// Package cli reads what toad says: every command, its errors and its exit status on a real host, as transcripts that a
// person can read, and what a terminal shows.
package cli

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"toad/tests/host"
)

var update = flag.Bool("update", false, "write what the commands print into the scripts")

// service is one of a bed's: a Quadlet of its own on a port of its own.
type service struct {
	name   string
	port   int
	stable string // 1s
}

// bed is a host with services that run v1 and are enrolled.
func bed(t *testing.T, services ...service) *host.Host {
	t.Helper()
	h := host.Up(t, host.Options{})
	enrollment := ""
	for _, s := range services {
		h.WriteFile(t, "~/.config/containers/systemd/"+s.name+".container", quadletOf(s), 0o644)
		enrollment += fmt.Sprintf(`[service.%s]
units = ["%s.container"]
image = "%s"
[service.%s.ready]
http = "http://127.0.0.1:%d/healthz"
interval = "200ms"
timeout = "1s"
[service.%s.probation]
deadline = "1m"
stable = "%s"

`, s.name, s.name, host.Repository, s.name, s.port, s.name, cmp.Or(s.stable, "1s"))
	}
	h.WriteFile(t, "~/.config/toad/enrollment.toml", enrollment, 0o644)
	h.MustUser(t, "systemctl", "--user", "daemon-reload")
	for _, s := range services {
		h.MustUser(t, "systemctl", "--user", "start", "--no-block", s.name+".service")
	}
	for _, s := range services {
		serves(t, h, s.port, "v1")
	}
	h.MustUser(t, "toad", "setup")
	return h
}

func quadletOf(s service) string {
	return fmt.Sprintf("[Container]\nImage=%s:v1\nPublishPort=127.0.0.1:%d:8080\n[Service]\nRestart=always\nRestartSec=1\nTimeoutStopSec=3\n",
		host.Repository, s.port)
}

func serves(t *testing.T, h *host.Host, port int, version string) {
	t.Helper()
	host.Eventually(t, fmt.Sprintf("port %d to serve %s", port, version), 3*time.Minute, func() bool {
		status, body := h.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
		return status == 200 && strings.Contains(body, version)
	})
}

// tags are those of which the transcripts speak.
var tags = []string{"v1", "v2", "v3", "v4", "crash", "never", "slow5", "other"}

// transcripts runs the scripts on a host, one after the other.
func transcripts(t *testing.T, h *host.Host, files ...string) {
	t.Helper()
	p := player{h: h, tags: tags}
	for _, f := range files {
		testscript.RunT(inTurn{t}, testscript.Params{Files: []string{"testdata/" + f + ".txtar"}, UpdateScripts: *update, RequireUniqueNames: true,
			Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"toad": p.toad, "exits": p.exits, "user": p.user, "root": p.root, "phase": p.phase,
			}})
	}
}

// inTurn runs scripts one after the other: the next one goes on from what the last one left.
type inTurn struct{ *testing.T }

func (t inTurn) Parallel()     {}
func (t inTurn) Verbose() bool { return testing.Verbose() }
func (t inTurn) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { f(inTurn{t}) })
}

// player gives a script its commands.
type player struct {
	h    *host.Host
	tags []string
}

// tb lets the host's helpers end a script.
type tb struct {
	testing.TB
	ts *testscript.TestScript
}

func (t tb) Helper()                           {}
func (t tb) Fatalf(format string, args ...any) { t.ts.Fatalf(format, args...) }
func (t tb) Fatal(args ...any)                 { t.ts.Fatalf("%s", fmt.Sprint(args...)) }

// run runs a command on the host and leaves its output to cmp, stdout and stderr.
func (p player) run(ts *testscript.TestScript, want func(int) bool, argv ...string) {
	for i, a := range argv {
		for _, tag := range p.tags {
			a = strings.ReplaceAll(a, "@"+tag+"@", p.h.Digest(tb{ts: ts}, tag))
		}
		argv[i] = a
	}
	r := p.h.User(tb{ts: ts}, argv...)
	fmt.Fprint(ts.Stdout(), p.plain(ts, r.Stdout))
	fmt.Fprint(ts.Stderr(), p.plain(ts, r.Stderr))
	if !want(r.Exit) {
		ts.Fatalf("exit %d", r.Exit)
	}
}

// toad ARGS… is the command, which has to succeed, or with ! has to fail.
func (p player) toad(ts *testscript.TestScript, neg bool, args []string) {
	p.run(ts, func(exit int) bool { return (exit != 0) == neg }, append([]string{"toad"}, args...)...)
}

// exits N CMD… has to end with that exit status.
func (p player) exits(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if err != nil || neg {
		ts.Fatalf("usage: exits N CMD…")
	}
	p.run(ts, func(exit int) bool { return exit == want }, args[1:]...)
}

// user SCRIPT is a shell's as the user of toad.
func (p player) user(ts *testscript.TestScript, neg bool, args []string) {
	p.run(ts, func(exit int) bool { return (exit != 0) == neg }, "sh", "-c", strings.Join(args, " "))
}

// root SCRIPT is a shell's as root.
func (p player) root(ts *testscript.TestScript, neg bool, args []string) {
	r := p.h.Exec(tb{ts: ts}, "sh", "-c", strings.Join(args, " "))
	fmt.Fprint(ts.Stdout(), p.plain(ts, r.Stdout))
	fmt.Fprint(ts.Stderr(), p.plain(ts, r.Stderr))
	if (r.Exit != 0) != neg {
		ts.Fatalf("exit %d", r.Exit)
	}
}

// phase SERVICE PHASE… waits for one of the phases, by the record on disk.
func (p player) phase(ts *testscript.TestScript, _ bool, args []string) {
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var record struct{ Operation struct{ Phase string } }
		r := p.h.User(tb{ts: ts}, "cat", ".local/state/toad/services/"+args[0]+".json")
		_ = json.Unmarshal([]byte(r.Stdout), &record)
		phase := record.Operation.Phase
		if slices.Contains(args[1:], phase) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("%s is in %q", args[0], phase)
		}
	}
}

var plainer = []struct {
	from *regexp.Regexp
	to   string
}{
	{regexp.MustCompile(`(?m)^ +\+\d[\dhmsd.]* ( |!|E) unready .*\n`), ""},
	{regexp.MustCompile(`(?m)^ +\+\d[\dhmsd.]* ( |!|E) pull +(Copying|Writing|Getting|Trying|[0-9a-f]{64}).*\n`), ""},
	{regexp.MustCompile(`(?m)^  pull +(Copying|Writing|Getting|Trying|[0-9a-f]{64}).*\n`), ""},
	{regexp.MustCompile(`(?m)^ +\+\d[\dhmsd.]* `), "  +T "},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?( UTC|Z)`), "DATE"},
	{regexp.MustCompile(`\d\d:\d\d:\d\d UTC`), "CLOCK"},
	{regexp.MustCompile(`\b\d[\dhmsd.]*[hmsd]( ago| left|ms)`), "T$1"},
	{regexp.MustCompile(`(for|in|after|last|since) \d[\d.]*(ms|s)\b`), "$1 T"},
	{regexp.MustCompile(`\d+(\.\d+)? [KMG]iB`), "SIZE"},
	{regexp.MustCompile(`(?m) +$`), ""},
}

// plain makes what is another thing each time the same: digests by their tags, times, sizes; and leaves out what a busy
// machine sees more or less of. Columns close up.
func (p player) plain(ts *testscript.TestScript, text string) string {
	for _, tag := range p.tags {
		digest := p.h.Digest(tb{ts: ts}, tag)
		text = strings.ReplaceAll(text, digest, "sha256:<"+tag+">")
		text = strings.ReplaceAll(text, digest[len("sha256:"):][:12], "<"+tag+">")
	}
	for _, r := range plainer {
		text = r.from.ReplaceAllString(text, r.to)
	}
	var lines []string
	for line := range strings.Lines(text) {
		if len(lines) == 0 || lines[len(lines)-1] != line { // it was ready, lost it and was again
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(m.Run())
}

func TestWhatDeployingSays(t *testing.T) {
	t.Parallel()
	h := bed(t, service{name: "web", port: 8080}, service{name: "shop", port: 8081}, service{name: "api", port: 8082})
	wrapper, err := os.ReadFile("../../scripts/toad-as")
	if err != nil {
		t.Fatal(err)
	}
	h.WriteFile(t, "/usr/local/bin/toad-as", string(wrapper), 0o755)
	transcripts(t, h, "deploy", "fail", "more", "admin")
}
