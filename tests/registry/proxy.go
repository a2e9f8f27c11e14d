package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// proxy stands before a registry and breaks chosen answers:
//
//	/fault?kind=K&match=S&times=N&arg=A   the next N requests (0: all) whose path contains S
//	/fault?kind=                          no more faults
//
// Kinds: cut (half the body under a full Content-Length, then the connection is closed), stall (half
// the body, then nothing), status (answer A, e.g. 503), delay (A, e.g. 2s, before the answer).
type proxy struct {
	to string

	mu    sync.Mutex
	fault fault
}

type fault struct {
	kind, match, arg string
	times            int
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/fault" {
		q := r.URL.Query()
		times, _ := strconv.Atoi(q.Get("times"))
		p.mu.Lock()
		p.fault = fault{q.Get("kind"), q.Get("match"), q.Get("arg"), times}
		p.mu.Unlock()
		return
	}
	f := p.next(r.URL.Path)
	switch f.kind {
	case "status":
		status, _ := strconv.Atoi(f.arg)
		http.Error(w, "fault", status)
		return
	case "delay":
		d, _ := time.ParseDuration(f.arg)
		time.Sleep(d)
	}
	if err := p.forward(w, r, f.kind); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

// next takes the fault for this request, if there is one.
func (p *proxy) next(path string) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fault
	if f.kind == "" || !strings.Contains(path, f.match) {
		return fault{}
	}
	if f.times == 1 {
		p.fault = fault{}
	} else if f.times > 1 {
		p.fault.times--
	}
	return f
}

func (p *proxy) forward(w http.ResponseWriter, r *http.Request, kind string) error {
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
	if kind != "cut" && kind != "stall" {
		_, err := io.Copy(w, resp.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // the status is out; the client must not take this for the whole
		}
		return nil
	}
	if _, err := io.CopyN(w, resp.Body, resp.ContentLength/2); err != nil {
		panic(http.ErrAbortHandler)
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	if kind == "stall" {
		<-r.Context().Done()
	}
	panic(http.ErrAbortHandler)
}
