package httpd

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"toad/authstore"
	"toad/httpd/api"
	"toad/probation"
	"toad/probation/record"
	"toad/probation/rollout"
	"toad/unitgen"
)

// A server with real records and the real acceptance, behind a real Unix socket. Only the user manager is missing.

var (
	one = "sha256:" + strings.Repeat("1", 64)
	two = "sha256:" + strings.Repeat("2", 64)
)

// manager takes every unit and runs none.
type manager struct {
	mu      sync.Mutex
	created []string
	refuses string // what the names of units begin with that are not taken
}

func (m *manager) State(context.Context, string) (unitgen.State, error)     { return unitgen.State{}, nil }
func (m *manager) List(context.Context, ...string) ([]unitgen.State, error) { return nil, nil }
func (m *manager) Stopping(context.Context) (bool, error)                   { return false, nil }
func (m *manager) Create(_ context.Context, u unitgen.Unit) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.refuses != "" && strings.HasPrefix(u.Name, m.refuses) {
		return unitgen.ErrNoBus
	}
	if slices.Contains(m.created, u.Name) {
		return fmt.Errorf("unit %s was already loaded", u.Name)
	}
	m.created = append(m.created, u.Name)
	return nil
}

// acts counts the acts that were started.
func (m *manager) acts() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.created {
		if strings.HasPrefix(name, "toad-act-") {
			n++
		}
	}
	return n
}

func (m *manager) refuse(prefix string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuses = prefix
}

type enrolled map[string]probation.Enrollment

func (e enrolled) Enrollment(name string) (probation.Enrollment, error) {
	if s, ok := e[name]; ok {
		return s, nil
	}
	return probation.Enrollment{}, fmt.Errorf("%w: %q", ErrUnknownService, name)
}

func (e enrolled) All() (all []probation.Enrollment) {
	for _, n := range slices.Sorted(maps.Keys(e)) {
		all = append(all, e[n])
	}
	return all
}

func (e enrolled) Invalid() error { return nil }

type fixture struct {
	*testing.T
	store  *record.Store
	server *Server
	units  *manager
	tokens *authstore.Store
	socket string
	tcp    string // the address
	logged *bytes.Buffer
	ended  chan struct{} // closed when Serve has returned
	stop   func() error  // ends Serve and returns what it returned
}

func start(t *testing.T, change ...func(*Server)) *fixture {
	t.Helper()
	f := assemble(t)
	f.T, f.socket = t, filepath.Join(t.TempDir(), "toad.sock")
	f.server.around = watched(t)
	for _, c := range change {
		c(f.server)
	}
	f.serve()
	return f
}

// assemble makes a server that does not listen.
func assemble(t testing.TB) *fixture {
	t.Helper()
	store, err := record.Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{store: store, units: &manager{}, tokens: authstore.New(filepath.Join(store.Dir(), "tokens.json")), logged: &bytes.Buffer{}}
	logger := slog.New(slog.NewTextHandler(&lockedWriter{w: f.logged}, nil))
	began := time.Now()
	clock := func() probation.Instant {
		return probation.Instant{Wall: time.Now(), Boot: time.Since(began), BootID: "boot"}
	}
	limits := probation.Limits{Deadline: time.Minute, Stable: time.Second, Pull: time.Minute, Keep: 2}
	f.server = New(Options{
		Deployments: &rollout.Rollout{Records: store, Units: f.units, Wake: func() {}, Now: clock, Log: logger,
			Program: unitgen.Program{Exe: "/toad", State: store.Dir()}},
		Records: store, Log: logger, StateDir: store.Dir(), Registry: published{}, Proofs: proven{}, Tokens: f.tokens,
		Enrolled: enrolled{
			"web": {Name: "web", Units: []string{"web.container"}, Image: "registry.example.org/team/web", Limit: limits},
			"db":  {Name: "db", Units: []string{"db.container"}, Image: "registry.example.org/team/db", Limit: limits},
		},
	})
	return f
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func (f *fixture) serve() {
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		f.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	f.tcp = tcp.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	server, ended := f.server, make(chan struct{})
	var result error
	go func() {
		defer close(ended)
		result = server.Serve(ctx, listener, tcp)
	}()
	f.ended, f.stop = ended, func() error { cancel(); <-ended; return result }
	f.Cleanup(func() { _ = f.stop() })
}

func (f *fixture) client() *api.Client {
	f.Helper()
	c, err := api.New("unix://"+f.socket, "")
	if err != nil {
		f.Fatal(err)
	}
	return c
}

type request struct {
	method, path, body string
	header             http.Header
}

// remote is a caller over TCP.
type remote struct {
	*fixture
	bearer string
}

// over issues a token and is its holder.
func (f *fixture) over(services string, verbs ...authstore.Verb) remote {
	f.Helper()
	_, bearer, err := f.tokens.Issue(f.Context(), authstore.Token{Name: "ci", Services: strings.Fields(services), Verbs: verbs})
	if err != nil {
		f.Fatal(err)
	}
	return remote{f, bearer}
}

func (r remote) do(q request) response {
	r.Helper()
	header := http.Header{"Authorization": {"Bearer " + r.bearer}}
	for k, v := range q.header {
		header[k] = v
	}
	return r.ask("tcp", r.tcp, request{q.method, q.path, q.body, header})
}

func (r remote) get(path string) response {
	r.Helper()
	return r.do(request{method: http.MethodGet, path: path})
}

type response struct {
	status int
	header http.Header
	body   string
}

func (f *fixture) do(r request) response {
	f.Helper()
	return f.ask("unix", f.socket, r)
}

func (f *fixture) ask(network, address string, r request) response {
	f.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(context.Context, string, string) (net.Conn, error) {
		return net.Dial(network, address)
	}}
	host := "toad"
	if network == "tcp" {
		host = address
	}
	req, err := http.NewRequest(r.method, "http://"+host+r.path, strings.NewReader(r.body))
	if err != nil {
		f.Fatal(err)
	}
	if r.method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", "k1")
	}
	if h := r.header["Host"]; h != nil {
		req.Host = h[0]
	}
	for k, v := range r.header {
		req.Header[k] = v
		if v == nil {
			req.Header.Del(k)
		}
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		f.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		f.Fatal(err)
	}
	return response{resp.StatusCode, resp.Header, string(body)}
}

