//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C06: Image= names a .image unit that several containers share, or a .build unit. Tools take it for a registry's name, or
// edit the shared file and move every container that uses it.
//
// Of the two behaviours that could be right, toad resolves a .image to its repository: the pin is of one container, so
// nothing is gained by refusing what can be pinned.
func TestC06ImageUnits(t *testing.T) {
	shared := "[Image]\nImage=" + host.Repository + ":v1\n"
	b := lay(t, scene.Options{Quadlet: image("web.image"), Files: map[string]string{
		folder + "web.image":      shared,
		folder + "web2.container": "[Container]\nImage=web.image\nNetwork=none\n[Service]\nRestart=always\n",
	}})
	b.MustUser(t, "systemctl", "--user", "start", "web2.service")
	other := b.Show(t, "web2.service", "InvocationID")
	const needs = "web-image.service"

	b.deploy(t, "v2", promoted("v2"))
	b.deploy(t, "crash", rolledBack("candidate_exited", "v2"))
	if have := b.ReadFile(t, folder+"web.image"); have != shared {
		t.Errorf("the shared file has changed:\n%s", have)
	}
	if have := b.Show(t, "web2.service", "InvocationID"); have != other || !strings.Contains(b.command(t, "web2.service"), host.Repository+":v1 ") {
		t.Errorf("the other container was touched: %s, then %s\n%s", other, have, b.command(t, "web2.service"))
	}
	b.MustUser(t, "toad", "unpin", "web")
	if have := b.Show(t, "web.service", "Requires"); !strings.Contains(have, needs) {
		t.Errorf("unpinned, web.service does not require %s: %s", needs, have)
	}

	b.put(t, map[string]string{quadlet: image("gone.image")})
	b.refuses(t, "a .image that is not there", "binding_broken", "names gone.image, and there is no such file", "write the .image file")
	b.put(t, map[string]string{quadlet: image("web.build"), folder + "web.build": "[Build]\nImageTag=localhost/web\nSetWorkingDirectory=unit\n"})
	b.refuses(t, "a .build", "binding_broken", "is built on this host by web.build: no registry has a digest of it")
	b.put(t, map[string]string{quadlet: image("other.image"), folder + "other.image": "[Image]\nImage=127.0.0.1:5000/other:1\n"})
	b.refuses(t, "a .image of another repository", "binding_broken", "other.image:2", "is of 127.0.0.1:5000/other, but "+host.Repository+" is enrolled")
}
