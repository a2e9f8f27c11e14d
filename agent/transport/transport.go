// Package transport carries a box's requests to its control plane: directly, through a proxy, or over a Unix socket.
// Whatever the way, no answer is read for ever, and none is read whole that is larger than its reader said.
package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"time"
)

// Transport says how connections are made. What a mesh's library offers to dial with becomes one as a Dial.
type Transport interface {
	// Connect sets how an HTTP transport reaches its peers. TLS stays between toad and the server, whatever lies between.
	Connect(*http.Transport)
}

// Dial is a transport that is no more than a way to dial, such as a mesh's library has. network is "tcp", address host:port.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Connect implements Transport.
func (d Dial) Connect(t *http.Transport) { t.DialContext = d }

// Direct dials the server itself. The environment's HTTPS_PROXY is not looked at: a way is configured or it is direct.
var Direct Dial = (&net.Dialer{Timeout: connectTimeout}).DialContext

// Unix reaches every server through one Unix socket, where a mesh's proxy on this host listens.
func Unix(path string) Transport {
	return Dial(func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{Timeout: connectTimeout}).DialContext(ctx, "unix", path)
	})
}

type proxy struct{ url *url.URL }

// Connect implements Transport.
func (p proxy) Connect(t *http.Transport) {
	t.DialContext = Direct
	t.Proxy = http.ProxyURL(p.url)
}

// Proxy goes through an HTTP proxy by CONNECT (http://, https://), or through SOCKS5 (socks5://, socks5h://). The proxy
// looks the server's name up; a user and a password of the URL are for the proxy.
func Proxy(u *url.URL) Transport { return proxy{u} }

// Parse reads a transport as it is configured: "" or "direct", "unix:/absolute/path", or the URL of a proxy. An error
// repeats neither a user nor a password of that URL.
func Parse(text string) (Transport, error) {
	if text == "" || text == "direct" {
		return Direct, nil
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("the transport is not a URL; write direct, unix:/path, http://host:port or socks5://host:port")
	}
	switch u.Scheme {
	case "unix":
		if u.Host != "" || !filepath.IsAbs(u.Path) {
			return nil, fmt.Errorf("the transport unix: wants an absolute path, as unix:/run/mesh/proxy.sock")
		}
		return Unix(filepath.Clean(u.Path)), nil
	case "http", "https", "socks5", "socks5h":
		if u.Hostname() == "" || (u.Path != "" && u.Path != "/") || u.RawQuery != "" || u.Fragment != "" {
			return nil, fmt.Errorf("the transport %s: wants a host and a port only, as %s://proxy.example:3128", u.Scheme, u.Scheme)
		}
		return Proxy(u), nil
	}
	return nil, fmt.Errorf("the transport %q is not known; write direct, unix:/path, http://host:port or socks5://host:port", u.Scheme)
}

// Password returns the password for a proxy in the text of a transport, "" if there is none: a secret to be registered.
func Password(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return ""
	}
	password, _ := u.User.Password()
	return password
}

// The longest that parts of an exchange may take; a caller's context bounds the whole.
const (
	connectTimeout = 10 * time.Second
	headerTimeout  = 30 * time.Second
	maxHeader      = 64 << 10
)

// Client makes an HTTP client over a transport. roots nil means the system's; otherwise only they are trusted. It
// follows no redirect, since a bearer must not go where an answer points, and unpacks nothing.
func Client(via Transport, roots *x509.CertPool) *http.Client {
	t := &http.Transport{
		TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    connectTimeout,
		ResponseHeaderTimeout:  headerTimeout,
		IdleConnTimeout:        headerTimeout,
		MaxResponseHeaderBytes: maxHeader,
		MaxConnsPerHost:        4,
		DisableCompression:     true,
	}
	via.Connect(t)
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Roots reads the certificates of a pinned CA, PEM.
func Roots(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("no certificate in PEM form was found")
	}
	return pool, nil
}
