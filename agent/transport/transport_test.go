package transport_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/agent/bao"
	"toad/agent/protocol"
	"toad/agent/transport"
	"toad/internal/redact"
	"toad/tests/control"
)

const (
	env = "env-staging-01"
	box = "edge1"
)

// known is vouched for by the system's roots.
var known = control.New()

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	// The environment's proxy is nobody's business here.
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy"} {
		os.Setenv(name, "http://127.0.0.1:1")
	}
	// A process reads the system's roots once.
	dir, err := os.MkdirTemp("", "roots")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "roots.pem")
	if err := os.WriteFile(file, known.CA(), 0o600); err != nil {
		panic(err)
	}
	os.Setenv("SSL_CERT_FILE", file)
	os.Setenv("SSL_CERT_DIR", dir)
	return m.Run()
}

// place is a control plane and an OpenBao known by names that only a proxy can look up.
type place struct {
	*control.World
	control, bao string // their real addresses
}

func newPlace(t *testing.T) *place {
	w := control.New()
	plane, vault := w.Loopback(t)
	w.Set(env, func(*control.Env) {})
	return &place{w, strings.TrimPrefix(plane, "https://"), strings.TrimPrefix(vault, "https://")}
}

const (
	controlName = "control.test:8443"
	baoName     = "bao.test:8200"
)

func (p *place) proxy() *control.Proxy {
	return &control.Proxy{Hosts: map[string]string{controlName: p.control, baoName: p.bao}}
}

