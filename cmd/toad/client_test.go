package main

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/httpd/api"
)

var (
	promotion = []string{
		tells(0, "info", "accepted", "deployment of "+two+" accepted from uid 1000"),
		tells(100*time.Millisecond, "info", "preparing", "preparing"),
		tells(200*time.Millisecond, "info", "pull", "pulling registry.example.org/team/web@"+two),
		tells(5*time.Second, "info", "probation", "on probation"),
		tells(6*time.Second, "info", "unready", "not ready: connection refused"),
		tells(7*time.Second, "info", "ready", "ready"),
		tells(17*time.Second, "info", "promoted", two+" is in force"),
		ends(candidateOp("promoted", "", "")),
	}
	failure = []string{
		tells(0, "info", "accepted", "deployment of "+two+" accepted from uid 1000"),
		tells(75*time.Second, "warn", "restoring", "restoring the previous release: it exited with \x1b[31m2"),
		tells(80*time.Second, "error", "step", "the restored pin of web.container: no"),
		tells(90*time.Second, "warn", "rolled_back", "the previous release is in force again"),
		ends(candidateOp("rolled_back", "candidate_exited", "it exited with \x1b[31m2")),
	}
)

func web(s api.Service) map[string]api.Service { return map[string]api.Service{"web": s} }

func TestStoriesOfDeployments(t *testing.T) {
	after := func(events []string, phase, code, reason string) *fakeToad {
		return &fakeToad{services: web(running()), streams: map[string][]string{"web-g7": events},
			written: accepts(202, candidateOp("accepted", "", ""), ended(phase, code, reason))}
	}
	end := func(phase, code, reason string) *fakeToad {
		return after([]string{ends(candidateOp(phase, code, reason))}, phase, code, reason)
	}
	promoted := ended("promoted", "", "")
	refused := problem(409, "digest_refused", "sha256:222222222222 failed here as web-g5 at 2026-11-28T10:00:00Z: it exited with 2; to try it once more: --retry")
	damaged := problem(409, "service_damaged", "web: record is damaged")
	for _, c := range []struct {
		name string
		toad *fakeToad
		args string
	}{
		{"deploy-promoted", after(promotion, "promoted", "", ""), "deploy web " + two},
		{"deploy-rolled-back", after(failure, "rolled_back", "candidate_exited", "it exited with 2"), "deploy web " + two},
		{"deploy-withdrawn", end("withdrawn", "stopped", "stopped by an operator"), "deploy web " + two},
		{"deploy-rollback-failed", end("rollback_failed", "rollback_failed", "it exited; then: the previous release did not settle"), "deploy web " + two},
		{"deploy-failed", end("failed", "pull_failed", "manifest unknown"), "deploy web " + two},
		{"deploy-registry-away", end("failed", "pull_unavailable", "dial tcp: connection refused"), "deploy web " + two},
		{"deploy-json", after(promotion, "promoted", "", ""), "deploy web " + two + " --json"},
		{"deploy-detach", after(promotion, "promoted", "", ""), "deploy --detach web " + two},
		{"deploy-detach-json", after(promotion, "promoted", "", ""), "--json deploy --detach web " + two},
		{"deploy-flags-last", after(promotion, "promoted", "", ""), "deploy web registry.example.org/team/web:v2@" + two + " --retry --key mine --detach --expect-generation 3"},
		{"deploy-refused", &fakeToad{services: web(running()), written: rejects(refused)}, "deploy web " + two},
		{"deploy-damaged", &fakeToad{services: web(running()), written: rejects(damaged)}, "deploy web " + two},
		{"deploy-already", &fakeToad{services: web(running()), written: accepts(200, *running().Operation, running())}, "deploy web " + one},
		{"deploy-replayed", &fakeToad{services: web(running()), streams: map[string][]string{"web-g7": failure},
			written: accepts(200, candidateOp("rolled_back", "candidate_exited", "it exited"), running())}, "deploy web " + two},
		{"deploy-active", &fakeToad{services: web(ended("probation", "", "")), streams: map[string][]string{"web-g7": promotion}, after: &promoted}, "deploy web " + two},
		{"deploy-other-image", &fakeToad{services: web(running())}, "deploy web registry.example.org/team/other@" + two},
		{"deploy-unknown", &fakeToad{services: web(running())}, "deploy wbe " + two},
		{"deploy-tag", after(promotion, "promoted", "", ""), "deploy web registry.example.org/team/web:v2"},
		{"deploy-bare-tag", after(promotion, "promoted", "", ""), "deploy web v2"},
		{"deploy-no-tag", &fakeToad{}, "deploy web registry.example.org/team/web"},
		{"deploy-short-digest", &fakeToad{}, "deploy web sha256:1234"},
		{"deploy-one-argument", &fakeToad{}, "deploy web"},
		{"deploy-three-arguments", &fakeToad{}, "deploy web " + two + " now"},
	} {
		t.Run(c.name, func(t *testing.T) { story(t, c.name, c.toad, strings.Fields(c.args)...) })
	}
}

