package watch

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/probation"
)

func ask(t *testing.T, r probation.Ready) (bool, string) {
	t.Helper()
	if r.Timeout == 0 {
		r.Timeout = 500 * time.Millisecond
	}
	p, err := newProbe(r)
	if err != nil {
		t.Fatal(err)
	}
	return p(context.Background(), nil, probation.UnitSample{})
}

func TestHTTPReadiness(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1") // no probe goes through a proxy
	served := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/ok":
			w.WriteHeader(204)
		case "/down":
			w.WriteHeader(503)
		case "/away":
			served++
			http.Redirect(w, r, "/ok", http.StatusFound)
		case "/slow":
			<-r.Context().Done()
		case "/endless":
			for range 1000 {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("short"))
		}
	}))
	defer s.Close()
	for _, c := range []struct {
		path   string
		status int
		ready  bool
		why    string
	}{
		{"/ok", 0, true, "204"},
		{"/ok", 200, false, "204"},
		{"/down", 0, false, "503"},
		{"/down", 503, true, "503"},
		{"/away", 0, false, "302"},
		{"/slow", 0, false, "no answer in time"},
		{"/endless", 0, true, "200"},
		{"/cut", 0, false, "broke off"},
	} {
		ready, why := ask(t, probation.Ready{HTTP: s.URL + c.path, Status: c.status})
		if ready != c.ready || !strings.Contains(why, c.why) {
			t.Errorf("%s wants %d: want %v %q, have %v %q", c.path, c.status, c.ready, c.why, ready, why)
		}
	}
	if served != 1 {
		t.Errorf("a redirect was followed or asked for %d times", served)
	}
	gone := s.URL
	s.Close()
	if ready, why := ask(t, probation.Ready{HTTP: gone + "/ok"}); ready || why != "connection refused" {
		t.Errorf("nobody listens: %v %q", ready, why)
	}
}

func TestHTTPOverAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(404)
		}
	})}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	if ready, why := ask(t, probation.Ready{HTTP: "http+unix://" + path + ":/healthz"}); !ready {
		t.Error(why)
	}
	if ready, _ := ask(t, probation.Ready{HTTP: "http+unix://" + path + ":/other"}); ready {
		t.Error("404 is ready")
	}
}

// A proxy in front of a dead port accepts, and ends the connection at once.
func TestAConnectionThatEndsAtOnceIsNotReady(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"stays":  func(c net.Conn) { time.Sleep(time.Second); c.Close() },
		"speaks": func(c net.Conn) { _, _ = c.Write([]byte("220 hello")); c.Close() },
		"closes": func(c net.Conn) { c.Close() },
		"resets": func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0); c.Close() },
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go serve(c)
			}
		}()
		ready, why := ask(t, probation.Ready{TCP: l.Addr().String()})
		if want := name == "stays" || name == "speaks"; ready != want {
			t.Errorf("%s: want %v, have %v %q", name, want, ready, why)
		}
		l.Close()
		if ready, _ := ask(t, probation.Ready{TCP: l.Addr().String()}); ready {
			t.Errorf("%s: ready with nobody there", name)
		}
	}
}

type health string

func (h health) Container(context.Context, string) (Container, error) {
	return Container{Health: string(h)}, nil
}

func TestHealthThatNeverRanIsNotReady(t *testing.T) {
	p, err := newProbe(probation.Ready{Health: true})
	if err != nil {
		t.Fatal(err)
	}
	for status, want := range map[string]bool{"": false, "starting": false, "unhealthy": false, "healthy": true} {
		if ready, why := p(context.Background(), &Check{Containers: health(status)}, probation.UnitSample{}); ready != want {
			t.Errorf("health %q: want %v, have %v %q", status, want, ready, why)
		}
	}
}
