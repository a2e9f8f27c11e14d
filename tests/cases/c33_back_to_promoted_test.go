//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C33: "previous" is the last attempt instead of the last good one, and a rollback by tag takes a tag that has moved.
func TestC33BackToWhatWasPromoted(t *testing.T) {
	b := lay(t, scene.Options{Quadlet: image(host.Repository + ":v1"), Limits: "deadline = \"15s\"\nstable = \"300ms\""})
	b.deploy(t, "v2", promoted("v2"))
	b.deploy(t, "crash", rolledBack("candidate_exited", "v2"))
	// Meanwhile somebody pushes other content to the tags that the good ones had.
	b.Push(t, "moved", "never", "moved")
	b.MustExec(t, "registry", "push", "--tag", "v2", "--behaviour", "never", "--version", "moved", "--sample", "/usr/local/lib/toad-tests/sample")
	b.MustExec(t, "registry", "push", "--tag", "v1", "--behaviour", "never", "--version", "moved", "--sample", "/usr/local/lib/toad-tests/sample")
	b.MustUser(t, "podman", "pull", "-q", host.Repository+":v2", host.Repository+":v1")
	b.deploy(t, "never", rolledBack("deadline_exceeded", "v2"))
	if s := b.Status(t); s.Promoted == nil || s.Promoted.Digest != b.Digest(t, "v2") || s.Promoted.Generation != 1 {
		t.Errorf("in force is %+v", s.Promoted)
	}
	if have := b.ReadFile(t, pin); !strings.Contains(have, "Image="+b.at(t, "v2")+"\n") || !strings.Contains(b.command(t, "web.service"), b.at(t, "v2")) {
		t.Errorf("pin, unit and container do not agree:\n%s\n%s", have, b.command(t, "web.service"))
	}
	// And one more back, by hand: to what ran before toad, not to one of the attempts, nor to the tag.
	if r := b.User(t, "toad", "rollback", "web"); r.Exit != 0 || b.running(t) != b.Image(t, "v1").ID {
		t.Errorf("toad rollback: exit %d, %s runs\n%s%s", r.Exit, b.running(t), r.Stdout, r.Stderr)
	}
	b.Quiet(t)
	b.Untouched(t)
	for _, tag := range []string{"v1", "v2"} { // the host is used again
		b.MustExec(t, "registry", "push", "--tag", tag, "--behaviour", "good", "--version", tag, "--sample", "/usr/local/lib/toad-tests/sample")
		b.MustUser(t, "podman", "pull", "-q", host.Repository+":"+tag)
	}
}
