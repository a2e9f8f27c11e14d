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
	var out bytes.Buffer
	now := noon
	p := &progress{g: &globals{Stdout: &out, now: func() time.Time { return now }}, columns: 60, op: candidateOp("preparing", "", "")}
	p.draw()
	if want, have := "web-g7 preparing, 20s", out.String(); want != have {
		t.Errorf("want %q, have %q", want, have)
	}
	out.Reset()
	op := candidateOp("probation", "", "")
	_ = p.take(api.Event{Operation: &op})
	if want, have := "\r\x1b[Kweb-g7 probation, 20s, not ready, 4m48s left", out.String(); want != have {
		t.Errorf("want %q, have %q", want, have)
	}
	out.Reset()
	now = noon.Add(3 * time.Second)
	_ = p.take(api.Event{Line: &api.Line{At: noon, Level: "info", Event: "ready", Message: "ready"}})
	if want, have := "\r\x1b[K    +20s   ready       ready\nweb-g7 probation, 23s, ready for 3.0s of 10s, 4m45s left", out.String(); want != have {
		t.Errorf("want %q, have %q", want, have)
	}
	out.Reset()
	p.columns = 20
	p.draw()
	if want, have := "\r\x1b[Kweb-g7 probation, …", out.String(); want != have {
		t.Errorf("want %q, have %q", want, have)
	}
	out.Reset()
	op = candidateOp("promoted", "", "")
	_ = p.take(api.Event{Operation: &op, End: true})
	if want, have := "\r\x1b[K", out.String(); want != have {
		t.Errorf("want %q, have %q", want, have)
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
		{59*time.Second + 900*time.Millisecond, "59s"}, {288 * time.Second, "4m48s"}, {65 * time.Minute, "1h05m"}, {76 * time.Hour, "3d4h"},
	} {
		if have := span(c.d); have != c.want {
			t.Errorf("%v: want %s, have %s", c.d, c.want, have)
		}
	}
}

func TestStatusFitsATerminal(t *testing.T) {
	services := []api.Service{running(), ended("rolled_back", "candidate_exited", strings.Repeat("long ", 40))}
	for _, s := range services {
		line := 0
		for _, cell := range row(s, noon)[:6] {
			line += len(cell) + 2
		}
		if line > 65 {
			t.Errorf("the columns before the note take %d", line)
		}
	}
	if want, have := "abc…", fit("abcdef", 4); want != have {
		t.Errorf("want %q, have %q", want, have)
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
		{"deploy web --key k D --json", "deploy --key k --json web D"},
		{"--json deploy web D", "--json deploy web D"},
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
	if _, err := os.Stat(fmt.Sprintf("/run/user/%d", os.Getuid())); err != nil {
		if _, err := g.runtimeDir(); exitCode(err) != exitConfig || hintOf(err) == "" {
			t.Errorf("have %v", err)
		}
	}
	t.Setenv("XDG_RUNTIME_DIR", "/run/somewhere")
	if have, err := g.runtimeDir(); err != nil || have != "/run/somewhere" {
		t.Errorf("have %s, %v", have, err)
	}
}
