//go:build e2e

// Package api drives the HTTP API of a real daemon over both of its transports, as systemd opens them.
package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	tcp    = "127.0.0.1:8686"
	socket = "/run/user/1000/toad/toad.sock"
)

// door is a host with the service web whose API is answered over TCP too.
type door struct{ *scene.Web }

func newDoor(t *testing.T) door {
	t.Helper()
	d := door{scene.New(t, scene.Options{Limits: "deadline = \"60s\"\nstable = \"1s\""})}
	d.MustUser(t, "toad", "setup", "--listen", tcp)
	return d
}

// token issues a token; flags are those of toad token issue.
func (d door) token(t *testing.T, flags ...string) string {
	t.Helper()
	return d.MustUser(t, append([]string{"toad", "token", "issue", "ci"}, flags...)...)
}

// answer is what came back.
type answer struct {
	Status int
	Header http.Header
	Body   string
	Code   string // of a problem
}

// client speaks to the daemon: network is unix or tcp.
func (d door) client(network string) *http.Client {
	address := tcp
	if network == "unix" {
		address = fmt.Sprintf("/proc/%s/root%s", d.Pid(), socket)
	}
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return d.Dial(ctx, network, address) }}}
}

// ask makes a request; a field of header whose value is "-" is left out.
func (d door) ask(t *testing.T, network, method, path, body string, header map[string]string) answer {
	t.Helper()
	req, err := http.NewRequest(method, "http://"+tcp+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "k1")
	}
	for k, v := range header {
		switch {
		case k == "Host":
			req.Host = v
		case v == "-":
			req.Header.Del(k)
		default:
			req.Header.Set(k, v)
		}
	}
	resp, err := d.client(network).Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	a, err := read(resp)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

func read(resp *http.Response) (answer, error) {
	var b bytes.Buffer
	if _, err := io.Copy(&b, resp.Body); err != nil {
		return answer{}, err
	}
	a := answer{Status: resp.StatusCode, Header: resp.Header, Body: b.String()}
	if resp.Header.Get("Content-Type") == "application/problem+json" {
		var p struct{ Code string }
		if err := json.Unmarshal(b.Bytes(), &p); err != nil {
			return a, fmt.Errorf("%w in %s", err, b.String())
		}
		a.Code = p.Code
	}
	return a, nil
}

func bearer(token string) map[string]string {
	return map[string]string{"Authorization": "Bearer " + token}
}

// state is the daemon's unit as systemd has it.
func (d door) state(t *testing.T) string { return d.Show(t, "toad.service", "ActiveState") }

// rest gives the daemon a short time at rest before it ends.
func (d door) rest(t *testing.T, idle string) {
	t.Helper()
	line := d.MustUser(t, "sh", "-c", "grep ^ExecStart= .local/share/systemd/user/toad.service")
	d.WriteFile(t, "~/.config/systemd/user/toad.service.d/idle.conf", "[Service]\nExecStart=\n"+line+" --idle "+idle+"\n", 0o644)
	d.MustUser(t, "systemctl", "--user", "daemon-reload")
	d.MustUser(t, "systemctl", "--user", "stop", "toad.service")
}

func (d door) journal(t *testing.T) string {
	t.Helper()
	d.Exec(t, "journalctl", "--sync")
	return d.MustExec(t, "journalctl", "-b", "-o", "short-unix", "--no-pager", "_UID="+fmt.Sprint(host.UID))
}
