// Package authstore keeps the tokens of the HTTP API: nothing at rest lets anybody in, and what cannot be read lets
// nobody in.
package authstore

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Verb is one kind of thing that a token may allow.
type Verb string

const (
	Read     Verb = "read"     // look at services and their operations
	Deploy   Verb = "deploy"   // deploy, and go back
	Override Verb = "override" // with deploy: retry what is refused, change the program
)

// Verbs lists every verb.
var Verbs = []Verb{Read, Deploy, Override}

// All stands for every service, also those that are enrolled later.
const All = "*"

// Token is a credential without its secret.
type Token struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"` // for people
	Services   []string   `json:"services"`
	Verbs      []Verb     `json:"verbs"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
}

// May reports whether the token allows something on a service; All asks for every service.
func (t Token) May(verb Verb, service string) bool {
	return slices.Contains(t.Verbs, verb) && (slices.Contains(t.Services, All) || slices.Contains(t.Services, service))
}

var (
	// ErrInvalid is every token that lets nobody in. It does not say why: what is wrong with a token is a hint to who
	// guesses one.
	ErrInvalid = errors.New("the token is not valid")
	// ErrUnknown is returned by Revoke.
	ErrUnknown = errors.New("no such token")
)

const (
	idBytes     = 5  // 10 hexadecimal digits
	secretBytes = 32 // 256 random bits
	nameMost    = 60
)

var (
	idForm     = regexp.MustCompile(`^[0-9a-f]{10}$`)
	bearerForm = regexp.MustCompile(`^([0-9a-f]{10})\.([A-Za-z0-9_-]{43})$`)
)

// Parse takes a bearer token, <id>.<secret>, apart.
func Parse(bearer string) (id, secret string, ok bool) {
	m := bearerForm.FindStringSubmatch(bearer)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

// digest is what is kept of a token. A fast hash is right here: a slow one makes guessing dear where secrets are
// guessable, but nobody guesses 256 random bits, and a slow one on every request would be a way to wear the daemon out.
func digest(bearer string) [sha256.Size]byte { return sha256.Sum256([]byte(bearer)) }

// Store is the file of tokens. It is read again at each check, so a revocation counts from the next request on,
// whoever wrote it.
type Store struct {
	path string
	now  func() time.Time
	hash func(bearer string) [sha256.Size]byte
	same func(a, b []byte) int

	mu    sync.Mutex
	noted map[string]time.Time // when a use was last written down
}

// New returns the store of a file, which need not exist.
func New(path string) *Store {
	return &Store{path: path, now: time.Now, hash: digest, same: subtle.ConstantTimeCompare, noted: map[string]time.Time{}}
}

// Issue makes a token and returns it with what its holder has to send, which cannot be had again. The fields that say
// what it allows, its name and its expiry are taken from want.
func (s *Store) Issue(ctx context.Context, want Token) (t Token, bearer string, err error) {
	if err := check(want, s.now()); err != nil {
		return t, "", err
	}
	random := make([]byte, idBytes+secretBytes)
	_, _ = rand.Read(random) // it never fails
	t = Token{ID: hex.EncodeToString(random[:idBytes]), Name: want.Name, Services: want.Services, Verbs: want.Verbs,
		CreatedAt: s.now().UTC().Truncate(time.Second), ExpiresAt: want.ExpiresAt}
	bearer = t.ID + "." + base64.RawURLEncoding.EncodeToString(random[idBytes:])
	sum := s.hash(bearer)
	err = s.change(ctx, func(f *file) error {
		f.Tokens = append(f.Tokens, entry{t, hex.EncodeToString(sum[:])})
		return nil
	})
	return t, bearer, err
}

// RefusedError says what is wrong with a token that was asked for.
type RefusedError struct{ What string }

func (e *RefusedError) Error() string { return e.What }

func check(t Token, now time.Time) error {
	odd := func(r rune) bool { return !unicode.IsPrint(r) }
	switch {
	case t.Name == "" || len(t.Name) > nameMost || strings.ContainsFunc(t.Name, odd):
		return &RefusedError{fmt.Sprintf("name: want 1 to %d printable characters that say whose it is", nameMost)}
	case len(t.Services) == 0:
		return &RefusedError{"services: name at least one, or * for all"}
	case len(t.Verbs) == 0:
		return &RefusedError{"verbs: want some of read, deploy, override"}
	case t.ExpiresAt != nil && !t.ExpiresAt.After(now):
		return &RefusedError{"expires_at: it has passed already"}
	}
	for _, v := range t.Verbs {
		if !slices.Contains(Verbs, v) {
			return &RefusedError{fmt.Sprintf("verbs: %.40q is none of read, deploy, override", string(v))}
		}
	}
	return nil
}

// List returns all tokens, expired ones included, oldest first, and the names of files that were damaged and set aside.
func (s *Store) List() (tokens []Token, aside []string, err error) {
	f, err := s.read()
	if err != nil && !errors.Is(err, ErrDamaged) {
		return nil, nil, err
	}
	tokens = []Token{}
	for _, e := range f.Tokens {
		tokens = append(tokens, e.Token)
	}
	return tokens, s.aside(), nil
}

// Revoke takes a token out of force and returns what it was.
func (s *Store) Revoke(ctx context.Context, id string) (t Token, err error) {
	err = s.change(ctx, func(f *file) error {
		i := slices.IndexFunc(f.Tokens, func(e entry) bool { return e.ID == id })
		if i < 0 {
			return fmt.Errorf("%.40q: %w", id, ErrUnknown)
		}
		t = f.Tokens[i].Token
		f.Tokens = slices.Delete(f.Tokens, i, i+1)
		return nil
	})
	return t, err
}

// nobody is compared where no token has the id; no hash is all zeros.
var nobody = strings.Repeat("0", 2*sha256.Size)

// Check returns the token that a bearer is, or ErrInvalid. A wrong id costs what a wrong secret costs: the same hash is
// made and the same comparisons are, whatever was sent.
func (s *Store) Check(bearer string) (Token, error) {
	id, _, _ := Parse(bearer)
	have := s.hash(bearer)
	f, err := s.read()
	if err != nil && !errors.Is(err, ErrDamaged) {
		return Token{}, err
	}
	found := entry{Hash: nobody}
	for _, e := range f.Tokens {
		if s.same([]byte(e.ID), []byte(id)) == 1 {
			found = e
		}
	}
	var want [sha256.Size]byte
	_, damaged := hex.Decode(want[:], []byte(found.Hash))
	same := s.same(want[:], have[:]) == 1
	if !same || damaged != nil || found.ID == "" || (found.ExpiresAt != nil && !s.now().Before(*found.ExpiresAt)) {
		if err != nil {
			return Token{}, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		return Token{}, ErrInvalid
	}
	return found.Token, nil
}

// grain is how exactly the last use is kept. To note it at each request would be a flush to the disk at each request.
const grain = time.Minute

// Used notes that a request with the token was served: at most once a minute.
func (s *Store) Used(ctx context.Context, id string) error {
	now := s.now()
	s.mu.Lock()
	recent := now.Sub(s.noted[id]).Abs() < grain
	if !recent {
		s.noted[id] = now
	}
	s.mu.Unlock()
	if recent {
		return nil
	}
	at := now.UTC().Truncate(time.Second)
	err := s.change(ctx, func(f *file) error {
		for i := range f.Tokens {
			if e := &f.Tokens[i]; e.ID == id && (e.LastUsedAt == nil || at.Sub(*e.LastUsedAt).Abs() >= grain) {
				e.LastUsedAt = &at
				return nil
			}
		}
		return errNoChange // revoked meanwhile, or noted before a restart
	})
	return err
}
