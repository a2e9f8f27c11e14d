package httpd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// ServeWhileAsked answers on a socket that systemd holds until the context ends or nothing was asked for idle; both return
// nil. Whoever was let in is answered. It is for a handler that needs nothing of a Server.
func ServeWhileAsked(ctx context.Context, l net.Listener, h http.Handler, idle time.Duration) error {
	r := &rest{since: time.Now()}
	server, door := &http.Server{Handler: r.around(h), ReadHeaderTimeout: 5 * time.Second}, limit(l)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(door) }()
	var err error
	for left := idle; left > 0 && err == nil && ctx.Err() == nil; left = r.left(idle) {
		select {
		case <-ctx.Done():
		case <-time.After(left):
		case err = <-failed:
			err = fmt.Errorf("serve: %w", err)
		}
	}
	end(endLimit, []*http.Server{server}, []*limited{door})
	return err
}

// rest knows since when nothing is asked.
type rest struct {
	mu    sync.Mutex
	busy  int
	since time.Time
}

func (r *rest) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.note(+1)
		defer r.note(-1)
		next.ServeHTTP(w, req)
	})
}

func (r *rest) note(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy += n
	r.since = time.Now()
}

// left is how long to wait before it may be over.
func (r *rest) left(idle time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy > 0 {
		return idle
	}
	return idle - time.Since(r.since)
}
