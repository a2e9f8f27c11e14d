package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ErrUnreachable marks an API that gave no answer.
var ErrUnreachable = errors.New("toad is out of reach")

// ErrNotToad marks an answer that toad does not give: the endpoint is somebody else's.
var ErrNotToad = errors.New("is it toad?")

// UnreachableError says which endpoint gave no answer, and why. It is ErrUnreachable.
type UnreachableError struct {
	Endpoint string
	Err      error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("%v at %s: %v", ErrUnreachable, e.Endpoint, cause(e.Err))
}
func (e *UnreachableError) Unwrap() error        { return e.Err }
func (e *UnreachableError) Is(target error) bool { return target == ErrUnreachable }

// cause leaves out the method and address that net and net/http put around an error: the endpoint is named already.
func cause(err error) error {
	var sys syscall.Errno
	if errors.As(err, &sys) {
		return sys
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

const (
	answerTimeout = 35 * time.Second // the daemon gives up before that
	maxAnswer     = 16 << 20         // bytes
	retryPause    = 300 * time.Millisecond
)

// Client speaks to one toad. It may be used by many goroutines.
type Client struct {
	// Patience is how long Follow goes on without reaching toad before it gives up.
	Patience time.Duration

	endpoint, base, token string
	http                  *http.Client
}

// New makes a client of an endpoint: unix:///run/user/1000/toad/toad.sock, or http://host:port with a token.
func New(endpoint, token string) (*Client, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("endpoint: want unix:///path/toad.sock or http://host:port, without user, query and fragment")
	}
	c := &Client{Patience: 2 * time.Minute, endpoint: endpoint, token: token}
	// A connection kept open would be one that the daemon closes when it exits: each request makes its own.
	transport := &http.Transport{DisableKeepAlives: true, ResponseHeaderTimeout: answerTimeout, ExpectContinueTimeout: 5 * time.Second}
	switch {
	case u.Scheme == "unix" && u.Host == "" && strings.HasPrefix(u.Path, "/"):
		c.base = "http://toad"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", u.Path)
		}
	case (u.Scheme == "http" || u.Scheme == "https") && u.Host != "":
		c.base = strings.TrimSuffix(endpoint, "/")
		transport.Proxy = http.ProxyFromEnvironment
	default:
		return nil, fmt.Errorf("endpoint %q: want unix:///path/toad.sock or http://host:port", endpoint)
	}
	c.http = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // a token must not follow a redirect
	}}
	return c, nil
}

// Endpoint is what the client was made of.
func (c *Client) Endpoint() string { return c.endpoint }

// Services lists all services, and says whether the enrollment as it is now is in force.
func (c *Client) Services(ctx context.Context) (Services, error) {
	return c.services(ctx, "")
}

func (c *Client) services(ctx context.Context, query string) (Services, error) {
	var out Services
	err := c.get(ctx, "/v1/services"+query, &out)
	return out, c.about(err, out.Services != nil, "services")
}

// Service reads one service.
func (c *Client) Service(ctx context.Context, name string) (Service, error) {
	return c.service(ctx, name, "")
}

func (c *Client) service(ctx context.Context, name, query string) (Service, error) {
	var out Service
	err := c.get(ctx, "/v1/services/"+url.PathEscape(name)+query, &out)
	return out, c.about(err, out.Service == name, name)
}

// about is the error of an answer that is JSON, and about something else than what was asked.
func (c *Client) about(err error, right bool, what string) error {
	if err == nil && !right {
		return fmt.Errorf("answer of %s: it is not about %s; %w", c.endpoint, what, ErrNotToad)
	}
	return err
}

// Deploy asks for a release. replayed is true when the answer is an operation that was there before: the same request
// was made earlier under this key, or the digest is in force already.
func (c *Client) Deploy(ctx context.Context, name string, req DeployRequest, key string) (op Operation, replayed bool, err error) {
	return c.write(ctx, "/v1/services/"+url.PathEscape(name)+"/deployments", req, key)
}

// Rollback asks for the previous release. See Operation.Aborts for what the answer means.
func (c *Client) Rollback(ctx context.Context, name string, req RollbackRequest, key string) (op Operation, replayed bool, err error) {
	return c.write(ctx, "/v1/services/"+url.PathEscape(name)+"/rollback", req, key)
}

// Operation reads one operation.
func (c *Client) Operation(ctx context.Context, id string) (Operation, error) {
	var out Operation
	err := c.get(ctx, "/v1/operations/"+url.PathEscape(id), &out)
	return out, c.about(err, out.ID == id, id)
}

// Operations reads a page of a service's history: those below generation before (0 = from the latest), at most limit of
// them (0 = as many as the daemon likes).
func (c *Client) Operations(ctx context.Context, name string, before, limit int) (Operations, error) {
	query := url.Values{}
	if before > 0 {
		query.Set("before", strconv.Itoa(before))
	}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	var out Operations
	err := c.get(ctx, "/v1/services/"+url.PathEscape(name)+"/operations?"+query.Encode(), &out)
	return out, err
}

// Log reads the lines of an operation's log as they are.
func (c *Client) Log(ctx context.Context, id string) ([]json.RawMessage, error) {
	var out []json.RawMessage
	err := c.get(ctx, "/v1/operations/"+url.PathEscape(id)+"/log", &out)
	return out, err
}

