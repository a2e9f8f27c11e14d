//go:build e2e

package podmanc

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// TestE2ELayersShowWhatAContainerShows holds what is read from the layers against Podman's own answer.
func TestE2ELayersShowWhatAContainerShows(t *testing.T) {
	startRegistry(t)
	c := New("")
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	folder := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name} }
	link := func(name, to string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}
	}
	p := push(t, recipe{version: "layers", above: []v1.Layer{
		tarLayer(t, folder("usr"), folder("usr/bin"), file("usr/bin/tool"), link("bin", "usr/bin"), folder("a"), file("a/x"), file("a/y"), folder("opaque"),
			file("opaque/below"), folder("turned"), file("turned/file"), link("became", "/a"), folder("deep"), folder("deep/er"), file("deep/er/f"),
			link("deep/up", "../../../a/x"), link("round", "round"), link("toproc", "/proc/self/exe"), tar.Header{Typeflag: tar.TypeFifo, Name: "fifo"},
			tar.Header{Typeflag: tar.TypeLink, Name: "hard", Linkname: "a/y"}, folder("tree"), folder("tree/sub"), file("tree/sub/f")),
		tarLayer(t, folder("a"), file("a/.wh.x"), folder("opaque"), file("opaque/.wh..wh..opq"), file("opaque/above"), file("turned"), folder("became"),
			file("became/in"), folder("deep"), file("deep/.wh.er"), file(".wh.tree")),
		tarLayer(t, folder("deep"), folder("deep/er"), file("deep/er/new"), folder("tree"), link("via", "/deep/er/../../bin/tool")),
	}})
	img := mustPull(t, c, p.ref())
	if err := c.createStopped(t.Context(), "layers", img.ID); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { run(t, "podman", "rm", "-f", "layers") })
	there := 0
	for _, name := range []string{
		"/bin/tool", "/a/x", "/hard", "/opaque/below", "/opaque/above", "/turned", "/turned/file", "/became/in", "/became/y", "/deep/er/f", "/deep/er/new",
		"/deep/up", "/tree/sub/f", "/via", "/round", "/fifo", // each costs Podman a second
	} {
		var want bytes.Buffer
		found, err := c.copyFile(t.Context(), "layers", name, 200<<20, &want)
		if err != nil {
			t.Fatal(err)
		}
		f, err := img.Open([]string{name}, 200<<20)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if f == nil {
			if found != "" {
				t.Errorf("%s is not found; a container shows %s", name, found)
			}
			continue
		}
		there++
		have, err := io.ReadAll(f)
		if err != nil || found == "" || !bytes.Equal(have, want.Bytes()) {
			t.Errorf("%s: %d bytes, a container shows %q with %d: %v", name, len(have), found, want.Len(), err)
		}
		_ = f.Close()
	}
	if there != 7 {
		t.Errorf("only %d files were found", there)
	}
	if f, err := img.Open([]string{"/none", "/bin/tool", "/app"}, 200<<20); err != nil || f == nil {
		t.Errorf("the first of several: %v", err)
	} else if text, _ := io.ReadAll(f); string(text) != "usr/bin/tool" {
		t.Errorf("the first of several is %q", text)
	}
	if _, err := img.Open([]string{"/app"}, 1000); !errors.Is(err, ErrTooLarge) {
		t.Errorf("have %v", err)
	}
	// What cannot be read is told from what is not there.
	top := img.layers[len(img.layers)-1]
	if err := os.Chmod(top, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(top, 0o755) })
	if _, err := img.Open([]string{"/nowhere"}, 1000); !errors.Is(err, ErrNoLayers) {
		t.Errorf("have %v", err)
	}
}
