//go:build e2e

// These tests run inside a test host as its user, against its Podman:
//
//	CGO_ENABLED=0 go test -c -tags e2e -o "$(scripts/testhost root H)/usr/local/bin/podmanc.test" ./podmanc
//	scripts/testhost user H podmanc.test -test.v -test.run E2E
package podmanc

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	if os.Getenv("PODMANC_E2E_CHILD") == "" {
		os.Exit(m.Run())
	}
	child()
}

// child is what the images run.
func child() {
	if len(os.Args) > 1 && os.Args[1] == "health" {
		os.Exit(0)
	}
	for i := range 30 {
		fmt.Printf("out %d\n", i)
		fmt.Fprintf(os.Stderr, "err %d\n", i)
	}
	if len(os.Args) > 1 && os.Args[1] == "fail" {
		os.Exit(3)
	}
	time.Sleep(time.Hour)
}

func pruneAll(t *testing.T) {
	t.Helper()
	run(t, "podman", "system", "prune", "-af")
}

func wantClass(t *testing.T, err, class error, words ...string) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("want %v, have %v", class, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in %q", w, err)
		}
	}
	t.Log(err)
}

func mustPull(t *testing.T, c *Client, ref string) Image {
	t.Helper()
	if err := c.Pull(t.Context(), ref, nil); err != nil {
		t.Fatal(err)
	}
	img, err := c.Image(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func TestE2EPullByDigest(t *testing.T) {
	startRegistry(t)
	c := New("")
	if v, err := c.Ping(t.Context()); err != nil || v.Major < 5 {
		t.Fatalf("have %v, %v", v, err)
	}
	for _, r := range []recipe{{version: "oci"}, {version: "docker", docker: true}} {
		p := push(t, r)
		var lines []string
		if err := c.Pull(t.Context(), p.ref(), func(l string) { lines = append(lines, l) }); err != nil {
			t.Fatal(err)
		}
		t.Logf("%q", lines)
		img, err := c.Image(t.Context(), p.ref())
		if err != nil || img.ID != p.id || img.Digest != p.digest || !slices.Equal(img.Digests, []string{p.digest}) {
			t.Errorf("want %+v, have %+v, %v", p, img, err)
		}
		if img.Architecture != "amd64" || img.OS != "linux" || img.Size < 1<<20 || img.Created.Year() != 2026 || img.Labels["version"] != r.version ||
			!slices.Equal(img.EnvNames, []string{"DB_PW", "PODMANC_E2E_CHILD"}) || !slices.Equal(img.ExposedPorts, []string{"8080/tcp"}) ||
			!slices.Equal(img.Entrypoint, []string{"/app"}) || img.Healthcheck {
			t.Errorf("have %+v", img)
		}
		byID, err := c.Image(t.Context(), p.id)
		if err != nil || byID.ID != p.id {
			t.Errorf("by id: have %+v, %v", byID, err)
		}
	}
}

func TestE2EPullByIndexDigest(t *testing.T) {
	startRegistry(t)
	c := New("")
	index, amd := pushIndex(t, "multi", "amd64", "arm64")
	img := mustPull(t, c, index.ref())
	want := []string{index.digest, amd.digest}
	slices.Sort(want)
	if img.ID != amd.id || img.Digest != index.digest || !slices.Equal(want, img.Digests) {
		t.Errorf("want index %+v, manifest %+v, have %+v", index, amd, img)
	}
	if other := mustPull(t, c, amd.ref()); other.ID != amd.id || other.Digest != amd.digest || !slices.Equal(want, other.Digests) {
		t.Errorf("by manifest: have %+v", other)
	}
	arm, _ := pushIndex(t, "arm", "arm64")
	wantClass(t, c.Pull(t.Context(), arm.ref(), nil), ErrPlatform, "amd64")
	plain := push(t, recipe{version: "armplain", arch: "arm64"})
	if img := mustPull(t, c, plain.ref()); img.Architecture != "arm64" {
		t.Errorf("have %+v", img)
	}
}

func TestE2EWhatTheRegistryDoesNotHave(t *testing.T) {
	startRegistry(t)
	c := New("")
	push(t, recipe{version: "oci"})
	digest := "@sha256:" + strings.Repeat("d", 64)
	wantClass(t, c.Pull(t.Context(), localApp+digest, nil), ErrNotFound)
	wantClass(t, c.Pull(t.Context(), address+"/team/nothing"+digest, nil), ErrNotFound)
	if _, err := c.Image(t.Context(), localApp+digest); !errors.Is(err, ErrNoImage) {
		t.Errorf("have %v", err)
	}
}

func TestE2EARegistryInTrouble(t *testing.T) {
	reg := startRegistry(t)
	c := New("")
	p := push(t, recipe{version: "trouble", extra: [][]byte{slices.Repeat([]byte("trouble"), 200_000)}})
	for status, class := range map[int]error{500: ErrUnavailable, 503: ErrUnavailable, 429: ErrUnavailable, 403: ErrDenied} {
		reg.breakWith(t, func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/manifests/") {
				return false
			}
			http.Error(w, "no", status)
			return true
		})
		begin := time.Now()
		wantClass(t, c.Pull(t.Context(), p.ref(), nil), class)
		t.Logf("status %d: %s", status, time.Since(begin).Round(time.Millisecond))
	}
	cut := func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(make([]byte, 5000))
		return true
	}
	reg.breakWith(t, cut)
	begin := time.Now()
	wantClass(t, c.Pull(t.Context(), p.ref(), nil), ErrUnavailable)
	t.Logf("cut blob: %s", time.Since(begin).Round(time.Millisecond))
	reg.breakWith(t, nil)
	mustPull(t, c, p.ref())
}

