package authstore

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var ci = Token{Name: "ci", Services: []string{"web"}, Verbs: []Verb{Read, Deploy}}

func open(t *testing.T) *Store {
	t.Helper()
	return New(filepath.Join(t.TempDir(), "tokens.json"))
}

func issue(t *testing.T, s *Store, want Token) (Token, string) {
	t.Helper()
	token, bearer, err := s.Issue(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	return token, bearer
}

func content(t *testing.T, s *Store) string {
	t.Helper()
	data, err := os.ReadFile(s.path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestATokenLetsInUntilItIsRevoked(t *testing.T) {
	s := open(t)
	token, bearer := issue(t, s, ci)
	have, err := s.Check(bearer)
	if err != nil || have.ID != token.ID || have.Name != "ci" {
		t.Fatalf("have %+v, %v", have, err)
	}
	_, secret, ok := Parse(bearer)
	if !ok || strings.Contains(content(t, s), secret) {
		t.Errorf("the secret is at rest, or %q is not a token", bearer)
	}
	if info, err := os.Stat(s.path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	// Another process, as after a restart, knows it; and what it revokes is out of force here at once.
	other := New(s.path)
	if _, err := other.Check(bearer); err != nil {
		t.Error(err)
	}
	if _, err := other.Revoke(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(bearer); err != ErrInvalid {
		t.Errorf("after the revocation: %v", err)
	}
	if _, err := s.Revoke(t.Context(), token.ID); !errors.Is(err, ErrUnknown) {
		t.Errorf("a second revocation: %v", err)
	}
}

func TestWhatIsWrongWithATokenIsNotTold(t *testing.T) {
	s := open(t)
	now := time.Now()
	s.now = func() time.Time { return now }
	_, bearer := issue(t, s, ci)
	soon := now.Add(time.Hour)
	_, short := issue(t, s, Token{Name: "short", Services: []string{All}, Verbs: []Verb{Read}, ExpiresAt: &soon})
	if _, err := s.Check(short); err != nil {
		t.Fatal(err)
	}
	now = soon
	id, secret, _ := Parse(bearer)
	for name, bad := range map[string]string{
		"expired":          short,
		"a wrong secret":   id + "." + strings.Repeat("A", 43),
		"a wrong id":       "0123456789." + secret,
		"another's secret": id + "." + short[11:],
		"no dot":           id + secret,
		"empty":            "",
		"the id alone":     id + ".",
		"a blank behind":   bearer + " ",
		"a longer secret":  bearer + "A",
		"upper case":       strings.ToUpper(bearer),
		"NUL":              id + ".\x00",
	} {
		if _, err := s.Check(bad); err != ErrInvalid {
			t.Errorf("%s: want ErrInvalid alone, have %v", name, err)
		}
	}
	if _, err := s.Check(bearer); err != nil {
		t.Errorf("the good one: %v", err)
	}
}

func TestAWrongIDCostsWhatAWrongSecretCosts(t *testing.T) {
	s := open(t)
	_, bearer := issue(t, s, ci)
	issue(t, s, ci)
	id, secret, _ := Parse(bearer)
	hash, same := s.hash, s.same
	var work string
	s.hash = func(b string) [sha256.Size]byte { work += "hash "; return hash(b) }
	s.same = func(a, b []byte) int { work += fmt.Sprintf("compare %d ", len(a)); return same(a, b) }
	cost := func(bad string) string {
		work = ""
		if _, err := s.Check(bad); (err == nil) != (bad == bearer) {
			t.Fatal(err)
		}
		return work
	}
	want := cost(bearer)
	if want != "hash compare 10 compare 10 compare 32 " {
		t.Errorf("a good token: %s", want)
	}
	for _, bad := range []string{id + "." + strings.Repeat("A", 43), "0123456789." + secret, "nonsense", ""} {
		if have := cost(bad); have != want {
			t.Errorf("%q: want %s, have %s", bad, want, have)
		}
	}
}

func TestATokenAllowsWhatItNames(t *testing.T) {
	for _, c := range []struct {
		services []string
		verbs    []Verb
		verb     Verb
		service  string
		want     bool
	}{
		{[]string{"web"}, []Verb{Read}, Read, "web", true},
		{[]string{"web"}, []Verb{Read}, Deploy, "web", false},
		{[]string{"web"}, []Verb{Read, Deploy}, Read, "db", false},
		{[]string{"web", "db"}, []Verb{Deploy}, Deploy, "db", true},
		{[]string{"web"}, []Verb{Read}, Read, All, false},
		{[]string{All}, []Verb{Read}, Read, "anything", true},
		{[]string{All}, []Verb{Read}, Read, All, true},
		{nil, Verbs, Read, "web", false},
	} {
		if have := (Token{Services: c.services, Verbs: c.verbs}).May(c.verb, c.service); have != c.want {
			t.Errorf("%v on %v, asked for %s on %s: want %v, have %v", c.verbs, c.services, c.verb, c.service, c.want, have)
		}
	}
}

func TestAFaultyTokenIsNotIssued(t *testing.T) {
	s := open(t)
	past := time.Now().Add(-time.Second)
	for _, bad := range []Token{
		{Services: ci.Services, Verbs: ci.Verbs},
		{Name: "a\nb", Services: ci.Services, Verbs: ci.Verbs},
		{Name: strings.Repeat("x", 61), Services: ci.Services, Verbs: ci.Verbs},
		{Name: "ci", Verbs: ci.Verbs},
		{Name: "ci", Services: ci.Services},
		{Name: "ci", Services: ci.Services, Verbs: []Verb{"write"}},
		{Name: "ci", Services: ci.Services, Verbs: ci.Verbs, ExpiresAt: &past},
	} {
		var refused *RefusedError
		if _, _, err := s.Issue(t.Context(), bad); !errors.As(err, &refused) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := os.Stat(s.path); err == nil {
		t.Error("a file was written")
	}
}

func TestTheLastUseIsNotedOnceAMinute(t *testing.T) {
	s := open(t)
	now := time.Now()
	s.now = func() time.Time { return now }
	token, _ := issue(t, s, ci)
	use := func() string {
		if err := s.Used(t.Context(), token.ID); err != nil {
			t.Fatal(err)
		}
		return content(t, s)
	}
	first := use()
	if !strings.Contains(first, "last_used_at") {
		t.Fatal("not noted:", first)
	}
	now = now.Add(59 * time.Second)
	if use() != first {
		t.Error("noted again within a minute")
	}
	s.noted = map[string]time.Time{} // as after a restart
	if use() != first {
		t.Error("noted again within a minute, after a restart")
	}
	now = now.Add(2 * time.Minute)
	second := use()
	if second == first {
		t.Error("not noted after a minute")
	}
	if _, err := s.Revoke(t.Context(), token.ID); err != nil {
		t.Fatal(err)
	}
	now = now.Add(2 * time.Minute)
	if strings.Contains(use(), token.ID) {
		t.Error("a use brought a revoked token back")
	}
}

func TestANewerFileIsToldFromAnOlderOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.json")
	for text, want := range map[string]bool{`{"schema": 2, "tokens": {}}`: true, `{"schema": 1}`: false, `{"schema": 2`: false, "": false} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if have := New(path).Newer(); have != want {
			t.Errorf("%q: want %t, have %t", text, want, have)
		}
		if left, _ := os.ReadFile(path); string(left) != text {
			t.Errorf("%q was changed", text)
		}
	}
	if New(path + ".none").Newer() {
		t.Error("no file is newer")
	}
}

func TestADamagedFileIsSetAsideAndLetsNobodyIn(t *testing.T) {
	for name, tear := range map[string]func(string) string{
		"torn":         func(s string) string { return s[:len(s)/2] },
		"empty":        func(string) string { return "" },
		"NUL":          func(s string) string { return strings.Repeat("\x00", len(s)) },
		"newer schema": func(s string) string { return strings.Replace(s, `"schema": 1`, `"schema": 2`, 1) },
		"no id":        func(s string) string { return strings.Replace(s, `"id"`, `"di"`, 1) },
		"a short hash": func(s string) string { return strings.Replace(s, `"hash": "`, `"hash": "","h": "`, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			token, bearer := issue(t, s, ci)
			if err := os.WriteFile(s.path, []byte(tear(content(t, s))), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := s.Check(bearer)
			if !errors.Is(err, ErrInvalid) || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "tokens.json.corrupt-") {
				t.Errorf("want it named, and no entry: %v", err)
			}
			if _, err := s.Check(bearer); err != ErrInvalid {
				t.Errorf("then: %v", err)
			}
			tokens, aside, err := s.List()
			if err != nil || len(tokens) != 0 || len(aside) != 1 {
				t.Errorf("have %v, %v, %v", tokens, aside, err)
			}
			if _, again := issue(t, s, ci); again == "" {
				t.Error("no new token")
			}
			if _, err := s.Revoke(t.Context(), token.ID); !errors.Is(err, ErrUnknown) {
				t.Errorf("the old one is still there: %v", err)
			}
		})
	}
}

func TestManyWritersLoseNothing(t *testing.T) {
	s := open(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			own := New(s.path)
			token, bearer, err := own.Issue(t.Context(), ci)
			if err != nil {
				t.Error(err)
				return
			}
			if err := own.Used(t.Context(), token.ID); err != nil {
				t.Error(err)
			}
			if _, err := s.Check(bearer); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	tokens, _, err := s.List()
	if err != nil || len(tokens) != 20 {
		t.Errorf("want 20 tokens, have %d, %v", len(tokens), err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("0123456789." + strings.Repeat("A", 43))
	f.Add("")
	f.Add(".")
	f.Fuzz(func(t *testing.T, bearer string) {
		id, secret, ok := Parse(bearer)
		if ok && id+"."+secret != bearer {
			t.Errorf("%q was taken for %q and %q", bearer, id, secret)
		}
		if !ok && id+secret != "" {
			t.Errorf("%q is none, and has %q and %q", bearer, id, secret)
		}
		if _, err := New("/nowhere/tokens.json").Check(bearer); err != ErrInvalid {
			t.Errorf("%q: %v", bearer, err)
		}
	})
}
