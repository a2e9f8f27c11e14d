package httpd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"toad/httpd/api"
	"toad/probation"
)

// shelf keeps what it is given under its name, and refuses files that begin with "no".
type shelf struct {
	mu   sync.Mutex
	held map[string]int64
	wait chan struct{} // when it is set, one file stays on its way until it is closed
	in   chan struct{}
}

func (s *shelf) Stage(_ context.Context, e probation.Enrollment, digest string, size int64, from io.Reader) error {
	data := make([]byte, 2)
	if _, err := io.ReadFull(from, data); err != nil {
		return err
	}
	if string(data) == "no" {
		return &FileError{errors.New("the file is not a program")}
	}
	if s.wait != nil {
		s.in <- struct{}{}
		<-s.wait
	}
	n, err := io.Copy(io.Discard, from)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held[e.Name+" "+digest] = n + 2
	if n+2 != size {
		return fmt.Errorf("%d bytes of %d", n+2, size)
	}
	return nil
}

func TestAFileIsTakenInOrRefused(t *testing.T) {
	files := &shelf{held: map[string]int64{}}
	f := start(t, func(s *Server) { s.Files, s.MaxFile = files, 512<<20 })
	large := bytes.Repeat([]byte("x"), 4<<20)
	for range 2 { // it may be repeated
		if err := f.client().PutFile(t.Context(), "web", one, int64(len(large)), bytes.NewReader(large)); err != nil {
			t.Fatal(err)
		}
	}
	if files.held["web "+one] != int64(len(large)) {
		t.Errorf("held: %v", files.held)
	}
	put := func(service, digest string, size int64, data string) string {
		t.Helper()
		err := f.client().PutFile(t.Context(), service, digest, size, strings.NewReader(data))
		var p *api.Problem
		if !errors.As(err, &p) {
			t.Fatalf("%v", err)
		}
		return fmt.Sprint(p.Status, " ", p.Code)
	}
	for _, c := range []struct {
		service, digest, data string
		size                  int64
		want                  string
	}{
		{"wbe", one, "yes", 3, "404 unknown_service"},
		{"web", "v1", "yes", 3, "422 invalid_request"},
		{"web", one, "no" + string(large), 2 + 4<<20, "422 invalid_request"},
		{"web", one, "", 0, "422 invalid_request"},
	} {
		if have := put(c.service, c.digest, c.size, c.data); have != c.want {
			t.Errorf("%s %s: %s, want %s", c.service, c.digest, have, c.want)
		}
	}
	var p *api.Problem
	if err := f.client().PutFile(t.Context(), "web", one, 512<<20+1, zeros{}); !errors.As(err, &p) || p.Code != "body_too_large" {
		t.Errorf("a file that is too large: %v", err)
	}

	// One file at a time.
	files.wait, files.in = make(chan struct{}), make(chan struct{})
	first := make(chan error)
	go func() { first <- f.client().PutFile(context.Background(), "web", one, 3, strings.NewReader("yes")) }()
	<-files.in
	if have := put("web", two, 3, "yes"); have != "429 too_many_requests" {
		t.Errorf("a second file: %s", have)
	}
	close(files.wait)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
