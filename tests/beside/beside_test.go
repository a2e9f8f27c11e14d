//go:build e2e

package beside

import (
	"strings"
	"testing"
)

// kinds are the three ways in which a side may listen, each with its section of the document.
var kinds = []string{
	"A side that takes its listener from systemd",
	"A side that listens on a Unix socket of its own",
	"A side that only speaks TCP",
}

// Whatever the release does, clients are answered by one that was watched to the end.
func TestNobodyIsTurnedAwayWhateverTheReleaseDoes(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, kind, options{limits: "deadline = \"6s\"\nstable = \"1s\""})
			a := b.load(100)
			b.MustDeploy(t, 0, "v2")
			b.settled(t, 1)
			b.MustDeploy(t, 3, "crash")
			b.settled(t, 1)
			b.MustDeploy(t, 3, "never")
			b.settled(t, 1)
			b.MustDeploy(t, 0, "v3")
			b.settled(t, 0)
			if r := b.User(t, "toad", "rollback", "web"); r.Exit != 0 {
				t.Fatalf("rollback: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
			}
			b.settled(t, 1)
			a.none(t, b, "v1", "v2", "v3")
			b.MustServe(t, "v2")
			if r := b.User(t, "toad", "doctor"); strings.Contains(r.Stdout, "fail ") {
				t.Errorf("doctor:\n%s", r.Stdout)
			}
		})
	}
}
