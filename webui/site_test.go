package webui_test

import (
	"bufio"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"toad/tests/web/stage"
	"toad/webui"
)

func serve(t *testing.T, s *stage.Stage) string {
	t.Helper()
	srv := httptest.NewServer(webui.New(s, slog.New(slog.DiscardHandler)))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return srv.URL
}

func every() *stage.Stage {
	s := &stage.Stage{}
	for i, state := range webui.States() {
		s.Put(stage.In(state, fmt.Sprintf("svc-%02d", i), i))
	}
	return s
}

func ask(t *testing.T, method, url string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

func TestOnlyReadingIsAnswered(t *testing.T) {
	url := serve(t, every())
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/", 200}, {"HEAD", "/", 200}, {"GET", "/services/svc-03", 200}, {"HEAD", "/services/svc-03", 200}, {"HEAD", "/events", 200},
		{"GET", "/assets/toad.css", 200}, {"GET", "/services/svc-00/operations/svc-00-g5", 200},
		{"GET", "/services/nobody", 404}, {"GET", "/services/nobody/events", 404}, {"GET", "/services/svc-03/operations/svc-03-g99", 404},
		{"GET", "/v1/services", 404}, {"GET", "/healthz", 404}, {"GET", "/metrics", 404}, {"GET", "/assets/", 404}, {"GET", "/assets/..%2fsite.go", 404},
		{"GET", "/assets/nothing.css", 404}, {"GET", "//", 404}, {"GET", "/services/", 404}, {"GET", "/services/../events", 404},
		{"POST", "/", 405}, {"PUT", "/services/svc-03", 405}, {"DELETE", "/services/svc-03", 405}, {"POST", "/v1/services/svc-03/rollback", 405},
		{"OPTIONS", "/", 405}, {"PATCH", "/events", 405}, {"TRACE", "/", 405}, {"CONNECT", "/", 405},
	} {
		if c.method == "CONNECT" {
			continue // the client would not send it as others
		}
		resp, body := ask(t, c.method, url+c.path)
		if resp.StatusCode != c.want {
			t.Errorf("%s %s: want %d, have %d", c.method, c.path, c.want, resp.StatusCode)
		}
		if c.method == "HEAD" && body != "" {
			t.Errorf("HEAD %s has a body", c.path)
		}
		if c.want == 405 && resp.Header.Get("Allow") != "GET, HEAD" {
			t.Errorf("%s %s does not say what is allowed", c.method, c.path)
		}
		h := resp.Header
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Cache-Control") != "no-store" || h.Get("Set-Cookie") != "" ||
			!strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none';") || strings.Contains(h.Get("Content-Security-Policy"), "unsafe") {
			t.Errorf("%s %s: headers %v", c.method, c.path, h)
		}
	}
}

// A page brings all it needs, and nothing in it could be run or styled from within.
func TestAPageHasNothingInline(t *testing.T) {
	url := serve(t, every())
	inline := regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|javascript:|<script(?:>| [^>]*>[^<])|<base|<form|<iframe|srcset`)
	elsewhere := regexp.MustCompile(`(?:src|href)="(?:[a-z]+:|//)[^"]*"`)
	for _, path := range []string{"/", "/services/svc-00", "/services/svc-05", "/nothing"} {
		_, body := ask(t, "GET", url+path)
		if m := inline.FindString(body); m != "" {
			t.Errorf("%s has %q", path, m)
		}
		if m := elsewhere.FindString(body); m != "" {
			t.Errorf("%s leads elsewhere: %q", path, m)
		}
	}
}

const most = 60 << 10

func TestAPageIsLightOnTheWire(t *testing.T) {
	s := &stage.Stage{}
	states := webui.States()
	for i := range 100 {
		s.Put(stage.In(states[i%len(states)], fmt.Sprintf("a-service-with-a-rather-long-name-that-fills-the-line-%03d", i), i))
	}
	url := serve(t, s)
	weigh := func(path string) (n int, text string) {
		resp, body := ask(t, "GET", url+path, "Accept-Encoding", "gzip")
		if resp.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%s is not packed", path)
		}
		z, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		return len(body), string(plain)
	}
	assets := 0
	for _, a := range []string{"toad.css", "toad.js", "toad.svg"} {
		n, _ := weigh("/assets/" + a)
		assets += n
	}
	for _, path := range []string{"/", "/services/a-service-with-a-rather-long-name-that-fills-the-line-005"} {
		n, text := weigh(path)
		if n+assets > most {
			t.Errorf("%s weighs %d bytes and its assets %d", path, n, assets)
		}
		if !strings.Contains(text, "</html>") {
			t.Errorf("%s is not whole", path)
		}
		t.Logf("%s: %d bytes on the wire, %d with its assets, %d unpacked", path, n, n+assets, len(text))
	}
}

