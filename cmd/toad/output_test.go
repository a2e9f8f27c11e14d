package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/httpd/api"
	"toad/probation"
)

func TestTheLastLineIsAliveAndLeavesNothingBehind(t *testing.T) {
	t.Setenv("LC_ALL", "C.UTF-8")
	var out bytes.Buffer
	now := noon
	p := &progress{g: &globals{Stdout: &out, now: func() time.Time { return now }, columns: 80, plain: true}, columns: 80, op: candidateOp("preparing", "", "")}
	shows := func(want string) {
		t.Helper()
		if have := out.String(); have != want {
			t.Errorf("want %q, have %q", want, have)
		}
		out.Reset()
	}
	p.draw()
	shows("     20s   preparing")
	_ = p.take(api.Event{Line: &api.Line{At: noon, Level: "info", Event: "pull", Message: "pulling r/w@" + one}})
	shows("\r\x1b[K    +20s   pull        pulling r/w@sha256:111111111111…\n     20s   preparing   pulling r/w@sha256:111111111111…")
	_ = p.take(api.Event{Line: &api.Line{At: noon, Level: "info", Event: "pull", Message: "Copying blob " + two}})
	shows("\r\x1b[K     20s   preparing   Copying blob sha256:222222222222…") // it passes by
	op := candidateOp("probation", "", "")
	_ = p.take(api.Event{Line: &api.Line{At: noon, Level: "info", Event: "probation", Message: "on probation"}})
	_ = p.take(api.Event{Operation: &op})
	out.Reset()
	p.draw()
	shows("\r\x1b[K     20s   probation   not ready, 4m48s left")
	_ = p.take(api.Event{Line: &api.Line{At: noon, Level: "info", Event: "unready", Message: "not ready: it answers 503"}})
	shows("\r\x1b[K    +20s   unready     not ready: it answers 503\n     20s   probation   not ready: it answers 503, 4m48s left")
	now = noon.Add(3 * time.Second)
	_ = p.take(api.Event{Line: &api.Line{At: noon, Level: "info", Event: "ready", Message: "ready: it answers 200"}})
	shows("\r\x1b[K    +20s   ready       ready: it answers 200\n     23s   probation   ━━━━━━┄┄┄┄┄┄┄┄┄┄┄┄┄┄  ready 3.0s of 10s, 4m45s left")
	t.Setenv("LC_ALL", "C")
	p.draw()
	shows("\r\x1b[K     23s   probation   ######..............  ready 3.0s of 10s, 4m45s left")
	p.g.columns = 30
	p.draw()
	shows("\r\x1b[K     23s   probation   ready…")
	op = candidateOp("promoted", "", "")
	_ = p.take(api.Event{Operation: &op, End: true})
	shows("\r\x1b[K")
}

func TestTextStandsInItsColumn(t *testing.T) {
	for _, c := range []struct {
		text            string
		indent, columns int
		want            string
	}{
		{"one two three four five six", 4, 26, "one two three four\n    five six"},
		{"one two", 4, 0, "one two"},
		{strings.Repeat("x", 40) + " two", 4, 26, strings.Repeat("x", 40) + "\n    two"},
	} {
		if have := wrap(c.text, c.indent, c.columns); have != c.want {
			t.Errorf("want %q, have %q", c.want, have)
		}
	}
}

func TestNothingHiddenReachesTheTerminal(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"plain – ünïcode ✓", "plain – ünïcode ✓"},
		{"a\nb\tc", "a b c"},
		{"\x1b[2J", `\u001b[2J`},
		{"\u202egnp.exe", `\u202egnp.exe`},
		{"bell\a null\x00 del\x7f csi\u009b", `bell\u0007 null\u0000 del\u007f csi\u009b`},
	} {
		if have := clean(c.text); have != c.want {
			t.Errorf("want %q, have %q", c.want, have)
		}
	}
}

func TestSpansOfTime(t *testing.T) {
	for _, c := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Second, "0.0s"}, {0, "0.0s"}, {3210 * time.Millisecond, "3.2s"}, {9999 * time.Millisecond, "9.9s"}, {10 * time.Second, "10s"},
		{59*time.Second + 900*time.Millisecond, "59s"}, {288 * time.Second, "4m48s"}, {65 * time.Minute, "1h05m"}, {76 * time.Hour, "3d4h"}, {8000 * time.Hour, "333d"},
	} {
		if have := span(c.d); have != c.want {
			t.Errorf("%v: want %s, have %s", c.d, c.want, have)
		}
	}
}

