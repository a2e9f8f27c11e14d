//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C07: of two files of one name the second is silently ignored, and ServiceName= calls the unit otherwise than the file.
// Which unit a file makes is what systemd has loaded, not what its name says.
func TestC07WhichUnit(t *testing.T) {
	named := strings.Replace(image(host.Repository+":v1"), "[Container]", "[Container]\nServiceName=shop-frontend", 1)
	b := bare(t)
	b.WriteFile(t, quadlet, named, 0o644)
	b.MustUser(t, "systemctl", "--user", "daemon-reload")
	b.MustUser(t, "systemctl", "--user", "start", "--no-block", "shop-frontend.service")
	b.up(t, scene.Options{Quadlet: named, Stopped: true})
	b.Serves(t, "v1")

	b.deploy(t, "v2", promoted("v2"))
	b.deploy(t, "crash", rolledBack("candidate_exited", "v2", "shop-frontend.service exited with status 2"))
	if have := b.MustUser(t, "podman", "ps", "--format", "{{.Names}}"); have != "systemd-shop-frontend" {
		t.Errorf("want the container systemd-shop-frontend, have %s", have)
	}
	if have := b.MustUser(t, "systemctl", "--user", "list-units", "--all", "--plain", "--no-legend", "web.service"); strings.TrimSpace(have) != "" {
		t.Errorf("web.service, which nobody made, was called for: %s", have)
	}

	// A second file of the name, in a folder that is read before or after, is found at the deployment.
	for _, twin := range []string{"shop/web.container", "a/web.container"} {
		b.put(t, map[string]string{folder + twin: named})
		b.refuses(t, twin, "binding_broken", twin, "has the same name as", "rename or remove one of the two")
		b.put(t, map[string]string{folder + twin: ""})
	}
	// In the runtime folder it takes the place of the one that toad has pinned.
	const runtime = "/run/user/1000/containers/systemd/web.container"
	b.put(t, map[string]string{runtime: strings.Replace(named, "v1", "never", 1)})
	b.deploy(t, "v3", promoted("v3"))
	b.MustUser(t, "rm", runtime)
	b.MustUser(t, "systemctl", "--user", "daemon-reload")

	// A unit file of the name hides all Quadlets.
	b.put(t, map[string]string{"~/.config/systemd/user/shop-frontend.service": "[Service]\nExecStart=sleep infinity\n"})
	b.refuses(t, "a unit file", "binding_broken", "shop-frontend.service: is not made from a Quadlet file: this file takes its place")
	// Another Quadlet may claim the unit's name.
	b.put(t, map[string]string{"~/.config/systemd/user/shop-frontend.service": "",
		folder + "zz.container": named})
	b.refuses(t, "another file that makes the same unit", "binding_broken", "is made from another file", "zz.container")
}
