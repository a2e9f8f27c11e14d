//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C05: a drop-in decides the image, and what a tool writes elsewhere has no effect: it reports success while another image
// runs. Whatever makes the unit another one than the pin says is found before anything is stopped, and named.
func TestC05ADropInWins(t *testing.T) {
	b := lay(t, scene.Options{Files: map[string]string{
		folder + "web.container.d/90-local.conf": "[Container]\nImage=" + host.Repository + ":never\n",
		folder + "container.d/99-corp.conf":      "[Container]\nImage=" + host.Repository + ":v1\nPull=always\n",
	}})
	// What sorts before toad's own does no harm, of whichever level it is.
	b.deploy(t, "v2", promoted("v2"))

	image := "[Container]\nImage=" + host.Repository + ":never\n"
	for _, c := range []struct{ file, text, what string }{
		{folder + "web.container.d/zzz-local.conf", image, "the image is"},
		{folder + "container.d/zzz-corp.conf", image, "the image is"},
		{folder + "container.d/50-args.conf", "[Container]\nPodmanArgs=--pull always\n", "the pull policy is"},
		{folder + "container.d/50-rootfs.conf", "[Container]\nPodmanArgs=--rootfs\n", "runs a folder"},
		{folder + "container.d/50-store.conf", "[Container]\nGlobalArgs=--root=/tmp/store\n", "Podman is given --root"},
		{"~/.config/systemd/user/web.service.d/env.conf", "[Service]\nEnvironment=CONTAINERS_STORAGE_CONF=/tmp/storage.conf\n", "CONTAINERS_STORAGE_CONF"},
		{"~/.config/systemd/user/web.service.d/x.conf", "[Service]\nExecCondition=\n", "ExecCondition= is not there"},
		{"~/.config/systemd/user/web.service.d/x.conf", "[Service]\nExecStart=\nExecStart=/usr/bin/podman run --rm " + host.Repository + ":never\n", "ExecStart"},
	} {
		b.put(t, map[string]string{c.file: c.text})
		name := c.file[strings.LastIndexByte(c.file, '/')+1:]
		b.refuses(t, c.file+"\n"+c.text, "binding_broken", c.what, name)
		b.put(t, map[string]string{c.file: ""})
	}
}