func TestStatusFitsATerminal(t *testing.T) {
	long := ended("rollback_failed", "rollback_failed", strings.Repeat("long ", 40))
	long.Service, long.Live = "a-service-with-a-name-as-long-as-a-name-may-be-which-is-sixty", &api.Live{}
	damaged := api.Service{Service: "db", Damaged: strings.Repeat("torn ", 40)}
	f := &fakeToad{services: map[string]api.Service{"web": ended("probation", "", ""), "db": damaged, long.Service: long}}
	c, err := api.New(f.start(t), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, columns := range []int{80, 200} {
		for _, show := range []func(*globals) error{
			func(g *globals) error { return g.statusOfAll(t.Context(), c) },
			func(g *globals) error { return g.statusOf(t.Context(), c, long.Service) },
		} {
			var out bytes.Buffer
			if err := show(&globals{Stdout: &out, columns: columns, plain: true, now: func() time.Time { return noon }}); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(out.String()) {
				if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > columns {
					t.Errorf("%d columns in a terminal of %d: %s", n, columns, line)
				}
			}
			t.Logf("%d columns:\n%s", columns, &out)
		}
	}
	if want, have := "abc…", fit("abcdef", 4); want != have {
		t.Errorf("want %q, have %q", want, have)
	}
}

func TestDigestsOfAListingAreToldApart(t *testing.T) {
	near := ended("probation", "", "")
	near.Operation.Digest = one[:len(one)-45] + strings.Repeat("3", 45)
	if have := telling([]api.Service{running(), near}); have != 20 {
		t.Errorf("want 20 digits, have %d", have)
	}
	if have := telling([]api.Service{running(), running()}); have != 12 {
		t.Errorf("want 12 digits, have %d", have)
	}
}

func TestExitCodes(t *testing.T) {
	for _, c := range []struct {
		phase probation.Phase
		code  probation.Code
		want  int
	}{
		{probation.Promoted, "", 0},
		{probation.Failed, probation.CodePullFailed, 1},
		{probation.Failed, probation.CodePullUnavailable, 75},
		{probation.Failed, probation.CodeDigestRefused, 5},
		{probation.Failed, "program_mismatch", 5},
		{probation.RolledBack, probation.CodeDeadline, 3},
		{probation.Withdrawn, probation.CodeStopped, 3},
		{probation.RollbackFailed, probation.CodeRollbackFailed, 4},
	} {
		if have := exitOf(c.phase, c.code); have != c.want {
			t.Errorf("%s %s: want %d, have %d", c.phase, c.code, c.want, have)
		}
	}
	for _, p := range probation.Phases {
		if !p.Terminal() && exitOf(p, "") != exitAgain {
			t.Errorf("%s: what is not decided must not look decided", p)
		}
		if p != probation.Promoted && exitOf(p, "") == 0 {
			t.Errorf("%s: only a promotion is 0", p)
		}
	}
	for _, c := range []struct {
		err  error
		want int
	}{
		{nil, 0}, {errors.New("x"), 1}, {usagef("x"), 64}, {configError{errors.New("x")}, 78},
		{fmt.Errorf("wrapped: %w", hint(configError{errors.New("x")}, "y")), 78},
		{problem(409, "generation_mismatch", ""), 5}, {problem(409, "operation_active", ""), 5}, {problem(422, "idempotency_mismatch", ""), 5},
		{problem(422, "invalid_request", ""), 64}, {problem(401, "unauthorized", ""), 77}, {problem(503, "state_unavailable", ""), 75},
		{problem(404, "unknown_service", ""), 78}, {problem(502, "", ""), 75}, {problem(429, "", ""), 75},
		{&api.UnreachableError{Err: os.ErrNotExist}, 75},
	} {
		if have := exitCode(c.err); have != c.want {
			t.Errorf("%v: want %d, have %d", c.err, c.want, have)
		}
	}
}

func TestFlagsWorkBeforeAndAfterArguments(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"deploy web D --retry", "deploy --retry web D"},
		{"deploy web --key k D --json", "--json deploy --key k web D"},
		{"--json deploy web D", "--json deploy web D"},
		{"deploy web D --endpoint unix:///s --detach", "--endpoint unix:///s deploy --detach web D"},
		{"deploy web D --endpoint=unix:///s", "--endpoint=unix:///s deploy web D"},
		{"deploy web D --expect-generation -1", "deploy --expect-generation -1 web D"},
		{"deploy --key=k web -- --odd", "deploy --key=k -- web --odd"},
		{"status deploy", "status deploy"},
		{"deploy web --nonsense D", "deploy --nonsense web D"},
		{"nonsense --json deploy", "--json nonsense deploy"},
	} {
		g := &globals{}
		have := strings.Join(reorder(g.tree(&bytes.Buffer{}), strings.Fields(c.args)), " ")
		if c.want != have {
			t.Errorf("%s: want %s, have %s", c.args, c.want, have)
		}
	}
}