func TestE2EARegistryThatIsDown(t *testing.T) {
	reg := startRegistry(t)
	c := New("")
	here, gone := push(t, recipe{version: "here"}), push(t, recipe{version: "gone"})
	mustPull(t, c, here.ref())
	reg.down()
	begin := time.Now()
	wantClass(t, c.Pull(t.Context(), gone.ref(), nil), ErrUnavailable, "refused")
	t.Logf("down: %s", time.Since(begin).Round(time.Millisecond))
	begin = time.Now()
	mustPull(t, c, here.ref()) // needs no registry
	t.Logf("already here: %s", time.Since(begin).Round(time.Millisecond))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	wantClass(t, c.Pull(ctx, gone.ref(), nil), ErrUnavailable, "within the time")
	reg.up(t)
	mustPull(t, c, gone.ref())
}

func TestE2ECredentials(t *testing.T) {
	reg := startRegistry(t)
	c := New("")
	const password = "S3NT1NEL-pw"
	basic := base64.StdEncoding.EncodeToString([]byte("rob:" + password))
	echo := false
	ask := func(w http.ResponseWriter, r *http.Request) bool {
		if !echo && r.Header.Get("Authorization") == "Basic "+basic {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		fmt.Fprintf(w, `{"errors":[{"code":"UNAUTHORIZED","message":"you sent %s and %s to http://rob:%s@x/"}]}`, r.Header.Get("Authorization"), basic, password)
		return true
	}
	files := []string{
		filepath.Join(os.Getenv("XDG_RUNTIME_DIR"), "containers/auth.json"),
		filepath.Join(os.Getenv("HOME"), ".config/containers/auth.json"),
		filepath.Join(t.TempDir(), "auth.json"),
	}
	for i, file := range files {
		p := push(t, recipe{version: fmt.Sprintf("secret%d", i)})
		reg.breakWith(t, ask)
		wantClass(t, c.Pull(t.Context(), p.ref(), nil), ErrDenied)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(`{"auths":{"`+address+`":{"auth":"`+basic+`"}}}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if i == 2 {
			t.Setenv("REGISTRY_AUTH_FILE", file)
		}
		mustPull(t, c, p.ref())
		echo = true
		err := c.Pull(t.Context(), localApp+"@sha256:"+strings.Repeat("e", 64), nil)
		wantClass(t, err, ErrDenied)
		if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), basic) {
			t.Errorf("leaks: %v", err)
		}
		echo = false
		reg.breakWith(t, nil)
		_ = os.Remove(file)
	}
}

func TestE2EPodmanEndsBetweenCallsAndDuringThem(t *testing.T) {
	reg := startRegistry(t)
	c := New("")
	p := push(t, recipe{version: "restart"})
	mustPull(t, c, p.ref())
	for _, argv := range [][]string{
		{"systemctl", "--user", "restart", "podman.socket"},
		{"systemctl", "--user", "stop", "podman.service"},
		{"systemctl", "--user", "kill", "-s", "KILL", "podman.service"},
	} {
		run(t, argv...)
		begin := time.Now()
		if _, err := c.Image(t.Context(), p.ref()); err != nil {
			t.Errorf("after %s: %v", argv, err)
		}
		t.Logf("after %s: %s", argv, time.Since(begin).Round(time.Millisecond))
	}
	run(t, "systemctl", "--user", "stop", "podman.socket", "podman.service")
	if _, err := c.Image(t.Context(), p.ref()); !errors.Is(err, ErrNoPodman) {
		t.Errorf("have %v", err)
	}
	run(t, "systemctl", "--user", "start", "podman.socket")

	// Killed in the middle of a pull.
	next := push(t, recipe{version: "killed", extra: [][]byte{[]byte("more")}})
	stalled, release := make(chan struct{}, 10), make(chan struct{})
	reg.breakWith(t, func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/blobs/") {
			return false
		}
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(make([]byte, 5000))
		w.(http.Flusher).Flush()
		stalled <- struct{}{}
		<-release
		return true
	})
	result := make(chan error, 1)
	go func() { result <- c.Pull(t.Context(), next.ref(), nil) }()
	<-stalled
	run(t, "systemctl", "--user", "kill", "-s", "KILL", "podman.service")
	wantClass(t, <-result, ErrUnavailable)
	close(release)
	reg.breakWith(t, nil)
	mustPull(t, c, next.ref())
}
