// Package bao gets a box's token and secrets from OpenBao, of its own environment only. Whatever is secret is known to the
// redactor before it is returned.
package bao

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/openbao/openbao/api/v2"

	"toad/agent/protocol"
	"toad/agent/transport"
	"toad/internal/redact"
)

// Store is what a tick needs of OpenBao. All errors are *protocol.Error of a class of package protocol.
type Store interface {
	// Token is the token in use, "" before a login.
	Token() string
	// SetToken uses a token that was kept.
	SetToken(token string)
	// Login trades a deploy grant for a token, which is in use from then on. ErrGrant: the grant is superseded, expired,
	// used, or of another role. ErrEnvironment: the token is another environment's; it is revoked and not used.
	Login(ctx context.Context, role, jwt string) (Auth, error)
	// Renew prolongs the token. ErrUnauthenticated: it is not accepted any more. A token that cannot be renewed is no
	// error; Auth says how long it lasts.
	Renew(ctx context.Context) (Auth, error)
	// Read returns the latest version of a secret of the environment. ErrNotFound: there is none, or it is deleted.
	// ErrUnauthenticated: the token is not accepted any more. ErrDenied: it is, but not for this.
	Read(ctx context.Context, name string) (Secret, error)
	// Version returns the number of the latest version and leaves the value where it is; errors as Read's.
	Version(ctx context.Context, name string) (int, error)
	// Revoke ends the token. One that is not accepted any more is no error.
	Revoke(ctx context.Context) error
}

// Auth is a token and how long it lasts.
type Auth struct {
	Token     string        // a secret; also the bearer to the control plane
	TTL       time.Duration // from now; 0: it does not end
	Renewable bool
}

// Secret is one version of a secret.
type Secret struct {
	Name    string
	Value   string // at most MaxValue bytes
	Version int    // of KV v2, from 1
}

// MaxValue is how long a secret may be; Podman's store takes no longer one.
const MaxValue = 512000

// Names of the auth mount, and of the KV v2 mount with its one field.
const (
	authMount = "jwt-tenancy"
	Mount     = "kv"
	Field     = "value"
)

const (
	maxAnswer = 4 << 20 // bytes: JSON may write a byte of a value as six
	idle      = 30 * time.Second
	timeout   = time.Minute
)

// Config is what a Client is made of.
type Config struct {
	Address  string       // https://host[:port]; http:// only where Plain says so
	Plain    bool         // as in protocol.Config
	HTTP     *http.Client // transport.Client's
	EnvID    string       // the only environment whose secrets are read
	Mount    string       // of KV v2; "": Mount
	Redactor *redact.Redactor
	Idle     time.Duration // how long the peer may send nothing; 0: 30 s
}

// Client implements Store with OpenBao's own client. It repeats nothing and reads no variable of the environment.
type Client struct {
	Config
	api *api.Client
	mu  sync.Mutex // over api's token and a login
}

var _ Store = (*Client)(nil)

