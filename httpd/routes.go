package httpd

import (
	"context"
	_ "embed"
	"fmt"
	"net/http"
	"runtime/debug"

	"github.com/julienschmidt/httprouter"

	"toad/authstore"
	"toad/httpd/api"
)

// call is one request as a handler sees it.
type call struct {
	http.ResponseWriter
	r      *http.Request
	params httprouter.Params
	remote bool // it came over TCP
	caller

	status    int    // as answered
	code      string // of a problem
	operation string // that the answer is about
	subject   string // the token that was issued or revoked
}

func (c *call) param(name string) string { return c.params.ByName(name) }

// answer is one route: it writes an answer of its own and returns nil, or returns the problem.
type answer func(c *call) error

// route is one way to ask.
type route struct {
	method, path string
	need         need
	do           answer
}

func (s *Server) routes() []route {
	return []route{
		{http.MethodPost, "/v1/services/:service/deployments", ofService(authstore.Deploy), s.deploy},
		{http.MethodPost, "/v1/services/:service/rollback", ofService(authstore.Deploy), s.rollback},
		{http.MethodPost, "/v1/services/:service/plan", ofService(authstore.Deploy), s.plan},
		{http.MethodGet, "/v1/services/:service/diff", ofService(authstore.Read), s.diff},
		{http.MethodGet, "/v1/services", need{verb: authstore.Read}, s.services},
		{http.MethodGet, "/v1/services/:service", ofService(authstore.Read), s.service},
		{http.MethodGet, "/v1/services/:service/operations", ofService(authstore.Read), s.operations},
		{http.MethodGet, "/v1/services/:service/tags/:tag", ofService(authstore.Read), s.tag},
		{http.MethodGet, "/v1/services/:service/proofs/:digest", ofService(authstore.Read), s.getProof},
		{http.MethodPut, "/v1/services/:service/proofs/:digest", ofService(authstore.Deploy), s.putProof},
		{http.MethodPut, "/v1/services/:service/files/:digest", ofService(authstore.Deploy), s.putFile},
		{http.MethodGet, "/v1/operations/:id", ofOperation(authstore.Read), s.operation},
		{http.MethodGet, "/v1/operations/:id/log", ofOperation(authstore.Read), s.log},
		{http.MethodGet, "/v1/tokens", need{local: true}, s.tokens},
		{http.MethodPost, "/v1/tokens", need{local: true}, s.issueToken},
		{http.MethodDelete, "/v1/tokens/:id", need{local: true}, s.revokeToken},
		{http.MethodGet, "/healthz", need{public: true}, s.health},
		{http.MethodGet, "/metrics", need{verb: authstore.Read, service: everyService}, s.metrics},
		{http.MethodGet, "/openapi.yaml", need{public: true}, s.document},
	}
}

//go:embed openapi.yaml
var document []byte

// document is GET /openapi.yaml: what is promised of all routes.
func (s *Server) document(c *call) error {
	c.Header().Set("Content-Type", "application/yaml")
	c.WriteHeader(http.StatusOK)
	_, _ = c.Write(document)
	return nil
}

func (s *Server) handler() http.Handler {
	router := httprouter.New()
	router.RedirectTrailingSlash, router.RedirectFixedPath, router.HandleOPTIONS = false, false, false
	for _, r := range s.routes() {
		router.Handle(r.method, r.path, s.route(r.need, r.do))
	}
	router.NotFound = http.HandlerFunc(s.outside(func(c *call) error {
		return refuse(http.StatusNotFound, CodeUnknownRoute, "there is nothing at "+fmt.Sprintf("%.80q", c.r.URL.Path))
	}))
	router.MethodNotAllowed = http.HandlerFunc(s.outside(func(c *call) error {
		return refuse(http.StatusMethodNotAllowed, CodeMethod, c.r.Method+" is not for "+fmt.Sprintf("%.80q", c.r.URL.Path))
	}))
	return router
}

func (s *Server) outside(do answer) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { s.route(need{}, do)(w, r, nil) }
}

// route is what happens around every answer: who asks is settled first, what goes wrong becomes a problem, and what
// was to change something leaves an audit line.
func (s *Server) route(n need, do answer) httprouter.Handle {
	return func(w http.ResponseWriter, r *http.Request, params httprouter.Params) {
		p, _ := r.Context().Value(peerKey{}).(peer)
		c := &call{ResponseWriter: w, r: r, params: params, remote: !p.unix}
		began := s.now()
		err := s.enter(c)
		defer s.leave(c)
		defer func() {
			if err := recover(); err != nil {
				s.panicked(c, err)
			}
			if r.Method != http.MethodGet {
				s.audit(c, began)
			}
		}()
		if err == nil {
			err = s.admit(c, p, n)
		}
		if err == nil {
			err = do(c)
		}
		if err != nil {
			s.fail(c, err)
		}
		s.used(c)
	}
}

// used notes that the token served. A refused request changes nothing on the disk, not even that.
func (s *Server) used(c *call) {
	if c.token == nil || c.status >= http.StatusBadRequest {
		return
	}
	if err := s.Tokens.Used(context.WithoutCancel(c.r.Context()), c.token.ID); err != nil {
		s.Log.Warn("the use of a token could not be noted", "token", c.token.ID, "err", err)
	}
}

func (s *Server) fail(c *call, err error) {
	p := problemOf(err)
	p.Detail = c.say(p.Detail)
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
		c.code = string(CodeInternal)
		writeProblem(c, refuse(http.StatusInternalServerError, CodeInternal, "a fault of toad's own; it is in the journal"))
		return
	}
	panic(http.ErrAbortHandler) // half an answer must not look like a whole one
}

// say makes text fit for the caller: over TCP nobody is told where the host keeps its files.
func (c *call) say(text string) string {
	if c.remote {
		return withoutPaths(text)
	}
	return text
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