func TestStoriesOfRollbacks(t *testing.T) {
	back := candidateOp("accepted", "", "")
	back.Kind, back.Digest = "rollback", one
	backEnd := back
	backEnd.Phase, backEnd.EndedAt = "promoted", moment(0)
	newOne := func(end api.Operation) *fakeToad {
		after := ended("promoted", "", "")
		after.Operation, after.Promoted.Digest = &end, one
		return &fakeToad{services: web(running()), streams: map[string][]string{"web-g7": {ends(end)}}, written: accepts(202, back, after)}
	}
	given := candidateOp("probation", "", "")
	given.Aborts = true
	abort := func(phase, code string) *fakeToad {
		return &fakeToad{services: web(ended("probation", "", "")), streams: map[string][]string{"web-g7": {ends(candidateOp(phase, code, "given up by uid 1000"))}},
			written: accepts(202, given, ended(phase, code, ""))}
	}
	backFailed := backEnd
	backFailed.Phase, backFailed.Code, backFailed.Reason = "failed", "no_way_back", "the image is gone"
	late := candidateOp("rolled_back", "candidate_exited", "it exited with 2")
	for _, c := range []struct {
		name string
		toad *fakeToad
		args string
	}{
		{"rollback-aborts", abort("rolled_back", "aborted"), "rollback web --key k"},
		{"rollback-aborts-early", abort("failed", "aborted"), "rollback web --key k"},
		{"rollback-aborts-in-vain", abort("rollback_failed", "rollback_failed"), "rollback web --key k"},
		{"rollback-goes-back", newOne(backEnd), "rollback web --key k"},
		{"rollback-does-not-hold", newOne(backFailed), "rollback --key k web"},
		{"rollback-detach", newOne(backEnd), "rollback --key k --detach --expect-generation 5 web"},
		{"rollback-comes-late", &fakeToad{services: web(ended("probation", "", "")), streams: map[string][]string{"web-g7": {ends(late)}},
			written: accepts(200, late, ended("rolled_back", "candidate_exited", ""))}, "rollback web --key k"},
		{"rollback-nothing", &fakeToad{services: web(running()), written: rejects(problem(409, "no_way_back", "web has no earlier release on this host; deploy a digest instead"))}, "rollback web --key k"},
	} {
		t.Run(c.name, func(t *testing.T) { story(t, c.name, c.toad, strings.Fields(c.args)...) })
	}
}

func TestARollbackWaitsForAPromotionAndGoesBackFromIt(t *testing.T) {
	back := candidateOp("promoted", "", "")
	back.ID, back.Generation, back.Kind, back.Digest = "web-g8", 8, "rollback", one
	f := &fakeToad{services: web(ended("promoting", "", "")), streams: map[string][]string{
		"web-g7": {ends(candidateOp("promoted", "", ""))}, "web-g8": {ends(back)}}}
	f.written = func(*http.Request) response {
		if len(f.asked) == 1 {
			return response{409, problem(409, "operation_active", "web-g7 is being promoted; ask again in a moment"),
				func(f *fakeToad) { f.services["web"] = ended("promoted", "", "") }}
		}
		s := ended("promoted", "", "")
		s.Promoted = &api.Release{Digest: one, Generation: 8}
		return response{202, back, func(f *fakeToad) { f.services["web"] = s }}
	}
	story(t, "rollback-waits", f, "rollback", "web", "--key", "k")
}

func TestStoriesOfStatus(t *testing.T) {
	api1 := api.Service{Service: "api", Refusals: []api.Refusal{}}
	worker := ended("rolled_back", "candidate_exited", "it exited with 2 within the restart budget of 0 and said nothing at all about why")
	worker.Service = "worker-for-the-long-queue"
	worker.Refusals = []api.Refusal{{Digest: two, Operation: "web-g7", Reason: "it exited with 2", Code: "candidate_exited", RefusedAt: noon}}
	all := &fakeToad{services: map[string]api.Service{"api": api1, "web": ended("probation", "", ""), "worker-for-the-long-queue": worker,
		"db": {Service: "db", Damaged: "db: record is damaged: empty or filled with NUL"}}}
	adopted := running()
	adopted.Generation, adopted.Promoted, adopted.Operation = 0, &api.Release{ImageID: strings.Repeat("a", 64)}, nil
	gone := running()
	gone.Unenrolled = true
	for _, c := range []struct {
		name string
		toad *fakeToad
		args string
	}{
		{"status-all", all, "status"},
		{"status-none", &fakeToad{}, "status"},
		{"status-none-json", &fakeToad{}, "status --json"},
		{"status-probation", all, "status web"},
		{"status-rolled-back", all, "status worker-for-the-long-queue"},
		{"status-damaged", all, "status db"},
		{"status-new", all, "status api"},
		{"status-adopted", &fakeToad{services: web(adopted)}, "status web"},
		{"status-unenrolled", &fakeToad{services: web(gone)}, "status web"},
		{"status-json", &fakeToad{services: web(running())}, "status web --json"},
		{"status-two", all, "status web db"},
	} {
		t.Run(c.name, func(t *testing.T) { story(t, c.name, c.toad, strings.Fields(c.args)...) })
	}
}