// New makes a client.
func New(c Config) (*Client, error) {
	if _, err := protocol.ParseEnv(c.EnvID); err != nil {
		return nil, err
	}
	if _, err := protocol.ParseAddress(c.Address, c.Plain); err != nil {
		return nil, err
	}
	if c.Idle == 0 {
		c.Idle = idle
	}
	if c.Mount == "" {
		c.Mount = Mount
	}
	conf := api.NewConfig() // not DefaultConfig, which reads BAO_ADDR, BAO_TOKEN, BAO_SKIP_VERIFY
	if conf.Error != nil {
		return nil, conf.Error
	}
	conf.Address = c.Address
	conf.HttpClient = &http.Client{
		Transport:     jsonOnly{transport.Guard{Next: c.HTTP.Transport, Max: maxAnswer, Idle: c.Idle}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	conf.DisableRedirects = true
	conf.Timeout = timeout
	conf.MaxRetries = 0
	conf.CheckRetry = func(_ context.Context, _ *http.Response, err error) (bool, error) { return false, err }
	client, err := api.NewClient(conf)
	if err != nil {
		return nil, err
	}
	return &Client{Config: c, api: client}, nil
}

// Token implements Store.
func (c *Client) Token() string { return c.api.Token() }

// SetToken implements Store.
func (c *Client) SetToken(token string) {
	c.Redactor.Add("", token)
	c.api.SetToken(token)
}

// Login implements Store.
func (c *Client) Login(ctx context.Context, role, jwt string) (Auth, error) {
	const op = "login at OpenBao"
	c.Redactor.Add("", jwt)
	c.mu.Lock()
	defer c.mu.Unlock()
	// A login carries no token: an old one would be refused first.
	before := c.api.Token()
	c.api.ClearToken()
	s, err := c.api.Logical().WriteWithContext(ctx, "auth/"+authMount+"/login", map[string]any{"role": role, "jwt": jwt})
	if err != nil || s == nil || s.Auth == nil || s.Auth.ClientToken == "" {
		c.api.SetToken(before)
		if err == nil {
			return Auth{}, c.odd(op)
		}
		return Auth{}, c.fail(op, err, protocol.ErrGrant)
	}
	c.SetToken(s.Auth.ClientToken)
	c.Redactor.Add("", s.Auth.Accessor)
	if env := s.Auth.Metadata["env_id"]; env != c.EnvID {
		_ = c.api.Auth().Token().RevokeSelfWithContext(ctx, "") // it ends by itself too
		c.api.SetToken(before)
		return Auth{}, &protocol.Error{Class: protocol.ErrEnvironment, Op: op, Status: http.StatusOK, Code: protocol.CodeEnvironment,
			Detail: fmt.Sprintf("the token is for %.40q, this box is in %s", c.Redactor.Line(env), c.EnvID)}
	}
	return authOf(s.Auth), nil
}

func authOf(a *api.SecretAuth) Auth {
	return Auth{Token: a.ClientToken, TTL: time.Duration(max(a.LeaseDuration, 0)) * time.Second, Renewable: a.Renewable}
}

// Renew implements Store.
func (c *Client) Renew(ctx context.Context) (Auth, error) {
	const op = "renew the token"
	if err := c.ready(op); err != nil {
		return Auth{}, err
	}
	s, err := c.api.Auth().Token().RenewSelfWithContext(ctx, 0)
	if e, ok := errors.AsType[*api.ResponseError](err); ok && e.StatusCode == http.StatusBadRequest {
		return c.look(ctx) // not renewable
	}
	if err != nil {
		return Auth{}, c.fail(op, err, protocol.ErrUnauthenticated)
	}
	if s == nil || s.Auth == nil || s.Auth.ClientToken == "" {
		return Auth{}, c.odd(op)
	}
	c.SetToken(s.Auth.ClientToken)
	return authOf(s.Auth), nil
}

// look asks how long the token lasts.
func (c *Client) look(ctx context.Context) (Auth, error) {
	const op = "look at the token"
	s, err := c.api.Auth().Token().LookupSelfWithContext(ctx)
	if err != nil {
		return Auth{}, c.fail(op, err, protocol.ErrUnauthenticated)
	}
	ttl, err := s.TokenTTL()
	if err != nil || ttl < 0 {
		return Auth{}, c.odd(op)
	}
	return Auth{Token: c.Token(), TTL: ttl}, nil
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// path pins a secret to the environment: no name can lead out of its folder.
func (c *Client) path(name string) (string, error) {
	if !nameForm.MatchString(name) {
		return "", &protocol.Error{Class: protocol.ErrRejected, Op: "read a secret", Detail: fmt.Sprintf("%.80q cannot name a secret", name)}
	}
	return c.EnvID + "/" + name, nil
}

// Read implements Store.
func (c *Client) Read(ctx context.Context, name string) (Secret, error) {
	path, err := c.path(name)
	if err != nil {
		return Secret{}, err
	}
	op := "read the secret " + name
	if err := c.ready(op); err != nil {
		return Secret{}, err
	}
	s, err := c.api.KVv2(c.Mount).Get(ctx, path)
	if err != nil {
		return Secret{}, c.denied(ctx, op, err)
	}
	for _, v := range s.Data { // whatever else lies there is as secret
		if text, ok := v.(string); ok {
			c.Redactor.Add("", text)
		}
	}
	if s.Data == nil || s.VersionMetadata == nil || s.VersionMetadata.Destroyed {
		return Secret{}, &protocol.Error{Class: protocol.ErrNotFound, Op: op, Detail: "its latest version is deleted"}
	}
	value, ok := s.Data[Field].(string)
	if !ok || value == "" || len(value) > MaxValue || s.VersionMetadata.Version < 1 {
		return Secret{}, &protocol.Error{Class: protocol.ErrRejected, Op: op,
			Detail: fmt.Sprintf("it needs a field %q with a text of 1 to %d bytes", Field, MaxValue)}
	}
	c.Redactor.Add(name, value)
	return Secret{Name: name, Value: value, Version: s.VersionMetadata.Version}, nil
}

// Version implements Store.
func (c *Client) Version(ctx context.Context, name string) (int, error) {
	path, err := c.path(name)
	if err != nil {
		return 0, err
	}
	op := "look at the secret " + name
	if err := c.ready(op); err != nil {
		return 0, err
	}
	s, err := c.api.Logical().ReadWithContext(ctx, c.Mount+"/metadata/"+path)
	if err != nil {
		return 0, c.denied(ctx, op, err)
	}
	if s == nil {
		return 0, c.fail(op, api.ErrSecretNotFound, protocol.ErrRejected)
	}
	return c.latest(op, s.Data)
}

// latest reads what OpenBao says of a secret's versions, since its client panics where the answer has another shape.
func (c *Client) latest(op string, data map[string]any) (int, error) {
	current, _ := data["current_version"].(json.Number)
	n, err := strconv.Atoi(current.String())
	versions, _ := data["versions"].(map[string]any)
	v, known := versions[current.String()].(map[string]any)
	if err != nil || n < 0 || (n > 0 && !known) {
		return 0, c.odd(op)
	}
	destroyed, _ := v["destroyed"].(bool)
	deletion, _ := v["deletion_time"].(string) // ahead of now if it has an end, empty if it has none
	at, err := time.Parse(time.RFC3339, deletion)
	if deletion != "" && err != nil {
		return 0, c.odd(op)
	}
	if n == 0 || destroyed || (deletion != "" && !at.After(time.Now())) {
		return 0, &protocol.Error{Class: protocol.ErrNotFound, Op: op, Detail: "its latest version is deleted"}
	}
	return n, nil
}

// Revoke implements Store.
func (c *Client) Revoke(ctx context.Context) error {
	if c.ready("revoke the token") != nil {
		return nil
	}
	err := c.api.Auth().Token().RevokeSelfWithContext(ctx, "")
	if err != nil {
		err = c.fail("revoke the token", err, protocol.ErrUnauthenticated)
	}
	if err == nil || errors.Is(err, protocol.ErrUnauthenticated) {
		c.api.ClearToken()
		return nil
	}
	return err
}

// jsonOnly passes on answers that can be OpenBao's. What 429 and 503 say of when to come again is lost in OpenBao's
// client, so they end here.
type jsonOnly struct{ next http.RoundTripper }

// limited is an answer that says when to come again, or that is of somebody else.
type limited struct {
	class  error
	status int
	after  time.Duration
	text   string
}

func (l *limited) Error() string { return l.text }

// RoundTrip implements http.RoundTripper.
func (j jsonOnly) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := j.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	media, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	after := protocol.ReadRetryAfter(res.Header.Get("Retry-After"), time.Now())
	end := func(l *limited) (*http.Response, error) { res.Body.Close(); return nil, l }
	switch s := res.StatusCode; {
	case s == http.StatusTooManyRequests:
		return end(&limited{protocol.ErrRateLimited, s, max(after, time.Second), "rate limited"})
	case s >= 500:
		return end(&limited{protocol.ErrTemporary, s, after, "out of order"})
	case s < 400 && s != http.StatusNoContent && media != "application/json":
		return end(&limited{protocol.ErrTemporary, s, 0, "an answer that is not OpenBao's"})
	}
	return res, nil
}
