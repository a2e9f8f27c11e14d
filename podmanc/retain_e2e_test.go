//go:build e2e

package podmanc

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestE2ERetainSurvivesPrune(t *testing.T) {
	reg := startRegistry(t)
	c := New("")
	dir := filepath.Join(t.TempDir(), "images")
	extra := [][]byte{[]byte("a"), slices.Repeat([]byte("b"), 3_000_000), []byte("a"), nil}
	recipes := map[string]recipe{
		"OCI": {version: "r1"}, "Docker": {version: "r2", docker: true, health: true},
		"OCI, many layers": {version: "r3", extra: extra}, "Docker, many layers": {version: "r4", docker: true, extra: extra},
	}
	images := map[string]pushed{}
	for name, r := range recipes {
		images[name] = push(t, r)
		mustPull(t, c, images[name].ref())
	}
	run(t, "podman", "tag", images["OCI"].ref(), "localhost/moving:latest")
	for name, p := range images {
		begin := time.Now()
		if err := c.Retain(t.Context(), dir, p.id); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		idx, _ := store(dir).index(p.id)
		t.Logf("%s: retained as %s in %s", name, idx.Format, time.Since(begin).Round(time.Millisecond))
	}
	t.Log(run(t, "du", "-sh", dir), run(t, "sh", "-c", "ls "+dir+"/blobs | wc -l"))
	// The tag is another image's by now; a load must not take it back.
	run(t, "podman", "tag", images["Docker"].ref(), "localhost/moving:latest")
	reg.down()
	for name, p := range images {
		pruneAll(t)
		if _, err := c.Image(t.Context(), p.id); !errors.Is(err, ErrNoImage) {
			t.Fatalf("%s: prune left it: %v", name, err)
		}
		begin := time.Now()
		if err := c.LoadBack(t.Context(), dir, p.id); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		t.Logf("%s: loaded back in %s", name, time.Since(begin).Round(time.Millisecond))
		img, err := c.Image(t.Context(), p.id)
		if err != nil || img.ID != p.id || img.Digest != "" || len(img.Digests) != 0 {
			t.Errorf("%s: have %+v, %v", name, img, err)
		}
		t.Logf("%s: tags %s", name, run(t, "podman", "image", "inspect", "-f", "{{.RepoTags}} {{.Size}}", p.id))
		if _, err := c.Image(t.Context(), p.ref()); !errors.Is(err, ErrNoImage) {
			t.Errorf("%s: its digest resolves: %v", name, err)
		}
		run(t, "podman", "run", "-d", "--name", "back", "--pull=never", "--network=none", p.id)
		if have, err := c.Container(t.Context(), "back"); err != nil || have.ImageID != p.id || !have.Running {
			t.Errorf("%s: have %+v, %v", name, have, err)
		}
		if img, err := c.Image(t.Context(), p.id); err != nil || img.Healthcheck != recipes[name].health {
			t.Errorf("%s: health check is %t, %v", name, img.Healthcheck, err)
		}
		run(t, "podman", "rm", "-f", "-t0", "back")
		// An image that came back can be retained as well.
		if err := c.Retain(t.Context(), filepath.Join(t.TempDir(), "again"), p.id); err != nil {
			t.Errorf("%s: again: %v", name, err)
		}
	}
	for name, p := range images {
		if err := VerifyRetained(dir, p.id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := DropRetained(dir, []string{images["OCI"].id}); err != nil {
		t.Fatal(err)
	}
	if err := VerifyRetained(dir, images["OCI"].id); err != nil {
		t.Error(err)
	}
	t.Log(run(t, "du", "-sh", dir))
	reg.up(t)
}

// What the fallback is worth: it keeps the id of OCI images only, and is not taken where it would not.
func TestE2ERetainAsOCIArchive(t *testing.T) {
	startRegistry(t)
	c := New("")
	dir := t.TempDir()
	unlock, err := store(dir).share(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	oci, docker := push(t, recipe{version: "o1"}), push(t, recipe{version: "o2", docker: true})
	mustPull(t, c, oci.ref())
	mustPull(t, c, docker.ref())
	if err := c.retainAs(t.Context(), store(dir), docker.id, ociArchive); !errors.Is(err, errUnfit) {
		t.Errorf("docker image: have %v", err)
	}
	if err := c.retainAs(t.Context(), store(dir), oci.id, ociArchive); err != nil {
		t.Fatal(err)
	}
	pruneAll(t)
	if err := c.LoadBack(t.Context(), dir, oci.id); err != nil {
		t.Error(err)
	}
}
