package podmanc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func retain(t *testing.T, c *Client, dir string, images ...fakeImage) {
	t.Helper()
	for _, i := range images {
		if err := c.Retain(t.Context(), dir, i.id()); err != nil {
			t.Fatal(err)
		}
	}
}

func wantRetained(t *testing.T, c *Client, dir, id string, want bool) {
	t.Helper()
	have, err := c.Retained(dir, id)
	if err != nil || want != have {
		t.Errorf("retained: want %t, have %t, %v", want, have, err)
	}
}

func blobsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := os.ReadDir(store(dir).blobs())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		names = append(names, f.Name())
	}
	return names
}

func TestARetainedImageComesBackUnderItsID(t *testing.T) {
	img := newFakeImage("web", "base layer", "top layer", "")
	f, c := startPodman(t, img)
	dir := filepath.Join(t.TempDir(), "images")
	wantRetained(t, c, dir, img.id(), false)
	retain(t, c, dir, img)
	wantRetained(t, c, dir, img.id(), true)
	if err := VerifyRetained(dir, img.id()); err != nil {
		t.Error(err)
	}

	if err := c.LoadBack(t.Context(), dir, img.id()); err != nil || f.asked("POST /images/load") != 0 {
		t.Errorf("what is not lost needs no load: %v", err)
	}
	f.pruneAll()
	if err := c.LoadBack(t.Context(), dir, img.id()); err != nil {
		t.Fatal(err)
	}
	have, ok := f.find(img.id())
	if !ok || !reflect.DeepEqual(have.layers, img.layers) {
		t.Errorf("want the layers %q, have %q", img.layers, have.layers)
	}
}

func TestRetainingTwiceAsksOnce(t *testing.T) {
	img := newFakeImage("web", "layer")
	f, c := startPodman(t, img)
	dir := t.TempDir()
	retain(t, c, dir, img, img)
	if n := f.asked("GET /images/" + img.id() + "/get"); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestReleasesShareLayers(t *testing.T) {
	a, b := newFakeImage("a", "base", "a"), newFakeImage("b", "base", "b")
	_, c := startPodman(t, a, b)
	dir := t.TempDir()
	retain(t, c, dir, a)
	base := filepath.Join(dir, "blobs", sum([]byte("base")))
	before, err := os.Stat(base)
	if err != nil {
		t.Fatal(err)
	}
	retain(t, c, dir, b)
	after, err := os.Stat(base)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the base was written twice: %v", err)
	}
	if want, have := 2*3+1, len(blobsIn(t, dir)); want != have { // config, manifest.json and own layer of each
		t.Errorf("want %d blobs, have %d", want, have)
	}
	if err := DropRetained(dir, []string{b.id()}); err != nil {
		t.Fatal(err)
	}
	wantRetained(t, c, dir, a.id(), false)
	wantRetained(t, c, dir, b.id(), true)
	if want, have := 4, len(blobsIn(t, dir)); want != have {
		t.Errorf("want %d blobs, have %d", want, have)
	}
}

func TestAnArchiveThatIsCutIsNotRetained(t *testing.T) {
	img := newFakeImage("web", strings.Repeat("base", 1000), "top")
	f, c := startPodman(t, img)
	whole := img.dockerArchive()
	dir := t.TempDir()
	for _, n := range []int{0, 100, 512, 1024, 5000, len(whole) / 2, len(whole) - 1537} {
		f.export = func(string, string) []byte { return whole[:n] }
		if err := c.Retain(t.Context(), dir, img.id()); err == nil {
			t.Errorf("%d bytes of %d were taken", n, len(whole))
		}
		wantRetained(t, c, dir, img.id(), false)
	}
	f.export = func(string, string) []byte { return whole }
	dir = t.TempDir()
	f.before = append(f.before, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Length", "1000000") // the end mark arrives, the end of the answer does not
		_, _ = w.Write(whole)
		return true
	})
	if err := c.Retain(t.Context(), dir, img.id()); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("have %v", err)
	}
	for _, b := range blobsIn(t, dir) {
		if !hexID.MatchString(b) {
			t.Errorf("left over: %s", b)
		}
	}
	retain(t, c, dir, img)
}

