package control

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// What a Fault does with a request.
const (
	Status = "status" // answers with Fault.Status, as the server would, and RetryAfter
	HTML   = "html"   // a portal's page, with 200
	Moved  = "moved"  // a redirect to a portal
	Stall  = "stall"  // sends headers and a first byte, and nothing more until the client goes
	Silent = "silent" // sends nothing at all until the client goes
	Huge   = "huge"   // 10 MB with the media type that is expected
	Cut    = "cut"    // the right answer, whose connection ends in the middle
	Drop   = "drop"   // the connection ends before an answer
	Expire = "expire" // ends the bearer's token first, then goes on as usual
	After  = "after"  // the request is carried out, and its answer is lost
)

// Portal is where Moved leads.
const Portal = "/portal"

// Fault breaks the requests whose method and path, as "POST /v1/agent/lease", hold Match.
type Fault struct {
	Match      string `json:"match"`
	Box        string `json:"box"` // only those of this box's tokens
	Kind       string `json:"kind"`
	Status     int    `json:"status"`
	RetryAfter string `json:"retry_after"`
	Skip       int    `json:"skip"`  // so many pass first
	Times      int    `json:"times"` // 0: until ClearFaults
}

// Fault adds a fault. Of several that fit, the one that was added first is met.
func (w *World) Fault(f Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f.Times == 0 {
		f.Times = -1
	}
	w.faults = append(w.faults, &f)
}

// ClearFaults ends all faults.
func (w *World) ClearFaults() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = nil
}

// meets returns the fault that a request meets, and counts it.
func (w *World) meets(r *http.Request, box string) *Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults {
		if !strings.Contains(r.Method+" "+r.URL.Path, f.Match) || (f.Box != "" && f.Box != box) || f.Times == 0 {
			continue
		}
		if f.Skip > 0 {
			f.Skip--
			continue
		}
		if f.Times > 0 {
			f.Times--
		}
		return f
	}
	return nil
}

// broken is a handler whose requests are recorded and may fail. refuse answers as the server does.
func (w *World) broken(server string, bearer func(*http.Request) string, refuse func(http.ResponseWriter, int), next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(rw, r.Body, 1<<20)
		rec := &recorder{ResponseWriter: rw}
		var env, box string
		w.mu.Lock()
		tok := w.tokens[bearer(r)]
		if tok != nil {
			env, box = tok.env, tok.box
		}
		w.mu.Unlock()
		// An aborted answer has to be recorded too.
		defer func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.requests = append(w.requests, Request{w.now(), server, r.Method, r.URL.Path, env, box, rec.status})
			close(w.changed)
			w.changed = make(chan struct{})
		}()
		f := w.meets(r, box)
		if f == nil {
			next.ServeHTTP(rec, r)
			return
		}
		if f.Kind == Expire && tok != nil {
			w.mu.Lock()
			tok.expires = w.now()
			w.mu.Unlock()
		}
		f.play(rec, r, refuse, next)
	})
}

func (f *Fault) play(rw http.ResponseWriter, r *http.Request, refuse func(http.ResponseWriter, int), next http.Handler) {
	media := "application/json"
	if strings.Contains(r.URL.Path, "/bundles/") {
		media = "application/x-tar"
	}
	switch f.Kind {
	case Expire:
		next.ServeHTTP(rw, r)
	case Status:
		if f.RetryAfter != "" {
			rw.Header().Set("Retry-After", f.RetryAfter)
		}
		refuse(rw, f.Status)
	case HTML:
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(rw, "<!doctype html><title>Welcome to the hotel</title><form>Room number</form>")
	case Moved:
		http.Redirect(rw, r, Portal, http.StatusFound)
	case Stall:
		rw.Header().Set("Content-Type", media)
		fmt.Fprint(rw, "{")
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	case Silent:
		<-r.Context().Done()
		panic(http.ErrAbortHandler)
	case Huge:
		rw.Header().Set("Content-Type", media)
		line := []byte(strings.Repeat("x", 1000))
		for range 10_000 {
			if _, err := rw.Write(line); err != nil {
				return
			}
		}
	case Cut:
		half := &cutter{recorder: recorder{ResponseWriter: rw}}
		next.ServeHTTP(half, r)
		half.send()
		panic(http.ErrAbortHandler)
	case After:
		next.ServeHTTP(&cutter{recorder: recorder{ResponseWriter: rw}}, r)
		panic(http.ErrAbortHandler)
	case Drop:
		panic(http.ErrAbortHandler)
	default:
		panic("no such fault: " + f.Kind)
	}
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) { r.status = status; r.ResponseWriter.WriteHeader(status) }

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// cutter keeps an answer back.
type cutter struct {
	recorder
	body []byte
}

func (c *cutter) WriteHeader(status int)      { c.status = status }
func (c *cutter) Write(p []byte) (int, error) { c.body = append(c.body, p...); return len(p), nil }

// send sends the first half, and promises the whole.
func (c *cutter) send() {
	c.Header().Set("Content-Length", strconv.Itoa(len(c.body)+1))
	if c.status != 0 {
		c.ResponseWriter.WriteHeader(c.status)
	}
	_, _ = c.ResponseWriter.Write(c.body[:len(c.body)/2])
	_ = http.NewResponseController(c.ResponseWriter).Flush()
}
