//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C03: a file edited over years has Image= twice, a second [Container], quotes and blanks. Of a key that holds one value
// the last one counts, and tools that change another one change nothing.
func TestC03DuplicateKeys(t *testing.T) {
	const years = `[Container]
Image=127.0.0.1:5000/app:never
Image=127.0.0.1:5000/app:crash
PublishPort=127.0.0.1:8080:8080

[Service]
Restart=always
RestartSec=1

[Container]
 Image = "127.0.0.1:5000/app:v1"

[Install]
WantedBy=default.target
`
	b := lay(t, scene.Options{Quadlet: years})
	b.deploy(t, "v2", promoted("v2"))
	if have := b.command(t, "web.service"); !strings.Contains(have, " "+b.at(t, "v2")+" ") {
		t.Errorf("the command is %s", have)
	}
	b.deploy(t, "crash", rolledBack("candidate_exited", "v2"))

	for _, c := range []struct{ name, old, with, says string }{
		{"a near-miss", ` Image = "127.0.0.1:5000/app:v1"`, "", ""}, // the one before it counts then, and is of the right repository
		{"another repository last", ` Image = "127.0.0.1:5000/app:v1"`, "Image=127.0.0.1:5000/other:1", "is of 127.0.0.1:5000/other, but " + host.Repository + " is enrolled"},
		{"Rootfs beside Image", ` Image = "127.0.0.1:5000/app:v1"`, "Image=127.0.0.1:5000/app:v1\nRootfs=/srv", "runs a folder, not an image"},
	} {
		b.put(t, map[string]string{quadlet: strings.Replace(years, c.old, c.with, 1)})
		if c.says != "" {
			b.refuses(t, c.name, "binding_broken", c.says)
		} else {
			b.accepts(t, c.name)
		}
	}
	for name, c := range map[string]struct{ container, says string }{
		"lower case":      {"image=127.0.0.1:5000/app:v1", "is not a key: Podman tells Image from image; write Image"},
		"Rootfs":          {"Rootfs=/srv", "runs a folder, not an image"},
		"no image":        {"", "[Container] Image: is missing"},
		"another section": {"[Service]\nImage=127.0.0.1:5000/app:v1", "stands in the wrong section; move it to [Container]"},
	} {
		b.put(t, map[string]string{quadlet: "[Container]\nPublishPort=127.0.0.1:8080:8080\n" + c.container + "\n"})
		b.refuses(t, name, "binding_broken", c.says)
	}
}
