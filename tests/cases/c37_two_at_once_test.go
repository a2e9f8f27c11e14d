//go:build e2e

package cases

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C37: two deployments of one service at the same moment cancel or overwrite one another. Exactly one goes on, the others
// are told which, and another service is not held up.
func TestC37TwoAtOnce(t *testing.T) {
	b := lay(t, scene.Options{})
	text := b.ReadFile(t, enrollment)
	b.WriteFile(t, folder+"web2.container", "[Container]\nImage="+host.Repository+":v1\nNetwork=none\n[Service]\nRestart=always\n", 0o644)
	web2 := fmt.Sprintf("\n[service.web2]\nunits = [\"web2.container\"]\nimage = %q\n[service.web2.probation]\nstable = \"500ms\"\n", host.Repository)
	b.WriteFile(t, enrollment, text+web2, 0o644)
	b.MustUser(t, "systemctl", "--user", "daemon-reload")
	b.MustUser(t, "systemctl", "--user", "start", "--no-block", "web2.service")

	ctx, cancel := context.WithTimeout(context.Background(), host.Limit)
	defer cancel()
	results := make([]result, 21)
	var all sync.WaitGroup
	for i := range results {
		service, tag := "web", []string{"v2", "v3"}[i%2]
		if i == 20 {
			service = "web2"
		}
		cmd := b.UserCommand(ctx, t, "toad", "deploy", service, b.Digest(t, tag), "--expect-generation", "0")
		all.Go(func() {
			out, err := cmd.CombinedOutput()
			results[i] = result{tag, string(out), cmd.ProcessState.ExitCode(), err}
		})
	}
	all.Wait()
	if r := results[20]; r.exit != 0 {
		t.Errorf("web2: exit %d\n%s", r.exit, r.out)
	}
	s := b.Status(t)
	if s.Generation != 1 || s.Phase() != "promoted" {
		t.Fatalf("want one deployment, have %+v\n%s", s, b.Log(t))
	}
	winner := "v2"
	if s.Promoted.Digest == b.Digest(t, "v3") {
		winner = "v3"
	}
	for i, r := range results[:20] {
		// The same wish is the same operation; another one is told which it has met.
		if r.tag == winner && (r.exit != 0 || !strings.Contains(r.out, "web-g1")) || r.tag != winner && (r.exit != 5 || !strings.Contains(r.out, "web-g1") && !strings.Contains(r.out, "generation 1")) {
			t.Errorf("%d, %s, with %s in force: exit %d\n%s", i, r.tag, winner, r.exit, r.out)
		}
	}
	b.Quiet(t)

	// A service that is taken out of the enrollment during its deployment is carried to the end by the operation's own copy.
	b.MustUser(t, "toad", "deploy", "web", b.Digest(t, "slow5"), "--detach")
	b.WaitPhase(t, "probation")
	if r := b.User(t, "toad", "deploy", "web", b.Digest(t, "v4")); r.Exit != 5 || !strings.Contains(r.Stderr, "web-g2 is in probation; wait for it") {
		t.Errorf("beside another one: want exit 5, have %d\n%s", r.Exit, r.Stderr)
	}
	b.WriteFile(t, enrollment, strings.TrimPrefix(web2, "\n"), 0o644)
	if phase := b.WaitPhase(t, "promoted", "rolled_back", "failed"); phase != "promoted" {
		t.Fatalf("want promoted, have %s\n%s", phase, b.Log(t))
	}
	b.Quiet(t)
	if b.running(t) != b.Image(t, "slow5").ID || b.Record(t).Operation.Candidate.Digest != b.Digest(t, "slow5") || !strings.Contains(b.ReadFile(t, pin), b.at(t, "slow5")) {
		t.Errorf("pin, record and container do not agree\n%s", b.Log(t))
	}
	if r := b.User(t, "toad", "deploy", "web", b.Digest(t, "v4")); r.Exit != 78 || !strings.Contains(r.Stderr, `no service "web" is enrolled`) {
		t.Errorf("after that: want exit 78, have %d\n%s", r.Exit, r.Stderr)
	}
}

type result struct {
	tag, out string
	exit     int
	err      error
}
