//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C01: dependency bots write Image=host/app:1.2@sha256:…. Tools stumble over it, or leave a tag that claims another
// version beside the digest.
func TestC01TagAndDigest(t *testing.T) {
	b := bare(t)
	b.up(t, scene.Options{Quadlet: image(host.Repository + ":v1@" + b.Digest(t, "v1"))})

	b.deploy(t, "v2", promoted("v2"))
	if have := b.command(t, "web.service"); strings.Count(have, "@") != 1 || !strings.Contains(have, " "+b.at(t, "v2")+" ") {
		t.Errorf("the command names more than %s:\n%s", b.at(t, "v2"), have)
	}
	b.deploy(t, "crash", rolledBack("candidate_exited", "v2"))
	if have := b.ReadFile(t, pin); !strings.Contains(have, "\nImage="+b.at(t, "v2")+"\n") || strings.Contains(have, ":v") {
		t.Errorf("the pin:\n%s", have)
	}

	// The operator's own line counts again, byte for byte, when toad lets go.
	b.MustUser(t, "toad", "unpin", "web")
	if have := b.command(t, "web.service"); !strings.Contains(have, host.Repository+":v1@"+b.Digest(t, "v1")+" ") {
		t.Errorf("unpinned, the command is\n%s", have)
	}
	b.MustUser(t, "systemctl", "--user", "restart", "--no-block", "web.service")
	b.Serves(t, "v1")

	hex := strings.TrimPrefix(b.Digest(t, "v1"), "sha256:")
	for ref, why := range map[string]string{
		"[::1]:5000/app@sha256:" + hex:                           "is of [::1]:5000/app, but " + host.Repository + " is enrolled",
		host.Repository + "@sha256:" + strings.ToUpper(hex):      "the digest has upper-case letters",
		host.Repository + "@sha256:" + hex[1:]:                   "a sha256 digest has 64 hex digits, this one 63",
		host.Repository + "@sha512:" + hex + hex:                 "only sha256 digests are supported",
		host.Repository + ":v1@sha256:" + hex + "@sha256:" + hex: "is not one digest",
		"127.0.0.1:5000@sha256:" + hex:                           "names no registry",
	} {
		b.put(t, map[string]string{quadlet: image(ref)})
		b.refuses(t, ref, "binding_broken", "web.container:6: [Container] Image: ", why)
		if b.running(t) != b.Image(t, "v1").ID {
			t.Errorf("%s: %s runs", ref, b.running(t))
		}
	}
}
