package podmanc

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const repo = "registry.example.org/team/web"

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// fakeImage is an image in the fake's storage. Its id is the sum of its config, as Podman's is.
type fakeImage struct {
	config  []byte
	layers  [][]byte
	digests []string // "sha256:…"; gone after a load
}

func newFakeImage(name string, layers ...string) fakeImage {
	var img fakeImage
	ids := []string{}
	for _, l := range layers {
		img.layers = append(img.layers, []byte(l))
		ids = append(ids, "sha256:"+sum([]byte(l)))
	}
	img.config, _ = json.Marshal(map[string]any{"comment": name, "rootfs": map[string]any{"diff_ids": ids}})
	img.digests = []string{"sha256:" + sum([]byte("manifest of "+name)), "sha256:" + sum([]byte("index of "+name))}
	return img
}

func (i fakeImage) id() string  { return sum(i.config) }
func (i fakeImage) ref() string { return repo + "@" + i.digests[0] }

// dockerArchive is laid out as Podman's: layers by diff id, config by image id, legacy links, manifest last.
func (i fakeImage) dockerArchive() []byte {
	var files []tar.Header
	content := map[string][]byte{}
	var layers []string
	for _, l := range i.layers {
		name := sum(l) + ".tar"
		layers, content[name] = append(layers, name), l
		files = append(files, tar.Header{Name: name}, tar.Header{Name: "link-to-" + name, Typeflag: tar.TypeSymlink, Linkname: "../" + name})
	}
	content[i.id()+".json"] = i.config
	content["manifest.json"], _ = json.Marshal([]map[string]any{{"Config": i.id() + ".json", "RepoTags": nil, "Layers": layers}})
	files = append(files, tar.Header{Name: "legacy/", Typeflag: tar.TypeDir}, tar.Header{Name: i.id() + ".json"}, tar.Header{Name: "manifest.json"})
	return archiveOf(files, content)
}

func (i fakeImage) ociArchive() []byte {
	content := map[string][]byte{"oci-layout": []byte(`{}`)}
	blob := func(b []byte) map[string]any {
		content["blobs/sha256/"+sum(b)] = b
		return map[string]any{"digest": "sha256:" + sum(b)}
	}
	var layers []any
	for _, l := range i.layers {
		layers = append(layers, blob(append([]byte("compressed "), l...)))
	}
	manifest, _ := json.Marshal(map[string]any{"config": blob(i.config), "layers": layers})
	content["index.json"], _ = json.Marshal(map[string]any{"manifests": []any{blob(manifest)}})
	var files []tar.Header
	for name := range content {
		files = append(files, tar.Header{Name: name})
	}
	return archiveOf(files, content)
}

func archiveOf(files []tar.Header, content map[string][]byte) []byte {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range files {
		h.Mode, h.Size = 0o444, int64(len(content[h.Name]))
		if err := w.WriteHeader(&h); err != nil {
			panic(err)
		}
		_, _ = w.Write(content[h.Name])
	}
	_ = w.Close()
	return buf.Bytes()
}

// fakePodman behaves: what is pulled or loaded is found, what is pruned is lost, what it loads it checks.
type fakePodman struct {
	socket  string
	version string

	mu     sync.Mutex
	images map[string]fakeImage
	before []func(http.ResponseWriter, *http.Request) bool // the first is taken off and asked; true = it has answered
	stop   func()                                          // ends the service and takes the socket away
	pull   func(http.ResponseWriter, *http.Request)
	export func(id, format string) []byte
	seen   []string // method and path of each request
}

func startPodman(t *testing.T, images ...fakeImage) (*fakePodman, *Client) {
	t.Helper()
	dir, err := os.MkdirTemp("", "podmanc") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	f := &fakePodman{socket: filepath.Join(dir, "podman.sock"), version: "5.4.2", images: map[string]fakeImage{}}
	f.export = func(id, format string) []byte {
		if format == ociArchive {
			return f.images[id].ociArchive()
		}
		return f.images[id].dockerArchive()
	}
	for _, i := range images {
		f.images[i.id()] = i
	}
	f.listen(t)
	t.Setenv("REGISTRY_AUTH_FILE", "")
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("HOME", dir)
	return f, New(f.socket)
}

