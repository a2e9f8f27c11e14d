package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// proxy stands before a registry and breaks chosen answers:
//
//	/fault?kind=K&match=S&times=N&arg=A   the next N requests (0: all) whose path contains S
//	/fault?kind=                          no more faults
//	/faults                               how many there were
//
// Kinds:
//
//	delay   A (2s) before the answer
//	rate    A bytes a second (20000)
//	cut     A bytes (half) of the body under its full Content-Length, then the connection is closed
//	stall   A bytes (half) of the body, then nothing
//	hang    no answer at all
//	wrong   the bytes of the body are not those that were asked for
//	status  the status A, as a registry says it, with headers behind it: "429 Retry-After=1"; {authorization} stands for
//	        what the client sent
//	page    the status A with a page in HTML, as something between here and the registry says it
type proxy struct {
	to string

	mu    sync.Mutex
	fault fault
	taken int
}

type fault struct {
	kind, match, arg string
	times            int
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/fault" {
		p.set(r.URL.Query())
		return
	}
	if r.URL.Path == "/faults" {
		p.mu.Lock()
		defer p.mu.Unlock()
		fmt.Fprint(w, p.taken)
		return
	}
	f := p.next(r.URL.Path)
	switch f.kind {
	case "status", "page":
		f.answer(w, r)
		return
	case "hang":
		<-r.Context().Done()
		return
	case "delay":
		pause(r.Context(), f.arg, 2*time.Second)
	}
	if err := p.forward(w, r, f); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

func (p *proxy) set(q url.Values) {
	times, _ := strconv.Atoi(q.Get("times"))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = fault{q.Get("kind"), q.Get("match"), q.Get("arg"), times}
	p.taken = 0
}

// next takes the fault for this request, if there is one.
func (p *proxy) next(path string) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fault
	if f.kind == "" || !strings.Contains(path, f.match) {
		return fault{}
	}
	p.taken++
	if f.times == 1 {
		p.fault = fault{}
	} else if f.times > 1 {
		p.fault.times--
	}
	return f
}

func pause(ctx context.Context, arg string, usual time.Duration) {
	d, err := time.ParseDuration(arg)
	if err != nil {
		d = usual
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func (f fault) answer(w http.ResponseWriter, r *http.Request) {
	text, headers, _ := strings.Cut(f.arg, " ")
	status, _ := strconv.Atoi(text)
	said := strings.NewReplacer("{authorization}", r.Header.Get("Authorization"))
	for header := range strings.SplitSeq(headers, "\n") {
		if name, value, ok := strings.Cut(header, "="); ok {
			w.Header().Set(name, said.Replace(value))
		}
	}
	if f.kind == "page" {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<html><body><h1>%s</h1></body></html>", http.StatusText(status))
		return
	}
	code, known := map[int]string{401: "UNAUTHORIZED", 403: "DENIED", 404: "MANIFEST_UNKNOWN", 429: "TOOMANYREQUESTS"}[status]
	if !known {
		code = "UNKNOWN"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"errors":[{"code":%q,"message":"%s, you sent %s"}]}`, code, http.StatusText(status), r.Header.Get("Authorization"))
}

func (p *proxy) forward(w http.ResponseWriter, r *http.Request, f fault) error {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+p.to+r.URL.RequestURI(), r.Body)
	if err != nil {
		return err
	}
	out.Header, out.ContentLength = r.Header.Clone(), r.ContentLength
	resp, err := http.DefaultTransport.RoundTrip(out)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.StatusCode)
	if err := f.body(w, r, resp); err != nil {
		panic(http.ErrAbortHandler) // the status is out; the client must not take this for the whole
	}
	return nil
}

// body passes the answer's body on, or what the fault leaves of it.
func (f fault) body(w http.ResponseWriter, r *http.Request, resp *http.Response) error {
	n, err := strconv.ParseInt(f.arg, 10, 64) // bytes
	if err != nil {
		n = resp.ContentLength / 2
	}
	switch f.kind {
	case "cut", "stall":
		if _, err := io.CopyN(w, resp.Body, min(n, resp.ContentLength)); err != nil {
			return err
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
		if f.kind == "stall" {
			<-r.Context().Done()
		}
		return io.ErrUnexpectedEOF
	case "wrong":
		_, err = io.Copy(w, wrong{resp.Body})
	case "rate":
		if n <= 0 {
			n = 20000
		}
		err = slowly(w, resp.Body, n/10)
	default:
		_, err = io.Copy(w, resp.Body)
	}
	return err
}

// wrong changes every byte.
type wrong struct{ io.Reader }

func (r wrong) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	for i := range p[:n] {
		p[i] ^= 1
	}
	return n, err
}

// slowly copies at most n bytes in a tenth of a second.
func slowly(w http.ResponseWriter, from io.Reader, n int64) error {
	for {
		_, err := io.CopyN(w, from, max(n, 1))
		if err == io.EOF {
			return nil
		}
		if err == nil {
			err = http.NewResponseController(w).Flush()
		}
		if err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}
