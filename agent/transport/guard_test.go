package transport

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// slow sends a byte at a time, with a pause before each.
type slow struct {
	left  int
	pause time.Duration
	done  <-chan struct{}
}

func (s *slow) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	select {
	case <-time.After(s.pause):
	case <-s.done:
		return 0, errors.New("canceled")
	}
	s.left--
	p[0] = 'x'
	return 1, nil
}

func (s *slow) Close() error { return nil }

type slowServer struct{ slow }

func (s slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	body := s.slow
	body.done = r.Context().Done()
	return &http.Response{StatusCode: 200, ContentLength: -1, Body: &body, Request: r}, nil
}

func TestSlowIsNotStalled(t *testing.T) {
	for pause, want := range map[time.Duration]error{20 * time.Second: nil, 40 * time.Second: ErrStalled} {
		synctest.Test(t, func(t *testing.T) {
			g := Guard{Next: slowServer{slow{left: 10, pause: pause}}, Max: 100, Idle: 30 * time.Second}
			r, err := http.NewRequestWithContext(t.Context(), "GET", "https://control.example", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := g.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if !errors.Is(err, want) || (want == nil && len(text) != 10) {
				t.Errorf("a byte each %s: %q, %v", pause, text, err)
			}
		})
	}
}

type fixed struct{ text string }

func (f fixed) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, ContentLength: -1, Body: io.NopCloser(strings.NewReader(f.text)), Request: r}, nil
}

func TestAnAnswerIsAsLongAsItMayBe(t *testing.T) {
	for length, want := range map[int]error{0: nil, 9: nil, 10: nil, 11: ErrTooLarge, 5000: ErrTooLarge} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", "https://control.example", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := Guard{Next: fixed{strings.Repeat("x", length)}, Max: 10, Idle: time.Minute}.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		res.Body.Close()
		if !errors.Is(err, want) || len(text) > 10 || (want == nil && len(text) != length) {
			t.Errorf("%d bytes: %d, %v", length, len(text), err)
		}
	}
}
