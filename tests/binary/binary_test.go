//go:build e2e

package binary

import (
	"strings"
	"testing"
	"time"

	"toad/tests/host"
)

// The whole life of a service whose releases are shipped.
func TestFilesAreJudgedAsImagesAre(t *testing.T) {
	t.Parallel()
	b := up(t, false)
	b.ship(t, 0, "v2")
	b.inForce(t, "v2")
	b.Quiet(t)

	// One that ends at once is put back, and refused, by a new daemon as well; a retry has one run.
	b.ship(t, 3, "crash")
	b.inForce(t, "v2")
	b.ship(t, 5, "crash")
	b.MustUser(t, "systemctl", "--user", "restart", "toad.service")
	ran := b.Invocation(t)
	if r := b.ship(t, 5, "crash"); !strings.Contains(r.Stderr, "--retry") {
		t.Errorf("the way to try it again is not said: %s", r.Stderr)
	}
	if b.Invocation(t) != ran {
		t.Error("the unit was restarted")
	}
	b.ship(t, 3, "crash", "--retry")
	b.inForce(t, "v2")
	if s := b.Status(t); len(s.Refusals) != 1 || !strings.Contains(s.Refusals[0].Reason, "status 2") {
		t.Errorf("refusals: %+v", s.Refusals)
	}

	// One that never answers is replaced although it runs.
	b.ship(t, 3, "never")
	b.inForce(t, "v2")

	// Another program is not switched to, and somebody is told.
	ran = b.Invocation(t)
	r := b.ship(t, 5, "other")
	for _, word := range []string{"go:toad/tests/sample/other", "program_mismatch", "--program-change"} {
		if !strings.Contains(r.Stdout+r.Stderr, word) {
			t.Errorf("%q is not said:\n%s%s", word, r.Stdout, r.Stderr)
		}
	}
	if b.Invocation(t) != ran {
		t.Error("the unit was restarted for another program")
	}
	host.Eventually(t, "an alert that tells of it", time.Minute, func() bool {
		return strings.Contains(b.User(t, "sh", "-c", "cat .local/state/toad/alerts/*").Stdout, "program")
	})

	// The way back is what ran before toad came, and it needs nothing but the host.
	b.MustUser(t, "rm", "-r", "files")
	b.MustUser(t, "toad", "rollback", "web")
	b.inForce(t, "v1")
	b.Quiet(t)
	b.Reboot(t)
	b.Serves(t, "v1")
	b.inForce(t, "v1")

	// A digest is enough for what is kept here.
	b.MustUser(t, "toad", "deploy", "web", "sha256:"+b.Program(t, "v2").ID)
	b.inForce(t, "v2")
	b.Quiet(t)
}

// What is no release of this service is refused before anything is stopped.
func TestWhatIsNotTheLinkOrNoProgramIsRefused(t *testing.T) {
	t.Parallel()
	b := up(t, false)
	ran := b.Invocation(t)
	b.WriteFile(t, "~/files/script", "#!/bin/sh\nexec sleep 100\n", 0o755)
	if r := b.User(t, "toad", "ship", "web", "files/script"); r.Exit == 0 || !strings.Contains(r.Stderr, "is a script") {
		t.Errorf("a script: exit %d, %s", r.Exit, r.Stderr)
	}
	b.WriteFile(t, "~/.config/systemd/user/web.service", strings.Replace(unit, "%h/.local/state/toad/live/web", "%h/files/v1", 1), 0o644)
	b.MustUser(t, "systemctl", "--user", "daemon-reload")
	r := b.ship(t, 1, "v2")
	for _, word := range []string{"binding_broken", "files/v1", "web.service:6"} {
		if !strings.Contains(r.Stdout+r.Stderr, word) {
			t.Errorf("%q is not said:\n%s%s", word, r.Stdout, r.Stderr)
		}
	}
	// A drop-in that takes the command's place is named.
	b.WriteFile(t, "~/.config/systemd/user/web.service", unit, 0o644)
	b.WriteFile(t, "~/.config/systemd/user/web.service.d/x.conf", "[Service]\nExecStart=\nExecStart=/usr/bin/sleep 1000\n", 0o644)
	b.MustUser(t, "systemctl", "--user", "daemon-reload")
	if r := b.ship(t, 1, "v2"); !strings.Contains(r.Stdout+r.Stderr, "/usr/bin/sleep") || !strings.Contains(r.Stdout+r.Stderr, "x.conf:3") {
		t.Errorf("the drop-in is not said:\n%s%s", r.Stdout, r.Stderr)
	}
	if b.Invocation(t) != ran {
		t.Error("the unit was restarted")
	}
	if to := b.MustUser(t, "sh", "-c", "readlink "+live); to != host.Home+"/files/v1" {
		t.Errorf("the operator's link leads to %s", to)
	}
	b.MustUser(t, "sh", "-c", "rm .config/systemd/user/web.service.d/x.conf && systemctl --user daemon-reload")
	b.ship(t, 0, "v2")
	b.inForce(t, "v2")
	b.Quiet(t)
}
