package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toad/httpd/api"
)

var update = flag.Bool("update", false, "write what the commands print to testdata")

// noon is when all of this happens.
var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

var (
	one = "sha256:" + strings.Repeat("1", 64)
	two = "sha256:" + strings.Repeat("2", 64)
)

// fakeToad answers the client commands from what a test puts in.
type fakeToad struct {
	services map[string]api.Service
	streams  map[string][]string            // an operation's events; "hang" as the last keeps the stream open
	written  func(r *http.Request) response // answers POST requests
	refuse   *api.Problem                   // answers everything
	after    *api.Service                   // web when its operation's stream has ended

	mu    sync.Mutex
	asked []string // POST requests as "path key body"
}

type response struct {
	status int
	body   any
	then   func(f *fakeToad) // what the request changes
}

func (f *fakeToad) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case f.refuse != nil:
		reply(w, f.refuse.Status, f.refuse)
	case r.Method == http.MethodPost:
		body, _ := io.ReadAll(r.Body)
		f.asked = append(f.asked, fmt.Sprintf("%s %s %s", r.URL.Path, r.Header.Get("Idempotency-Key"), body))
		answer := f.written(r)
		if answer.then != nil {
			answer.then(f)
		}
		reply(w, answer.status, answer.body)
	case len(parts) == 2:
		all := api.Services{Services: []api.Service{}}
		for _, name := range []string{"api", "db", "web", "worker-for-the-long-queue"} {
			if s, ok := f.services[name]; ok {
				all.Services = append(all.Services, s)
			}
		}
		reply(w, 200, all)
	case len(parts) == 4 && parts[3] == "operations":
		ops := api.Operations{Operations: []api.Operation{}}
		if s := f.services[parts[2]]; s.Operation != nil {
			ops.Operations = append(ops.Operations, *s.Operation)
		}
		reply(w, 200, ops)
	case len(parts) == 5 && parts[3] == "tags":
		reply(w, 200, api.Tag{Service: parts[2], Image: f.services[parts[2]].Image, Tag: parts[4], Digest: two})
	case parts[1] == "services":
		s, ok := f.services[parts[2]]
		if !ok {
			reply(w, 404, problem(404, "unknown_service", "no service \""+parts[2]+"\" is enrolled"))
			return
		}
		reply(w, 200, s)
	case len(parts) == 3:
		for _, s := range f.services {
			if s.Operation != nil && s.Operation.ID == parts[2] {
				reply(w, 200, s.Operation)
				return
			}
		}
		reply(w, 404, problem(404, "unknown_operation", "\""+parts[2]+"\": no such operation"))
	default:
		f.log(w, r, f.streams[parts[2]])
	}
}

func (f *fakeToad) log(w http.ResponseWriter, r *http.Request, events []string) {
	if r.Header.Get("Accept") != "text/event-stream" {
		var lines []json.RawMessage
		for _, e := range events {
			if data, ok := strings.CutPrefix(e, "data: "); ok {
				lines = append(lines, json.RawMessage(data))
			}
		}
		reply(w, 200, lines)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range events {
		if e == "hang" {
			_ = http.NewResponseController(w).Flush()
			f.mu.Unlock()
			<-r.Context().Done()
			f.mu.Lock()
			return
		}
		_, _ = io.WriteString(w, e+"\n\n")
	}
	if f.after != nil {
		f.services["web"] = *f.after
	}
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	if status >= 400 {
		w.Header().Set("Content-Type", "application/problem+json")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func problem(status int, code, detail string) *api.Problem {
	return &api.Problem{Status: status, Code: code, Detail: detail}
}

// start serves on a socket of its own.
func (f *fakeToad) start(t *testing.T) (endpoint string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "toad.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: f}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return "unix://" + socket
}

// result is what a command came to.
type result struct {
	code           int
	stdout, stderr string
}

func toad(ctx context.Context, endpoint string, args ...string) result {
	var stdout, stderr bytes.Buffer
	g := &globals{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, now: func() time.Time { return noon }}
	if endpoint != "" {
		args = append([]string{"--endpoint", endpoint}, args...)
	}
	code := g.run(ctx, args)
	return result{code, stdout.String(), stderr.String()}
}

// story holds a run against testdata/<name>.txt, a file that a person can read.
func story(t *testing.T, name string, f *fakeToad, args ...string) {
	t.Helper()
	endpoint := f.start(t)
	r := toad(t.Context(), endpoint, args...)
	var text strings.Builder
	fmt.Fprintf(&text, "$ toad %s\n%s-- stderr\n%s-- exit %d\n", strings.Join(args, " "), r.stdout, r.stderr, r.code)
	for _, a := range f.asked {
		fmt.Fprintf(&text, "-- asked %s\n", a)
	}
	have := strings.ReplaceAll(text.String(), endpoint, "unix:///run/user/1000/toad/toad.sock")
	path := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(path, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != have {
		t.Errorf("%s: want\n%s\nhave\n%s", path, want, have)
	}
}

func moment(after time.Duration) *time.Time {
	at := noon.Add(after)
	return &at
}

// running is web with a release in force and nothing under way.
func running() api.Service {
	return api.Service{Service: "web", Image: "registry.example.org/team/web", Generation: 6,
		Promoted: &api.Release{Digest: one, Generation: 6, PromotedAt: moment(-26 * time.Hour)},
		Operation: &api.Operation{ID: "web-g6", Service: "web", Generation: 6, Kind: "deployment", Phase: "promoted", Digest: one,
			AcceptedAt: *moment(-26*time.Hour - time.Minute), EndedAt: moment(-26 * time.Hour), By: "uid 1000"},
		Refusals: []api.Refusal{}}
}

// candidateOp is the operation that deploys the second release.
func candidateOp(phase, code, reason string) api.Operation {
	op := api.Operation{ID: "web-g7", Service: "web", Generation: 7, Kind: "deployment", Phase: phase, Code: code, Reason: reason,
		Digest: two, Stable: "10s", AcceptedAt: *moment(-20 * time.Second), By: "uid 1000",
		Previous: &api.Release{Digest: one, Generation: 6}}
	switch phase {
	case "promoted", "rolled_back", "withdrawn", "rollback_failed", "failed":
		op.EndedAt = moment(0)
	case "probation", "switching":
		op.Deadline = moment(4*time.Minute + 48*time.Second)
	}
	return op
}

// ended is web after the second release's operation.
func ended(phase, code, reason string) api.Service {
	s := running()
	op := candidateOp(phase, code, reason)
	s.Operation, s.Generation = &op, 7
	if phase == "promoted" {
		s.Promoted = &api.Release{Digest: two, Generation: 7, PromotedAt: op.EndedAt}
	}
	return s
}

func tells(after time.Duration, level, event, message string) string {
	data, err := json.Marshal(api.Line{At: noon.Add(after - 20*time.Second), Level: level, Event: event, Message: message})
	if err != nil {
		panic(err)
	}
	return "data: " + string(data)
}

func ends(op api.Operation) string {
	data, err := json.Marshal(op)
	if err != nil {
		panic(err)
	}
	return "event: end\ndata: " + string(data)
}

// accepts answers the next write with an operation, and has the service be as given from then on.
func accepts(status int, op api.Operation, after api.Service) func(*http.Request) response {
	return func(*http.Request) response {
		return response{status, op, func(f *fakeToad) { f.services["web"] = after }}
	}
}

func rejects(p *api.Problem) func(*http.Request) response {
	return func(*http.Request) response { return response{status: p.Status, body: p} }
}
