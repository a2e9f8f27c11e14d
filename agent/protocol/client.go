package protocol

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"toad/agent/transport"
	"toad/internal/redact"
)

// What an exchange may take at most.
const (
	maxAnswer     = 1 << 20 // bytes
	MaxBundle     = 8 << 20 // bytes of a bundle's tar
	idle          = 30 * time.Second
	answerTimeout = time.Minute
	bundleTimeout = 10 * time.Minute
	maxRetryAfter = 24 * time.Hour // a peer cannot send a box to sleep for longer
)

// Config is what a Client is made of.
type Config struct {
	Address  string           // https://host[:port][/prefix]; http:// only where Plain says so
	Plain    bool             // http:// is allowed: the way is a Unix socket of this host, behind which a mesh encrypts
	HTTP     *http.Client     // transport.Client's; its RoundTripper is guarded anew here
	EnvID    string           // the box's environment; whatever belongs to another ends with ErrEnvironment
	Box      string           // the box's name in its environment
	Token    func() string    // the bearer of now; it may change between two calls
	Redactor *redact.Redactor // learns each deploy grant before it is returned, and cleans the texts of errors and reports
	Idle     time.Duration    // how long a peer may send nothing; 0: 30 s
}

// Client speaks to a control plane. It repeats nothing: the timer of the tick is the retry.
type Client struct {
	Config
	base   *url.URL
	small  http.RoundTripper
	bundle http.RoundTripper
}

// New makes a client, and refuses a configuration that cannot be right.
func New(c Config) (*Client, error) {
	if _, err := ParseEnv(c.EnvID); err != nil {
		return nil, err
	}
	if !ValidBox(c.Box) {
		return nil, fmt.Errorf("%.80q is no name of a box; it has 1 to 64 of A-Z, a-z, 0-9, dot, dash and underscore", c.Box)
	}
	base, err := ParseAddress(c.Address, c.Plain)
	if err != nil {
		return nil, err
	}
	if c.Idle == 0 {
		c.Idle = idle
	}
	next := c.HTTP.Transport
	return &Client{Config: c, base: base,
		small:  transport.Guard{Next: next, Max: maxAnswer, Idle: c.Idle},
		bundle: transport.Guard{Next: next, Max: MaxBundle, Idle: c.Idle}}, nil
}

// ParseAddress reads the address of a control plane or of OpenBao. plain allows http.
func ParseAddress(address string, plain bool) (*url.URL, error) {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, errors.New("the address is no URL; write https://host:port")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the address holds more than https://host:port/prefix; no user, query or fragment belongs there")
	case u.Scheme == "https", u.Scheme == "http" && plain:
		u.Path = strings.TrimRight(u.Path, "/")
		return u, nil
	case u.Scheme == "http":
		return nil, errors.New("the address is http, which would send the token in clear; write https, or use the transport unix:/path")
	}
	return nil, fmt.Errorf("the address has the scheme %.20q; write https://host:port", u.Scheme)
}

// CheckIn tells what is in force and asks what should be. EnvID and Box are filled in.
func (c *Client) CheckIn(ctx context.Context, in CheckIn) (Answer, error) {
	in.EnvID, in.Box = c.EnvID, c.Box
	var out Answer
	err := c.post(ctx, "check-in", "/v1/agent/check-in", in, func(body []byte) error { return json.Unmarshal(body, &out) })
	if err != nil {
		return Answer{}, err
	}
	if err := c.ours("check-in", out.EnvID); err != nil {
		return Answer{}, err
	}
	if err := out.check(); err != nil {
		return Answer{}, &Error{Class: ErrRejected, Op: "check-in", Status: http.StatusOK, Detail: c.clean(err.Error())}
	}
	return out, nil
}

func (a Answer) check() error {
	switch a.Action {
	case ActionApply, ActionNone, ActionDown:
	default:
		return fmt.Errorf("the answer's action is %.20q; there are apply, none and down", a.Action)
	}
	if a.Action == ActionApply && a.BundleSHA == "" {
		return errors.New("the answer says apply and names no bundle")
	}
	if a.BundleSHA != "" && !ValidSHA(a.BundleSHA) {
		return fmt.Errorf("the answer's bundle_sha %.80q is not 64 hexadecimal digits", a.BundleSHA)
	}
	for name := range a.Variables {
		if !varForm.MatchString(name) {
			return fmt.Errorf("the answer's variable %.80q has no name of A-Z, 0-9 and underscore", name)
		}
	}
	return nil
}

