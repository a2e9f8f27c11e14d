package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"toad/agent/protocol"
)

// Control is the control plane.
func (w *World) Control() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/agent/check-in", w.authorized(w.checkIn))
	mux.HandleFunc("GET /v1/agent/bundles/{sha}", w.authorized(w.bundle))
	mux.HandleFunc("POST /v1/agent/lease", w.lease)
	mux.HandleFunc("POST /v1/agent/report", w.authorized(w.report))
	mux.HandleFunc("/", func(rw http.ResponseWriter, r *http.Request) {
		problem(rw, http.StatusNotFound, "unknown_route", "there is no such route")
	})
	return w.broken("control", bearer, func(rw http.ResponseWriter, status int) {
		problem(rw, status, codes[status], "as the test wants it")
	}, mux)
}

var codes = map[int]string{400: "invalid_request", 401: "unauthenticated", 403: protocol.CodeEnvironment, 404: "unknown_bundle", 413: "body_too_large",
	422: "invalid_request", 429: "rate_limited", 500: "internal_error", 503: "unavailable"}

func problem(rw http.ResponseWriter, status int, code, detail string) {
	rw.Header().Set("Content-Type", "application/problem+json")
	if status == http.StatusUnauthorized {
		rw.Header().Set("WWW-Authenticate", "Bearer")
	}
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(map[string]any{"type": "urn:toad:problem:" + code, "title": strings.ReplaceAll(code, "_", " "),
		"status": status, "code": code, "detail": detail})
}

func bearer(r *http.Request) string {
	text, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return text
}

func (t *token) valid(now time.Time) bool { return !t.revoked && now.Before(t.expires) }

// authorized lets in a token that OpenBao would take too.
func (w *World) authorized(next func(http.ResponseWriter, *http.Request, *token)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		defer w.mu.Unlock()
		t := w.tokens[bearer(r)]
		if t == nil || !t.valid(w.now()) {
			problem(rw, http.StatusUnauthorized, "unauthenticated", "the token is not accepted")
			return
		}
		next(rw, r, t)
	}
}

// read takes a body that is exactly of the protocol, and of the token's environment and box.
func read(rw http.ResponseWriter, r *http.Request, t *token, into any, env, box *string) bool {
	text, err := io.ReadAll(r.Body)
	if large := new(http.MaxBytesError); errors.As(err, &large) {
		problem(rw, http.StatusRequestEntityTooLarge, "body_too_large", "a body has at most 1 MiB")
		return false
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		problem(rw, http.StatusBadRequest, "invalid_request", fmt.Sprint("the body is not as it should be: ", err))
		return false
	}
	if *env != t.env || *box != t.box {
		problem(rw, http.StatusForbidden, protocol.CodeEnvironment, fmt.Sprintf("the token is for %s/%s, the request for %.40s/%.40s", t.env, t.box, *env, *box))
		return false
	}
	return true
}

func answer(rw http.ResponseWriter, v any) {
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(v)
}

func (w *World) checkIn(rw http.ResponseWriter, r *http.Request, t *token) {
	var in protocol.CheckIn
	if !read(rw, r, t, &in, &in.EnvID, &in.Box) {
		return
	}
	env, now := w.envs[t.env], w.now()
	if env.CheckIns != 0 {
		var lately []time.Time
		for _, c := range w.checkIns {
			if c.EnvID == t.env && c.Box == t.box {
				lately = append(lately, c.At)
			}
		}
		if wait := spent(lately, now, env.CheckIns, time.Minute); wait > 0 {
			retry(rw, wait)
			problem(rw, http.StatusTooManyRequests, "rate_limited", "too many check-ins")
			return
		}
	}
	out := protocol.Answer{EnvID: t.env, Action: env.Action, BundleSHA: env.Published, AllowRollback: env.AllowRollback, Variables: env.Variables}
	switch {
	case env.Action == protocol.ActionDown:
		out = protocol.Answer{EnvID: t.env, Action: protocol.ActionDown, Purge: env.Purge}
	case env.Action != "":
	case env.Published == "" || env.Published == in.BundleSHA:
		out.Action = protocol.ActionNone
	default:
		out.Action = protocol.ActionApply
	}
	w.checkIns = append(w.checkIns, CheckIn{in, now, out})
	answer(rw, out)
}

// spent says how long it is until one more fits into a budget.
func spent(used []time.Time, now time.Time, budget int, in time.Duration) time.Duration {
	if len(used) < budget {
		return 0
	}
	return max(used[len(used)-budget].Add(in).Sub(now), 0)
}

func retry(rw http.ResponseWriter, wait time.Duration) {
	rw.Header().Set("Retry-After", fmt.Sprint(int(wait/time.Second)+1))
}

var shaForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (w *World) bundle(rw http.ResponseWriter, r *http.Request, t *token) {
	sha := r.PathValue("sha")
	tar, there := w.bundles[t.env][sha]
	if !shaForm.MatchString(sha) || !there {
		problem(rw, http.StatusNotFound, "unknown_bundle", "this environment has no such bundle")
		return
	}
	// A box that reads slowly keeps nobody else waiting.
	w.mu.Unlock()
	defer w.mu.Lock()
	rw.Header().Set("Content-Type", "application/x-tar")
	rw.Header().Set("Content-Length", fmt.Sprint(len(tar)))
	_, _ = rw.Write(tar)
}

// lease also takes a token that has expired: a box that was off has nothing else. It takes none that was revoked, and
// none of a box that has logged in anew since.
func (w *World) lease(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.tokens[bearer(r)]
	if t == nil || t.revoked || (t.replaced && !t.valid(w.now())) {
		problem(rw, http.StatusUnauthorized, "unauthenticated", "the token is not accepted")
		return
	}
	var in protocol.LeaseRequest
	if !read(rw, r, t, &in, &in.EnvID, &in.Box) {
		return
	}
	env, now := w.envs[t.env], w.now()
	var granted []time.Time
	for _, l := range w.leases {
		if l.EnvID == t.env && l.Box == t.box && l.Status == http.StatusOK {
			granted = append(granted, l.At)
		}
	}
	budget := env.Leases
	if budget == 0 {
		budget = 5
	}
	one := Lease{in, now, http.StatusOK}
	if wait := spent(granted, now, budget, time.Hour); wait > 0 {
		one.Status = http.StatusTooManyRequests
		retry(rw, wait)
		problem(rw, one.Status, "lease_budget", fmt.Sprintf("the box has had its %d leases of this hour", budget))
	} else if env.LeaseBody != "" {
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprint(rw, env.LeaseBody)
	} else {
		jwt := w.grant(t.env, t.box)
		answer(rw, protocol.Lease{Kind: protocol.KindJWT, EnvID: t.env, Role: Role, JWT: jwt, Expires: w.grants[jwt].expires.UTC().Truncate(time.Second)})
	}
	w.leases = append(w.leases, one)
}

func (w *World) report(rw http.ResponseWriter, r *http.Request, t *token) {
	var in protocol.Report
	if !read(rw, r, t, &in, &in.EnvID, &in.Box) {
		return
	}
	known := false
	for _, before := range w.reports {
		known = known || (before.ID == in.ID && before.EnvID == in.EnvID && before.Box == in.Box)
	}
	if !known {
		w.reports = append(w.reports, Report{in, w.now()})
	}
	rw.WriteHeader(http.StatusNoContent)
}
