//go:build e2e

package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"toad/tests/contract"
	"toad/tests/host"
)

// bad is a request that must be refused, with the exact answer. Over TCP it carries the good token unless header says
// otherwise.
type bad struct {
	name, network, method, path, body string
	header                            map[string]string
	status                            int
	code                              string
}

// raw is sent as it is, over TCP; one without a code is answered by the HTTP server before toad sees it.
type raw struct {
	name, text string
	status     int
	code       string
}

type h = map[string]string

func TestBadRequestsChangeNothing(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	promise, err := contract.Read([]byte(d.ask(t, "unix", "GET", "/openapi.yaml", "", nil).Body))
	if err != nil {
		t.Fatal(err)
	}
	v2 := d.Digest(t, "v2")
	d.MustDeploy(t, 0, "v2", "--key", "done")
	d.Quiet(t)

	tok := tokens{good: d.token(t, "--services", "web"), other: d.token(t, "--services", "db"),
		reader: d.token(t, "--services", "*", "--verbs", "read"), revoked: d.token(t, "--services", "web"),
		expired: d.token(t, "--services", "web", "--expires", "1s")}
	d.MustUser(t, "toad", "token", "revoke", tok.revoked[:10])
	host.Eventually(t, "a token to expire", time.Minute, func() bool {
		return d.ask(t, "tcp", "GET", "/v1/services/web", "", bearer(tok.expired)).Status == 401
	})

	// What the daemon writes by itself, to show that it can, is no answer to anybody.
	state := func() string {
		return d.MustUser(t, "sh", "-c", "cd .local/state/toad && find . -type f ! -name '*.lock' ! -name serve.alive ! -name '.toad-tmp-*' | sort | xargs sha256sum")
	}
	before := state()
	slow := []func(){d.hold(t, "POST /v1/services/web/deployments HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: Bearer "+
		tok.good+"\r\nIdempotency-Key: k\r\nContent-Length: 90\r\n\r\n{\"digest\":", "422"), d.hold(t, "GET /v1/services HTTP/1.1\r\nHost: localhost\r\nX-", "400")}

	requests, raws := d.badRequests(tok, v2), badBytes(tok.good)
	if n := len(requests) + len(raws); n < 60 {
		t.Errorf("only %d bad requests", n)
	}
	for _, b := range requests {
		if b.network == "" {
			b.network = "tcp"
		}
		header := h{}
		if b.network == "tcp" {
			header = bearer(tok.good)
		}
		for k, v := range b.header {
			header[k] = v
		}
		a := d.ask(t, b.network, b.method, b.path, b.body, header)
		d.verdict(t, b.name, a, b.status, b.code, tok)
		req, err := http.NewRequest(b.method, "http://localhost"+b.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := promise.Check(req, a.Status, a.Header, []byte(a.Body)); err != nil {
			t.Errorf("%s: not as openapi.yaml promises: %v", b.name, err)
		}
	}
	for _, r := range raws {
		d.verdict(t, r.name, d.send(t, r.text), r.status, r.code, tok)
	}
	for _, wait := range slow {
		wait()
	}
	if after := state(); after != before {
		t.Errorf("the state folder changed\nbefore\n%s\nafter\n%s", before, after)
	}
	if journal := d.journal(t); strings.Contains(journal, tok.good[11:]) || strings.Contains(journal, tok.other[11:]) {
		t.Error("a secret is in the journal")
	}
	d.MustServe(t, "v2")
}

type tokens struct{ good, other, reader, revoked, expired string }

func (d door) verdict(t *testing.T, name string, a answer, status int, code string, tok tokens) {
	t.Helper()
	if a.Status != status || a.Code != code {
		t.Errorf("%s: want %d %q, have %d %q: %s", name, status, code, a.Status, a.Code, a.Body)
	}
	for _, never := range []string{host.Home, "/run/user", "/usr/", "/etc/", "goroutine ", ".go:", tok.good[11:], tok.other[11:], tok.reader[11:], tok.revoked[11:], tok.expired[11:]} {
		if strings.Contains(a.Body, never) && !strings.Contains(name, "path") {
			t.Errorf("%s: the answer holds %q: %s", name, never, a.Body)
		}
	}
}

func (d door) badRequests(tok tokens, v2 string) []bad {
	const deploy, back = "/v1/services/web/deployments", "/v1/services/web/rollback"
	good := fmt.Sprintf(`{"digest":%q}`, v2)
	absent := "sha256:" + strings.Repeat("0123456789abcdef", 4)
	fresh := fmt.Sprintf(`{"digest":%q}`, absent)
	no := h{"Authorization": "-"}
	as := func(token string) h { return bearer(token) }
	key := func(k string) h { return h{"Idempotency-Key": k} }
	return []bad{
		// Who asks.
		{"no token", "", "POST", deploy, good, no, 401, "unauthorized"},
		{"no token to read", "", "GET", "/v1/services", "", no, 401, "unauthorized"},
		{"an empty token", "", "POST", deploy, good, as(""), 401, "unauthorized"},
		{"a wrong secret", "", "POST", deploy, good, as(tok.good[:11] + strings.Repeat("A", 43)), 401, "unauthorized"},
		{"a wrong id", "", "POST", deploy, good, as("0123456789" + tok.good[10:]), 401, "unauthorized"},
		{"another's secret", "", "POST", deploy, good, as(tok.good[:11] + tok.other[11:]), 401, "unauthorized"},
		{"an expired token", "", "POST", deploy, good, as(tok.expired), 401, "unauthorized"},
		{"a revoked token", "", "POST", deploy, good, as(tok.revoked), 401, "unauthorized"},
		{"a token as a password", "", "POST", deploy, good, h{"Authorization": "Basic " + tok.good}, 401, "unauthorized"},
		{"a token in the query", "", "GET", "/v1/services?token=" + tok.good, "", no, 401, "unauthorized"},
		{"a token and more", "", "POST", deploy, good, as(tok.good + ", Bearer x"), 401, "unauthorized"},
		{"another service's token", "", "POST", deploy, good, as(tok.other), 403, "forbidden"},
		{"another service's token to read", "", "GET", "/v1/services/web", "", as(tok.other), 403, "forbidden"},
		{"another service's token to follow", "", "GET", "/v1/operations/web-g1/log", "", as(tok.other), 403, "forbidden"},
		{"another service's token to roll back", "", "POST", back, "{}", as(tok.other), 403, "forbidden"},
		{"a reader deploys", "", "POST", deploy, good, as(tok.reader), 403, "forbidden"},
		{"a reader rolls back", "", "POST", back, "{}", as(tok.reader), 403, "forbidden"},
		{"retry without override", "", "POST", deploy, fmt.Sprintf(`{"digest":%q,"retry":true}`, absent), nil, 403, "forbidden"},
		{"program_change without override", "", "POST", deploy, fmt.Sprintf(`{"digest":%q,"program_change":true}`, absent), nil, 403, "forbidden"},
		{"figures with one service's token", "", "GET", "/metrics", "", nil, 403, "forbidden"},
		{"tokens over TCP", "", "GET", "/v1/tokens", "", as(tok.reader), 403, "forbidden"},
		{"a token over TCP", "", "POST", "/v1/tokens", `{"name":"x","services":["*"],"verbs":["read"]}`, nil, 403, "forbidden"},
		{"a token over TCP without one", "", "POST", "/v1/tokens", `{"name":"x","services":["*"],"verbs":["read"]}`, no, 403, "forbidden"},
		{"a revocation over TCP", "", "DELETE", "/v1/tokens/" + tok.good[:10], "", nil, 403, "forbidden"},
		// For whom, and for whose page.
		{"another host", "", "POST", deploy, good, h{"Host": "evil.example"}, 421, "misdirected_request"},
		{"another host with the port", "", "POST", deploy, good, h{"Host": "evil.example:8686"}, 421, "misdirected_request"},
		{"a host that begins well", "", "GET", "/healthz", "", h{"Host": "127.0.0.1.evil.example"}, 421, "misdirected_request"},
		{"an address that is not ours", "", "GET", "/v1/services", "", h{"Host": "192.0.2.1:8686"}, 421, "misdirected_request"},
		{"a page", "", "POST", deploy, good, h{"Origin": "http://evil.example"}, 403, "forbidden"},
		{"a sandboxed page", "", "POST", deploy, good, h{"Origin": "null"}, 403, "forbidden"},
		{"a page of the same host, encrypted", "", "POST", deploy, good, h{"Origin": "https://" + tcp}, 403, "forbidden"},
		{"a cross-site request", "", "GET", "/v1/services", "", h{"Sec-Fetch-Site": "cross-site"}, 403, "forbidden"},
		{"a page on the Unix socket", "unix", "GET", "/v1/services", "", h{"Origin": "http://" + tcp}, 403, "forbidden"},
		// Methods and paths.
		{"PUT", "", "PUT", deploy, good, nil, 405, "method_not_allowed"},
		{"DELETE of a service", "", "DELETE", "/v1/services/web", "", nil, 405, "method_not_allowed"},
		{"GET of deployments", "", "GET", deploy, "", nil, 405, "method_not_allowed"},
		{"OPTIONS", "", "OPTIONS", deploy, "", nil, 405, "method_not_allowed"},
		{"a method of its own", "", "DEPLOY", deploy, good, nil, 405, "method_not_allowed"},
		{"no such route", "", "POST", "/v2/services/web/deployments", good, nil, 404, "unknown_route"},
		{"a trailing slash", "", "GET", "/v1/services/web/", "", nil, 404, "unknown_route"},
		{"a path for a name", "", "POST", "/v1/services/..%2f..%2fetc%2fpasswd/deployments", good, as(tok.reader), 404, "unknown_route"},
		{"a path for an operation", "", "GET", "/v1/operations/..%2fweb-g1", "", as(tok.reader), 404, "unknown_route"},
		{"an unknown service", "", "GET", "/v1/services/wbe", "", as(tok.reader), 404, "unknown_service"},
		{"a service on the host only", "unix", "POST", "/v1/services/wbe/deployments", good, nil, 404, "unknown_service"},
		{"an unknown operation", "", "GET", "/v1/operations/web-g9", "", nil, 404, "unknown_operation"},
		{"a name with NUL", "", "GET", "/v1/services/w%00b", "", as(tok.reader), 404, "unknown_service"},
		// Encodings and sizes.
		{"no content type", "", "POST", deploy, good, h{"Content-Type": "-"}, 415, "unsupported_media_type"},
		{"a form", "", "POST", deploy, good, h{"Content-Type": "application/x-www-form-urlencoded"}, 415, "unsupported_media_type"},
		{"text", "", "POST", deploy, good, h{"Content-Type": "text/plain"}, 415, "unsupported_media_type"},
		{"a large body", "", "POST", deploy, `{"digest":"` + strings.Repeat("a", 64<<10) + `"}`, nil, 413, "body_too_large"},
		{"no body", "", "POST", deploy, "", nil, 422, "invalid_request"},
		{"a packed body", "", "POST", deploy, "\x1f\x8b\x08\x00", h{"Content-Encoding": "gzip"}, 422, "invalid_request"},
		{"UTF-16", "", "POST", deploy, "\xff\xfe{\x00}\x00", nil, 422, "invalid_request"},
		{"a byte order mark", "", "POST", deploy, "\xef\xbb\xbf" + good, nil, 422, "invalid_request"},
		{"deeply nested", "", "POST", deploy, strings.Repeat(`{"digest":`, 5000), nil, 422, "invalid_request"},
		{"two objects", "", "POST", deploy, good + good, nil, 422, "invalid_request"},
		{"an unknown field", "", "POST", deploy, fmt.Sprintf(`{"digest":%q,"force":true}`, v2), nil, 422, "invalid_request"},
		{"a tag", "", "POST", deploy, `{"digest":"v2"}`, nil, 422, "invalid_request"},
		{"an upper-case digest", "", "POST", deploy, fmt.Sprintf(`{"digest":%q}`, strings.ToUpper(v2)), nil, 422, "invalid_request"},
		{"a digest with a line feed", "", "POST", deploy, fmt.Sprintf(`{"digest":%q}`, v2+"\n"), nil, 422, "invalid_request"},
		{"a huge generation", "", "POST", deploy, fmt.Sprintf(`{"digest":%q,"expected_generation":1e99}`, v2), nil, 422, "invalid_request"},
		{"no key", "", "POST", deploy, fresh, h{"Idempotency-Key": "-"}, 422, "invalid_request"},
		{"a long key", "", "POST", deploy, fresh, key(strings.Repeat("k", 201)), 422, "invalid_request"},
		{"a key with a blank", "", "POST", deploy, fresh, key("a b"), 422, "invalid_request"},
		{"a page of history without an end", "", "GET", "/v1/services/web/operations?limit=1000", "", nil, 422, "invalid_request"},
		{"a tag that is none", "", "GET", "/v1/services/web/tags/a%20b", "", nil, 422, "invalid_request"},
		{"a place to resume that is none", "", "GET", "/v1/operations/web-g1/log", "", h{"Accept": "text/event-stream", "Last-Event-ID": "-1"}, 422, "invalid_request"},
		// Replays, and what does not fit the service as it is.
		{"another body under a used key", "", "POST", deploy, fresh, key("done"), 422, "idempotency_mismatch"},
		{"a rollback under a used key", "", "POST", back, "{}", key("done"), 422, "idempotency_mismatch"},
		{"an old generation", "", "POST", deploy, fmt.Sprintf(`{"digest":%q,"expected_generation":0}`, absent), key("g"), 409, "generation_mismatch"},
		{"a retry of what is not refused", "unix", "POST", deploy, fmt.Sprintf(`{"digest":%q,"retry":true}`, absent), key("r"), 422, "invalid_request"},
		{"a rollback of another's operation", "", "POST", back, `{"operation":"db-g1"}`, key("o"), 422, "invalid_request"},
		{"a token for nothing", "unix", "POST", "/v1/tokens", `{"name":"x","services":[],"verbs":["read"]}`, nil, 422, "invalid_request"},
		{"a token with a verb that there is not", "unix", "POST", "/v1/tokens", `{"name":"x","services":["web"],"verbs":["root"]}`, nil, 422, "invalid_request"},
		{"a revocation of nothing", "unix", "DELETE", "/v1/tokens/0123456789", "", nil, 404, "unknown_token"},
	}
}

func badBytes(token string) []raw {
	const start = "POST /v1/services/web/deployments HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nIdempotency-Key: raw\r\n"
	auth := "Authorization: Bearer " + token + "\r\n"
	return []raw{
		{"nonsense", "nonsense\r\n\r\n", 400, ""},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400, ""},
		{"no Host", "GET /v1/services HTTP/1.1\r\n\r\n", 400, ""},
		{"two Hosts", "GET /v1/services HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", 400, ""},
		{"HTTP/1.0 without Host", "GET /v1/services HTTP/1.0\r\n" + auth + "\r\n", 421, "misdirected_request"},
		{"another host in the request line", "GET http://evil.example/v1/services HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 421, "misdirected_request"},
		{"HTTP/3.0", "GET /v1/services HTTP/3.0\r\nHost: localhost\r\n\r\n", 505, ""},
		{"HTTP/2 over plain TCP", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 421, "misdirected_request"},
		{"a header of 40 KB", "GET /v1/services HTTP/1.1\r\nHost: localhost\r\nX-A: " + strings.Repeat("a", 40<<10) + "\r\n\r\n", 431, ""},
		{"a header with NUL", "GET /v1/services HTTP/1.1\r\nHost: localhost\r\nX-A: a\x00b\r\n\r\n", 400, ""},
		{"a foreign transfer coding", start + auth + "Transfer-Encoding: gzip\r\n\r\n", 501, ""},
		{"two lengths", start + auth + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, ""},
		{"a negative length", start + auth + "Content-Length: -1\r\n\r\n", 400, ""},
		{"a body cut off", start + auth + "Content-Length: 100\r\n\r\n{\"digest\":", 422, "invalid_request"},
		{"chunks that are none", start + auth + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 422, "invalid_request"},
		{"chunks without an end in sight", start + auth + "Transfer-Encoding: chunked\r\n\r\n20000\r\n" + strings.Repeat(" ", 0x20000) + "\r\n0\r\n\r\n", 413, "body_too_large"},
		{"a length of 1 TB", start + auth + "Content-Length: 1099511627776\r\n\r\n{", 422, "invalid_request"},
		{"every method", "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n" + auth + "\r\n", 405, "method_not_allowed"},
		{"CONNECT", "CONNECT localhost:22 HTTP/1.1\r\nHost: localhost:22\r\n" + auth + "\r\n", 404, "unknown_route"},
		{"no token, and a body to wait for", start + "Expect: 100-continue\r\nContent-Length: 5\r\n\r\n", 401, "unauthorized"},
	}
}

// send writes bytes, says that there are no more, and reads the answer. A server that does not read to the end resets
// the connection some time after its answer, and on a busy machine the reset may overtake it: then it is sent again.
func (d door) send(t *testing.T, text string) answer {
	t.Helper()
	for try := 1; ; try++ {
		a, err := d.sendOnce(t, text)
		if err == nil {
			return a
		}
		if try == 5 || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%.60q: no answer: %v", text, err)
			return answer{}
		}
	}
}

func (d door) sendOnce(t *testing.T, text string) (answer, error) {
	t.Helper()
	conn, err := d.Dial(context.Background(), "tcp", tcp)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.WriteString(conn, text); err != nil {
		t.Logf("the answer came before the request had ended: %v", err)
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	return read(resp)
}

// hold begins a request and never ends it. wait asserts that the daemon does not go on waiting: it answers with a
// status, or hangs up.
func (d door) hold(t *testing.T, text, status string) (wait func()) {
	t.Helper()
	conn, err := d.Dial(context.Background(), "tcp", tcp)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return func() {
		_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
		all, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(all), strings.TrimSpace("HTTP/1.1 "+status)) && status != "" || status == "" && len(all) > 0 {
			t.Errorf("%.40q is held: %v %s", text, err, all)
		}
	}
}