// Lease asks for a deploy grant. The grant is with the redactor when this returns.
func (c *Client) Lease(ctx context.Context, reason, bundleSHA string) (Lease, error) {
	in := LeaseRequest{EnvID: c.EnvID, Box: c.Box, Reason: reason, BundleSHA: bundleSHA}
	var out Lease
	err := c.post(ctx, "lease", "/v1/agent/lease", in, func(body []byte) (err error) {
		out, err = c.readLease(body)
		return err
	})
	if err != nil {
		return Lease{}, err
	}
	if err := c.ours("lease", out.EnvID); err != nil {
		return Lease{}, err
	}
	return out, nil
}

// readLease registers every text of a lease, whatever its shape, before it judges the shape: an AppRole's secret_id is a
// secret too.
func (c *Client) readLease(body []byte) (Lease, error) {
	var all map[string]any
	if err := json.Unmarshal(body, &all); err != nil {
		return Lease{}, err
	}
	for name, value := range all {
		switch name {
		case "kind", "env_id", "role", "expires":
		default:
			c.hide(value)
		}
	}
	wrong := func(why string) error {
		return &Error{Class: ErrLeaseShape, Op: "lease", Status: http.StatusOK, Detail: why + "; toad takes a JWT for " +
			"auth/jwt-tenancy only, and falls back to nothing"}
	}
	kind, _ := all["kind"].(string)
	for _, other := range []string{"role_id", "secret_id", "secret_id_accessor", "wrapped_token", "wrap_info", "client_token", "token", "auth"} {
		if _, there := all[other]; there {
			return Lease{}, wrong("the lease has a " + other)
		}
	}
	if kind != KindJWT {
		return Lease{}, wrong(fmt.Sprintf("the lease is of the kind %.20q", c.clean(kind)))
	}
	var l Lease
	if err := json.Unmarshal(body, &l); err != nil {
		return Lease{}, wrong("the lease has fields of other types than it should")
	}
	if l.JWT == "" || l.Role == "" {
		return Lease{}, wrong("the lease lacks its jwt or its role")
	}
	return l, nil
}

// hide makes known to the redactor every text in a value.
func (c *Client) hide(value any) {
	switch v := value.(type) {
	case string:
		c.Redactor.Add("", v)
	case []any:
		for _, e := range v {
			c.hide(e)
		}
	case map[string]any:
		for _, e := range v {
			c.hide(e)
		}
	}
}

// Report tells how an attempt ended. EnvID and Box are filled in; all texts are redacted and cut to their limits.
func (c *Client) Report(ctx context.Context, r Report) error {
	r.EnvID, r.Box = c.EnvID, c.Box
	r.Detail = cut(c.Redactor.Line(r.Detail), MaxDetail)
	tail := r.LogTail[max(0, len(r.LogTail)-MaxLogLines):]
	r.LogTail = make([]string, len(tail))
	for i, line := range tail {
		r.LogTail[i] = cut(c.Redactor.Line(line), MaxLogLine)
	}
	return c.post(ctx, "report", "/v1/agent/report", r, nil)
}

// Bundle fetches the tar of a bundle. The caller reads at most MaxBundle bytes of it, and closes it; an error of a read
// is an *Error. That the tar's content has this sha is the caller's to verify.
func (c *Client) Bundle(ctx context.Context, sha string) (io.ReadCloser, error) {
	if !ValidSHA(sha) {
		return nil, fmt.Errorf("%.80q is no bundle_sha", sha)
	}
	ctx, cancel := context.WithTimeout(ctx, bundleTimeout)
	res, err := c.do(ctx, c.bundle, "bundle", http.MethodGet, "/v1/agent/bundles/"+sha, nil, "application/x-tar")
	if err != nil {
		cancel()
		return nil, err
	}
	return &stream{res.Body, c, cancel}, nil
}

type stream struct {
	io.ReadCloser
	c      *Client
	cancel context.CancelFunc
}

func (s *stream) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = s.c.network("bundle", err)
	}
	return n, err
}

func (s *stream) Close() error {
	defer s.cancel()
	return s.ReadCloser.Close()
}

