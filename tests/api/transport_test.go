//go:build e2e

package api

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toad/tests/host"
)

// One host, as each part is quick: what is opened and by whom, what a token is good for, and how the daemon comes and
// goes.
func TestTransports(t *testing.T) {
	t.Parallel()
	d := newDoor(t)

	t.Run("both are opened by systemd", func(t *testing.T) {
		if have := d.MustUser(t, "stat", "-c", "%a %U", socket); have != "600 toad" {
			t.Errorf("the socket: %s", have)
		}
		if have := d.MustExec(t, "sh", "-c", "ss -Hltn sport = 8686 | awk '{print $4}'"); have != tcp {
			t.Errorf("TCP: %s", have)
		}
		if a := d.ask(t, "tcp", "GET", "/healthz", "", nil); a.Status != 200 || a.Body != "ok\n" {
			t.Errorf("have %+v", a)
		}
		if a := d.ask(t, "unix", "GET", "/v1/services/web", "", nil); a.Status != 200 {
			t.Errorf("have %+v", a)
		}
		// Safe to run again, and what was said the last time stays.
		d.MustUser(t, "toad", "setup")
		if a := d.ask(t, "tcp", "GET", "/v1/services", "", nil); a.Status != 401 || a.Code != "unauthorized" {
			t.Errorf("have %+v", a)
		}
	})

	t.Run("a token lives until it is revoked", func(t *testing.T) {
		token := d.token(t, "--services", "web")
		id, _, _ := strings.Cut(token, ".")
		if a := d.ask(t, "tcp", "GET", "/v1/services/web", "", bearer(token)); a.Status != 200 {
			t.Fatalf("have %+v", a)
		}
		// It outlives the daemon, and so does its end.
		d.MustUser(t, "systemctl", "--user", "restart", "toad.service")
		if a := d.ask(t, "tcp", "GET", "/v1/services/web", "", bearer(token)); a.Status != 200 {
			t.Errorf("after a restart: %+v", a)
		}
		out := d.MustUser(t, "toad", "token", "list")
		if !strings.Contains(out, id) || strings.Contains(out, token) {
			t.Errorf("the list: %s", out)
		}
		d.MustUser(t, "toad", "token", "revoke", id)
		for range 2 {
			if a := d.ask(t, "tcp", "GET", "/v1/services/web", "", bearer(token)); a.Status != 401 {
				t.Errorf("revoked: %+v", a)
			}
			d.MustUser(t, "systemctl", "--user", "restart", "toad.service")
		}
		if r := d.User(t, "grep", "-rlF", "-e", token[len(id)+1:], ".local/state/toad", ".config"); r.Exit != 1 {
			t.Errorf("the secret is at rest in %s%s", r.Stdout, r.Stderr)
		}
		if strings.Contains(d.journal(t), token[len(id)+1:]) {
			t.Error("the secret is in the journal")
		}
	})

	t.Run("the command line works over TCP", func(t *testing.T) {
		token := d.token(t, "--services", "web", "--expires", "1h")
		d.WriteFile(t, "~/token", token+"\n", 0o600)
		r := d.User(t, "toad", "--endpoint", "http://"+tcp, "--token-file", "token", "deploy", "web", d.Digest(t, "v2"))
		if r.Exit != 0 {
			t.Fatalf("exit %d\n%s%s\n%s", r.Exit, r.Stdout, r.Stderr, d.Log(t))
		}
		id, _, _ := strings.Cut(token, ".")
		if log := d.MustUser(t, "cat", ".local/state/toad/operations/web-g1.log"); !strings.Contains(log, "accepted from token "+id) || !strings.Contains(log, `"from":"127.0.0.1:`) {
			t.Errorf("the log does not say who: %s", log)
		}
		for _, argv := range [][]string{{"token", "list"}, {"token", "issue", "x", "--services", "web"}, {"token", "revoke", id}} {
			if r := d.User(t, append([]string{"toad", "--endpoint", "http://" + tcp, "--token-file", "token"}, argv...)...); r.Exit != 77 {
				t.Errorf("%v: exit %d %s", argv, r.Exit, r.Stderr)
			}
		}
		a := d.ask(t, "tcp", "GET", "/v1/services/web/tags/v3", "", bearer(token))
		if a.Status != 200 || !strings.Contains(a.Body, d.Digest(t, "v3")) {
			t.Errorf("a tag: %+v", a)
		}
		if a := d.ask(t, "tcp", "GET", "/v1/services/web/tags/nope", "", bearer(token)); a.Status != 404 || a.Code != "unknown_tag" {
			t.Errorf("no such tag: %+v", a)
		}
	})

	t.Run("a daemon at rest ends, and the next request starts it", func(t *testing.T) {
		d.rest(t, "1s")
		restarts := d.Show(t, "toad.service", "NRestarts")
		before := d.journal(t)
		for _, network := range []string{"unix", "tcp"} {
			if a := d.ask(t, network, "GET", "/healthz", "", nil); a.Status != 200 {
				t.Errorf("%s: %+v", network, a)
			}
			host.Eventually(t, "the daemon to end", time.Minute, func() bool { return d.state(t) == "inactive" })
			if have := d.Show(t, "toad.service", "Result"); have != "success" {
				t.Errorf("it ended with %s", have)
			}
		}
		// Requests that meet the end are answered all the same.
		for i := range 20 {
			time.Sleep(time.Duration(900+10*i) * time.Millisecond) // there is no event to wait for: the end is to be met
			if r := d.User(t, "toad", "status", "web"); r.Exit != 0 {
				t.Errorf("request %d: exit %d %s", i, r.Exit, r.Stderr)
			}
		}
		if have := d.Show(t, "toad.service", "NRestarts"); have != restarts {
			t.Errorf("it was restarted: %s, then %s", restarts, have)
		}
		said := strings.TrimPrefix(d.journal(t), before)
		for line := range strings.Lines(said) {
			if strings.Contains(line, "toad[") && !strings.Contains(line, "systemd[") {
				t.Errorf("it says in the journal: %s", line)
			}
		}
		d.MustUser(t, "rm", "-r", ".config/systemd/user/toad.service.d")
		d.MustUser(t, "systemctl", "--user", "daemon-reload")
	})

	t.Run("whoever meets a restart is answered", func(t *testing.T) {
		var all sync.WaitGroup
		over, end := context.WithCancel(t.Context())
		defer end()
		var asked atomic.Int64
		for i := range 40 {
			client := d.client([]string{"unix", "tcp"}[i%2])
			all.Go(func() {
				for over.Err() == nil {
					resp, err := client.Get("http://" + tcp + "/healthz")
					if err != nil {
						t.Error(err)
						return
					}
					if a, err := read(resp); err != nil || a.Status != 200 {
						t.Errorf("have %+v, %v", a, err)
					}
					resp.Body.Close()
					asked.Add(1)
				}
			})
		}
		for range 4 {
			d.MustUser(t, "systemctl", "--user", "restart", "toad.service")
			told := asked.Load()
			host.Eventually(t, "answers after the restart", time.Minute, func() bool { return asked.Load() > told+40 })
		}
		end()
		all.Wait()
	})

	t.Run("an address that others can reach has to be named", func(t *testing.T) {
		d.WriteFile(t, "~/.config/systemd/user/toad-tcp.socket.d/wide.conf", "[Socket]\nListenStream=0.0.0.0:8687\n", 0o644)
		d.MustUser(t, "systemctl", "--user", "daemon-reload")
		d.MustUser(t, "systemctl", "--user", "stop", "toad.socket", "toad-tcp.socket", "toad.service")
		d.MustUser(t, "systemctl", "--user", "start", "toad.socket", "toad-tcp.socket")
		if status, text := d.Get("http://127.0.0.1:8687/healthz"); status != 0 {
			t.Errorf("it answers: %d %s", status, text)
		}
		if a := d.ask(t, "tcp", "GET", "/healthz", "", nil); a.Status != 200 {
			t.Errorf("the loopback: %+v", a)
		}
		if have := d.Journal(t, "toad.service"); !strings.Contains(have, "0.0.0.0:8687") {
			t.Error("the journal does not name it")
		}
		d.MustUser(t, "rm", "-r", ".config/systemd/user/toad-tcp.socket.d")
		for _, bad := range []string{":8686", "8686", "localhost:8686", "0.0.0.0", "127.0.0.1:0"} {
			if r := d.User(t, "toad", "setup", "--listen", bad); r.Exit != 64 {
				t.Errorf("--listen %s: exit %d", bad, r.Exit)
			}
		}
		out := d.MustUser(t, "toad", "setup", "--listen", "0.0.0.0:8686", "--host", "box.example.org")
		if !strings.Contains(out, "without encryption") {
			t.Errorf("no warning: %s", out)
		}
		for name, want := range map[string]int{"box.example.org:8686": 200, "127.0.0.1:8686": 200, "other.example.org": 421, "0.0.0.0:8686": 421} {
			if a := d.ask(t, "tcp", "GET", "/healthz", "", map[string]string{"Host": name}); a.Status != want {
				t.Errorf("%s: want %d, have %+v", name, want, a)
			}
		}
		if have := d.Journal(t, "toad.service"); !strings.Contains(have, "can be reached from other machines") {
			t.Error("no warning in the journal")
		}
		d.MustUser(t, "toad", "setup", "--listen", "none")
		if status, text := d.Get("http://127.0.0.1:8686/healthz"); status != 0 {
			t.Errorf("it still answers: %d %s", status, text)
		}
		d.MustUser(t, "toad", "status")
	})

	t.Run("without systemd's sockets", func(t *testing.T) {
		d.MustUser(t, "systemctl", "--user", "stop", "toad.socket", "toad.service")
		// The file that a dead daemon left is replaced, a live one's is not.
		d.MustUser(t, "sh", "-c", "test -S "+socket)
		d.MustUser(t, "systemd-run", "--user", "--unit=own", "toad", "serve", "--listen", tcp)
		host.Eventually(t, "it to answer", time.Minute, func() bool { s, _ := d.Get("http://" + tcp + "/healthz"); return s == 200 })
		if have := d.MustUser(t, "stat", "-c", "%a", socket); have != "600" {
			t.Errorf("the socket: %s", have)
		}
		d.MustUser(t, "toad", "status", "web")
		if r := d.User(t, "toad", "serve", "--state", "/home/toad/other"); r.Exit != 78 || !strings.Contains(r.Stderr, "in use") {
			t.Errorf("a second one: exit %d %s", r.Exit, r.Stderr)
		}
		d.MustUser(t, "systemctl", "--user", "stop", "own.service")
		d.MustUser(t, "systemctl", "--user", "start", "toad.socket")
		d.MustUser(t, "toad", "status", "web")
	})
}
