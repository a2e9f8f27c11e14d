package httpd

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// told is a listener that tells whom it lets in, and when it is closed.
type told struct {
	net.Listener
	in   chan struct{}
	shut chan struct{}
	once sync.Once
}

func tell(t *testing.T, name string) *told {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	return &told{Listener: l, in: make(chan struct{}), shut: make(chan struct{})}
}

func (l *told) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		l.in <- struct{}{}
	}
	return conn, err
}

func (l *told) Close() error {
	defer l.once.Do(func() { close(l.shut) })
	return l.Listener.Close()
}

// enter connects and waits to be let in.
func (l *told) enter(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	<-l.in
	return conn
}

func send(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: toad\r\n\r\n"); err != nil {
		t.Error(err)
	}
}

// ending serves on a socket for the API and one for the page, and ends it: ended is closed when Serve is back. Who asks is
// held until release.
func ending(t *testing.T) (doors []*told, asked <-chan struct{}, release, end func(), ended <-chan struct{}) {
	t.Helper()
	s := assemble(t).server
	held, came := make(chan struct{}), make(chan struct{})
	hold := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			came <- struct{}{}
			<-held
			next.ServeHTTP(w, r)
		})
	}
	s.around, s.Page = hold, hold(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	doors = []*told{tell(t, "toad.sock"), tell(t, "web.sock")}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		if err := s.Serve(ctx, doors[0], Page{doors[1]}); err != nil {
			t.Error(err)
		}
	}()
	return doors, came, sync.OnceFunc(func() { close(held) }), cancel, over
}

func TestWhoeverWasLetInIsAnsweredAtTheEnd(t *testing.T) {
	doors, asked, release, end, ended := ending(t)
	defer release()
	var early, late []net.Conn
	for range 20 {
		for _, d := range doors {
			conn := d.enter(t)
			send(t, conn)
			<-asked
			early, late = append(early, conn), append(late, d.enter(t))
		}
	}
	end()
	for _, d := range doors {
		<-d.shut
	}
	for _, conn := range late {
		send(t, conn)
		select {
		case <-asked:
		case <-ended:
			t.Fatal("the server ended before it had read what it was asked")
		}
	}
	release()
	for i, conn := range append(early, late...) {
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("connection %d: %v", i, err)
			continue
		}
		if resp.StatusCode != http.StatusOK {
			t.Errorf("connection %d: want 200, have %s", i, resp.Status)
		}
	}
	<-ended
}

// bare serves one connection, without limits of its own, so that only the end's counts.
func bare(t *testing.T) (server *http.Server, door *limited, conn net.Conn) {
	t.Helper()
	l, known := tell(t, "toad.sock"), make(chan struct{})
	server, door = &http.Server{}, limit(l) //nolint:gosec // see above
	server.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			close(known)
		}
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(door)
	}()
	t.Cleanup(func() { <-served })
	conn = l.enter(t)
	<-known
	return server, door, conn
}

func TestWhoIsIdleDoesNotHoldUpTheEnd(t *testing.T) {
	server, door, conn := bare(t)
	send(t, conn)
	if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
		t.Fatal(err)
	}
	end(time.Hour, []*http.Server{server}, []*limited{door})
}

func TestWhoNeverAsksHoldsUpTheEndNoLongerThanTheLimit(t *testing.T) {
	server, door, conn := bare(t)
	end(time.Millisecond, []*http.Server{server}, []*limited{door})
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("want a closed connection")
	}
}

func TestASocketIsServedWhileItIsAsked(t *testing.T) {
	door, came, held := tell(t, "look.sock"), make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		over <- ServeWhileAsked(ctx, door, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			came <- struct{}{}
			<-held
		}), time.Hour)
	}()
	asked := door.enter(t)
	send(t, asked)
	<-came
	late := door.enter(t) // is let in, and has said nothing yet
	cancel()
	<-door.shut
	send(t, late)
	close(held)
	<-came
	for _, conn := range []net.Conn{asked, late} {
		if r, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || r.StatusCode != http.StatusOK {
			t.Errorf("%v %v", r, err)
		}
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
}

func TestWhatIsNotAskedEnds(t *testing.T) {
	door := tell(t, "look.sock")
	if err := ServeWhileAsked(t.Context(), door, http.NotFoundHandler(), time.Millisecond); err != nil {
		t.Error(err)
	}
	<-door.shut
	r := &rest{since: time.Now().Add(-time.Hour)}
	if r.left(time.Minute) > 0 {
		t.Error("it goes on although nobody asks")
	}
	r.note(+1)
	r.since = time.Now().Add(-time.Hour)
	if r.left(time.Minute) <= 0 {
		t.Error("it ends under a request")
	}
	r.note(-1)
	if r.left(time.Minute) <= 0 {
		t.Error("it ends right after a request")
	}
}
