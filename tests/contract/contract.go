// Package contract holds answers of the API against its OpenAPI document.
package contract

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
)

// Contract is what the document promises.
type Contract struct {
	Document *openapi3.T
	router   routers.Router
}

// Read takes a document, and refuses one that is not valid OpenAPI.
func Read(document []byte) (*Contract, error) {
	doc, err := openapi3.NewLoader().LoadFromData(document)
	if err != nil {
		return nil, err
	}
	doc.Servers = nil // any address will do
	router, err := legacy.NewRouter(doc)
	if err != nil {
		return nil, err
	}
	for _, plain := range []string{"text/event-stream", "application/yaml", "application/x-ndjson", "application/x-tar"} {
		openapi3filter.RegisterBodyDecoder(plain, openapi3filter.FileBodyDecoder)
	}
	return &Contract{doc, router}, nil
}

// Check says how an answer breaks the promise made of it.
func (c *Contract) Check(req *http.Request, status int, header http.Header, body []byte) error {
	route, params, err := c.router.FindRoute(req)
	var none *routers.RouteError
	if errors.As(err, &none) {
		return c.elsewhere(status, header, body)
	}
	if err != nil {
		return err
	}
	input := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route},
		Status:                 status, Header: header, Body: io.NopCloser(bytes.NewReader(body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	if err := openapi3filter.ValidateResponse(req.Context(), input); err != nil {
		return fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, err)
	}
	allowed := append(Codes(route.Operation.Extensions), Codes(c.Document.Extensions)...) // a trailing slash is another path
	if code := codeOf(header, body); code != "" && !slices.Contains(allowed, code) {
		return fmt.Errorf("%s %s: the code %s is not among its x-codes", req.Method, route.Path, code)
	}
	return nil
}

// CheckRequest says how a request breaks what is asked of it. The body can be read again.
func (c *Contract) CheckRequest(req *http.Request) error {
	route, params, err := c.router.FindRoute(req)
	if err != nil {
		return fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, err)
	}
	input := &openapi3filter.RequestValidationInput{Request: req, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if err := openapi3filter.ValidateRequest(req.Context(), input); err != nil {
		return fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, err)
	}
	return nil
}

// elsewhere is an answer at a path, or to a method, that there is not.
func (c *Contract) elsewhere(status int, header http.Header, body []byte) error {
	code := codeOf(header, body)
	if !slices.Contains(Codes(c.Document.Extensions), code) || status/100 != 4 {
		return fmt.Errorf("an undocumented path or method was answered: %d %s %.200s", status, code, body)
	}
	return nil
}

func codeOf(header http.Header, body []byte) string {
	var p struct{ Code string }
	if !strings.HasPrefix(header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(body, &p) != nil {
		return ""
	}
	return p.Code
}

// Codes are the values of x-codes.
func Codes(extensions map[string]any) (codes []string) {
	list, _ := extensions["x-codes"].([]any)
	for _, v := range list {
		if code, ok := v.(string); ok {
			codes = append(codes, code)
		}
	}
	return codes
}

// Watch checks every answer of a handler, and tells what breaks the promise.
func (c *Contract) Watch(next http.Handler, broken func(error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(rec, r)
		if err := c.Check(r, rec.status, w.Header(), rec.body.Bytes()); err != nil {
			broken(err)
		}
	})
}

type recorder struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (r *recorder) WriteHeader(status int) { r.status = status; r.ResponseWriter.WriteHeader(status) }

func (r *recorder) Write(p []byte) (int, error) {
	r.body.Write(p)
	return r.ResponseWriter.Write(p)
}

func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