func listen(t *testing.T, network, address string) net.Listener {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// tick logs in and checks in, the way a box does.
func (p *place) tick(t *testing.T, via transport.Transport, roots *x509.CertPool, controlURL, baoURL string) (token string, err error) {
	t.Helper()
	r := &redact.Redactor{}
	client := transport.Client(via, roots)
	t.Cleanup(client.CloseIdleConnections)
	plain := strings.HasPrefix(controlURL, "http:")
	store, err := bao.New(bao.Config{Address: baoURL, Plain: plain, HTTP: client, EnvID: env, Redactor: r, Idle: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Login(t.Context(), control.Role, p.Grant(env, box)); err != nil {
		return "", err
	}
	c, err := protocol.New(protocol.Config{Address: controlURL, Plain: plain, HTTP: client, EnvID: env, Box: box, Token: store.Token, Redactor: r, Idle: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.CheckIn(t.Context(), protocol.CheckIn{Version: "v1"})
	return store.Token(), err
}

func (p *place) roots(t *testing.T) *x509.CertPool {
	roots, err := transport.Roots(p.CA())
	if err != nil {
		t.Fatal(err)
	}
	return roots
}

func parse(t *testing.T, text string) transport.Transport {
	t.Helper()
	via, err := transport.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return via
}

func TestDirectly(t *testing.T) {
	p := newPlace(t)
	if _, err := p.tick(t, parse(t, "direct"), p.roots(t), "https://"+p.control, "https://"+p.bao); err != nil {
		t.Error(err)
	}
	if n := len(p.CheckIns(env, box)); n != 1 {
		t.Errorf("%d check-ins", n)
	}
}

func TestAServerThatThePinnedCADoesNotVouchForGetsNothing(t *testing.T) {
	p := newPlace(t)
	for name, roots := range map[string]*x509.CertPool{"the system's": nil, "another CA's": newPlace(t).roots(t)} {
		_, err := p.tick(t, transport.Direct, roots, "https://"+p.control, "https://"+p.bao)
		if unknown := (x509.UnknownAuthorityError{}); !errors.Is(err, protocol.ErrTemporary) || !errors.As(err, &unknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if have := p.Requests(""); have != nil {
		t.Errorf("requests came: %+v", have)
	}
	if _, err := transport.Roots([]byte("no PEM")); err == nil {
		t.Error("a file without certificates was taken")
	}
}

func TestTheSystemsRootsAreTrustedUnlessACAIsPinned(t *testing.T) {
	plane, vault := known.Loopback(t)
	p := &place{World: known}
	if _, err := p.tick(t, transport.Direct, nil, plane, vault); err != nil {
		t.Error(err)
	}
}

func TestThroughAProxy(t *testing.T) {
	for scheme, serve := range map[string]func(*control.Proxy, net.Listener) func(){
		"http": (*control.Proxy).ServeHTTP, "socks5": (*control.Proxy).ServeSOCKS5, "socks5h": (*control.Proxy).ServeSOCKS5,
	} {
		for _, login := range []string{"", "toad:p4ss-w0rd-of-it@"} {
			t.Run(scheme+" "+login, func(t *testing.T) {
				p := newPlace(t)
				proxy := p.proxy()
				if login != "" {
					proxy.User, proxy.Password = "toad", "p4ss-w0rd-of-it"
				}
				l := listen(t, "tcp", "127.0.0.1:0")
				t.Cleanup(serve(proxy, l))
				via := parse(t, scheme+"://"+login+l.Addr().String())
				token, err := p.tick(t, via, p.roots(t), "https://"+controlName, "https://"+baoName)
				if err != nil {
					t.Fatal(err)
				}
				if have := strings.Join(proxy.Targets(), " "); have != baoName+" "+controlName {
					t.Errorf("asked for %s", have)
				}
				if seen := proxy.Seen(); len(seen) == 0 || bytes.Contains(seen, []byte(token)) || bytes.Contains(seen, []byte("agent/check-in")) {
					t.Errorf("the proxy has seen what it should not, or nothing: %d bytes", len(seen))
				}
			})
		}
	}
}

func TestAProxyThatRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		scheme string
		serve  func(*control.Proxy, net.Listener) func()
		spoil  func(*control.Proxy)
	}{
		"wrong login": {"http", (*control.Proxy).ServeHTTP, func(p *control.Proxy) { p.User, p.Password = "toad", "another" }},
		"forbidden":   {"http", (*control.Proxy).ServeHTTP, func(p *control.Proxy) { p.Refuse = 403 }},
		"unreachable": {"http", (*control.Proxy).ServeHTTP, func(p *control.Proxy) {
			p.Hosts = map[string]string{controlName: "127.0.0.1:1", baoName: "127.0.0.1:1"}
		}},
		"wrong login, SOCKS": {"socks5", (*control.Proxy).ServeSOCKS5, func(p *control.Proxy) { p.User, p.Password = "toad", "another" }},
		"refused, SOCKS":     {"socks5", (*control.Proxy).ServeSOCKS5, func(p *control.Proxy) { p.Refuse = 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			proxy := p.proxy()
			c.spoil(proxy)
			l := listen(t, "tcp", "127.0.0.1:0")
			t.Cleanup(c.serve(proxy, l))
			text := c.scheme + "://toad:p4ss-w0rd-of-it@" + l.Addr().String()
			_, err := p.tick(t, parse(t, text), p.roots(t), "https://"+controlName, "https://"+baoName)
			if !errors.Is(err, protocol.ErrTemporary) || strings.Contains(err.Error(), "p4ss-w0rd") {
				t.Errorf("%v", err)
			}
			if transport.Password(text) != "p4ss-w0rd-of-it" {
				t.Error("its password cannot be told to the redactor")
			}
		})
	}
	p := newPlace(t)
	l := listen(t, "tcp", "127.0.0.1:0")
	l.Close()
	if _, err := p.tick(t, parse(t, "http://"+l.Addr().String()), p.roots(t), "https://"+controlName, "https://"+baoName); !errors.Is(err, protocol.ErrTemporary) {
		t.Errorf("a proxy that is not there: %v", err)
	}
}

func TestAProxyOverTLSIsHeldToTheSameCA(t *testing.T) {
	p := newPlace(t)
	proxy := p.proxy()
	front := listen(t, "tcp", "127.0.0.1:0")
	t.Cleanup(proxy.ServeHTTP(p.TLS(front)))
	via := parse(t, "https://"+front.Addr().String())
	if _, err := p.tick(t, via, p.roots(t), "https://"+controlName, "https://"+baoName); err != nil {
		t.Error(err)
	}
	if _, err := p.tick(t, via, newPlace(t).roots(t), "https://"+controlName, "https://"+baoName); !errors.Is(err, protocol.ErrTemporary) {
		t.Errorf("another CA: %v", err)
	}
}

// A mesh's local proxy either ends TLS itself, or passes the bytes on.
func TestOverAUnixSocket(t *testing.T) {
	p := newPlace(t)
	socket := filepath.Join(t.TempDir(), "mesh.sock")
	t.Cleanup(p.ServePlain(listen(t, "unix", socket), p.Both()))
	if _, err := p.tick(t, parse(t, "unix:"+socket), nil, "http://control.test", "http://bao.test"); err != nil {
		t.Errorf("in clear: %v", err)
	}
	raw := filepath.Join(t.TempDir(), "raw.sock")
	t.Cleanup((&control.Proxy{}).ServeRaw(listen(t, "unix", raw), p.bao))
	store, err := bao.New(bao.Config{Address: "https://bao.test", HTTP: transport.Client(parse(t, "unix:"+raw), p.roots(t)), EnvID: env, Redactor: &redact.Redactor{}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Login(t.Context(), control.Role, p.Grant(env, box)); err != nil {
		t.Errorf("TLS over it: %v", err)
	}
	if _, err := p.tick(t, parse(t, "unix:"+socket+".none"), nil, "http://control.test", "http://bao.test"); !errors.Is(err, protocol.ErrTemporary) {
		t.Errorf("a socket that is not there: %v", err)
	}
}

func TestHeadersHaveAnEnd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "endless.sock")
	l := listen(t, "unix", socket)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = http.ReadRequest(bufio.NewReader(c)) // closed with a request unread, a socket throws the answer away
			_, _ = c.Write([]byte("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX: " + strings.Repeat("x", 1<<17) + "\r\nContent-Length: 2\r\n\r\n{}"))
			c.Close()
		}
	}()
	_, err := newPlace(t).tick(t, transport.Unix(socket), nil, "http://control.test", "http://bao.test")
	if !errors.Is(err, protocol.ErrTemporary) || !strings.Contains(err.Error(), "header") {
		t.Errorf("%v", err)
	}
}

// What a mesh's library has to offer is a function to dial with, and no more is needed.
func TestAMeshIsAFunctionToDialWith(t *testing.T) {
	p := newPlace(t)
	var asked []string
	mesh := transport.Dial(func(ctx context.Context, network, address string) (net.Conn, error) {
		asked = append(asked, network+" "+address)
		return new(net.Dialer).DialContext(ctx, "tcp", map[string]string{controlName: p.control, baoName: p.bao}[address])
	})
	if _, err := p.tick(t, mesh, p.roots(t), "https://"+controlName, "https://"+baoName); err != nil || len(asked) != 2 {
		t.Errorf("%v %v", err, asked)
	}
}

func TestWhatIsNoTransport(t *testing.T) {
	for text, fine := range map[string]bool{"": true, "direct": true, "unix:/run/mesh.sock": true, "http://p:3128": true, "http://p:3128/": true, "socks5h://[::1]:1080": true,
		"unix:relative": false, "unix://host/path": false, "unix:": false, "ftp://p": false, "http://": false, "http://p/path": false, "http://p?a=b": false,
		"p:3128": false, "http://toad:p4ss%zz@p": false, "http://toad:p4ssw0rd@p/x": false, "\x00": false} {
		_, err := transport.Parse(text)
		if (err == nil) != fine || (err != nil && strings.Contains(err.Error(), "p4ss")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "direct", "unix:/run/mesh.sock", "http://u:p@proxy:3128", "socks5://[::1]:1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		via, err := transport.Parse(text)
		if (via == nil) != (err != nil) {
			t.Fatalf("%v %v", via, err)
		}
		if err != nil {
			if password := transport.Password(text); len(password) > 8 && !strings.Contains(strings.ToLower(text[:strings.Index(text, ":")]), password) && strings.Contains(err.Error(), password) {
				t.Errorf("the error repeats a password: %v", err)
			}
			return
		}
		_ = transport.Client(via, nil)
		if _, err := url.Parse(text); err != nil {
			t.Error("what is no URL was taken")
		}
	})
}
