package protocol

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// The classes of errors, of the control plane as of OpenBao. errors.Is tells an error's class, errors.As to *Error the rest.
var (
	// ErrUnauthenticated: the token is not accepted. One new lease and login; still not accepted → exit 78.
	ErrUnauthenticated = errors.New("not authenticated")
	// ErrEnvironment: the token, the grant or the answer belongs to another environment. Never retried → exit 78.
	ErrEnvironment = errors.New("another environment")
	// ErrRateLimited: too often; Error.RetryAfter says when again → exit 75. A spent lease budget is this too.
	ErrRateLimited = errors.New("rate limited")
	// ErrLeaseShape: a lease that is not a deploy grant for a JWT login, such as AppRole's. Loud, no fallback → code LEASE_SHAPE.
	ErrLeaseShape = errors.New("unsupported lease shape")
	// ErrTemporary: the network, 5xx, an answer that is not of this protocol's media type (a portal's page with 200), a
	// stall, a redirect, an answer cut short or too large → exit 75.
	ErrTemporary = errors.New("temporary")
	// ErrNotFound: there is no such bundle, or no such secret.
	ErrNotFound = errors.New("not found")
	// ErrGrant: the login refuses the deploy grant: superseded, expired, used, or for another role → exit 78.
	ErrGrant = errors.New("the deploy grant is refused")
	// ErrDenied: authenticated, but not allowed → exit 78.
	ErrDenied = errors.New("not allowed")
	// ErrRejected: the peer does not take what toad sent, or answered what this version does not know → exit 1.
	ErrRejected = errors.New("rejected")
)

// Error is what went wrong in one exchange. Its text holds no secret that the redactor knows.
type Error struct {
	Class      error         // one of the above
	Op         string        // what was to be done, e.g. "check-in"
	Status     int           // HTTP status; 0 if there was no answer
	Code       string        // of the problem, e.g. "env_mismatch"; may be empty
	Detail     string        // of the peer or of the network, redacted and cut
	RetryAfter time.Duration // with ErrRateLimited always (at least 1 s), with ErrTemporary if the peer said so
	Cause      error         // e.g. transport.ErrStalled, context.DeadlineExceeded; may be nil; not part of the text
}

// Error implements error.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %v", e.Op, e.Class)
	if e.Status != 0 {
		fmt.Fprintf(&b, " (HTTP %d)", e.Status)
	}
	if e.Detail != "" {
		fmt.Fprintf(&b, ": %s", e.Detail)
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, "; again after %s", e.RetryAfter)
	}
	return b.String()
}

// Unwrap lets errors.Is find the class and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.Cause}
}

// RetryAfter returns what an error says of when to try again; 0 if it says nothing.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}
