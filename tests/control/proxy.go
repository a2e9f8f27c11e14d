package control

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
)

// Proxy is an HTTP proxy for CONNECT, or a SOCKS5 proxy, that remembers what passed through it.
type Proxy struct {
	User, Password string                         // asked for unless empty
	Hosts          map[string]string              // host:port to dial in the place of one that was asked for
	Dial           func(string) (net.Conn, error) // nil: net.Dial
	Refuse         int                            // an HTTP status, or a SOCKS5 reply, for every request

	mu      sync.Mutex
	targets []string
	seen    bytes.Buffer
	open    map[net.Conn]bool
}

// Targets are the addresses that were asked for, in order.
func (p *Proxy) Targets() []string { p.mu.Lock(); defer p.mu.Unlock(); return slices.Clone(p.targets) }

// Seen is all that clients sent after the proxy had connected them.
func (p *Proxy) Seen() []byte { p.mu.Lock(); defer p.mu.Unlock(); return bytes.Clone(p.seen.Bytes()) }

// ServeHTTP proxies CONNECT on a listener until the returned function is called.
func (p *Proxy) ServeHTTP(l net.Listener) (stop func()) { return p.serve(l, p.connect) }

// ServeSOCKS5 proxies SOCKS5 on a listener until the returned function is called.
func (p *Proxy) ServeSOCKS5(l net.Listener) (stop func()) { return p.serve(l, p.socks) }

// ServeRaw passes every connection to one address, as a mesh's local proxy does behind its Unix socket.
func (p *Proxy) ServeRaw(l net.Listener, address string) (stop func()) {
	return p.serve(l, func(c net.Conn, in *bufio.Reader) error {
		out, err := p.dial(address)
		if err != nil {
			return err
		}
		p.relay(c, in, out)
		return nil
	})
}

func (p *Proxy) serve(l net.Listener, each func(net.Conn, *bufio.Reader) error) func() {
	p.open = map[net.Conn]bool{}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.note(c, true)
			running.Go(func() {
				defer p.note(c, false)
				defer c.Close()
				_ = each(c, bufio.NewReader(c))
			})
		}
	})
	return func() {
		l.Close()
		p.mu.Lock()
		for c := range p.open {
			c.Close()
		}
		p.mu.Unlock()
		running.Wait()
	}
}

func (p *Proxy) note(c net.Conn, here bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if here {
		p.open[c] = true
	} else {
		delete(p.open, c)
	}
}

func (p *Proxy) connect(c net.Conn, in *bufio.Reader) error {
	r, err := http.ReadRequest(in)
	if err != nil {
		return err
	}
	say := func(status int) error {
		_, err := fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nContent-Length: 0\r\n\r\n", status, http.StatusText(status))
		return err
	}
	login := "Basic " + base64.StdEncoding.EncodeToString([]byte(p.User+":"+p.Password))
	switch {
	case r.Method != http.MethodConnect:
		return say(http.StatusMethodNotAllowed)
	case p.User != "" && r.Header.Get("Proxy-Authorization") != login:
		return say(http.StatusProxyAuthRequired)
	case p.Refuse != 0:
		return say(p.Refuse)
	}
	out, err := p.dial(r.Host)
	if err != nil {
		return say(http.StatusBadGateway)
	}
	if _, err := fmt.Fprint(c, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		out.Close()
		return err
	}
	p.relay(c, in, out)
	return nil
}

// socks speaks RFC 1928, and RFC 1929 for a login.
func (p *Proxy) socks(c net.Conn, in *bufio.Reader) error {
	head := make([]byte, 2)
	if _, err := io.ReadFull(in, head); err != nil {
		return err
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(in, methods); err != nil {
		return err
	}
	want := byte(0)
	if p.User != "" {
		want = 2
	}
	if !bytes.Contains(methods, []byte{want}) {
		_, err := c.Write([]byte{5, 0xff})
		return err
	}
	if _, err := c.Write([]byte{5, want}); err != nil {
		return err
	}
	if want == 2 {
		if err := p.socksLogin(c, in); err != nil {
			return err
		}
	}
	address, err := socksAddress(in)
	if err != nil {
		return err
	}
	reply := func(code byte) error { _, err := c.Write([]byte{5, code, 0, 1, 0, 0, 0, 0, 0, 0}); return err }
	if p.Refuse != 0 {
		return reply(byte(p.Refuse))
	}
	out, err := p.dial(address)
	if err != nil {
		return reply(5)
	}
	if err := reply(0); err != nil {
		out.Close()
		return err
	}
	p.relay(c, in, out)
	return nil
}

func (p *Proxy) socksLogin(c net.Conn, in *bufio.Reader) error {
	if version, err := in.ReadByte(); err != nil || version != 1 {
		return errors.New("no login")
	}
	user, err := counted(in)
	if err != nil {
		return err
	}
	password, err := counted(in)
	if err != nil {
		return err
	}
	if user != p.User || password != p.Password {
		_, _ = c.Write([]byte{1, 1})
		return errors.New("another login")
	}
	_, err = c.Write([]byte{1, 0})
	return err
}

func counted(in *bufio.Reader) (string, error) {
	n, err := in.ReadByte()
	if err != nil {
		return "", err
	}
	text := make([]byte, n)
	_, err = io.ReadFull(in, text)
	return string(text), err
}

func socksAddress(in *bufio.Reader) (string, error) {
	head := make([]byte, 4)
	if _, err := io.ReadFull(in, head); err != nil || head[1] != 1 {
		return "", errors.New("no CONNECT")
	}
	var host string
	var err error
	switch head[3] {
	case 1, 4:
		ip := make(net.IP, map[byte]int{1: 4, 4: 16}[head[3]])
		_, err = io.ReadFull(in, ip)
		host = ip.String()
	case 3:
		host, err = counted(in)
	default:
		err = errors.New("another kind of address")
	}
	var port uint16
	if err == nil {
		err = binary.Read(in, binary.BigEndian, &port)
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port))), err
}

func (p *Proxy) dial(address string) (net.Conn, error) {
	p.mu.Lock()
	p.targets = append(p.targets, address)
	if to, ok := p.Hosts[address]; ok {
		address = to
	}
	p.mu.Unlock()
	if p.Dial != nil {
		return p.Dial(address)
	}
	return net.Dial("tcp", address)
}

func (p *Proxy) relay(c net.Conn, in io.Reader, out net.Conn) {
	p.note(out, true)
	defer p.note(out, false)
	defer out.Close()
	back := make(chan struct{})
	go func() {
		defer close(back)
		_, _ = io.Copy(c, out)
		c.Close() // ends the other copy
	}()
	_, _ = io.Copy(io.MultiWriter(out, watcher{p}), in)
	out.Close()
	<-back
}

type watcher struct{ p *Proxy }

func (w watcher) Write(b []byte) (int, error) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	return w.p.seen.Write(b)
}
