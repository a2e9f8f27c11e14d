//go:build e2e

package badinput

import (
	"bufio"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

func TestRequests(t *testing.T) {
	t.Parallel()
	b := newBed(t, scene.Options{})
	v2, v3 := b.Digest(t, "v2"), b.Digest(t, "v3")

	t.Run("a service that is not enrolled", func(t *testing.T) {
		b.refused(t, refusal{exit: 78, says: []string{`no service "wbe" is enrolled`, "toad status lists"}}, "toad", "deploy", "wbe", v3)
		b.refused(t, refusal{exit: 78, says: []string{`no service "wbe" is enrolled`, "toad status lists"}}, "toad", "rollback", "wbe")
		b.rejected(t, 404, "unknown_service", "/v1/services/wbe/deployments", "k-unknown", wish(v3))
		b.rejected(t, 404, "unknown_service", "/v1/services/web.json/deployments", "k-unknown", wish(v3))
	})
	for _, c := range []struct{ name, digest, why string }{
		{"a malformed digest", "sha256:" + strings.Repeat("x", 64), "'x' is not a hexadecimal digit"},
		{"an upper-case digest", "sha256:" + strings.ToUpper(v3[7:]), "lower case"},
		{"an upper-case algorithm", "SHA256:" + v3[7:], "lower case"},
		{"a truncated digest", v3[:len(v3)-1], "have 63"},
		{"a digest that is too long", v3 + "0", "have 65"},
		{"a digest without its algorithm", v3[7:], "want sha256:"},
		{"a sha512 digest", "sha512:" + v3[7:] + v3[7:], "only sha256"},
		{"a digest of nothing", "sha256:", "have 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.refused(t, refusal{exit: 64, says: []string{"digest", c.why, "toad: hint: ", "a tag will do as well"}}, "toad", "deploy", "web", c.digest)
			b.refused(t, refusal{exit: 64, says: []string{"digest", c.why}}, "toad", "deploy", "web", host.Repository+"@"+c.digest)
			p := b.rejected(t, 422, "invalid_request", deployments, "k-malformed", wish(c.digest))
			if !strings.Contains(p.Detail, c.why) {
				t.Errorf("it does not say %q: %+v", c.why, p)
			}
		})
	}
	t.Run("a tag", func(t *testing.T) {
		for _, tag := range []string{"latest", host.Repository + ":latest"} {
			b.refused(t, refusal{exit: 1, says: []string{"latest"}}, "toad", "deploy", "web", tag)
		}
		for _, tag := range []string{"v 3", host.Repository, host.Repository + ":", "-v3-"} {
			b.refused(t, refusal{exit: 64, says: []string{"toad: hint: "}}, "toad", "deploy", "web", "--", tag)
		}
		b.rejected(t, 422, "invalid_request", deployments, "k-tag", wish("v3")) // the API takes digests only
	})
	t.Run("another repository", func(t *testing.T) {
		b.refused(t, refusal{exit: 64, says: []string{"is enrolled with the image " + host.Repository, "toad deploy web sha256:"}},
			"toad", "deploy", "web", "127.0.0.1:5000/other@"+v3)
	})
	t.Run("a digest the registry does not have", func(t *testing.T) {
		b.refused(t, refusal{exit: 1, code: "pull_failed", says: []string{"does not have it", absent, "toad: hint: "}}, "toad", "deploy", "web", absent)
	})
	t.Run("another architecture", func(t *testing.T) {
		b.refused(t, refusal{exit: 1, code: "wrong_platform", says: []string{"arm64", "amd64", "toad: hint: "}}, "toad", "deploy", "web", b.Digest(t, "arm64-plain"))
		b.refused(t, refusal{exit: 1, code: "wrong_platform", says: []string{"amd64", "toad: hint: "}}, "toad", "deploy", "web", b.Digest(t, "arm64"))
	})
	t.Run("the registry asks who it is", func(t *testing.T) {
		b.RegistryArgs(t, "--auth somebody:secret")
		defer b.RegistryArgs(t, "")
		b.refused(t, refusal{exit: 1, code: "pull_failed", says: []string{"denies access", "podman login 127.0.0.1:5000"}}, "toad", "deploy", "web", v3)
	})
	t.Run("the registry is down", func(t *testing.T) {
		b.MustExec(t, "systemctl", "stop", "registry.service")
		defer b.MustExec(t, "systemctl", "start", "registry.service")
		b.refused(t, refusal{exit: 75, code: "pull_unavailable", says: []string{"unavailable", "connection refused", "try again later"}}, "toad", "deploy", "web", v3)
	})
	t.Run("the wrong generation", func(t *testing.T) {
		says := []string{fmt.Sprintf("web is at generation %d, the request expected 99", b.Record(t).Generation), "see what happened: toad status web"}
		b.refused(t, refusal{exit: 5, says: says}, "toad", "deploy", "web", v3, "--expect-generation", "99")
		b.refused(t, refusal{exit: 5, says: says}, "toad", "rollback", "web", "--expect-generation", "99")
		b.refused(t, refusal{exit: 64, says: []string{"no such generation"}}, "toad", "deploy", "web", v3, "--expect-generation", "-7")
		p := b.rejected(t, 409, "generation_mismatch", deployments, "k-generation", fmt.Sprintf(`{"digest":%q,"expected_generation":0}`, v3))
		if p.Generation == nil || *p.Generation != b.Record(t).Generation {
			t.Errorf("the problem does not hold the current generation: %+v", p)
		}
	})
	t.Run("a retry of what is not refused", func(t *testing.T) {
		b.refused(t, refusal{exit: 64, says: []string{"is not refused", "deploy it without retry"}}, "toad", "deploy", "web", v3, "--retry")
	})
	t.Run("the key of another request", func(t *testing.T) {
		b.refused(t, refusal{exit: 5, says: []string{"Idempotency-Key was used for web-g1 with another request", "use a new key"}}, "toad", "deploy", "web", v3, "--key", "first")
		b.rejected(t, 422, "idempotency_mismatch", "/v1/services/web/rollback", "first", `{}`)
		p := b.rejected(t, 422, "idempotency_mismatch", deployments, "first", wish(v3))
		if p.Operation != "web-g1" {
			t.Errorf("the problem does not name web-g1: %+v", p)
		}
		b.rejected(t, 422, "idempotency_mismatch", deployments, "first", wish(v2)) // another expectation is another body
		if p := b.ask(t, deployments, "first", fmt.Sprintf(`{"digest":%q,"expected_generation":0}`, v2)); p.Status != 200 || p.ID != "web-g1" {
			t.Errorf("the same request again: want 200 web-g1, have %+v", p)
		}
	})
	t.Run("a key that is none", func(t *testing.T) {
		for _, key := range []string{"", "two words", strings.Repeat("k", 201)} {
			b.rejected(t, 422, "invalid_request", deployments, key, wish(v3))
		}
	})
	t.Run("a body that is none", func(t *testing.T) {
		for _, body := range []string{`{`, `[]`, `null`, `"x"`, `{"digest":1}`, `{"digets":"x"}`, wish(v3) + wish(v3), `{"digest":"` + v3 + `","expected_generation":"1"}`} {
			b.rejected(t, 422, "invalid_request", deployments, "k-body", body)
		}
	})
	t.Run("the release in force", func(t *testing.T) {
		before := b.look(t)
		r := b.User(t, "toad", "deploy", "web", v2)
		if r.Exit != 0 || !strings.Contains(r.Stdout, "already") || !strings.Contains(r.Stdout, "web-g1") {
			t.Errorf("exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
		}
		if p := b.ask(t, deployments, "k-again", wish(v2)); p.Status != 200 || p.ID != "web-g1" {
			t.Errorf("want 200 web-g1, have %+v", p)
		}
		if after := b.look(t); before != after {
			t.Errorf("it changed something\nbefore %+v\nafter  %+v", before, after)
		}
	})
	t.Run("while another is under way", func(t *testing.T) { underWay(t, b, v3) })
	t.Run("the release in force, promoted longer ago than is kept", func(t *testing.T) { longAgo(t, b, v2) })
}

// A registry that hangs keeps an operation in its preparation.
func underWay(t *testing.T, b bed, v3 string) {
	registry := b.MustExec(t, "systemctl", "show", "-P", "MainPID", "registry.service")
	b.MustExec(t, "kill", "-STOP", registry)
	defer b.Exec(t, "kill", "-CONT", registry)
	before := b.look(t)
	op := fmt.Sprintf("web-g%d", before.Record.Generation+1)
	b.MustUser(t, "toad", "deploy", "web", v3, "--detach")
	b.WaitPhase(t, "preparing")

	active := []string{op + " is in preparing", "wait for it", "toad rollback web"}
	b.refused(t, refusal{exit: 5, says: active}, "toad", "deploy", "web", b.Digest(t, "v4"))
	b.refused(t, refusal{exit: 5, says: active}, "toad", "deploy", "web", absent, "--expect-generation", "0")
	for _, digest := range []string{v3, b.Digest(t, "v4"), b.Digest(t, "v2")} {
		if p := b.rejected(t, 409, "operation_active", deployments, "k-active", wish(digest)); p.Operation != op {
			t.Errorf("the problem does not name %s: %+v", op, p)
		}
	}
	// The same digest by the command is followed; it ends when the operation is given up.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	follower := b.UserCommand(ctx, t, "sh", "-c", "toad deploy web "+v3+" 2>&1; echo exit $?")
	out, err := follower.StdoutPipe()
	if err == nil {
		err = follower.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if lines.Scan(); lines.Text() != op+" deploys this digest already" {
		t.Errorf("the command that followed began with %q", lines.Text())
	}
	r := b.User(t, "toad", "rollback", "web")
	if r.Exit != 0 {
		t.Errorf("toad rollback: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	followed := ""
	for lines.Scan() {
		followed += lines.Text() + "\n"
	}
	if err := follower.Wait(); err != nil || !strings.HasSuffix(followed, "exit 1\n") || !strings.Contains(followed, "(aborted)") {
		t.Errorf("the command that followed: %v\n%s", err, followed)
	}
	b.failed(t, "aborted")
	before.Record.Generation++
	before.Record.Operation = op
	if after := b.look(t); before != after {
		t.Errorf("it changed something\nbefore %+v\nafter  %+v", before, after)
	}
}

// longAgo makes the record what it is after a hundred more deployments, all of which failed.
func longAgo(t *testing.T, b bed, v2 string) {
	b.MustUser(t, "sh", "-c", `cd .local/state/toad && jq '.generation = 150 | .operation.generation = 150 | .operation.id = "web-g150"' services/web.json >x &&
		mv x services/web.json && rm operations/web-g1.*`)
	before := b.look(t)
	r := b.User(t, "toad", "deploy", "web", v2)
	if r.Exit != 0 || !strings.Contains(r.Stdout, "runs "+v2+" already (web-g1) since 20") {
		t.Errorf("exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	if p := b.ask(t, deployments, "k-old", wish(v2)); p.Status != 200 || p.ID != "web-g1" {
		t.Errorf("want 200 web-g1, have %+v", p)
	}
	if after := b.look(t); before != after {
		t.Errorf("it changed something\nbefore %+v\nafter  %+v", before, after)
	}
}
