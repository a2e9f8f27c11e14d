// Package control is a control plane and an OpenBao-shaped server for tests, over real HTTPS with a CA of its own. They
// behave: an environment sees only what is its own, a newer grant supersedes the older, tokens end, leases and check-ins
// have a budget, and each route can be made to fail in the ways that networks and servers do.
package control

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"toad/agent/protocol"
)

// Env is one environment as its operator has set it up.
type Env struct {
	Published     string            // bundle_sha; empty: nothing is published
	Action        protocol.Action   // what is told instead of apply and none; empty: what Published makes of it
	AllowRollback bool              //
	Purge         bool              // with the action down
	Variables     map[string]string //
	LeaseBody     string            // a reply to lease that is sent as it is, such as one of another shape
	Leases        int               // an hour for each box; 0: 5
	CheckIns      int               // a minute for each box; 0: as many as come
	TokenTTL      time.Duration     // 0: an hour
	TokenMaxTTL   time.Duration     // 0: a day
	GrantTTL      time.Duration     // 0: ten minutes
	SingleUse     bool              // a grant is good for one login; OpenBao itself takes a JWT until it expires
}

// CheckIn is one that was answered.
type CheckIn struct {
	protocol.CheckIn
	At     time.Time
	Answer protocol.Answer
}

// Report is one that was taken; a second of the same id is not.
type Report struct {
	protocol.Report
	At time.Time
}

// Lease is one that was asked for.
type Lease struct {
	protocol.LeaseRequest
	At     time.Time
	Status int // 200, or 429 when the budget is spent
}

// Request is one that came in, whatever became of it.
type Request struct {
	At     time.Time
	Server string // "control" or "bao"
	Method string
	Path   string
	EnvID  string // of the bearer; empty if there is none
	Box    string
	Status int
}

// World is what both servers know. Its methods may be called while they serve.
type World struct {
	mu       sync.Mutex
	changed  chan struct{}
	clock    func() time.Time
	skew     time.Duration
	signing  ed25519.PrivateKey
	ca       *authority
	envs     map[string]*Env
	bundles  map[string]map[string][]byte // by environment and sha
	kv       map[string][]version         // by environment/name
	grants   map[string]*grant            // by JWT
	tokens   map[string]*token            // by itself
	faults   []*Fault
	secrets  map[string]bool
	leases   []Lease
	checkIns []CheckIn
	reports  []Report
	requests []Request
}

type grant struct {
	env, box         string
	expires          time.Time
	used, superseded bool
}

type token struct {
	env, box, accessor string
	policies           []string
	expires, last      time.Time // now, and at most
	revoked            bool
	replaced           bool // by a later login of the same box
}

type version struct {
	value            string
	created, deleted time.Time
}

// New makes a world without environments.
func New() *World {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		panic(err)
	}
	return &World{clock: time.Now, changed: make(chan struct{}), signing: key, ca: newAuthority(), envs: map[string]*Env{},
		bundles: map[string]map[string][]byte{}, kv: map[string][]version{}, grants: map[string]*grant{}, tokens: map[string]*token{}, secrets: map[string]bool{}}
}

