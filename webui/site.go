// Package webui shows what toad knows to people, and changes nothing. It is handed views that have no room for what must
// not be shown, and renders pages, streams of their parts, and the assets they need; it asks nothing of any other host.
package webui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"
)

//go:embed assets
var assets embed.FS

// Site answers GET and HEAD requests for the page.
type Site struct {
	source Source
	log    *slog.Logger
	now    func() time.Time
	hub    *hub
	mux    *http.ServeMux
}

// New makes the page of what a source tells.
func New(source Source, log *slog.Logger) *Site {
	s := &Site{source: source, log: log, now: time.Now, mux: http.NewServeMux()}
	s.hub = newHub(s)
	s.mux.HandleFunc("GET /{$}", s.overview)
	s.mux.HandleFunc("GET /events", s.overviewEvents)
	s.mux.HandleFunc("GET /services/{service}", s.service)
	s.mux.HandleFunc("GET /services/{service}/events", s.serviceEvents)
	s.mux.HandleFunc("GET /services/{service}/operations/{operation}", s.service)
	s.mux.HandleFunc("GET /services/{service}/operations/{operation}/events", s.serviceEvents)
	s.mux.HandleFunc("GET /assets/{file}", s.asset)
	return s
}

// policy lets a browser do nothing but show this page: what is not from here is not loaded, and nothing is sent elsewhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// ServeHTTP answers with headers that hold whatever the answer is.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		s.apology(w, r, http.StatusMethodNotAllowed)
		return
	}
	if _, pattern := s.mux.Handler(r); pattern == "" || r.URL.Path != path.Clean(r.URL.Path) {
		s.apology(w, r, http.StatusNotFound)
		return
	}
	s.mux.ServeHTTP(w, r)
}

func (s *Site) overview(w http.ResponseWriter, r *http.Request) {
	o, err := s.source.Overview(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.page(w, r, http.StatusOK, "overview", pageOf(o.summary().Sentence, "/events", s.now(), overviewParts(o), o))
}

func (s *Site) service(w http.ResponseWriter, r *http.Request) {
	name, op := r.PathValue("service"), r.PathValue("operation")
	d, err := s.source.Service(r.Context(), name, op)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	title := d.Name.s + ": " + strings.ToLower(d.State.Words())
	s.page(w, r, http.StatusOK, "service", pageOf(title, r.URL.Path+"/events", s.now(), detailParts(d), d))
}

func (s *Site) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, ErrUnknown) {
		s.apology(w, r, http.StatusNotFound)
		return
	}
	s.log.Error("page not served", "path", fmt.Sprintf("%.80q", r.URL.Path), "err", err)
	s.apology(w, r, http.StatusServiceUnavailable)
}

// apology is the page for what cannot be shown; it repeats nothing of the request.
func (s *Site) apology(w http.ResponseWriter, r *http.Request, status int) {
	words := map[int]string{
		http.StatusNotFound:           "There is nothing here",
		http.StatusMethodNotAllowed:   "This page can only be read",
		http.StatusServiceUnavailable: "The records cannot be read now",
	}[status]
	s.page(w, r, status, "apology", pageOf(words, "", s.now(), nil, words))
}

// page sends the head of the document at once, so that the browser fetches what it names meanwhile, and the rest when it
// is rendered whole. Half a page must not look like one: where there is no rest, the connection is cut.
func (s *Site) page(w http.ResponseWriter, r *http.Request, status int, name string, p page) {
	out := begin(w, r, status, "text/html; charset=utf-8")
	if r.Method == http.MethodHead {
		return
	}
	for _, tmpl := range []string{"head", name} {
		var part bytes.Buffer
		if err := templates().ExecuteTemplate(&part, tmpl, p); err != nil {
			s.log.Error("page not rendered", "page", name, "err", err)
			panic(http.ErrAbortHandler)
		}
		out.say(part.Bytes())
	}
	out.end()
}

func (s *Site) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	data, err := fs.ReadFile(assets, "assets/"+name)
	kind := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}[path.Ext(name)]
	if err != nil || kind == "" {
		s.apology(w, r, http.StatusNotFound)
		return
	}
	out := begin(w, r, http.StatusOK, kind)
	if r.Method != http.MethodHead {
		out.say(data)
		out.end()
	}
}

// body is an answer's, packed for a reader that can unpack it. To a reader that has gone there is nothing to say.
type body struct {
	w    http.ResponseWriter
	pack *gzip.Writer // nil for one that cannot
}

func begin(w http.ResponseWriter, r *http.Request, status int, kind string) body {
	h, b := w.Header(), body{w: w}
	h.Set("Content-Type", kind)
	h.Add("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		b.pack, _ = gzip.NewWriterLevel(w, gzip.BestSpeed)
	}
	w.WriteHeader(status)
	return b
}

// say sends a piece at once.
func (b body) say(piece []byte) {
	if b.pack != nil {
		_, _ = b.pack.Write(piece)
		_ = b.pack.Flush()
	} else {
		_, _ = b.w.Write(piece)
	}
	_ = http.NewResponseController(b.w).Flush()
}

func (b body) end() {
	if b.pack != nil {
		_ = b.pack.Close()
	}
}

// build tells one set of assets and templates from another; a page that is open over an upgrade loads itself anew.
var build = sync.OnceValue(func() string {
	sum := sha256.New()
	for _, f := range []fs.FS{assets, sources} {
		_ = fs.WalkDir(f, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				data, _ := fs.ReadFile(f, name)
				_, _ = fmt.Fprintf(sum, "%s %d\n%s", name, len(data), data)
			}
			return nil
		})
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
})
