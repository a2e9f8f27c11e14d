package httpd

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/julienschmidt/httprouter"

	"toad/httpd/api"
)

// call is one request as a handler sees it.
type call struct {
	http.ResponseWriter
	r      *http.Request
	by     string // on whose behalf
	params httprouter.Params

	status    int    // as answered
	code      string // of a problem
	operation string // that the answer is about
}

func (c *call) param(name string) string { return c.params.ByName(name) }

// answer is one route: it writes an answer of its own and returns nil, or returns the problem.
type answer func(c *call) error

func (s *Server) handler() http.Handler {
	router := httprouter.New()
	router.RedirectTrailingSlash, router.RedirectFixedPath, router.HandleOPTIONS = false, false, false
	for _, route := range []struct {
		method, path string
		do           answer
	}{
		{http.MethodPost, "/v1/services/:service/deployments", s.deploy},
		{http.MethodPost, "/v1/services/:service/rollback", s.rollback},
		{http.MethodPost, "/v1/services/:service/plan", s.plan},
		{http.MethodGet, "/v1/services/:service/diff", s.diff},
		{http.MethodGet, "/v1/services", s.services},
		{http.MethodGet, "/v1/services/:service", s.service},
		{http.MethodGet, "/v1/services/:service/operations", s.operations},
		{http.MethodGet, "/v1/services/:service/tags/:tag", s.tag},
		{http.MethodGet, "/v1/operations/:id", s.operation},
		{http.MethodGet, "/v1/operations/:id/log", s.log},
		{http.MethodGet, "/healthz", s.health},
	} {
		router.Handle(route.method, route.path, s.route(route.do))
	}
	router.NotFound = http.HandlerFunc(s.outside(func(c *call) error {
		return refuse(http.StatusNotFound, "unknown_route", "there is nothing at "+fmt.Sprintf("%.80q", c.r.URL.Path))
	}))
	router.MethodNotAllowed = http.HandlerFunc(s.outside(func(c *call) error {
		return refuse(http.StatusMethodNotAllowed, "method_not_allowed", c.r.Method+" is not for "+fmt.Sprintf("%.80q", c.r.URL.Path))
	}))
	return router
}

func (s *Server) outside(do answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { s.route(do)(w, r, nil) }
}

// route is what happens around every answer: who asks is settled first, what goes wrong becomes a problem, and what
// was to change something leaves an audit line.
func (s *Server) route(do answer) httprouter.Handle {
	return func(w http.ResponseWriter, r *http.Request, params httprouter.Params) {
		s.enter()
		defer s.leave()
		c := &call{ResponseWriter: w, r: r, params: params}
		began := s.now()
		defer func() {
			if err := recover(); err != nil {
				s.panicked(c, err)
			}
			if r.Method != http.MethodGet {
				s.audit(c, began)
			}
		}()
		by, err := s.authorise(r)
		if err == nil {
			c.by = by
			err = do(c)
		}
		if err != nil {
			s.fail(c, err)
		}
	}
}

func (s *Server) fail(c *call, err error) {
	p := problemOf(err)
	if p.Status == http.StatusServiceUnavailable {
		s.Log.Error("request not served", "method", c.r.Method, "path", c.r.URL.Path, "err", err)
	}
	c.code = p.Code
	if p.Operation != "" {
		c.operation = p.Operation
	}
	writeProblem(c, p)
}

func (s *Server) panicked(c *call, cause any) {
	s.Log.Error("panic while answering", "method", c.r.Method, "path", c.r.URL.Path, "err", cause, "stack", string(debug.Stack()))
	if c.status == 0 {
		c.code = "internal_error"
		writeProblem(c, refuse(http.StatusInternalServerError, "internal_error", "a fault of toad's own; it is in the journal"))
		return
	}
	panic(http.ErrAbortHandler) // half an answer must not look like a whole one
}

func (s *Server) audit(c *call, began time.Time) {
	s.Log.Info("request", "method", c.r.Method, "path", c.r.URL.Path, "by", c.by, "status", c.status, "code", c.code,
		"service", c.param("service"), "operation", c.operation, "took", s.now().Sub(began).Round(time.Millisecond))
}

// WriteHeader notes the status for the audit line.
func (c *call) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (c *call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// show answers with an operation.
func (c *call) show(status int, op api.Operation) error {
	c.operation = op.ID
	c.Header().Set("Location", "/v1/operations/"+op.ID)
	writeJSON(c, status, op)
	return nil
}
