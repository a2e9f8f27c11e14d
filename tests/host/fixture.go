package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gofrs/flock"
)

// Image is what a tag of the sample repository stands for.
type Image struct {
	Digest   string `json:"digest"`   // what the tag resolves to, perhaps an index
	Manifest string `json:"manifest"` // of this platform
	ID       string `json:"image_id"`
}

// Repository holds the sample images; the tags are in tests/registry/images.go.
const Repository = "127.0.0.1:5000/app"

// fixture is the tree laid over every host: the registry, its images and its unit.
type fixture struct {
	tree   string
	images map[string]Image
}

var (
	made     *fixture
	makeLock sync.Mutex
)

var units = map[string]string{
	"registry.service": `[Unit]
Description=Registry of the tests

[Service]
Type=notify
EnvironmentFile=-/etc/default/registry
ExecStart=/usr/local/bin/registry serve --dir /var/lib/registry $REGISTRY_ARGS
`,
	"registry-proxy.service": `[Unit]
Description=Fault proxy before the registry

[Service]
Type=notify
ExecStart=/usr/local/bin/registry proxy --addr 127.0.0.1:5001
`,
}

// fixtures builds the programs and images once for this machine; a change of their sources makes new ones.
func fixtures(t testing.TB) *fixture {
	t.Helper()
	makeLock.Lock()
	defer makeLock.Unlock()
	if made != nil {
		return made
	}
	cache := os.Getenv("TOAD_CACHE")
	if cache == "" {
		cache = "/var/cache/toad"
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	lock := flock.New(filepath.Join(cache, "fixture.lock"))
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()

	// The programs stay where they were built: what is up to date there is not linked again by the next suite.
	built := filepath.Join(cache, "fixture-programs")
	sum := sha256.New()
	fmt.Fprint(sum, units)
	for pkg, bin := range binaries {
		build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", filepath.Join(built, bin), pkg)
		build.Dir, build.Env = repo(t), append(os.Environ(), "CGO_ENABLED=0")
		run(t, build)
	}
	for _, bin := range []string{sampleBin, otherBin, registryBin} {
		b, err := os.ReadFile(filepath.Join(built, bin))
		if err != nil {
			t.Fatal(err)
		}
		sum.Write(b)
	}
	f := &fixture{tree: filepath.Join(cache, fmt.Sprintf("fixture-%x", sum.Sum(nil)[:6]))}
	if _, err := os.Stat(f.tree); err != nil {
		tmp, err := os.MkdirTemp(cache, "fixture-*.tmp")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(tmp)
		if err := errors.Join(os.Chmod(tmp, 0o755), os.CopyFS(tmp, os.DirFS(built))); err != nil { // it becomes the root folder of hosts
			t.Fatal(err)
		}
		fill(t, tmp)
		if err := os.Rename(tmp, f.tree); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(filepath.Join(f.tree, "var/lib/registry/digests.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &f.images); err != nil {
		t.Fatal(err)
	}
	made = f
	return made
}

const (
	sampleBin   = "usr/local/lib/toad-tests/sample"
	otherBin    = "usr/local/lib/toad-tests/other"
	registryBin = "usr/local/bin/registry"
)

var binaries = map[string]string{
	"./tests/sample":       sampleBin,
	"./tests/sample/other": otherBin,
	"./tests/registry":     registryBin,
}

func fill(t testing.TB, tree string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(tree, name) }
	run(t, exec.Command(in(registryBin), "images", "--dir", in("var/lib/registry"), "--sample", in(sampleBin), "--other", in(otherBin)))
	wants := in("etc/systemd/system/multi-user.target.wants")
	if err := os.MkdirAll(wants, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range units {
		if err := os.WriteFile(in("etc/systemd/system/"+name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../"+name, filepath.Join(wants, name)); err != nil {
			t.Fatal(err)
		}
	}
}

// Image returns what is known of a tag, among the prepared ones and those pushed by Push.
func (h *Host) Image(t testing.TB, tag string) Image {
	t.Helper()
	if img, ok := h.pushed[tag]; ok {
		return img
	}
	img, ok := h.fixture.images[tag]
	if !ok {
		t.Fatalf("no sample image %q", tag)
	}
	return img
}

// Digest returns what a tag resolves to.
func (h *Host) Digest(t testing.TB, tag string) string {
	t.Helper()
	return h.Image(t, tag).Digest
}

// Push makes one more image and pushes it to the host's registry; version is what its bodies name.
func (h *Host) Push(t testing.TB, tag, behaviour, version string) Image {
	t.Helper()
	out := h.MustExec(t, "registry", "push", "--tag", tag, "--behaviour", behaviour, "--version", version, "--sample", "/"+sampleBin)
	var img Image
	if err := json.Unmarshal([]byte(out), &img); err != nil {
		t.Fatal(err)
	}
	h.pushed[tag] = img
	return img
}

// PushIndex pushes an index that holds the image of a tag, and returns the index's digest.
func (h *Host) PushIndex(t testing.TB, tag, of string) string {
	t.Helper()
	out := h.MustExec(t, "registry", "index", "--tag", tag, "--of", of)
	var img Image
	if err := json.Unmarshal([]byte(out), &img); err != nil {
		t.Fatal(err)
	}
	h.pushed[tag] = img
	return img.Digest
}

// RegistryArgs restarts the registry with more arguments, such as --auth user:password.
func (h *Host) RegistryArgs(t testing.TB, args string) {
	t.Helper()
	h.WriteFile(t, "/etc/default/registry", "REGISTRY_ARGS="+args+"\n", 0o644)
	h.MustExec(t, "systemctl", "restart", "registry.service")
}

// Proxied is the sample repository behind the fault proxy.
const Proxied = "127.0.0.1:5001/app"

// Fault makes the proxy break the next answers (times 0: all) to requests whose path contains match;
// tests/registry/proxy.go has the kinds. An empty kind ends it.
func (h *Host) Fault(t testing.TB, kind, match string, times int, arg string) {
	t.Helper()
	q := url.Values{"kind": {kind}, "match": {match}, "times": {strconv.Itoa(times)}, "arg": {arg}}
	if status, body := h.Get("http://127.0.0.1:5001/fault?" + q.Encode()); status != 200 {
		t.Fatalf("fault: %d %s", status, body)
	}
}

// FaultsMet is how many answers were broken since Fault was called last.
func (h *Host) FaultsMet(t testing.TB) int {
	t.Helper()
	_, body := h.Get("http://127.0.0.1:5001/faults")
	n, err := strconv.Atoi(body)
	if err != nil {
		t.Fatalf("faults: %s", body)
	}
	return n
}

// Tree is the folder that is laid over every host.
func Tree(t testing.TB) string { return fixtures(t).tree }

// Images are what the tags of the sample repository stand for.
func Images(t testing.TB) map[string]Image { return fixtures(t).images }

// Base is the disk of a host that has more packages, separated by commas; nobody may write to it.
func Base(t testing.TB, packages string) string {
	t.Helper()
	cmd := exec.Command(filepath.Join(repo(t), "scripts/testhost"), "base")
	cmd.Env = append(os.Environ(), "TOAD_HOST_PACKAGES="+packages)
	return run(t, cmd)
}

// testhost runs the script and returns its trimmed output.
func testhost(t testing.TB, args ...string) string {
	t.Helper()
	return run(t, exec.Command(filepath.Join(repo(t), "scripts/testhost"), args...))
}

func run(t testing.TB, cmd *exec.Cmd) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(cmd.Args, " "), err, &stdout, &stderr)
	}
	return strings.TrimSpace(stdout.String())
}

// repo is the folder of go.mod.
func repo(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	t.Fatal("not inside the module")
	return ""
}
