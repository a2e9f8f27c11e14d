//go:build e2e

package cases

import (
	"slices"
	"strings"
	"testing"

	"toad/tests/scene"
)

// C10: the index's digest is asked for and the platform's is stored. Tools compare two correct digests, find that they
// differ, and see endless updates or refuse a good image.
//
// Asking for the other digest of what is in force is told to be done already: nothing could become another release by it.
func TestC10IndexDigest(t *testing.T) {
	b := lay(t, scene.Options{})
	multi := b.Image(t, "multi")
	if multi.Digest == multi.Manifest {
		t.Fatal("multi is no index")
	}
	b.deploy(t, "multi", promoted("multi"))
	if have := b.Record(t).Operation.Candidate.Digests; !slices.Contains(have, multi.Digest) || !slices.Contains(have, multi.Manifest) {
		t.Errorf("want both digests on record, have %q", have)
	}
	before := b.state(t)
	for _, digest := range []string{multi.Manifest, multi.Digest} {
		r := b.User(t, "toad", "deploy", "web", digest)
		if r.Exit != 0 || !strings.Contains(r.Stdout, "already") {
			t.Errorf("%s: exit %d\n%s%s", digest, r.Exit, r.Stdout, r.Stderr)
		}
	}
	if after := b.state(t); after != before {
		t.Errorf("it changed something\nbefore %+v\nafter  %+v", before, after)
	}

	// What is refused is the content: by its other name, too.
	bad := b.Push(t, "bad", "crash", "bad")
	b.deployDigest(t, bad.Digest, rolledBack("candidate_exited", "multi"))
	index := b.PushIndex(t, "bad-index", "bad")
	b.deployDigest(t, index, ending{exit: 5, phase: "failed", code: "digest_refused", serves: "multi",
		says: []string{"the image is one that failed here as web-g2"}})

	for _, tag := range []string{"arm64", "arm64-plain"} {
		b.deploy(t, tag, untouched("wrong_platform", "multi", "amd64"))
	}
}
