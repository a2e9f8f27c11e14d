//go:build e2e

package promote

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

func TestAHealthyDigestIsPromoted(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Limits: "deadline = \"30s\"\nstable = \"2s\"", Files: map[string]string{
		"~/.config/systemd/user/requires.service": dependent("Requires=web.service\nAfter=web.service"),
		"~/.config/systemd/user/bound.service":    dependent("BindsTo=web.service\nAfter=web.service"),
	}})
	w.MustUser(t, "systemctl", "--user", "start", "requires.service", "bound.service")

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out strings.Builder
	deploy := w.UserCommand(ctx, t, "toad", "deploy", "web", w.Digest(t, "v2"))
	deploy.Stdout, deploy.Stderr = &out, &out
	if err := deploy.Start(); err != nil {
		t.Fatal(err)
	}
	w.WaitPhase(t, "probation")
	w.Serves(t, "v2")
	onProbation := w.Invocation(t)
	timers := w.MustUser(t, "systemctl", "--user", "list-timers", "--no-pager")
	if !strings.Contains(timers, "toad-probation-web-g1.timer") {
		t.Errorf("list-timers does not show the deadline:\n%s", timers)
	}
	status := ""
	host.Eventually(t, "the check to show its last sample", time.Minute, func() bool {
		status = w.User(t, "systemctl", "--user", "status", "toad-check-web-g1").Stdout
		return strings.Contains(status, "Status: \"ready for") || w.WaitPhase(t, "probation", "promoting", "promoted") != "probation"
	})
	if !strings.Contains(status, "Status: \"ready for") {
		t.Errorf("the check's status line:\n%s", status)
	}
	if err := deploy.Wait(); err != nil {
		t.Fatalf("toad deploy: %v\n%s\n%s", err, out.String(), w.Log(t))
	}
	t.Logf("toad deploy:\n%s", out.String())

	w.MustServe(t, "v2")
	if have := w.ImageID(t); have != w.Image(t, "v2").ID {
		t.Errorf("the running image is %s, want %s", have, w.Image(t, "v2").ID)
	}
	if have := w.Invocation(t); have != onProbation {
		t.Errorf("promotion restarted the unit: %s, then %s", onProbation, have)
	}
	for _, unit := range []string{"requires.service", "bound.service"} {
		if have := w.Show(t, unit, "ActiveState"); have != "active" {
			t.Errorf("%s is %s", unit, have)
		}
	}
	if s := w.Status(t); s.Phase() != "promoted" || s.Generation != 1 || s.Promoted.Digest != w.Digest(t, "v2") {
		t.Errorf("status: %+v", s)
	}
	w.Quiet(t)
	w.Untouched(t)
	pin := w.ReadFile(t, "~/.config/containers/systemd/web.container.d/zz-toad.conf")
	if strings.Contains(pin, "TOAD_ADMITTED") || !strings.Contains(pin, w.Digest(t, "v2")) {
		t.Errorf("the promoted pin:\n%s", pin)
	}

	again := w.MustDeploy(t, 0, "v2")
	if have := w.Invocation(t); have != onProbation {
		t.Errorf("a second deploy of the same digest touched the unit:\n%s", again.Stdout)
	}
	w.Reboot(t)
	w.Serves(t, "v2")
}

func dependent(relation string) string {
	return "[Unit]\n" + relation + "\n[Service]\nExecStart=sleep infinity\n"
}

func TestIndexAndPlatformDigestsBothDeploy(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{})
	multi := w.Image(t, "multi")
	if multi.Digest == multi.Manifest {
		t.Fatal("the sample multi is not an index")
	}
	w.MustDeploy(t, 0, "multi")
	w.MustServe(t, "multi")
	rec := w.Record(t).Operation.Candidate
	both := func(digests []string) bool {
		return slices.Contains(digests, multi.Digest) && slices.Contains(digests, multi.Manifest)
	}
	if rec.Digest != multi.Digest || !both(rec.Digests) || "sha256:"+rec.ImageID != multi.ID {
		t.Errorf("recorded: %+v, want %+v", rec, multi)
	}
	invocation := w.Invocation(t)
	r := w.User(t, "toad", "deploy", "web", multi.Manifest)
	if r.Exit != 0 || w.Invocation(t) != invocation {
		t.Errorf("the platform's digest of what runs is the same content: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	w.MustDeploy(t, 0, "v2")
	if r := w.User(t, "toad", "deploy", "web", multi.Manifest); r.Exit != 0 {
		t.Fatalf("deploy the platform's digest: exit %d\n%s%s\n%s", r.Exit, r.Stdout, r.Stderr, w.Log(t))
	}
	w.MustServe(t, "multi")
	if rec := w.Record(t).Operation.Candidate; rec.Digest != multi.Manifest || !both(rec.Digests) || "sha256:"+rec.ImageID != multi.ID {
		t.Errorf("recorded: %+v, want %+v", rec, multi)
	}
	w.Quiet(t)
}

func TestABadReleaseIsPutBack(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{})
	w.MustDeploy(t, 0, "v2")
	r := w.MustDeploy(t, 3, "crash")
	t.Logf("toad deploy:\n%s", r.Stdout)
	w.MustServe(t, "v2")
	if have := w.ImageID(t); have != w.Image(t, "v2").ID {
		t.Errorf("the running image is %s, want v2's", have)
	}
	if s := w.Status(t); s.Phase() != "rolled_back" || len(s.Refusals) != 1 {
		t.Errorf("status: %+v", s)
	}
	w.Quiet(t)
	w.Untouched(t)
	invocation := w.Invocation(t)
	w.MustDeploy(t, 5, "crash")
	if have := w.Invocation(t); have != invocation {
		t.Error("a refused digest touched the unit")
	}
}

func TestTheFirstDeploymentBadOverARunningQuadlet(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{})
	w.MustDeploy(t, 3, "crash")
	w.MustServe(t, "v1")
	w.Quiet(t)
	w.Untouched(t)
}

func TestTheFirstDeploymentBadWithNothingRunning(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Stopped: true})
	folder := w.Folder(t)
	w.MustDeploy(t, 3, "crash")
	if s := w.Status(t); s.Phase() != "withdrawn" {
		t.Errorf("want withdrawn, have %+v", s)
	}
	w.Quiet(t)
	if have := w.Folder(t); have != folder {
		t.Errorf("the Quadlet folder is not what it was:\n%s\n%s", folder, have)
	}
	if have := w.Show(t, "web.service", "ActiveState"); have == "active" {
		t.Error("what did not run before is running")
	}
}
