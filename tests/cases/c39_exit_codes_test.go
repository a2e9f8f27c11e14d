//go:build e2e

package cases

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C39: a blip of the network parks a unit in failed, and an answer that is not one is taken for the state of the service.
// What may be better next time is 75; what somebody has to put right is 78, or 77 where it is a matter of rights.
func TestC39ExitCodes(t *testing.T) {
	b := lay(t, scene.Options{})
	b.WriteFile(t, "~/token.env", "t1.secret\n", 0o600)
	before := b.state(t)
	answers := func(status int, contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	const page, object = "text/html", "application/json"
	stubs := []struct {
		name  string
		serve any // an http.Handler, or what is done with a connection
		exit  int
		says  string
	}{
		{"nobody listens", nil, 75, "out of reach"},
		{"it closes at once", func(c net.Conn) { c.Close() }, 75, "out of reach"},
		{"another protocol", func(c net.Conn) { io.WriteString(c, "\x15\x03\x01\x00\x02\x02\x46"); c.Close() }, 75, "out of reach"},
		{"500", answers(500, page, "<h1>oops</h1>"), 75, "500"},
		{"503", answers(503, page, ""), 75, "503"},
		{"429", answers(429, page, ""), 75, "429"},
		{"401", answers(401, page, ""), 77, "401"},
		{"403", answers(403, page, ""), 77, "403"},
		{"a redirect", answers(302, page, ""), 78, "is it toad?"},
		{"404 of something else", answers(404, page, "<h1>no such page</h1>"), 78, "is it toad?"},
		{"an empty 200", answers(200, object, ""), 78, "is it toad?"},
		{"a page", answers(200, page, "<h1>welcome</h1>"), 78, "is it toad?"},
		{"JSON of something else", answers(200, object, `{"digest":"v3","image":7}`), 78, "is it toad?"},
		{"an object of something else", answers(200, object, `{"name":"web","tag":"v3"}`), 78, "is it toad?"},
		{"a list", answers(200, object, `[]`), 78, "is it toad?"},
		{"10 MB", answers(200, object, `"`+strings.Repeat("x", 10<<20)+`"`), 78, "is it toad?"},
		{"a stall", func(net.Conn) {}, 75, "out of reach"},
	}
	ctx, cancel := context.WithTimeout(context.Background(), host.Limit)
	defer cancel()
	var all sync.WaitGroup
	for i, s := range stubs {
		address := fmt.Sprintf("127.0.0.1:%d", 9920+i)
		switch serve := s.serve.(type) {
		case http.HandlerFunc:
			server := &http.Server{Handler: serve}
			go server.Serve(b.Listen(t, address))
			defer server.Close()
		case func(net.Conn):
			l := b.Listen(t, address)
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					serve(c)
				}
			}()
		}
		for _, argv := range [][]string{{"deploy", "web", b.Digest(t, "v2")}, {"status", "web"}} {
			for range 2 { // the same input has the same end
				cmd := b.UserCommand(ctx, t, append([]string{"toad", "--endpoint", "http://" + address, "--token-file", "/home/toad/token.env"}, argv...)...)
				all.Go(func() {
					out, _ := cmd.CombinedOutput()
					if have := cmd.ProcessState.ExitCode(); have != s.exit || !strings.Contains(string(out), s.says) {
						t.Errorf("%s, %s: want exit %d and %q, have %d\n%.500s", s.name, argv[0], s.exit, s.says, have, out)
					}
				})
				if s.name == "a stall" {
					break
				}
			}
		}
	}
	all.Wait()

	for name, c := range map[string]struct {
		text string
		mode uint32
		says string
	}{
		"missing":       {"", 0, "no such file"},
		"open":          {"t1.secret", 0o644, "is open to others"},
		"empty":         {"\n", 0o600, "is empty"},
		"of two tokens": {"t1.secret t2.secret", 0o600, "is not a token"},
	} {
		b.User(t, "rm", "-f", "token.env")
		if c.mode != 0 {
			b.WriteFile(t, "~/token.env", c.text, 0)
			b.MustUser(t, "chmod", fmt.Sprintf("%o", c.mode), "token.env")
		}
		r := b.User(t, "toad", "--endpoint", "http://127.0.0.1:9920", "--token-file", "/home/toad/token.env", "deploy", "web", b.Digest(t, "v2"))
		if r.Exit != 78 || !strings.Contains(r.Stderr, c.says) || strings.Contains(r.Stderr, "secret") {
			t.Errorf("a token file that is %s: want exit 78 and %q, have %d\n%s", name, c.says, r.Exit, r.Stderr)
		}
	}
	if after := b.state(t); after != before {
		t.Errorf("it changed something\nbefore %+v\nafter  %+v", before, after)
	}
}
