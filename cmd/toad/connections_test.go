package main

import (
	"net"
	"path/filepath"
	"testing"
)

// Whoever is connected to a socket counts, accepted or not, and nobody who is connected to another one.
func TestConnectionsToASocketAreCounted(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "a.sock"), filepath.Join(dir, "b.sock")
	var listeners []net.Listener
	for _, p := range []string{path, other} {
		l, err := net.Listen("unix", p)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		listeners = append(listeners, l)
	}
	want := func(n int, when string) {
		t.Helper()
		if have, err := connections(path); err != nil || have != n {
			t.Errorf("%s: want %d, have %d, %v", when, n, have, err)
		}
	}
	want(0, "nobody")
	var clients []net.Conn
	for _, p := range []string{path, path, other} {
		c, err := net.Dial("unix", p)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	want(2, "none of them accepted")
	c, err := listeners[0].Accept()
	if err != nil {
		t.Fatal(err)
	}
	want(2, "one of them accepted")
	c.Close()
	want(1, "one of them ended")
	for _, c := range clients {
		c.Close()
	}
	if _, err := connections(filepath.Join(dir, "none.sock")); err == nil {
		t.Error("a socket that is not there was counted")
	}
}
