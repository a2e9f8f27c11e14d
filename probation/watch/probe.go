package watch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"toad/probation"
)

// probe asks the application itself; why says what it found either way.
type probe func(ctx context.Context, c *Check, u probation.UnitSample) (ready bool, why string)

// maxBody bounds what is read of an answer; the rest of it tells nothing.
const maxBody = 64 << 10

func newProbe(r probation.Ready) (probe, error) {
	switch {
	case strings.HasPrefix(r.HTTP, "http+unix://"):
		socket, path, ok := strings.Cut(strings.TrimPrefix(r.HTTP, "http+unix://"), ":")
		if !ok {
			return nil, fmt.Errorf("readiness %s: want http+unix:///path.sock:/path", r.HTTP)
		}
		return httpProbe("http://localhost"+path, socket, r), nil
	case r.HTTP != "":
		return httpProbe(r.HTTP, "", r), nil
	case r.TCP != "":
		return connectProbe("tcp", r.TCP, r.Timeout), nil
	case r.Unix != "":
		return connectProbe("unix", r.Unix, r.Timeout), nil
	case r.Health:
		return healthProbe, nil
	case r.Notify:
		return func(context.Context, *Check, probation.UnitSample) (bool, string) { return true, "it said READY" }, nil
	}
	return func(context.Context, *Check, probation.UnitSample) (bool, string) { return true, "it stays active" }, nil
}

// httpProbe makes one request on a connection of its own, without a proxy; a redirect is an answer, not a way.
func httpProbe(address, socket string, r probation.Ready) probe {
	transport := &http.Transport{Proxy: nil, DisableKeepAlives: true, MaxResponseHeaderBytes: maxBody}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	}
	client := &http.Client{Transport: transport, Timeout: r.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return func(ctx context.Context, _ *Check, _ probation.UnitSample) (bool, string) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
		if err != nil {
			return false, err.Error()
		}
		req.Header.Set("User-Agent", "toad-check")
		resp, err := client.Do(req)
		if err != nil {
			return false, plain(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, maxBody)); err != nil {
			return false, "its answer broke off: " + plain(err)
		}
		if resp.StatusCode == r.Status || (r.Status == 0 && resp.StatusCode/100 == 2) {
			return true, fmt.Sprintf("it answers %d", resp.StatusCode)
		}
		return false, fmt.Sprintf("it answers %d", resp.StatusCode)
	}
}

// lingers is how long a connection must stay open to count: a proxy in front of a dead port accepts and closes at once.
const lingers = 100 * time.Millisecond

func connectProbe(network, address string, timeout time.Duration) probe {
	return func(ctx context.Context, _ *Check, _ probation.UnitSample) (bool, string) {
		conn, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, network, address)
		if err != nil {
			return false, plain(err)
		}
		defer conn.Close()
		_ = conn.SetReadDeadline(time.Now().Add(lingers))
		_, err = conn.Read(make([]byte, 1))
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			return true, "it accepts connections"
		}
		return false, "it accepts a connection and ends it at once"
	}
}

// healthProbe reads Podman's own health check. It says nothing as long as it is starting, or was never run.
func healthProbe(ctx context.Context, c *Check, u probation.UnitSample) (bool, string) {
	k, err := c.Containers.Container(ctx, u.Container)
	switch {
	case err != nil:
		return false, plain(err)
	case k.Health == "":
		return false, "its health check never ran"
	}
	return k.Health == "healthy", "its health is " + k.Health
}

// plain leaves out what the address repeats: Go names the method, the URL and both ends of a connection.
func plain(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		if u.Timeout() {
			return "no answer in time"
		}
		err = u.Err
	}
	var op *net.OpError
	if errors.As(err, &op) {
		if op.Timeout() {
			return "no answer in time"
		}
		err = op.Err
	}
	var sys *os.SyscallError
	if errors.As(err, &sys) {
		err = sys.Err
	}
	return err.Error()
}