// Tag asks what a tag of a service's repository stands for.
func (c *Client) Tag(ctx context.Context, service, tag string) (Tag, error) {
	var out Tag
	err := c.get(ctx, "/v1/services/"+url.PathEscape(service)+"/tags/"+url.PathEscape(tag), &out)
	return out, err
}

// IssueToken makes a token. It is not repeated by itself: a lost answer is a token that nobody holds, to be revoked.
func (c *Client) IssueToken(ctx context.Context, req TokenRequest) (IssuedToken, error) {
	var out IssuedToken
	body, err := json.Marshal(req)
	if err == nil {
		_, err = c.askOnce(ctx, http.MethodPost, "/v1/tokens", body, "", &out)
	}
	return out, err
}

// Tokens lists all tokens.
func (c *Client) Tokens(ctx context.Context) (Tokens, error) {
	var out Tokens
	err := c.get(ctx, "/v1/tokens", &out)
	return out, err
}

// RevokeToken takes a token out of force, and returns what it was.
func (c *Client) RevokeToken(ctx context.Context, id string) (Token, error) {
	var out Token
	_, err := c.ask(ctx, http.MethodDelete, "/v1/tokens/"+url.PathEscape(id), nil, "", &out)
	return out, err
}

func (c *Client) get(ctx context.Context, path string, out any) error {
	_, err := c.ask(ctx, http.MethodGet, path, nil, "", out)
	return err
}

func (c *Client) write(ctx context.Context, path string, body any, key string) (op Operation, replayed bool, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return op, false, err
	}
	status, err := c.ask(ctx, http.MethodPost, path, data, key, &op)
	if err == nil && op.ID == "" {
		err = fmt.Errorf("answer of %s: it names no operation; %w", c.endpoint, ErrNotToad)
	}
	return op, status == http.StatusOK, err
}

// ask makes a request, and makes it once more if the connection broke: a daemon that exits when idle may take a
// connection with it, and its socket brings the next one up. Writes are safe to repeat because of their key.
func (c *Client) ask(ctx context.Context, method, path string, body []byte, key string, out any) (int, error) {
	status, err := c.askOnce(ctx, method, path, body, key, out)
	if !broken(err) || ctx.Err() != nil {
		return status, err
	}
	select {
	case <-ctx.Done():
		return status, err
	case <-time.After(retryPause):
	}
	return c.askOnce(ctx, method, path, body, key, out)
}

func broken(err error) bool {
	for _, sign := range []error{syscall.ECONNRESET, syscall.ECONNREFUSED, syscall.EPIPE, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, sign) {
			return true
		}
	}
	return false
}

func (c *Client) askOnce(ctx context.Context, method, path string, body []byte, key string, out any) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	req, err := c.request(ctx, method, path, body)
	if err != nil {
		return 0, err
	}
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, &UnreachableError{c.endpoint, err}
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return 0, &UnreachableError{c.endpoint, err}
	case len(data) > maxAnswer:
		return 0, fmt.Errorf("answer of %s: larger than %d bytes; %w", c.endpoint, maxAnswer, ErrNotToad)
	case resp.StatusCode/100 != 2:
		return resp.StatusCode, c.refusal(resp, data)
	case mediaType(resp) != "application/json":
		return 0, c.instead(resp, "JSON")
	}
	if err := json.Unmarshal(data, out); err != nil {
		return 0, fmt.Errorf("answer of %s: %w; %w", c.endpoint, err, ErrNotToad)
	}
	return resp.StatusCode, nil
}

func (c *Client) request(ctx context.Context, method, path string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return req, nil
}

// refusal is what an answer that is no success says. Without a code it is of something else: for a time, or because of who
// asks, or because the endpoint is wrong.
func (c *Client) refusal(resp *http.Response, data []byte) error {
	p := c.problem(resp, data)
	if s := p.Status; p.Code != "" || s >= 500 || s == http.StatusUnauthorized || s == http.StatusForbidden || s == http.StatusTooManyRequests {
		return p
	}
	return fmt.Errorf("answer of %s: %w; %w", c.endpoint, p, ErrNotToad)
}

// problem makes a Problem of any answer that is not a success, also of a gateway's.
func (c *Client) problem(resp *http.Response, data []byte) *Problem {
	p := &Problem{}
	if mediaType(resp) != "application/problem+json" || json.Unmarshal(data, p) != nil {
		p = &Problem{Detail: fmt.Sprintf("HTTP status %s, without a reason", resp.Status)}
	}
	p.Status = resp.StatusCode
	p.Detail, p.Hint, p.Code = c.hide(p.Detail), c.hide(p.Hint), c.hide(p.Code)
	return p
}

// instead is the error of an answer of another kind than what was asked for.
func (c *Client) instead(resp *http.Response, of string) error {
	return fmt.Errorf("answer of %s: %.80q instead of %s; %w", c.endpoint, c.hide(resp.Header.Get("Content-Type")), of, ErrNotToad)
}

// hide takes the secret of the token out of an answer: whoever is at the endpoint may repeat what it was sent.
func (c *Client) hide(text string) string {
	_, secret, ok := strings.Cut(c.token, ".")
	if !ok {
		secret = c.token
	}
	if secret == "" {
		return text
	}
	return strings.ReplaceAll(text, secret, "[redacted]")
}

func mediaType(resp *http.Response) string {
	t, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}