func (f *fixture) get(path string) response {
	f.Helper()
	return f.do(request{method: http.MethodGet, path: path})
}

// post sends a body under a key.
func (f *fixture) post(path, key, body string) response {
	f.Helper()
	return f.do(request{http.MethodPost, path, body, http.Header{"Idempotency-Key": {key}}})
}

func (f *fixture) deploy(digest, key string) response {
	f.Helper()
	return f.post("/v1/services/web/deployments", key, fmt.Sprintf(`{"digest":%q}`, digest))
}

func (r response) operation(t *testing.T, want int) api.Operation {
	t.Helper()
	if r.status != want {
		t.Fatalf("want status %d, have %d: %s", want, r.status, r.body)
	}
	var op api.Operation
	if err := json.Unmarshal([]byte(r.body), &op); err != nil {
		t.Fatal(err)
	}
	return op
}

func (r response) problem(t *testing.T, status int, code string) api.Problem {
	t.Helper()
	var p api.Problem
	if err := json.Unmarshal([]byte(r.body), &p); err != nil {
		t.Fatalf("%v: %s", err, r.body)
	}
	if r.status != status || p.Code != code || p.Status != status {
		t.Fatalf("want %d %s, have %d: %s", status, code, r.status, r.body)
	}
	if ct := r.header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("want a problem, have content type %q", ct)
	}
	return p
}

// event moves the latest operation of web on, as an act would: the record is saved, then the log tells.
func (f *fixture) event(ev probation.Event) {
	f.Helper()
	svc, err := f.store.Service("web")
	if err != nil {
		f.Fatal(err)
	}
	ev.At.Wall = time.Now()
	next, ok := svc.Apply(ev)
	if !ok {
		f.Fatalf("event %s does not fit %s", ev.Kind, svc.Operation.Phase)
	}
	if err := f.store.Put(next); err != nil {
		f.Fatal(err)
	}
	f.line(next.Operation.ID, string(next.Operation.Phase), "now "+string(next.Operation.Phase))
}

func (f *fixture) line(id, event, message string) {
	f.Helper()
	if err := f.store.Log(id, record.Line{At: time.Now().UTC(), Level: "info", Event: event, Message: message}); err != nil {
		f.Fatal(err)
	}
}

// promote carries web's operation to its promotion.
func (f *fixture) promote() {
	f.Helper()
	svc, err := f.store.Service("web")
	if err != nil {
		f.Fatal(err)
	}
	f.event(probation.Event{Kind: probation.Prepared, Candidate: svc.Operation.Candidate, InForce: svc.Promoted})
	deadline := probation.NewDeadline(probation.Instant{Wall: time.Now()}, time.Minute)
	f.event(probation.Event{Kind: probation.SwitchBegun, Deadline: deadline})
	f.event(probation.Event{Kind: probation.Switched})
	f.event(probation.Event{Kind: probation.Stable})
	f.event(probation.Event{Kind: probation.PinKept})
}

// snapshot is every file of the state folder with its bytes, but for locks: they are taken to decide, and hold nothing.
func (f *fixture) snapshot() map[string]string {
	files := map[string]string{}
	err := filepath.WalkDir(f.store.Dir(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) == ".lock" {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		f.Fatal(err)
	}
	return files
}