func TestAnArchiveOfAnotherImageIsNotRetained(t *testing.T) {
	img, other := newFakeImage("web", "layer"), newFakeImage("other", "layer", "more")
	f, c := startPodman(t, img)
	wrongLayer := newFakeImage("web", "layer")
	wrongLayer.layers[0] = []byte("else")
	tagged := bytes.Replace(img.dockerArchive(), []byte(`"RepoTags":null`), []byte(`"RepoTags":["a"]`[:15]), 1)
	for name, archive := range map[string][]byte{
		"other image": other.dockerArchive(), "other layer": wrongLayer.dockerArchive(), "broken manifest": tagged,
		"no archive": []byte(strings.Repeat("x", 2048)), "empty": archiveOf(nil, nil),
	} {
		f.export = func(string, string) []byte { return archive }
		dir := t.TempDir()
		if err := c.Retain(t.Context(), dir, img.id()); err == nil {
			t.Errorf("%s was taken", name)
		}
		wantRetained(t, c, dir, img.id(), false)
	}
}

func TestWhatDockerArchiveCannotCarryIsKeptAsOCIArchive(t *testing.T) {
	img, other := newFakeImage("web", "layer"), newFakeImage("other", "layer")
	f, c := startPodman(t, img)
	f.export = func(_, format string) []byte {
		if format == dockerArchive {
			return other.dockerArchive()
		}
		return img.ociArchive()
	}
	dir := t.TempDir()
	retain(t, c, dir, img)
	if err := VerifyRetained(dir, img.id()); err != nil {
		t.Error(err)
	}
	if idx, err := store(dir).index(img.id()); err != nil || idx.Format != ociArchive {
		t.Errorf("have %s, %v", idx.Format, err)
	}
}

func TestAnImageThatPodmanDoesNotHaveCannotBeRetained(t *testing.T) {
	_, c := startPodman(t)
	if err := c.Retain(t.Context(), t.TempDir(), newFakeImage("web").id()); !errors.Is(err, ErrNoImage) {
		t.Errorf("have %v", err)
	}
	for _, id := range []string{"", "../../etc/passwd", "sha256:" + strings.Repeat("a", 64)} {
		if err := c.Retain(t.Context(), t.TempDir(), id); err == nil {
			t.Errorf("%q was taken for an image id", id)
		}
	}
}

