package httpd

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"syscall"

	"toad/httpd/api"
	"toad/probation"
	"toad/probation/record"
)

// refuse makes the problem of a request that goes no further.
func refuse(status int, code probation.Code, detail string) *api.Problem {
	title := strings.ReplaceAll(string(code), "_", " ")
	return &api.Problem{Type: "urn:toad:problem:" + string(code), Title: title, Status: status, Code: string(code), Detail: detail}
}

func invalid(detail string) *api.Problem {
	return refuse(http.StatusUnprocessableEntity, probation.CodeInvalid, detail)
}

// statuses of the codes a request can be rejected with; any other is a conflict with what is on record.
var statuses = map[probation.Code]int{
	probation.CodeUnknownService:   http.StatusNotFound,
	probation.CodeUnknownOperation: http.StatusNotFound,
	probation.CodeIdempotency:      http.StatusUnprocessableEntity,
	probation.CodeInvalid:          http.StatusUnprocessableEntity,
	probation.CodeUnauthorized:     http.StatusUnauthorized,
	probation.CodeForbidden:        http.StatusForbidden,
	probation.CodeUnavailable:      http.StatusServiceUnavailable,
	CodeUnknownTag:                 http.StatusNotFound,
	probation.CodeNotProven:        http.StatusNotFound, // of a proof that is asked for
	probation.CodePullFailed:       http.StatusBadGateway,
	probation.CodePullUnavailable:  http.StatusServiceUnavailable,
}

// The codes that are about a request and not about a service.
const (
	CodeUnknownRoute probation.Code = "unknown_route"
	CodeUnknownTag   probation.Code = "unknown_tag" // the registry does not have it
	CodeUnknownToken probation.Code = "unknown_token"
	CodeNoOther      probation.Code = "nothing_to_compare"
	CodeMethod       probation.Code = "method_not_allowed"
	CodeMediaType    probation.Code = "unsupported_media_type"
	CodeTooLarge     probation.Code = "body_too_large"
	CodeMisdirected  probation.Code = "misdirected_request" // another host is meant
	CodeBusy         probation.Code = "too_many_requests"
	CodeUnhealthy    probation.Code = "unhealthy"
	CodeInternal     probation.Code = "internal_error"
)

// problemOf says what an error means to the one who asked.
func problemOf(err error) *api.Problem {
	var p *api.Problem
	var rejection *probation.Rejection
	var tag *TagError
	var unproven *ProofError
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &rejection):
		status, ok := statuses[rejection.Code]
		if !ok {
			status = http.StatusConflict
		}
		p := refuse(status, rejection.Code, rejection.Detail)
		p.Generation, p.Operation = &rejection.Generation, rejection.Operation
		return p
	case errors.As(err, &unproven):
		return refuse(statuses[unproven.Code], unproven.Code, withoutPaths(unproven.Error()))
	case errors.As(err, &tag):
		return refuse(statuses[tag.Code], tag.Code, withoutPaths(tag.Error()))
	case errors.Is(err, record.ErrUnknown):
		return refuse(http.StatusNotFound, probation.CodeUnknownOperation, err.Error())
	case errors.Is(err, record.ErrDamaged):
		return refuse(http.StatusConflict, probation.CodeServiceDamaged, withoutPaths(err.Error()))
	}
	p = refuse(http.StatusServiceUnavailable, probation.CodeUnavailable, withoutPaths(err.Error()))
	var sys syscall.Errno
	switch {
	case errors.As(err, &sys) && (sys == syscall.ENOSPC || sys == syscall.EDQUOT):
		p.Hint = "free some space for toad's state folder, then try again with the same Idempotency-Key"
	default:
		p.Hint = "try again with the same Idempotency-Key; see the journal: journalctl --user -u toad.service"
	}
	return p
}

// hostPath is an absolute path within a message, or one below a home folder; an address (http://…) is none.
var hostPath = regexp.MustCompile("(^|[\\s\"'`(=:\\[<,])~?/[^/\\s\"'`():\\]>,;]([^\\s\"'`():\\]>,;]*[^\\s\"'`():\\]>,.;])?")

// withoutPaths leaves the folders of the host out of a message; what a file is called stays.
func withoutPaths(text string) string {
	return hostPath.ReplaceAllStringFunc(text, func(m string) string {
		lead := strings.TrimSuffix(m[:strings.IndexByte(m, '/')], "~")
		return lead + m[strings.LastIndexByte(m, '/')+1:]
	})
}

func writeProblem(w http.ResponseWriter, p *api.Problem) {
	switch p.Status {
	case http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	case http.StatusTooManyRequests:
		w.Header().Set("Retry-After", "1")
	}
	writeBody(w, p.Status, "application/problem+json", p)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	writeBody(w, status, "application/json", v)
}

func writeText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}

func writeBody(w http.ResponseWriter, status int, mediaType string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // a type of package api that cannot be encoded
	}
	beginBody(w, status, mediaType)
	_, _ = w.Write(append(data, '\n')) // to a caller that has gone there is nothing to say
}

func beginBody(w http.ResponseWriter, status int, mediaType string) {
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}
