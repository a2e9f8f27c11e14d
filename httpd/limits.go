package httpd

import (
	"net"
	"net/http"
	"sync"
)

// What one transport may hold at a time. The Unix socket and TCP count apart, so that nobody on the network can keep
// the host's own user out.
const (
	maxConnections = 2048
	maxRequests    = 512
	maxFollowers   = 1536
)

// load is what one transport holds.
type load struct{ requests, followers int }

func (s *Server) load(c *call) *load {
	if c.remote {
		return &s.tcp
	}
	return &s.unix
}

// enter counts a request. One too many is counted too, for the length of its refusal.
func (s *Server) enter(c *call) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.load(c)
	l.requests++
	if l.requests > maxRequests {
		return busy("requests")
	}
	return nil
}

func (s *Server) leave(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load(c).requests--
	s.rested = s.now()
}

// settle counts a request as a follower from now on, until leave is called.
func (s *Server) settle(c *call) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.load(c)
	if l.followers >= maxFollowers {
		return nil, busy("followers")
	}
	l.followers++
	l.requests--
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		l.followers--
		l.requests++
	}, nil
}

func busy(what string) error {
	return refuse(http.StatusTooManyRequests, CodeBusy, "too many "+what+" at the same time; try again in a moment")
}

// limited is a listener that leaves connections in the kernel's queue while there are too many.
type limited struct {
	net.Listener
	free chan struct{}
	shut chan struct{}
	once sync.Once
}

func limit(l net.Listener) *limited {
	return &limited{Listener: l, free: make(chan struct{}, maxConnections), shut: make(chan struct{})}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.free <- struct{}{}:
	case <-l.shut:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.free
		return nil, err
	}
	return &limitedConn{Conn: conn, closed: sync.OnceFunc(func() { <-l.free })}, nil
}

// Close also ends an Accept that waits for a place.
func (l *limited) Close() error {
	l.once.Do(func() { close(l.shut) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	closed func()
}

func (c *limitedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// CloseWrite is what net/http looks for, to let a refusal arrive before the connection is reset.
func (c *limitedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
