//go:build e2e

package api

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"toad/tests/host"
)

// workflow is as much of a GitHub workflow as the document uses.
type workflow struct {
	Jobs map[string]struct {
		Env   map[string]string
		Steps []struct {
			Name, If, Uses, Run string
		}
	}
}

// TestTheJobOfTheDocument runs docs/ci.md: its script, and the steps of its workflow, as they stand there.
func TestTheJobOfTheDocument(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	token := d.token(t, "--services", "web", "--verbs", "read,deploy", "--expires", "90d")
	script, flow := fenced(t, "sh"), workflow{}
	if err := yaml.Unmarshal([]byte(fenced(t, "yaml")), &flow); err != nil {
		t.Fatal(err)
	}
	d.WriteFile(t, "~/job/toad-deploy.sh", script, 0o644)
	run := 0

	// job makes a commit whose image is built from another, and runs the workflow's steps for it.
	job := func(t *testing.T, base, rollback string) host.Result {
		t.Helper()
		run++
		d.WriteFile(t, "~/job/Containerfile", fmt.Sprintf("FROM %s:%s\nLABEL commit=%d\n", host.Repository, base, run), 0o644)
		values := map[string]string{"vars.IMAGE": host.Repository, "vars.TOAD_URL": "http://" + tcp, "secrets.TOAD_TOKEN": token,
			"github.run_id": fmt.Sprint(1000 + run), "github.run_attempt": "1", "github.sha": fmt.Sprintf("c0ffee%d", run)}
		fill := func(text string) string {
			return regexp.MustCompile(`\$\{\{ *([a-z_A-Z.]+) *\}\}`).ReplaceAllStringFunc(text, func(m string) string {
				v, ok := values[strings.Trim(m, "${ }")]
				if !ok {
					t.Errorf("the document uses %s, which this test does not know", m)
				}
				return v
			})
		}
		env, last := []string{}, host.Result{}
		for k, v := range flow.Jobs["deploy"].Env {
			env = append(env, k+"="+fill(v))
		}
		for _, step := range flow.Jobs["deploy"].Steps {
			if step.Run == "" || step.If != "${{ "+rollback+"inputs.rollback }}" {
				continue
			}
			// The way a runner does it.
			last = d.User(t, append(append([]string{"env", "-C", host.Home + "/job"}, env...), "bash", "-e", "-o", "pipefail", "-c", fill(step.Run))...)
			if last.Exit != 0 {
				break
			}
		}
		if strings.Contains(last.Stdout+last.Stderr, token[11:]) {
			t.Error("the job's output holds the token")
		}
		return last
	}
	want := func(t *testing.T, r host.Result, exit int, says string) {
		t.Helper()
		if r.Exit != exit || !strings.Contains(r.Stdout+r.Stderr, says) {
			t.Fatalf("want exit %d and %q, have %d\n%s%s\n%s", exit, says, r.Exit, r.Stdout, r.Stderr, d.Log(t))
		}
	}

	want(t, job(t, "v2", "!"), 0, "web-g1: promoted")
	d.MustServe(t, "v2")
	want(t, job(t, "crash", "!"), 3, "web-g2: rolled_back")
	d.Serves(t, "v2")
	want(t, job(t, "v3", "!"), 0, "web-g3: promoted")
	d.MustServe(t, "v3")
	want(t, job(t, "", ""), 0, "web-g4: promoted")
	d.MustServe(t, "v2")

	direct := func(t *testing.T, token, key string, args ...string) host.Result {
		t.Helper()
		return d.User(t, append([]string{"env", "TOAD_URL=http://" + tcp, "TOAD_TOKEN=" + token, "TOAD_KEY=" + key, "sh", "job/toad-deploy.sh"}, args...)...)
	}
	t.Run("its exit status by outcome", func(t *testing.T) {
		want(t, direct(t, token, "1004-1", "rollback", "web"), 0, "web-g4: promoted") // repeated, it is the same
		want(t, direct(t, token, "a", "deploy", "web", "v2"), 64, "toad: digest")
		want(t, direct(t, token, "b", "deploy", "web", "sha256:"+strings.Repeat("0", 64)), 1, "pull_failed")
		want(t, direct(t, token, "c", "deploy", "db", d.Digest(t, "v2")), 77, "does not allow")
		want(t, direct(t, token[:20], "d", "deploy", "web", d.Digest(t, "v2")), 77, "no valid token")
		want(t, direct(t, token, "e", "undo", "web"), 64, "neither deploy nor rollback")
		refused := d.Record(t).Refusals
		if len(refused) != 1 {
			t.Fatalf("want one refusal, have %+v", refused)
		}
		digest := d.MustUser(t, "sh", "-c", "jq -r '.refusals[0].release.digest' .local/state/toad/services/web.json")
		want(t, direct(t, token, "f", "deploy", "web", digest), 5, "failed here as web-g2")
	})
	if strings.Contains(d.journal(t), token[11:]) {
		t.Error("the token is in the journal")
	}
}

// fenced returns the one block of docs/ci.md in a language.
func fenced(t *testing.T, language string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "ci.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)\n```"+language+"\n(.*?)```\n").FindAllStringSubmatch(string(text), -1)
	if len(blocks) != 1 {
		t.Fatalf("docs/ci.md has %d blocks of %s", len(blocks), language)
	}
	return blocks[0][1]
}
