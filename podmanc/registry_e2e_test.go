//go:build e2e

package podmanc

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The registry of these tests runs in the test itself, at a port that no fixture of other tests uses.
const (
	address  = "127.0.0.1:5009"
	localApp = address + "/team/app"
)

// testRegistry can be down, and can be told how to answer.
type testRegistry struct {
	mu      sync.Mutex
	store   http.Handler
	fault   func(w http.ResponseWriter, r *http.Request) bool // true = it has answered
	server  *http.Server
	written sync.Once
}

func (r *testRegistry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	fault := r.fault
	r.mu.Unlock()
	if fault == nil || !fault(w, req) {
		r.store.ServeHTTP(w, req)
	}
}

// breakWith makes the registry answer by f until the test ends.
func (r *testRegistry) breakWith(t *testing.T, f func(w http.ResponseWriter, r *http.Request) bool) {
	t.Helper()
	set := func(f func(w http.ResponseWriter, r *http.Request) bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fault = f
	}
	set(f)
	t.Cleanup(func() { set(nil) })
}

func (r *testRegistry) up(t *testing.T) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	r.server = &http.Server{Handler: r}
	go func() { _ = r.server.Serve(l) }()
}

func (r *testRegistry) down() { _ = r.server.Close() }

var theRegistry = &testRegistry{store: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}

// startRegistry serves for the time of one test; what was pushed stays for the next.
func startRegistry(t *testing.T) *testRegistry {
	t.Helper()
	theRegistry.written.Do(func() { trustRegistry(t) })
	theRegistry.up(t)
	t.Cleanup(theRegistry.down)
	return theRegistry
}

func trustRegistry(t *testing.T) {
	t.Helper()
	dir := filepath.Join(os.Getenv("HOME"), ".config/containers/registries.conf.d")
	conf := "[[registry]]\nlocation = \"" + address + "\"\ninsecure = true\n"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "podmanc.conf"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "systemctl", "--user", "stop", "podman.service")
}

func run(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// recipe is an image of the test binary, so that it can be run; the zero value is an OCI image for amd64.
type recipe struct {
	version string
	docker  bool
	arch    string
	extra   [][]byte // content of further layers
	health  bool
	links   map[string]string // further links in the image, by name
	above   []v1.Layer        // laid above all else
}

// pushed is what the registry holds of a recipe.
type pushed struct{ digest, id string }

func (p pushed) ref() string { return localApp + "@" + p.digest }

func push(t *testing.T, r recipe) pushed {
	t.Helper()
	img := build(t, r)
	ref, err := name.NewTag(localApp+":"+r.version, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img); err != nil {
		t.Fatal(err)
	}
	return pushedOf(t, img)
}

func pushedOf(t *testing.T, img v1.Image) pushed {
	t.Helper()
	digest, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	id, err := img.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	return pushed{digest.String(), id.Hex}
}

// pushIndex pushes one image for each architecture and gives the index and the first image.
func pushIndex(t *testing.T, version string, archs ...string) (index, first pushed) {
	t.Helper()
	idx := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for i, arch := range archs {
		img := build(t, recipe{version: version + arch, arch: arch})
		if i == 0 {
			first = pushedOf(t, img)
		}
		idx = mutate.AppendManifests(idx, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	ref, err := name.NewTag(localApp+":"+version, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, idx); err != nil {
		t.Fatal(err)
	}
	digest, err := idx.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return pushed{digest: digest.String()}, first
}

var program = sync.OnceValue(func() []byte {
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	return b
})

func build(t *testing.T, r recipe) v1.Image {
	t.Helper()
	if r.arch == "" {
		r.arch = "amd64"
	}
	config := &v1.ConfigFile{
		Architecture: r.arch, OS: "linux", RootFS: v1.RootFS{Type: "layers"},
		Created: v1.Time{Time: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)},
		Config: v1.Config{
			Entrypoint: []string{"/app"}, Env: []string{"PODMANC_E2E_CHILD=1", "DB_PW=S3NT1NEL"},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}}, Labels: map[string]string{"version": r.version},
		},
	}
	if r.health {
		config.Config.Healthcheck = &v1.HealthConfig{Test: []string{"CMD", "/app", "health"}, Interval: time.Second}
	}
	img, layerType := empty.Image, types.DockerLayer
	if !r.docker {
		img, layerType = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON), types.OCILayer
	}
	img, err := mutate.ConfigFile(img, config)
	if err != nil {
		t.Fatal(err)
	}
	layers := []v1.Layer{layerOf(t, "app", program()), layerOf(t, "version", []byte(r.version))}
	for _, e := range r.extra {
		layers = append(layers, layerOf(t, "extra", e))
	}
	for from, to := range r.links {
		layers = append(layers, tarLayer(t, tar.Header{Typeflag: tar.TypeSymlink, Name: from, Linkname: to}))
	}
	layers = append(layers, r.above...)
	for _, l := range layers {
		if img, err = mutate.Append(img, mutate.Addendum{Layer: l, MediaType: layerType}); err != nil {
			t.Fatal(err)
		}
	}
	return img
}

var layers sync.Map // by content; compressing the program anew for each image would take most of the time

func layerOf(t *testing.T, file string, content []byte) v1.Layer {
	t.Helper()
	if l, ok := layers.Load(file + sum(content)); ok {
		return l.(v1.Layer)
	}
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	if err := w.WriteHeader(&tar.Header{Name: file, Size: int64(len(content)), Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	_, _ = w.Write(content)
	_ = w.Close()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil },
		tarball.WithCompressedCaching)
	if err != nil {
		t.Fatal(err)
	}
	layers.Store(file+sum(content), l)
	return l
}

// tarLayer is a layer of entries; a file contains its own name, unless it hides another.
func tarLayer(t *testing.T, entries ...tar.Header) v1.Layer {
	t.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, h := range entries {
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		full := h.Typeflag == tar.TypeReg && !strings.HasPrefix(path.Base(h.Name), ".wh.")
		if full {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if full {
			_, _ = io.WriteString(w, h.Name)
		}
	}
	_ = w.Close()
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func exitOf(t *testing.T, argv ...string) int {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	_ = cmd.Run()
	return cmd.ProcessState.ExitCode()
}
