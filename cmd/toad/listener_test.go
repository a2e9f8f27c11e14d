package main

import (
	"net"
	"strconv"
	"testing"
)

func TestAListenerIsFoundByItsPort(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		host, text, _ := net.SplitHostPort(l.Addr().String())
		port, _ := strconv.Atoi(text)
		find := func(host string, port int) int {
			return len(socketsAt("/proc/net/tcp", host, port)) + len(socketsAt("/proc/net/tcp6", host, port))
		}
		if host == "0.0.0.0" || host == "::" {
			host = "127.0.0.1"
		}
		if find(host, port) != 1 || find("localhost", port) != 1 {
			t.Errorf("%s: not found", l.Addr())
		}
		if at != "0.0.0.0:0" && find("127.0.0.9", port) != 0 {
			t.Errorf("%s: found at another address", l.Addr())
		}
		l.Close()
		if find(host, port) != 0 {
			t.Errorf("%s: found after its end", l.Addr())
		}
	}
}