// post sends JSON and reads a JSON answer; nil for read expects none.
func (c *Client) post(ctx context.Context, op, path string, in any, read func([]byte) error) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	want := "application/json"
	if read == nil {
		want = ""
	}
	res, err := c.do(ctx, c.small, op, http.MethodPost, path, body, want)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if read == nil {
		return nil
	}
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return c.network(op, err)
	}
	err = read(text)
	if _, ours := errors.AsType[*Error](err); err == nil || ours {
		return err
	}
	// What encoding/json says may repeat a piece of the answer, which may be a secret.
	return &Error{Class: ErrTemporary, Op: op, Status: res.StatusCode, Detail: "the answer is not the JSON it should be"}
}

// do sends one request and returns an answer with the status and the media type that was wanted; "" wants no content.
func (c *Client) do(ctx context.Context, via http.RoundTripper, op, method, path string, body []byte, want string) (*http.Response, error) {
	token := c.Token()
	if !ValidToken(token) {
		return nil, &Error{Class: ErrUnauthenticated, Op: op, Detail: "there is no token"}
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", strings.TrimPrefix(want+", application/problem+json", ", "))
	req.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: via, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		return nil, c.network(op, err)
	}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	switch {
	case res.StatusCode == http.StatusNoContent && want == "":
		return res, nil
	case res.StatusCode == http.StatusOK && want != "" && media == want:
		return res, nil
	}
	defer res.Body.Close()
	return nil, c.refused(op, res, media)
}

// network is the error of an exchange that brought no whole answer.
func (c *Client) network(op string, err error) error {
	if _, ours := errors.AsType[*Error](err); ours {
		return err
	}
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // the rest is the method and the address
	}
	return &Error{Class: ErrTemporary, Op: op, Detail: c.clean(err.Error()), Cause: err}
}

// problem is the body of an error, application/problem+json.
type problem struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

// refused classes an answer that is not what was wanted.
func (c *Client) refused(op string, res *http.Response, media string) error {
	var p problem
	if media == "application/problem+json" {
		if text, err := io.ReadAll(res.Body); err == nil {
			_ = json.Unmarshal(text, &p) // what cannot be read is as good as nothing; the status decides
		}
	}
	e := &Error{Class: classOf(res.StatusCode, p.Code), Op: op, Status: res.StatusCode, Code: cut(c.Redactor.Line(p.Code), 60), Detail: c.clean(p.Detail)}
	switch {
	case e.Class == ErrRateLimited:
		e.RetryAfter = max(ReadRetryAfter(res.Header.Get("Retry-After"), time.Now()), time.Second)
	case e.Class == ErrTemporary:
		e.RetryAfter = ReadRetryAfter(res.Header.Get("Retry-After"), time.Now())
	}
	if res.StatusCode < 400 && e.Detail == "" {
		e.Detail = fmt.Sprintf("the answer is %.60q, not of a control plane; is a portal or a proxy in between?", media)
	}
	return e
}

// CodeEnvironment is the code of a 403 by which a peer says that the token belongs to another environment.
const CodeEnvironment = "env_mismatch"

func classOf(status int, code string) error {
	switch {
	case status == http.StatusUnauthorized:
		return ErrUnauthenticated
	case status == http.StatusForbidden && code == CodeEnvironment:
		return ErrEnvironment
	case status == http.StatusForbidden:
		return ErrDenied
	case status == http.StatusNotFound:
		return ErrNotFound
	case status == http.StatusTooManyRequests:
		return ErrRateLimited
	case status == http.StatusRequestTimeout, status == http.StatusProxyAuthRequired, status < 400, status >= 500:
		return ErrTemporary
	}
	return ErrRejected
}

// ReadRetryAfter reads the header, seconds or a date; what is no sense, or past, is 0, and a day is the most.
func ReadRetryAfter(value string, now time.Time) time.Duration {
	var d time.Duration
	if s, err := strconv.ParseInt(value, 10, 64); err == nil {
		d = time.Duration(min(max(s, 0), int64(maxRetryAfter/time.Second))) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		d = at.Sub(now)
	}
	return min(max(d, 0), maxRetryAfter)
}

// ours ends an exchange whose answer belongs to another environment.
func (c *Client) ours(op, env string) error {
	if env == c.EnvID {
		return nil
	}
	return &Error{Class: ErrEnvironment, Op: op, Status: http.StatusOK, Code: CodeEnvironment,
		Detail: fmt.Sprintf("the answer is for %.40q, this box is in %s", c.clean(env), c.EnvID)}
}

const maxText = 300

func (c *Client) clean(text string) string { return cut(c.Redactor.Line(text), maxText) }

// cut shortens a text of printable characters to n bytes, whole characters.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n-len("…")], "") + "…"
}
