package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// answering is a toad that gives its answers one after the other; nil hangs up without one.
func answering(t *testing.T, answers ...http.HandlerFunc) (c *Client, asked func() []*http.Request) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "toad.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var requests []*http.Request
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		mu.Lock()
		i := len(requests)
		requests = append(requests, r)
		mu.Unlock()
		if i >= len(answers) || answers[i] == nil {
			panic(http.ErrAbortHandler)
		}
		answers[i](w, r)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	c, err = New("unix://"+socket, "")
	if err != nil {
		t.Fatal(err)
	}
	c.Patience = 2 * time.Second
	return c, func() []*http.Request {
		mu.Lock()
		defer mu.Unlock()
		return requests
	}
}

func answer(status int, mediaType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", mediaType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

func TestARequestThatMetADyingDaemonIsMadeOnceMore(t *testing.T) {
	c, asked := answering(t, nil, answer(202, "application/json", `{"id":"web-g7"}`))
	op, replayed, err := c.Deploy(t.Context(), "web", DeployRequest{Digest: "sha256:1"}, "k1")
	if err != nil || op.ID != "web-g7" || replayed {
		t.Fatal(op, replayed, err)
	}
	if len(asked()) != 2 {
		t.Fatalf("want 2 requests, have %d", len(asked()))
	}
	for _, r := range asked() {
		body, _ := io.ReadAll(r.Body)
		if string(body) != `{"digest":"sha256:1"}` || r.Header.Get("Idempotency-Key") != "k1" || r.URL.Path != "/v1/services/web/deployments" {
			t.Errorf("have %s %s with key %q", r.URL.Path, body, r.Header.Get("Idempotency-Key"))
		}
	}
}

func TestADaemonThatStaysAwayIsOutOfReach(t *testing.T) {
	c, asked := answering(t)
	_, err := c.Service(t.Context(), "web")
	if !errors.Is(err, ErrUnreachable) || len(asked()) != 2 {
		t.Errorf("want 2 requests and out of reach, have %d, %v", len(asked()), err)
	}
	c, err = New("unix://"+filepath.Join(t.TempDir(), "none.sock"), "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Services(t.Context())
	var unreachable *UnreachableError
	if !errors.As(err, &unreachable) || !errors.Is(err, syscall.ENOENT) {
		t.Fatal(err)
	}
	if want := "toad is out of reach at " + c.Endpoint() + ": no such file or directory"; err.Error() != want {
		t.Errorf("want %q, have %q", want, err)
	}
}

func TestWhatIsNoAnswerOfToadIsSaidToBeNone(t *testing.T) {
	for _, c := range []struct {
		name string
		with http.HandlerFunc
		want string
	}{
		{"an empty 200", answer(200, "application/json", ""), "is it toad?"},
		{"a page", answer(200, "text/html", "<html>"), `"text/html" instead of JSON; is it toad?`},
		{"a redirect", answer(302, "text/html", ""), "HTTP status 302 Found, without a reason"},
		{"a gateway's error", answer(502, "text/html", "<html>"), "HTTP status 502 Bad Gateway, without a reason"},
		{"an endless body", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.Copy(w, io.LimitReader(zeros{}, maxAnswer+10))
		}, "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, _ := answering(t, c.with)
			_, err := client.Services(t.Context())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, have %v", c.want, err)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestAProblemIsAnErrorWithItsCode(t *testing.T) {
	c, _ := answering(t, answer(409, "application/problem+json",
		`{"type":"urn:toad:problem:generation_mismatch","status":409,"code":"generation_mismatch","detail":"web is at 7","generation":7,"hint":"look again"}`))
	_, _, err := c.Rollback(t.Context(), "web", RollbackRequest{}, "k")
	var p *Problem
	if !errors.As(err, &p) || p.Code != "generation_mismatch" || p.Status != 409 || *p.Generation != 7 || err.Error() != "web is at 7" {
		t.Errorf("have %+v", err)
	}
}

func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		endpoint string
		ok       bool
	}{
		{"unix:///run/user/1000/toad/toad.sock", true},
		{"http://127.0.0.1:8686", true},
		{"https://toad.example.org/", true},
		{"", false}, {"/run/toad.sock", false}, {"unix://toad.sock", false}, {"unix:toad.sock", false}, {"ftp://x", false},
		{"http://", false}, {"http://user:S3NT1NEL@host", false}, {"http://host/?token=S3NT1NEL", false}, {"http://host:S3NT1NEL", false},
	} {
		_, err := New(c.endpoint, "")
		if (err == nil) != c.ok {
			t.Errorf("%q: want ok %v, have %v", c.endpoint, c.ok, err)
		}
		if err != nil && strings.Contains(err.Error(), "S3NT1NEL") {
			t.Errorf("the error repeats a secret: %v", err)
		}
	}
}

func TestATokenIsSentAndNeverTold(t *testing.T) {
	const echo = `{"code":"not t1.S3NT1NEL","detail":"you sent Bearer t1.S3NT1NEL","hint":"not S3NT1NEL"}`
	for name, c := range map[string]struct {
		answer http.HandlerFunc
		ask    func(*Client) error
	}{
		"no echo":                {answer(401, "application/problem+json", `{"code":"unauthorized"}`), func(c *Client) error { _, err := c.Services(t.Context()); return err }},
		"an echo":                {answer(401, "application/problem+json", echo), func(c *Client) error { _, err := c.Services(t.Context()); return err }},
		"an echo of the kind":    {answer(200, "text/S3NT1NEL", ""), func(c *Client) error { _, err := c.Services(t.Context()); return err }},
		"an echo to a follower":  {answer(401, "application/problem+json", echo), func(c *Client) error { return c.Follow(t.Context(), "web-g1", "", nil) }},
		"an echo of a redirect":  {answer(302, "application/problem+json", echo), func(c *Client) error { _, err := c.Service(t.Context(), "web"); return err }},
		"another kind of stream": {answer(200, "text/S3NT1NEL", ""), func(c *Client) error { return c.Follow(t.Context(), "web-g1", "", nil) }},
	} {
		client, asked := answering(t, c.answer)
		client.token = "t1.S3NT1NEL"
		err := c.ask(client)
		if have := asked()[0].Header.Get("Authorization"); have != "Bearer t1.S3NT1NEL" {
			t.Errorf("%s: have %q", name, have)
		}
		var p *Problem
		_ = errors.As(err, &p)
		if text := fmt.Sprintf("%v %+v %#v %+v", err, err, err, p); err == nil || strings.Contains(text, "S3NT1NEL") {
			t.Errorf("%s: the error repeats the token: %s", name, text)
		}
	}
}

func streaming(events ...string) http.HandlerFunc {
	return answer(200, "text/event-stream", strings.Join(events, ""))
}

func logLine(id int, message string) string {
	data, _ := json.Marshal(Line{Event: "pull", Message: message})
	return fmt.Sprintf("id: %d\ndata: %s\n\n", id, data)
}

const theEnd = "event: end\ndata: {\"id\":\"web-g7\",\"phase\":\"promoted\"}\n\n"

func TestABrokenStreamIsTakenUpAfterTheLastLine(t *testing.T) {
	c, asked := answering(t,
		streaming("event: operation\ndata: {\"phase\":\"preparing\"}\n\n", logLine(10, "a"), logLine(20, "b"), "id: 30\ndata: {\"mess"),
		nil,
		answer(503, "application/problem+json", `{"code":"state_unavailable"}`),
		streaming(": still here\n\n", "event: of a newer toad\ndata: x\n\n", logLine(30, "c"), theEnd))
	var seen []string
	err := c.Follow(t.Context(), "web-g7", "", func(ev Event) error {
		switch {
		case ev.Line != nil:
			seen = append(seen, ev.ID+ev.Line.Message)
		case ev.End:
			seen = append(seen, "end "+ev.Operation.Phase)
		default:
			seen = append(seen, ev.Operation.Phase)
		}
		return nil
	})
	if want, have := "preparing 10a 20b 30c end promoted", strings.Join(seen, " "); err != nil || want != have {
		t.Errorf("want %s, have %s, %v", want, have, err)
	}
	var from []string
	for _, r := range asked() {
		from = append(from, r.Header.Get("Last-Event-ID"))
	}
	if want, have := " 20 20 20", strings.Join(from, " "); want != have {
		t.Errorf("want to resume from%s, have%s", want, have)
	}
}

func TestFollowingEndsWhenItMust(t *testing.T) {
	enough := errors.New("enough")
	c, _ := answering(t, streaming(logLine(10, "a")))
	if err := c.Follow(t.Context(), "web-g7", "", func(Event) error { return enough }); err != enough {
		t.Errorf("want the caller's error, have %v", err)
	}
	c, asked := answering(t, answer(404, "application/problem+json", `{"code":"unknown_operation"}`))
	var p *Problem
	if err := c.Follow(t.Context(), "web-g7", "", nil); !errors.As(err, &p) || len(asked()) != 1 {
		t.Errorf("want the problem at once, have %v after %d requests", err, len(asked()))
	}
	c, _ = answering(t)
	began := time.Now()
	if err := c.Follow(t.Context(), "web-g7", "", nil); !errors.Is(err, ErrUnreachable) || time.Since(began) < c.Patience {
		t.Errorf("want out of reach after %v, have %v after %v", c.Patience, err, time.Since(began))
	}
	ctx, cancel := context.WithCancel(t.Context())
	c, _ = answering(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_ = http.NewResponseController(w).Flush()
		cancel()
		<-r.Context().Done()
	})
	if err := c.Follow(ctx, "web-g7", "", nil); err != context.Canceled {
		t.Errorf("want the context's error, have %v", err)
	}
}
