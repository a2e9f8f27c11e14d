package httpd

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
)

// peer is who holds the other end of a connection, as the kernel tells.
type peer struct {
	unix bool
	uid  uint32
	err  error
	from string // the address, over TCP
}

type peerKey struct{}

// withPeer asks the kernel once per connection. The answer is of the process that connected, whoever writes now.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	p := peer{from: conn.RemoteAddr().String()}
	if l, ok := conn.(*limitedConn); ok {
		conn = l.Conn
	}
	if c, ok := conn.(*net.UnixConn); ok {
		p.unix = true
		p.uid, p.err = peerUID(c)
	}
	return context.WithValue(ctx, peerKey{}, p)
}

func peerUID(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *syscall.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if err := errors.Join(err, credErr); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// ownUser lets in the daemon's own user. Root comes in only if it is the host's: inside a user namespace uid 0 is some
// other user, or everybody the namespace does not map.
func ownUser() func(uid uint32) bool {
	own, hostRoot := uint32(os.Getuid()), !inUserNamespace()
	return func(uid uint32) bool { return uid == own || (uid == 0 && hostRoot) }
}

// inUserNamespace reports whether this process sees other user ids than the host does. What cannot be told counts as so.
func inUserNamespace() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return true
	}
	fields := strings.Fields(string(text))
	return len(fields) != 3 || fields[0] != "0" || fields[1] != "0" || fields[2] != "4294967295"
}