// reader is one open stream.
type reader struct {
	t      *testing.T
	lines  *bufio.Reader
	cancel func()
}

func open(t *testing.T, url, last string) *reader {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s: %s %v", url, resp.Status, resp.Header)
	}
	return &reader{t, bufio.NewReader(resp.Body), cancel}
}

// burst reads until the server has sent all that is new: the ids of the parts, and the id to come back with.
func (r *reader) burst() (parts []string, all bool, last string) {
	r.t.Helper()
	id := regexp.MustCompile(`^data: <\w+ [^>]*?\bid="([^"]+)"`)
	kind := ""
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			r.t.Fatalf("the stream ended: %v", err)
		}
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "event: "):
			kind = line[7:]
			all = all || kind == "all"
		case strings.HasPrefix(line, "id: "):
			last = line[4:]
		case kind == "part" && id.MatchString(line):
			parts = append(parts, id.FindStringSubmatch(line)[1])
		case kind == "gone" && strings.HasPrefix(line, "data: "):
			parts = append(parts, "-"+line[6:])
		case kind == "whole" && line == "":
			return parts, all, last
		}
	}
}

var seenAttr = regexp.MustCompile(`data-seen="([0-9a-f]+)"`)

func TestAStreamSendsWhatHasChanged(t *testing.T) {
	s := every()
	url := serve(t, s)
	_, page := ask(t, "GET", url+"/")
	seen := seenAttr.FindStringSubmatch(page)[1]
	r := open(t, url+"/events?seen="+seen, "")
	waitFollowed(t, s)
	s.Put(stage.In("probation", "svc-01", 1))
	parts, all, _ := r.burst()
	if all || fmt.Sprint(parts) != "[summary s-svc-01]" {
		t.Errorf("want the card and the summary, have %v (all: %v)", parts, all)
	}
	s.Put(stage.In("promoted", "zz-new", 99))
	if parts, _, _ = r.burst(); fmt.Sprint(parts) != "[summary s-zz-new]" {
		t.Errorf("a new service: have %v", parts)
	}
	s.Remove("zz-new")
	parts, _, last := r.burst()
	if fmt.Sprint(parts) != "[-s-zz-new summary]" {
		t.Errorf("a service that is no more: have %v", parts)
	}
	// Who comes back with what was seen last misses nothing, and gets nothing twice.
	r.cancel()
	again := open(t, url+"/events", last)
	waitFollowed(t, s)
	s.Put(stage.In("restoring", "svc-02", 2))
	if parts, all, _ = again.burst(); all || fmt.Sprint(parts) != "[summary s-svc-02]" {
		t.Errorf("after coming back: have %v (all: %v)", parts, all)
	}
	// Who has seen something else gets all there is.
	other := open(t, url+"/events", "0000000000000000")
	if parts, all, _ = other.burst(); !all || len(parts) != len(webui.States())+1 {
		t.Errorf("a stranger gets %d parts (all: %v)", len(parts), all)
	}
}

func TestAServicesStreamAddsLines(t *testing.T) {
	s := &stage.Stage{}
	d := stage.In("probation", "web", 1)
	s.Put(d)
	url := serve(t, s)
	_, page := ask(t, "GET", url+"/services/web")
	r := open(t, url+"/services/web/events?seen="+seenAttr.FindStringSubmatch(page)[1], "")
	waitFollowed(t, s)
	d.Log = append(d.Log, webui.Line{At: time.Now(), Level: webui.TermOf("warn"), Event: webui.TermOf("unready"), Message: webui.Clean("not ready: it answers 503")})
	s.Put(d)
	if parts, _, _ := r.burst(); fmt.Sprint(parts) != fmt.Sprintf("[l-web-g7-%d]", len(d.Log)-1) {
		t.Errorf("one more line: have %v", parts)
	}
}

// waitFollowed waits until a stream follows, so that the change after it is one.
func waitFollowed(t *testing.T, s *stage.Stage) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !s.Settled(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nobody follows")
		}
	}
}

func TestNobodyLooksWhenNobodyReads(t *testing.T) {
	s := every()
	url := serve(t, s)
	r := open(t, url+"/events", "")
	waitFollowed(t, s)
	r.cancel()
	for end := time.Now().Add(20 * time.Second); s.Followers() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is still followed")
		}
	}
}

func TestAnInvalidEnrollmentIsToldOnThePage(t *testing.T) {
	s := every()
	s.Invalid("/home/toad/.config/toad/enrollment.toml:3: nonsense")
	url := serve(t, s)
	for _, path := range []string{"/", "/services/svc-01"} {
		if _, body := ask(t, "GET", url+path); !strings.Contains(body, "enrollment.toml:3: nonsense") || strings.Contains(body, "/home/toad") {
			t.Errorf("%s does not tell, or tells the path", path)
		}
	}
}
