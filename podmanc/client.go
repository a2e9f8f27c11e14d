// Package podmanc is the Podman API as toad needs it: pull, inspect, retain, restore. No type of Podman's bindings leaks
// out of it.
package podmanc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/containers/podman/v5/pkg/errorhandling"
)

// oldest is the first major version of Podman whose API and Quadlets are what toad was measured on.
const oldest = 5

// Client talks to one Podman service. It holds no connection between calls that matters: the service is activated by
// its socket, ends when idle, and may be restarted at any time. It is safe for concurrent use.
type Client struct {
	socket string
	stream *http.Client // for bodies the bindings would buffer, retry half sent or read past an error in

	mu   sync.Mutex
	conn context.Context // carries the bindings' connection; nil until Podman has answered once
}

// New returns a client for the Podman socket at this path; empty means $XDG_RUNTIME_DIR/podman/podman.sock. It does not
// connect.
func New(socket string) *Client {
	if socket == "" {
		dir := os.Getenv("XDG_RUNTIME_DIR")
		if dir == "" {
			dir = filepath.Join("/run/user", strconv.Itoa(os.Getuid()))
		}
		socket = filepath.Join(dir, "podman", "podman.sock")
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	// A kept connection would be found dead after the service's idle exit, and a POST is not sent again by net/http.
	transport := &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true}
	return &Client{socket: socket, stream: &http.Client{Transport: transport}}
}

// Version is Podman's own, e.g. {5, 4, 2}.
type Version struct{ Major, Minor, Patch int }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Patch) }

// Ping asks Podman for its version. The error is ErrNoPodman when nothing answers, ErrTooOld when what answers is older
// than 5.0.0.
func (c *Client) Ping(ctx context.Context) (Version, error) {
	_, version, err := c.dial(ctx)
	return version, err
}

// callCtx joins a call's own deadline and cancel with the connection, which the bindings look for in the context: the
// caller's alone has no connection, the stored one alone is never cancelled.
type callCtx struct {
	context.Context
	conn context.Context
}

func (c callCtx) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.conn.Value(key)
}

func (c *Client) connect(ctx context.Context) (context.Context, error) {
	c.mu.Lock()
	conn := c.conn
	c.mu.Unlock()
	if conn == nil {
		// Not under the lock: a Podman that hangs must not keep callers beyond their own deadlines.
		var err error
		if conn, _, err = c.dial(ctx); err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.conn = conn
		c.mu.Unlock()
	}
	return callCtx{ctx, conn}, nil
}

func (c *Client) dial(ctx context.Context) (context.Context, Version, error) {
	if _, err := os.Stat(c.socket); err != nil {
		return nil, Version{}, c.noPodman(err) // the bindings would try three times
	}
	uri := url.URL{Scheme: "unix", Path: c.socket}
	conn, err := await(ctx, func(ctx context.Context) (context.Context, error) {
		return bindings.NewConnection(ctx, uri.String())
	})
	if err != nil {
		if strings.Contains(err.Error(), "API version is too old") { // the bindings' own limit, older than ours
			return nil, Version{}, fmt.Errorf("%w: %w", ErrTooOld, c.clean(err))
		}
		return nil, Version{}, c.clean(err)
	}
	v := bindings.ServiceVersion(conn)
	version := Version{int(v.Major), int(v.Minor), int(v.Patch)}
	switch {
	case version == Version{}:
		return nil, version, c.noPodman(errors.New("what answers does not say that it is Podman"))
	case version.Major < oldest:
		return nil, version, fmt.Errorf("%w: it is %s, toad needs %d.0.0 or newer; upgrade it", ErrTooOld, version, oldest)
	}
	return context.WithoutCancel(conn), version, nil
}

// await ends with ctx. The bindings do not: a request that fails is tried three times with 0.6 s of sleep in between,
// also when it fails because ctx has ended.
func await[T any](ctx context.Context, f func(context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	go func() {
		v, err := f(ctx)
		done <- result{v, err}
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// call runs a request of the bindings that is safe to repeat, a second time if its answer was cut off: a request can
// race the idle exit of the service.
func call[T any](ctx context.Context, c *Client, f func(context.Context) (T, error)) (T, error) {
	for try := 1; ; try++ {
		var v T
		conn, err := c.connect(ctx)
		if err == nil {
			v, err = await(conn, f)
		}
		if err == nil {
			return v, nil
		}
		if try == 2 || !dropped(err) || ctx.Err() != nil {
			return v, c.clean(err)
		}
	}
}

// get asks for a document. The bindings' own packages for images, containers and secrets do no more, but are two thirds of
// a program that uses them.
func get[T any](ctx context.Context, c *Client, endpoint string, query url.Values, values ...string) (T, error) {
	return call(ctx, c, func(ctx context.Context) (v T, err error) {
		conn, err := bindings.GetClient(ctx)
		if err != nil {
			return v, err
		}
		resp, err := conn.DoRequest(ctx, nil, http.MethodGet, endpoint, query, nil, values...)
		if err != nil {
			return v, err
		}
		defer func() { _ = resp.Body.Close() }()
		return v, resp.Process(&v)
	})
}

// do sends a request of which the answer or the body is a stream; path begins after /libpod. An answer other than 2xx
// is an error. Without a body the request is repeated once if the connection is dropped before the answer.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, header http.Header, body io.Reader) (*http.Response, error) {
	if _, err := c.connect(ctx); err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		req, err := http.NewRequestWithContext(ctx, method, "http://podman/v5.0.0/libpod"+path+"?"+query.Encode(), body)
		if err != nil {
			return nil, err
		}
		for key, values := range header {
			req.Header[key] = values
		}
		resp, err := c.stream.Do(req)
		if err == nil {
			return resp, refusal(resp)
		}
		if try == 2 || body != nil || !dropped(err) || ctx.Err() != nil {
			return nil, c.clean(err)
		}
	}
}

// refusal reads and closes an answer that is not 2xx.
func refusal(resp *http.Response) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	var model struct{ Message string }
	if json.Unmarshal(text, &model) != nil || model.Message == "" {
		model.Message = strings.TrimSpace(string(text))
	}
	return &apiError{resp.StatusCode, clean(model.Message)}
}

// apiError is Podman's refusal of a request. The message is redacted.
type apiError struct {
	status  int
	message string
}

func (e *apiError) Error() string { return fmt.Sprintf("podman: %s (%d)", e.message, e.status) }

func status(err error) int {
	var api *apiError
	if errors.As(err, &api) {
		return api.status
	}
	return 0
}

// clean gives an error without the bindings' types, and tells a Podman that is not there from one that refuses.
func (c *Client) clean(err error) error {
	var connect bindings.ConnectError
	if errors.As(err, &connect) {
		err = connect.Err
	}
	var model *errorhandling.ErrorModel
	if errors.As(err, &model) {
		return &apiError{model.ResponseCode, clean(model.Message)}
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" && !op.Timeout() && !errors.Is(err, context.Canceled) {
		return c.noPodman(op.Err)
	}
	return err
}

func (c *Client) noPodman(err error) error {
	return fmt.Errorf("%w at %s (systemctl --user enable --now podman.socket): %w", ErrNoPodman, c.socket, err)
}

// dropped tells that the other side went away in the middle.
func dropped(err error) bool {
	for _, is := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE, net.ErrClosed} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}