func TestStoriesOfLogs(t *testing.T) {
	f := func() *fakeToad {
		return &fakeToad{services: web(ended("rolled_back", "candidate_exited", "")), streams: map[string][]string{"web-g7": failure}}
	}
	for _, c := range []struct {
		name string
		toad *fakeToad
		args string
	}{
		{"log-service", f(), "log web"},
		{"log-operation", f(), "log web-g7"},
		{"log-follow", f(), "log web --follow"},
		{"log-json", f(), "log web --json"},
		{"log-follow-json", f(), "log --follow --json web-g7"},
		{"log-unknown", f(), "log web-g99"},
		{"log-never-deployed", &fakeToad{services: web(api.Service{Service: "web"})}, "log web"},
	} {
		t.Run(c.name, func(t *testing.T) { story(t, c.name, c.toad, strings.Fields(c.args)...) })
	}
}

func TestStoriesOfMistakes(t *testing.T) {
	for _, c := range []struct {
		name string
		toad *fakeToad
		args string
	}{
		{"unknown-command", &fakeToad{}, "deplyo web"},
		{"far-off-command", &fakeToad{}, "frobnicate"},
		{"no-command", &fakeToad{}, ""},
		{"unknown-flag", &fakeToad{}, "status web --wacth"},
		{"bad-flag-value", &fakeToad{}, "deploy web " + two + " --expect-generation many"},
		{"version", &fakeToad{}, "version"},
		{"version-arguments", &fakeToad{}, "version 1"},
		{"help", &fakeToad{}, "--help"},
		{"help-deploy", &fakeToad{}, "deploy --help"},
		{"help-unknown", &fakeToad{}, "help stauts"},
		{"nonsense-before-command", &fakeToad{}, "nonsense deploy web"},
		{"odd-generation", &fakeToad{}, "deploy web " + two + " --expect-generation -7"},
		{"help-rollback", &fakeToad{}, "help rollback"},
		{"help-status", &fakeToad{}, "status -h"},
		{"help-log", &fakeToad{}, "log web --help"},
		{"help-doctor", &fakeToad{}, "doctor --help"},
		{"help-unpin", &fakeToad{}, "unpin --help"},
		{"help-token", &fakeToad{}, "token --help"},
		{"help-token-issue", &fakeToad{}, "help token issue"},
		{"help-token-mistyped", &fakeToad{}, "token isue"},
		{"token-no-services", &fakeToad{}, "token issue ci"},
		{"token-odd-expiry", &fakeToad{}, "token issue ci --services web --expires soon"},
		{"token-revoke-whole", &fakeToad{}, "token revoke 0123456789.S3NT1NEL"},
		{"help-serve", &fakeToad{}, "serve --help"},
		{"help-setup", &fakeToad{}, "setup --help"},
		{"not-allowed", &fakeToad{refuse: problem(403, "forbidden", "uid 1001 may not use the toad of uid 1000")}, "status"},
		{"unavailable", &fakeToad{refuse: &api.Problem{Status: 503, Code: "state_unavailable", Detail: "save web: no space left on device", Hint: "free some space"}}, "status"},
		{"invalid", &fakeToad{refuse: problem(422, "invalid_request", "wait_proof is not supported")}, "status"},
	} {
		t.Run(c.name, func(t *testing.T) { story(t, c.name, c.toad, strings.Fields(c.args)...) })
	}
}