func TestFlagsComeFromTheEnvironmentAndAFile(t *testing.T) {
	f := &fakeToad{services: web(running())}
	endpoint := f.start(t)
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	file := filepath.Join(dir, "toad", "toad.conf")
	write := func(text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("# a box\nendpoint " + endpoint + "\njson\n")
	if r := toad(t.Context(), "", "status", "web"); r.code != 0 || !strings.HasPrefix(r.stdout, "{") {
		t.Errorf("the file: have %+v", r)
	}
	t.Setenv("TOAD_ENDPOINT", "unix:///nowhere/toad.sock")
	if r := toad(t.Context(), "", "status", "web"); r.code != exitAgain || !strings.Contains(r.stderr, "/nowhere/") {
		t.Errorf("the environment counts before the file: have %+v", r)
	}
	if r := toad(t.Context(), "", "status", "web", "--endpoint", endpoint, "--json=false"); r.code != 0 || strings.HasPrefix(r.stdout, "{") {
		t.Errorf("the command line counts before both: have %+v", r)
	}
	write("retry true\n")
	if r := toad(t.Context(), "", "status"); r.code != exitConfig || !strings.Contains(r.stderr, "retry") {
		t.Errorf("a flag of one command is said each time: have %+v", r)
	}
	t.Setenv("HOME", "")
	t.Setenv("XDG_STATE_HOME", "")
	if r := toad(t.Context(), "", "act", "web-g1"); strings.Contains(r.stderr, "configuration file") {
		t.Errorf("what systemd starts reads no such file: have %+v", r)
	}
}

func TestFoldersComeFromTheEnvironment(t *testing.T) {
	home := t.TempDir()
	for _, v := range []string{"XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"} {
		t.Setenv(v, "")
	}
	t.Setenv("HOME", home)
	g := &globals{}
	if have, err := g.stateDir(); err != nil || have != filepath.Join(home, ".local/state/toad") {
		t.Errorf("have %s, %v", have, err)
	}
	t.Setenv("XDG_STATE_HOME", "/data")
	if have, err := g.stateDir(); err != nil || have != "/data/toad" {
		t.Errorf("have %s, %v", have, err)
	}
	g.State = "/data/other"
	if have, err := g.stateDir(); err != nil || have != "/data/other" {
		t.Errorf("have %s, %v", have, err)
	}
	own := filepath.Join(home, ".config/toad/enrollment.toml")
	if have, err := g.enrollmentPath(); err != nil || (have != own && have != "/etc/toad/enrollment.toml") {
		t.Errorf("have %s, %v", have, err)
	}
	t.Setenv("HOME", "")
	if _, err := g.enrollmentPath(); exitCode(err) != exitConfig || hintOf(err) == "" {
		t.Errorf("have %v", err)
	}
	if os.Getuid() == 0 {
		if _, err := g.runtimeDir(); exitCode(err) != exitConfig || !strings.Contains(err.Error(), "scripts/toad-as USER") {
			t.Errorf("root: have %v", err)
		}
		return
	}
	own = t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", own)
	if have, err := g.runtimeDir(); err != nil || have != own {
		t.Errorf("have %s, %v", have, err)
	}
	for _, dir := range []string{"/", "/run/nowhere"} {
		t.Setenv("XDG_RUNTIME_DIR", dir)
		if _, err := g.runtimeDir(); exitCode(err) != exitConfig || !strings.Contains(err.Error(), "XDG_RUNTIME_DIR="+fmt.Sprintf("/run/user/%d", os.Getuid())) {
			t.Errorf("%s: have %v", dir, err)
		}
	}
}
