package podmanc

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

// hangUp closes the connection without an answer, as the service does when it ends between accept and read.
func hangUp(w http.ResponseWriter, _ *http.Request) bool {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
	return true
}

// cutAnswer promises more than it sends.
func cutAnswer(w http.ResponseWriter, _ *http.Request) bool {
	w.Header().Set("Content-Length", "1000")
	_, _ = w.Write([]byte(`{"Id":`))
	return true
}

func pass(http.ResponseWriter, *http.Request) bool { return false }

func TestPingTellsTheVersion(t *testing.T) {
	_, c := startPodman(t)
	have, err := c.Ping(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := (Version{5, 4, 2}); want != have {
		t.Errorf("want %v, have %v", want, have)
	}
}

func TestAMissingPodmanIsNamedWithWhatToDo(t *testing.T) {
	c := New("/nonexistent/podman.sock")
	begin := time.Now()
	_, err := c.Ping(t.Context())
	if !errors.Is(err, ErrNoPodman) || !strings.Contains(err.Error(), "systemctl --user enable --now podman.socket") {
		t.Errorf("have %v", err)
	}
	if _, err := c.Image(t.Context(), strings.Repeat("a", 64)); !errors.Is(err, ErrNoPodman) {
		t.Errorf("image: have %v", err)
	}
	if err := c.Pull(t.Context(), newFakeImage("x").ref(), nil); !errors.Is(err, ErrNoPodman) {
		t.Errorf("pull: have %v", err)
	}
	if d := time.Since(begin); d > 300*time.Millisecond {
		t.Errorf("it took %s", d)
	}
}

func TestAnOldPodmanIsRefusedByName(t *testing.T) {
	for _, version := range []string{"4.9.4", "3.4.4"} {
		f, c := startPodman(t)
		f.version = version
		if _, err := c.Image(t.Context(), strings.Repeat("a", 64)); !errors.Is(err, ErrTooOld) || !strings.Contains(err.Error(), version) {
			t.Errorf("%s: have %v", version, err)
		}
	}
}

func TestWhatIsNotPodmanIsNotTakenForIt(t *testing.T) {
	f, c := startPodman(t)
	f.version = ""
	if _, err := c.Ping(t.Context()); !errors.Is(err, ErrNoPodman) {
		t.Errorf("have %v", err)
	}
}

func TestADroppedConnectionIsTriedOnceMore(t *testing.T) {
	img := newFakeImage("web", "layer")
	for name, fault := range map[string]func(http.ResponseWriter, *http.Request) bool{"no answer": hangUp, "cut": cutAnswer} {
		f, c := startPodman(t, img)
		f.before = append(f.before, pass, fault) // the ping passes
		if have, err := c.Image(t.Context(), img.id()); err != nil || have.ID != img.id() {
			t.Errorf("%s: have %v, %v", name, have.ID, err)
		}
		f.before = append(f.before, fault)
		if _, err := c.Ping(t.Context()); name == "no answer" && err != nil {
			t.Errorf("%s: ping: %v", name, err)
		}
	}
}

func TestAPullAndARetainSurviveADroppedConnection(t *testing.T) {
	img := newFakeImage("web", "layer")
	f, c := startPodman(t, img)
	f.pull = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"id":"` + img.id() + `"}`)) }
	f.before = append(f.before, pass, hangUp)
	if err := c.Pull(t.Context(), img.ref(), nil); err != nil {
		t.Error(err)
	}
	f.before = append(f.before, hangUp)
	if err := c.Retain(t.Context(), t.TempDir(), img.id()); err != nil {
		t.Error(err)
	}
}

func TestTheServiceMayEndAndComeBack(t *testing.T) {
	img := newFakeImage("web", "layer")
	f, c := startPodman(t, img)
	if _, err := c.Image(t.Context(), img.id()); err != nil {
		t.Fatal(err)
	}
	f.stop()
	if _, err := c.Image(t.Context(), img.id()); !errors.Is(err, ErrNoPodman) {
		t.Errorf("want ErrNoPodman, have %v", err)
	}
	if err := c.Pull(t.Context(), img.ref(), nil); !errors.Is(err, ErrNoPodman) {
		t.Errorf("want ErrNoPodman, have %v", err)
	}
	f.listen(t)
	if _, err := c.Image(t.Context(), img.id()); err != nil {
		t.Error(err)
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	img := newFakeImage("web", "layer")
	f, c := startPodman(t, img)
	release := make(chan struct{})
	defer close(release)
	hang := func(http.ResponseWriter, *http.Request) bool { <-release; return true }
	for name, do := range map[string]func(context.Context) error{
		"ping":   func(ctx context.Context) error { _, err := c.Ping(ctx); return err },
		"image":  func(ctx context.Context) error { _, err := c.Image(ctx, img.id()); return err },
		"logs":   func(ctx context.Context) error { _, err := c.Logs(ctx, "web", 3); return err },
		"pull":   func(ctx context.Context) error { return c.Pull(ctx, img.ref(), nil) },
		"retain": func(ctx context.Context) error { return c.Retain(ctx, t.TempDir(), img.id()) },
	} {
		f.mu.Lock()
		f.before = append(f.before[:0], hang, hang, hang)
		f.mu.Unlock()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		begin := time.Now()
		if err := do(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: have %v", name, err)
		}
		if d := time.Since(begin); d > 400*time.Millisecond {
			t.Errorf("%s: it took %s", name, d)
		}
		cancel()
	}
}

func TestARefusalHasNoSecret(t *testing.T) {
	f, c := startPodman(t)
	f.before = append(f.before, pass, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		refuse(w, 500, `Get "https://rob:S3NT1NEL@r.example/v2/?token=S3NT1NEL": no`)
		return true
	})
	_, err := c.Image(t.Context(), strings.Repeat("a", 64))
	if err == nil || strings.Contains(err.Error(), "S3NT1NEL") || !strings.Contains(err.Error(), "r.example") {
		t.Errorf("have %v", err)
	}
}
