//go:build e2e

package cases

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"toad/tests/scene"
)

// C11: Podman's pull answers 200 and puts the error into the stream; the missing image shows up later, as a start that
// fails. Whatever hides a failure, the pull has failed, and nothing was stopped.
func TestC11ThePullHidesItsError(t *testing.T) {
	b := lay(t, scene.Options{Limits: "deadline = \"2m\"\nstable = \"500ms\"\npull = \"4s\""})
	id := strings.TrimPrefix(b.Image(t, "v1").ID, "sha256:")
	line := func(o map[string]any) string { text, _ := json.Marshal(o); return string(text) + "\n" }
	trying, done := line(map[string]any{"stream": "Trying to pull…\n"}), line(map[string]any{"images": []string{id}, "id": id})

	// A live registry that does not have it.
	b.deployDigest(t, absent, untouched("pull_failed", "v1", "registry does not have it"))

	b.forget(t, "v2") // an image that is here already needs no pull
	podman := between(t, b)
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		code   string
		says   string
	}{
		{"an error at the end", says(trying, line(map[string]any{"error": "manifest unknown"})), "pull_failed", "manifest unknown"},
		{"an end without an image", says(trying), "pull_unavailable", "cut short"},
		{"nothing", says(), "pull_unavailable", "cut short"},
		{"half a line", says(trying, `{"images":["`), "pull_unavailable", "cut short"},
		{"an error and an image in one chunk", says(line(map[string]any{"error": "no space left on device"}) + done), "pull_failed", "no space left"},
		{"the image of another digest", says(trying, done), "pull_failed", "has no image of this digest"},
		{"no JSON", says("<html>OK</html>"), "pull_unavailable", "cut short"},
		{"a status of its own", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			io.WriteString(w, line(map[string]any{"message": "storage is locked", "response": 500}))
		}, "pull_failed", "storage is locked"},
		{"silence", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "pull_unavailable", "within the time it may take"},
	} {
		podman.pull = c.answer
		b.deploy(t, "v2", untouched(c.code, "v1", c.says))
		if t.Failed() {
			t.Fatal(c.name)
		}
	}
	podman.pull = nil
	b.pullLimit(t, "60s")
	b.deploy(t, "v2", promoted("v2"))
}

// says answers 200 with these chunks.
func says(chunks ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(200)
		for _, c := range chunks {
			io.WriteString(w, c)
			http.NewResponseController(w).Flush()
		}
	}
}

// faker stands between toad and Podman; it answers pulls itself where pull is set.
type faker struct {
	pull func(http.ResponseWriter, *http.Request)
	next http.Handler
}

func (f *faker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.pull != nil && strings.HasSuffix(r.URL.Path, "/images/pull") {
		f.pull(w, r)
		return
	}
	f.next.ServeHTTP(w, r)
}

// between puts a faker where Podman's socket is, until the test ends.
func between(t *testing.T, b bed) *faker {
	t.Helper()
	const real, own = "/home/toad/real.sock", "/home/toad/own.sock"
	b.MustUser(t, "systemd-run", "--user", "-q", "--unit", "foreign-podman", "podman", "system", "service", "-t", "0", "unix://"+real)
	b.MustUser(t, "sh", "-c", "until test -S "+real+"; do sleep 0.05; done")
	f := &faker{next: &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "podman"}) },
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(b.Root, real))
		}},
	}}
	l, err := net.Listen("unix", filepath.Join(b.Root, own))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: f}
	go server.Serve(l)
	b.MustExec(t, "chown", "toad:toad", own)
	b.MustUser(t, "systemctl", "--user", "stop", "podman.socket", "podman.service")
	b.MustUser(t, "ln", "-sfn", own, "/run/user/1000/podman/podman.sock")
	t.Cleanup(func() {
		server.Close()
		b.MustUser(t, "sh", "-c", fmt.Sprintf("systemctl --user stop foreign-podman; rm -f /run/user/1000/podman/podman.sock %s %s; systemctl --user start podman.socket", real, own))
	})
	return f
}