// Set makes an environment, or changes it.
func (w *World) Set(id string, change func(*Env)) {
	if _, err := protocol.ParseEnv(id); err != nil {
		panic(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w.env(id))
}

func (w *World) env(id string) *Env {
	e := w.envs[id]
	if e == nil {
		e = &Env{}
		w.envs[id] = e
	}
	return e
}

// Publish makes a bundle the one that the environment's boxes are told of. The tar is served under this sha, whatever
// it holds. What was published before is still there to be fetched.
func (w *World) Publish(env, sha string, tar []byte) {
	w.Set(env, func(e *Env) {
		e.Published = sha
		if w.bundles[env] == nil {
			w.bundles[env] = map[string][]byte{}
		}
		w.bundles[env][sha] = tar
	})
}

// PutSecret writes a new version of a secret, and returns its number.
func (w *World) PutSecret(env, name, value string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := env + "/" + name
	w.kv[key] = append(w.kv[key], version{value: value, created: w.now()})
	w.secrets[value] = true
	return len(w.kv[key])
}

// DeleteSecret deletes the latest version of a secret; its history stays.
func (w *World) DeleteSecret(env, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := w.kv[env+"/"+name]
	v[len(v)-1].deleted = w.now()
}

// Grant makes a deploy grant, as an operator has one made to bootstrap a box. It supersedes the box's grants before it.
func (w *World) Grant(env, box string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.grant(env, box)
}

func (w *World) grant(env, box string) string {
	for _, g := range w.grants {
		if g.env == env && g.box == box {
			g.superseded = true
		}
	}
	expires := w.now().Add(or(w.env(env).GrantTTL, 10*time.Minute))
	jwt := w.sign(map[string]any{"iss": "control.test", "aud": "openbao", "sub": env + ":" + box, "env_id": env, "box": box,
		"exp": expires.Unix(), "jti": random(12)})
	w.grants[jwt] = &grant{env: env, box: box, expires: expires}
	w.secrets[jwt] = true
	return jwt
}

// Expire ends the tokens of a box now; all boxes of the environment for "". They can still ask for a lease.
func (w *World) Expire(env, box string) { w.each(env, box, func(t *token) { t.expires = w.now() }) }

// Remove revokes the tokens of a box: it is no box of the environment any more.
func (w *World) Remove(env, box string) { w.each(env, box, func(t *token) { t.revoked = true }) }

// Restrict takes from the tokens of a box the right to read secrets, and leaves them valid.
func (w *World) Restrict(env, box string) { w.each(env, box, func(t *token) { t.policies = nil }) }

func (w *World) each(env, box string, change func(*token)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.tokens {
		if t.env == env && (box == "" || t.box == box) {
			change(t)
		}
	}
}

// Advance lets the servers' clock go ahead.
func (w *World) Advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.skew += d
}

// SetClock has the servers read another clock than the host's.
func (w *World) SetClock(now func() time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = now
}

func (w *World) now() time.Time { return w.clock().Add(w.skew) }

// Secrets is every value, grant, token and accessor there ever was: what must be found nowhere on a box but where it belongs.
func (w *World) Secrets() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.secrets))
}

// Live is the number of tokens of a box that are still accepted.
func (w *World) Live(env, box string) (n int) {
	w.each(env, box, func(t *token) {
		if t.valid(w.now()) {
			n++
		}
	})
	return n
}

// CheckIns are those of a box, all boxes for "", in order.
func (w *World) CheckIns(env, box string) []CheckIn {
	return of(w, &w.checkIns, func(c CheckIn) bool { return c.EnvID == env && (box == "" || c.Box == box) })
}

// Reports are those of a box, all boxes for "", in order.
func (w *World) Reports(env, box string) []Report {
	return of(w, &w.reports, func(r Report) bool { return r.EnvID == env && (box == "" || r.Box == box) })
}

// Leases are those a box has asked for with a good bearer, all boxes for "", in order.
func (w *World) Leases(env, box string) []Lease {
	return of(w, &w.leases, func(l Lease) bool { return l.EnvID == env && (box == "" || l.Box == box) })
}

// Requests are those whose method and path, as "POST /v1/agent/lease", hold a text, in order.
func (w *World) Requests(holding string) []Request {
	return of(w, &w.requests, func(r Request) bool { return strings.Contains(r.Method+" "+r.Path, holding) })
}

func of[T any](w *World, all *[]T, want func(T) bool) (list []T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range *all {
		if want(v) {
			list = append(list, v)
		}
	}
	return list
}

// Await waits until f holds, looking anew after each request. f may call the methods above.
func (w *World) Await(ctx context.Context, f func() bool) error {
	for {
		w.mu.Lock()
		next := w.changed
		w.mu.Unlock()
		if f() {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("%w; %d check-ins, %d reports so far", context.Cause(ctx), len(of(w, &w.checkIns, func(CheckIn) bool { return true })), len(of(w, &w.reports, func(Report) bool { return true })))
		}
	}
}
