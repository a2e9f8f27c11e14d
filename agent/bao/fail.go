package bao

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/openbao/openbao/api/v2"

	"toad/agent/protocol"
	"toad/agent/transport"
)

// denied tells a token that is not accepted any more from one that may not read this: OpenBao answers 403 to both.
func (c *Client) denied(ctx context.Context, op string, err error) error {
	e, ok := errors.AsType[*api.ResponseError](err)
	if !ok || e.StatusCode != http.StatusForbidden {
		return c.fail(op, err, protocol.ErrRejected)
	}
	if _, looked := c.look(ctx); looked != nil {
		return looked
	}
	return c.fail(op, err, protocol.ErrDenied)
}

// ready refuses a token that no request could carry, such as one from a damaged file.
func (c *Client) ready(op string) error {
	if protocol.ValidToken(c.Token()) {
		return nil
	}
	return &protocol.Error{Class: protocol.ErrUnauthenticated, Op: op, Detail: "there is no token"}
}

// fail classes an error of OpenBao's client. no is the class of 400, 401 and 403.
func (c *Client) fail(op string, err, no error) error {
	if errors.Is(err, api.ErrSecretNotFound) {
		return &protocol.Error{Class: protocol.ErrNotFound, Op: op, Status: http.StatusNotFound}
	}
	r, answered := errors.AsType[*api.ResponseError](err)
	if !answered {
		return c.network(op, err)
	}
	e := &protocol.Error{Op: op, Status: r.StatusCode, Class: protocol.ErrRejected}
	if !r.RawError {
		e.Detail = c.clean(strings.Join(r.Errors, "; "))
	}
	switch s := r.StatusCode; {
	case s == http.StatusBadRequest, s == http.StatusUnauthorized, s == http.StatusForbidden:
		e.Class = no
	case s == http.StatusNotFound:
		e.Class = protocol.ErrNotFound
	case s == http.StatusTooManyRequests:
		e.Class, e.RetryAfter = protocol.ErrRateLimited, time.Second
	case s >= 500, s < 400:
		e.Class = protocol.ErrTemporary
	}
	return e
}

func (c *Client) network(op string, err error) error {
	if later, ok := errors.AsType[*limited](err); ok {
		return &protocol.Error{Class: later.class, Op: op, Status: later.status, RetryAfter: later.after, Cause: err}
	}
	e := &protocol.Error{Class: protocol.ErrTemporary, Op: op, Cause: err}
	u, sent := errors.AsType[*url.Error](err)
	switch {
	case sent:
		e.Detail = c.clean(u.Err.Error())
	case errors.Is(err, transport.ErrStalled), errors.Is(err, transport.ErrTooLarge), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		e.Detail = c.clean(err.Error())
	default: // the answer could not be read; what is said of it may repeat a piece of a secret
		return c.odd(op)
	}
	return e
}

func (c *Client) odd(op string) error {
	return &protocol.Error{Class: protocol.ErrTemporary, Op: op, Status: http.StatusOK, Detail: "the answer is not OpenBao's"}
}

func (c *Client) clean(text string) string {
	text = c.Redactor.Line(text)
	if len(text) > 300 {
		text = strings.ToValidUTF8(text[:297], "") + "…"
	}
	return text
}