// listen starts the service on the socket.
func (f *fakePodman) listen(t *testing.T) {
	t.Helper()
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: f}}
	srv.Start()
	t.Cleanup(srv.Close)
	f.stop = func() {
		srv.CloseClientConnections()
		srv.Close()
	}
}

func (f *fakePodman) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, path, _ := strings.Cut(r.URL.Path, "/libpod")
	f.mu.Lock()
	f.seen = append(f.seen, r.Method+" "+path)
	var hook func(http.ResponseWriter, *http.Request) bool
	if len(f.before) > 0 {
		hook, f.before = f.before[0], f.before[1:]
	}
	f.mu.Unlock()
	if hook != nil && hook(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 2)
	switch {
	case path == "/_ping":
		w.Header().Set("Libpod-API-Version", f.version)
	case path == "/images/pull":
		f.pull(w, r)
	case path == "/images/load":
		f.load(w, r)
	case parts[0] == "images" && strings.HasSuffix(path, "/json"):
		f.inspect(w, strings.TrimSuffix(parts[1], "/json"))
	case parts[0] == "images" && strings.HasSuffix(path, "/get"):
		id := strings.TrimSuffix(parts[1], "/get")
		if _, ok := f.find(id); !ok {
			refuse(w, 404, "no such image")
			return
		}
		w.Header().Set("Content-Type", "application/x-tar")
		_, _ = w.Write(f.export(id, r.URL.Query().Get("format")))
	default:
		refuse(w, 404, "no such route "+path)
	}
}

func refuse(w http.ResponseWriter, status int, message string) {
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"cause": message, "message": message, "response": status})
}

func (f *fakePodman) find(ref string) (fakeImage, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if i, ok := f.images[ref]; ok {
		return i, true
	}
	_, digest, _ := strings.Cut(ref, "@")
	for _, i := range f.images {
		if slices.Contains(i.digests, digest) {
			return i, true
		}
	}
	return fakeImage{}, false
}

func (f *fakePodman) inspect(w http.ResponseWriter, ref string) {
	i, ok := f.find(ref)
	if !ok {
		refuse(w, 404, "failed to find image "+ref)
		return
	}
	var repoDigests []string
	for _, d := range i.digests {
		repoDigests = append(repoDigests, repo+"@"+d)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"Id": i.id(), "RepoDigests": repoDigests, "Os": "linux"})
}

// load takes only whole archives whose layers are those that the config names.
func (f *fakePodman) load(w http.ResponseWriter, r *http.Request) {
	img, err := readDockerArchive(r.Body)
	if err != nil {
		refuse(w, 500, "unable to load image: "+err.Error())
		return
	}
	f.add(img)
	_ = json.NewEncoder(w).Encode(map[string]any{"Names": []string{"sha256:" + img.id()}})
}

func (f *fakePodman) add(img fakeImage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images[img.id()] = img
}

func (f *fakePodman) pruneAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.images = map[string]fakeImage{}
}

func (f *fakePodman) asked(request string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.seen {
		if s == request {
			n++
		}
	}
	return n
}

func readDockerArchive(r io.Reader) (fakeImage, error) {
	content := map[string][]byte{}
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fakeImage{}, err
		}
		if content[h.Name], err = io.ReadAll(t); err != nil {
			return fakeImage{}, err
		}
	}
	var manifests []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(content["manifest.json"], &manifests); err != nil {
		return fakeImage{}, err
	}
	img := fakeImage{config: content[manifests[0].Config]}
	for _, l := range manifests[0].Layers {
		if !bytes.Contains(img.config, []byte(sum(content[l]))) {
			return fakeImage{}, fmt.Errorf("layer %s is not the image's", l)
		}
		img.layers = append(img.layers, content[l])
	}
	return img, nil
}
