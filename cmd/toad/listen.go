package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"toad/httpd"
	"toad/internal/atomicfile"
	"toad/unitgen"
)

// listening is where the API is answered beside the Unix socket: nowhere unless it is said in so many words.
type listening struct {
	addresses []netip.AddrPort
	hosts     []string // names by which it is asked, beside those of the loopback
	none      bool     // setup is to close what is open
}

// addOrNone takes a value of setup's --listen.
func (l *listening) addOrNone(text string) error {
	if text == "none" {
		l.none = true
		return nil
	}
	return l.addAddress(text)
}

// addAddress takes a value of --listen. An address without an IP would be every address of the host.
func (l *listening) addAddress(text string) error {
	a, err := netip.ParseAddrPort(text)
	if err != nil || a.Port() == 0 || a.Addr().Zone() != "" {
		return fmt.Errorf("%q: want an IP address with a port, e.g. 127.0.0.1:8686", text)
	}
	l.addresses = append(l.addresses, netip.AddrPortFrom(a.Addr().Unmap(), a.Port()))
	return nil
}

// addHost takes a value of --host.
func (l *listening) addHost(text string) error {
	host := strings.ToLower(text)
	if host == "" || len(host) > 253 || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789.-:") != "" {
		return fmt.Errorf("%q: want a name or an IP address, without a port", text)
	}
	l.hosts = append(l.hosts, host)
	return nil
}

func (l listening) texts() (all []string) {
	for _, a := range l.addresses {
		all = append(all, a.String())
	}
	return all
}

// names are what a Host header may say: what --host says, and addresses that name this host and no other.
func (l listening) names() []string {
	names := slices.Clone(l.hosts)
	for _, a := range l.addresses {
		if !a.Addr().IsUnspecified() {
			names = append(names, a.Addr().String())
		}
	}
	return names
}

// warnings say of each address that others than this host's users can reach what that means.
func (l listening) warnings() (all []string) {
	for _, a := range l.addresses {
		if !a.Addr().IsLoopback() {
			all = append(all, fmt.Sprintf("%s can be reached from other machines, and tokens travel there without encryption; "+
				"put a TLS proxy in front, or use ssh -L to the Unix socket", a))
		}
	}
	return all
}

// listeners are the sockets that systemd passed in, and those of our own for what it did not pass. all tells whether
// every one came from systemd, so that it opens the door again after this process has ended.
func listeners(g *globals, l listening, log *slog.Logger) (listeners []net.Listener, all bool, err error) {
	passed, err := activation.Listeners()
	if err != nil {
		return nil, false, fmt.Errorf("sockets from systemd: %w", err)
	}
	unix, open := false, map[netip.AddrPort]bool{}
	for _, p := range passed {
		if p == nil {
			continue
		}
		switch at := p.Addr().(type) {
		case *net.UnixAddr:
			if filepath.Base(at.Name) == pageSocket {
				listeners = append(listeners, httpd.Page{Listener: p})
				continue
			}
			unix = true
		case *net.TCPAddr:
			a := netip.AddrPortFrom(at.AddrPort().Addr().Unmap(), at.AddrPort().Port())
			if !a.Addr().IsLoopback() && !slices.Contains(l.addresses, a) {
				log.Error("an address that others can reach is not answered, as --listen does not name it", "address", a.String())
				go turnAway(p)
				continue
			}
			open[a] = true
		default:
			return nil, false, fmt.Errorf("systemd passed in a socket at %s %s; want Unix and TCP sockets", at.Network(), at)
		}
		listeners = append(listeners, p)
	}
	all = unix
	if !unix {
		own, err := ownSocket(g)
		if err != nil {
			return nil, false, err
		}
		listeners = append(listeners, own)
	}
	for _, a := range l.addresses {
		if open[a] {
			continue
		}
		own, err := net.Listen("tcp", a.String())
		if err != nil {
			// Its absence keeps nobody else out, and the Unix socket must be answered.
			log.Error("an address is not answered", "address", a.String(), "err", err)
			continue
		}
		all = false
		listeners = append(listeners, own)
	}
	return listeners, all, nil
}

// pageSocket is what the socket of the page is called, wherever it lies.
const pageSocket = "web.sock"

// closedSockets are what is to be closed before systemd can open the page's socket, which it cannot while the service runs.
func (h *host) closedSockets(ctx context.Context) []string {
	if s, err := h.bus.State(ctx, unitgen.WebSocket); err == nil && s.ActiveState == "active" {
		return nil
	}
	return []string{"stop", "toad.socket", "toad.service"}
}

// turnAway hangs up on those who come to an address that is not to be answered: waiting would tell them nothing.
func turnAway(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		_ = conn.Close()
	}
}

// ownSocket is the Unix socket without systemd: a stale file is replaced, a live one is not.
func ownSocket(g *globals) (net.Listener, error) {
	runtimeDir, err := g.runtimeDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(runtimeDir, "toad", "toad.sock")
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s is in use: toad runs already, or toad.socket holds it; see systemctl --user status toad.socket", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("folder of the socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("stale socket: %w", err)
	}
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return net.Listen("unix", path)
}

var listenArgs = regexp.MustCompile(` --(listen|host) "?([^\s"]+)`)

// installedListening is what the installed units say; setup keeps it where nothing else is said.
func installedListening() (l listening) {
	dir, err := unitDir()
	if err != nil {
		return l
	}
	text := containerText()
	if unit, err := os.ReadFile(filepath.Join(dir, "toad.service")); err == nil {
		text = string(unit)
	}
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "ExecStart=") && !strings.HasPrefix(line, "Exec=") {
			continue
		}
		for _, m := range listenArgs.FindAllStringSubmatch(line, -1) {
			if m[1] == "listen" {
				_ = l.addAddress(m[2])
			} else {
				_ = l.addHost(m[2])
			}
		}
	}
	return l
}

// moveSockets lets systemd open and close the TCP addresses that setup was told of. A socket unit cannot be started
// while its service runs, so both sockets are closed for a moment: who asks in it asks once more.
func (h *host) moveSockets(ctx context.Context, runtimeDir string, was unitgen.Program) error {
	now := h.rollout.Program
	if slices.Equal(was.Listen, now.Listen) && slices.Equal(was.Hosts, now.Hosts) {
		s, err := h.bus.State(ctx, unitgen.TCPSocket)
		if err != nil || len(now.Listen) == 0 || s.ActiveState == "active" {
			return err
		}
	}
	if len(was.Listen) > 0 {
		if err := systemctl(ctx, runtimeDir, "disable", "--now", unitgen.TCPSocket); err != nil {
			return err
		}
	}
	steps := [][]string{{"daemon-reload"}, {"stop", "toad.socket", unitgen.WebSocket, "toad.service"}, {"enable", "--now", "toad.socket", unitgen.WebSocket}}
	if len(now.Listen) > 0 {
		steps[2] = append(steps[2], unitgen.TCPSocket)
	} else {
		dir, err := unitDir()
		if err != nil {
			return err
		}
		if err := atomicfile.Remove(filepath.Join(dir, unitgen.TCPSocket)); err != nil {
			return err
		}
	}
	for _, argv := range steps {
		if err := systemctl(ctx, runtimeDir, argv...); err != nil {
			return hint(err, "is the address free, and this host's? systemctl --user status %s", unitgen.TCPSocket)
		}
	}
	return nil
}
