package transport

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// What a Guard ends an exchange with. Both come wrapped in what net/http makes of them.
var (
	ErrStalled  = errors.New("the peer stopped sending")
	ErrTooLarge = errors.New("the answer is larger than it may be")
)

// Guard is an http.RoundTripper whose answers end: after Max bytes, and when the peer sends nothing for Idle.
type Guard struct {
	Next http.RoundTripper
	Max  int64         // bytes of a body
	Idle time.Duration // between two reads, and before the first byte
}

// RoundTrip implements http.RoundTripper.
func (g Guard) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(g.Idle, func() { cancel(ErrStalled) })
	stop := func() { timer.Stop(); cancel(nil) }
	res, err := g.Next.RoundTrip(r.WithContext(ctx))
	switch {
	case err != nil && errors.Is(context.Cause(ctx), ErrStalled):
		stop()
		return nil, ErrStalled
	case err != nil:
		stop()
		return nil, err
	case res.ContentLength > g.Max:
		res.Body.Close()
		stop()
		return nil, ErrTooLarge
	}
	res.Body = &body{res.Body, ctx, g.Max, timer, g.Idle, stop}
	return res, nil
}

type body struct {
	io.ReadCloser
	ctx   context.Context
	left  int64
	timer *time.Timer
	idle  time.Duration
	stop  func()
}

// Read implements io.Reader. The body that is as long as it may be ends as any other.
func (b *body) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:max(b.left, 0)+1]
	}
	n, err := b.ReadCloser.Read(p)
	if errors.Is(context.Cause(b.ctx), ErrStalled) {
		return 0, ErrStalled
	}
	b.timer.Reset(b.idle)
	if int64(n) > b.left {
		return int(b.left), ErrTooLarge
	}
	b.left -= int64(n)
	return n, err
}

// Close implements io.Closer.
func (b *body) Close() error {
	defer b.stop()
	return b.ReadCloser.Close()
}