func TestCtrlCEndsTheFollowingAndSaysSo(t *testing.T) {
	f := &fakeToad{services: web(running()), streams: map[string][]string{"web-g7": {promotion[0], "hang"}},
		written: accepts(202, candidateOp("accepted", "", ""), ended("probation", "", ""))}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	r := toad(ctx, f.start(t), "deploy", "web", two)
	want := "toad: web-g7: no longer followed; it goes on without this command\n" +
		"toad: hint: toad log web --follow, or toad status web\n"
	if r.code != exitAgain || r.stderr != want || !strings.Contains(r.stdout, "accepted") {
		t.Errorf("have %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
}

func TestWithoutADaemonTryAgainLater(t *testing.T) {
	endpoint := "unix://" + t.TempDir() + "/toad.sock"
	r := toad(t.Context(), endpoint, "status")
	want := "toad: toad is out of reach at " + endpoint + ": no such file or directory\n" +
		"toad: hint: systemctl --user status toad.socket; if there is no such unit: toad setup\n"
	if r.code != exitAgain || r.stderr != want {
		t.Errorf("have %d\n%s", r.code, r.stderr)
	}
}

func TestTheEndpointComesFromTheEnvironmentToo(t *testing.T) {
	f := &fakeToad{services: web(running())}
	t.Setenv("TOAD_ENDPOINT", f.start(t))
	if r := toad(t.Context(), "", "status"); r.code != 0 || !strings.Contains(r.stdout, "web") {
		t.Errorf("have %+v", r)
	}
	// A flag after the command wins.
	if r := toad(t.Context(), "", "status", "--endpoint", "unix:///nowhere.sock"); r.code != exitAgain {
		t.Errorf("have %+v", r)
	}
	if r := toad(t.Context(), "", "--endpoint", "nonsense", "status"); r.code != exitConfig {
		t.Errorf("have %+v", r)
	}
}

func TestATokenFileIsKeptFromOthers(t *testing.T) {
	f := &fakeToad{services: web(running())}
	endpoint := f.start(t)
	path := filepath.Join(t.TempDir(), "token")
	for _, c := range []struct {
		name, token string
		mode        os.FileMode
		code        int
	}{
		{"good", "t1.S3NT1NEL\n", 0o600, 0},
		{"open to others", "t1.S3NT1NEL\n", 0o644, exitConfig},
		{"empty", "\n", 0o600, exitConfig},
		{"two lines", "t1.S3NT1NEL\nmore\n", 0o600, exitConfig},
		{"large", strings.Repeat("S3NT1NEL", 1000), 0o600, exitConfig},
	} {
		t.Run(c.name, func(t *testing.T) {
			_ = os.Remove(path)
			if err := os.WriteFile(path, []byte(c.token), c.mode); err != nil {
				t.Fatal(err)
			}
			r := toad(t.Context(), endpoint, "status", "--token-file", path)
			if r.code != c.code || strings.Contains(r.stdout+r.stderr, "S3NT1NEL") {
				t.Errorf("want exit %d, have %+v", c.code, r)
			}
		})
	}
	if r := toad(t.Context(), endpoint, "status", "--token-file", path+".none"); r.code != exitConfig {
		t.Errorf("have %+v", r)
	}
}

func TestStoriesOfCompletion(t *testing.T) {
	worker := api.Service{Service: "worker-for-the-long-queue"}
	f := func() *fakeToad {
		return &fakeToad{services: map[string]api.Service{"web": ended("probation", "", ""), worker.Service: worker}}
	}
	for _, c := range []struct{ name, args string }{
		{"complete-command", "complete -- ro"},
		{"complete-flag", "complete -- deploy web --d"},
		{"complete-service", "complete -- rollback w"},
		{"complete-service-behind-flags", "complete -- --json deploy --expect-generation 3 we"},
		{"complete-operation", "complete -- log web-"},
		{"complete-digest", "complete -- deploy web sha256:"},
		{"complete-file", "complete -- status --token-file x"},
		{"complete-nothing", "complete -- deploy web sha256:1 x"},
		{"completion-unknown", "completion tcsh"},
	} {
		t.Run(c.name, func(t *testing.T) { story(t, c.name, f(), strings.Fields(c.args)...) })
	}
}

func TestEveryCommandHasAPageAndAnExample(t *testing.T) {
	dir := t.TempDir()
	if r := toad(t.Context(), "", "man", "--dir", dir); r.code != 0 {
		t.Fatalf("have %+v", r)
	}
	g := &globals{}
	root := g.tree(&strings.Builder{})
	for _, c := range append(root.Subcommands, root) {
		m := manualOf(c)
		if len(m.examples) == 0 {
			t.Errorf("%s has no example", c.FlagSet.Name())
		}
		for line := range strings.Lines(usage(c)) {
			if n := len([]rune(strings.TrimRight(line, "\n"))); n > helpColumns {
				t.Errorf("%s: %d columns: %s", c.FlagSet.Name(), n, line)
			}
		}
		if c.ShortHelp == "" && c != root {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.FlagSet.Name(), " ", "-")+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		for _, want := range append([]string{".SH NAME", ".SH SYNOPSIS", ".SH EXAMPLES", roff(m.text[0])}, roff(m.examples[0])) {
			if !strings.Contains(string(text), want) {
				t.Errorf("the page of %s lacks %q", c.FlagSet.Name(), want)
			}
		}
	}
}
