package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// What the kernel's linux/unix_diag.h calls these. The states are those of TCP.
const (
	stateEstablished, stateListening = 1, 10
	showFile, showQueue              = 0x02, 0x10 // UDIAG_SHOW_VFS, UDIAG_SHOW_RQLEN
	attrFile, attrQueue              = 1, 4       // UNIX_DIAG_VFS, UNIX_DIAG_RQLEN
)

// connections counts who is connected to the Unix socket at a path. The kernel tells an accepted socket's file by its
// inode, whatever path the listener knows it by in its container; those that nobody has accepted yet it tells as the
// listener's queue. Of two file systems one may have the same number: then
// it counts too many, and whoever waits for the last one waits for the limit.
func connections(path string) (int, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	messages, err := unixSockets()
	if err != nil {
		return 0, fmt.Errorf("ask the kernel for sockets: %w", err)
	}
	n := 0
	for _, m := range messages {
		s := socketOf(m.Data)
		switch {
		case s.file != uint32(st.Ino):
		case s.state == stateListening:
			n += s.queue
		default:
			n++
		}
	}
	return n, nil
}

// unixSockets dumps the connected and the listening Unix sockets of this network, as sock_diag(7) says.
func unixSockets() ([]syscall.NetlinkMessage, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return nil, err
	}
	const length = unix.SizeofNlMsghdr + 24
	request := make([]byte, length)
	order := binary.NativeEndian
	order.PutUint32(request[0:], length)
	order.PutUint16(request[4:], unix.SOCK_DIAG_BY_FAMILY)
	order.PutUint16(request[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	request[16] = unix.AF_UNIX
	order.PutUint32(request[20:], 1<<stateEstablished|1<<stateListening)
	order.PutUint32(request[28:], showFile|showQueue)
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	var all []syscall.NetlinkMessage
	buffer := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buffer, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, err
		}
		part, err := syscall.ParseNetlinkMessage(append([]byte(nil), buffer[:n]...))
		if err != nil {
			return nil, err
		}
		for _, m := range part {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return all, nil
			case unix.NLMSG_ERROR:
				return nil, syscall.Errno(-int32(order.Uint32(m.Data)))
			}
			all = append(all, m)
		}
	}
}

type unixSocket struct {
	state uint8
	file  uint32 // the inode of the file it is bound to; 0 for none
	queue int    // of a listener: who waits to be accepted
}

// socketOf reads one message of a dump: a fixed head, then attributes.
func socketOf(message []byte) (s unixSocket) {
	const head = 16
	if len(message) < head {
		return s
	}
	s.state = message[2]
	order := binary.NativeEndian
	for rest := message[head:]; len(rest) >= 4; {
		length := int(order.Uint16(rest))
		if length < 4 || length > len(rest) {
			return s
		}
		switch kind := order.Uint16(rest[2:]); {
		case length < 8:
		case kind == attrFile:
			s.file = order.Uint32(rest[4:])
		case kind == attrQueue:
			s.queue = int(order.Uint32(rest[4:]))
		}
		rest = rest[min((length+3)&^3, len(rest)):]
	}
	return s
}