func TestALostOrDamagedBlobIsNoWayBack(t *testing.T) {
	img := newFakeImage("web", "base layer", "top layer")
	top := sum([]byte("top layer"))
	for name, harm := range map[string]func(path string) error{
		"missing": os.Remove,
		"shorter": func(p string) error { return os.WriteFile(p, []byte("top"), 0o600) },
		"longer":  func(p string) error { return os.WriteFile(p, []byte("top layer and more"), 0o600) },
		"other":   func(p string) error { return os.WriteFile(p, []byte("t0p layer"), 0o600) },
	} {
		f, c := startPodman(t, img)
		dir := t.TempDir()
		retain(t, c, dir, img)
		if err := harm(store(dir).blob(top)); err != nil {
			t.Fatal(err)
		}
		wantRetained(t, c, dir, img.id(), name == "other") // a look at sizes cannot tell
		f.pruneAll()
		if err := c.LoadBack(t.Context(), dir, img.id()); !errors.Is(err, ErrNotRetained) || !strings.Contains(err.Error(), top) {
			t.Errorf("%s: have %v", name, err)
		}
		if _, ok := f.find(img.id()); ok {
			t.Errorf("%s: podman took half an archive", name)
		}
		if err := VerifyRetained(dir, img.id()); !errors.Is(err, ErrNotRetained) {
			t.Errorf("%s: verify: have %v", name, err)
		}
		// With the image back, for instance from the registry, it is mended.
		f.add(img)
		retain(t, c, dir, img)
		if err := VerifyRetained(dir, img.id()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestABrokenIndexIsNoWayBackAndIsMended(t *testing.T) {
	img, other := newFakeImage("web", "layer"), newFakeImage("other", "x")
	for _, text := range []string{"", "{", "\x00\x00", `{"schema":99}`} {
		f, c := startPodman(t, img, other)
		dir := t.TempDir()
		retain(t, c, dir, img, other)
		if err := os.WriteFile(store(dir).indexPath(img.id()), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		wantRetained(t, c, dir, img.id(), false)
		f.mu.Lock()
		delete(f.images, img.id())
		f.mu.Unlock()
		if err := c.LoadBack(t.Context(), dir, img.id()); !errors.Is(err, ErrNotRetained) {
			t.Errorf("%q: have %v", text, err)
		}
		before := len(blobsIn(t, dir))
		if err := DropRetained(dir, []string{img.id(), other.id()}); err == nil || len(blobsIn(t, dir)) != before {
			t.Errorf("%q: blobs went without knowing whose they are: %v", text, err)
		}
		f.add(img)
		retain(t, c, dir, img)
		if err := DropRetained(dir, []string{img.id(), other.id()}); err != nil || len(blobsIn(t, dir)) != before {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestBlobsStayWhileAnotherProcessRetains(t *testing.T) {
	img := newFakeImage("web", "layer")
	_, c := startPodman(t, img)
	dir := t.TempDir()
	retain(t, c, dir, img)
	unlock, err := store(dir).share(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := DropRetained(dir, nil); err != nil || len(blobsIn(t, dir)) != 3 {
		t.Errorf("have %d blobs, %v", len(blobsIn(t, dir)), err)
	}
	unlock()
	if err := DropRetained(dir, nil); err != nil || len(blobsIn(t, dir)) != 0 {
		t.Errorf("have %d blobs, %v", len(blobsIn(t, dir)), err)
	}
	if err := DropRetained(filepath.Join(dir, "missing"), nil); err != nil {
		t.Error(err)
	}
}

func TestLeftoversOfAKilledRetainAreSwept(t *testing.T) {
	dir := t.TempDir()
	left := filepath.Join(dir, "blobs", ".toad-tmp-1")
	if err := os.Mkdir(filepath.Dir(left), 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	if err := errors.Join(os.WriteFile(left, nil, 0o600), os.Chtimes(left, old, old)); err != nil {
		t.Fatal(err)
	}
	if err := DropRetained(dir, nil); err != nil || len(blobsIn(t, dir)) != 0 {
		t.Errorf("have %q, %v", blobsIn(t, dir), err)
	}
}

func TestALoadThatIsDroppedIsMadeAgainInFull(t *testing.T) {
	img := newFakeImage("web", strings.Repeat("layer", 100_000))
	f, c := startPodman(t, img)
	dir := t.TempDir()
	retain(t, c, dir, img)
	f.pruneAll()
	f.before = append(f.before, pass, func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.CopyN(io.Discard, r.Body, 1000)
		return hangUp(w, r)
	})
	if err := c.LoadBack(t.Context(), dir, img.id()); err != nil {
		t.Error(err)
	}
}

func TestWhatComesBackUnderAnotherIDIsSaid(t *testing.T) {
	img := newFakeImage("web", "layer")
	f, c := startPodman(t, img)
	dir := t.TempDir()
	retain(t, c, dir, img)
	f.pruneAll()
	f.before = append(f.before, pass, func(w http.ResponseWriter, r *http.Request) bool {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = json.NewEncoder(w).Encode(map[string]any{"Names": []string{"sha256:else"}})
		return true
	})
	if err := c.LoadBack(t.Context(), dir, img.id()); !errors.Is(err, ErrNotRetained) || !strings.Contains(err.Error(), "sha256:else") {
		t.Errorf("have %v", err)
	}
	f.before = append(f.before, pass, func(w http.ResponseWriter, _ *http.Request) bool {
		refuse(w, 500, "unable to load image: no space left on device")
		return true
	})
	if err := c.LoadBack(t.Context(), dir, img.id()); err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("have %v", err)
	}
}

func TestALoadEndsWithItsContext(t *testing.T) {
	img := newFakeImage("web", strings.Repeat("layer", 1_000_000))
	f, c := startPodman(t, img)
	dir := t.TempDir()
	retain(t, c, dir, img)
	f.pruneAll()
	release := make(chan struct{})
	defer close(release)
	f.before = append(f.before, pass, func(http.ResponseWriter, *http.Request) bool { <-release; return true })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.LoadBack(ctx, dir, img.id()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("have %v", err)
	}
}

// What parses is what this version could have written, and its names stay inside the store.
func FuzzParseIndex(f *testing.F) {
	hex := strings.Repeat("a", 64)
	f.Add([]byte(`{"schema":1,"image":"` + hex + `","format":"docker-archive","entries":[{"name":"x","kind":"file","mode":292,"size":3,"sha256":"` + hex + `"},{"name":"l","kind":"symlink","mode":511,"target":"../x"},{"name":"d/","kind":"dir","mode":493}]}`))
	f.Add([]byte(`{"schema":1,"image":"../../x","format":"docker-archive","entries":[]}`))
	f.Add([]byte(`{}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		idx, err := parseIndex(data)
		if err != nil {
			return
		}
		for _, e := range idx.Entries {
			if e.Kind == kindFile && filepath.Dir(store("s").blob(e.SHA256)) != "s/blobs" {
				t.Errorf("%q is outside", e.SHA256)
			}
		}
		written, err := json.Marshal(idx)
		if err != nil {
			t.Fatal(err)
		}
		again, err := parseIndex(written)
		if err != nil || !reflect.DeepEqual(idx, again) {
			t.Errorf("want %+v, have %+v, %v", idx, again, err)
		}
	})
}
