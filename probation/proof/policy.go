package proof

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// Policy is what a host proves, and what it demands of releases before it switches to them.
type Policy struct {
	Prove   *Prove
	Require []Requirement
}

// Prove says that this host states what it runs well.
type Prove struct {
	Prover   string
	KeyFile  string        // of the private key; a relative one lies beside the policy
	After    time.Duration // how long a release must have run in one invocation
	Services []string      // empty: all
	Carry    string        // "" or Registry
}

// Requirement is one proof that a service's releases must have. All that name a service must be met.
type Requirement struct {
	Services []string // empty: all
	Prover   string
	Key      PublicKey
	Carry    string
}

// Registry is the way of carrying in which proofs are attached to the image.
const Registry = "registry"

// DefaultAfter is how long a release must have run before it counts as running well.
const DefaultAfter = 15 * time.Minute

// file is a policy as it is written.
type file struct {
	Prove *struct {
		Prover   string   `toml:"prover"`
		Key      string   `toml:"key"`
		After    string   `toml:"after"`
		Services []string `toml:"services"`
		Carry    string   `toml:"carry"`
	} `toml:"prove"`
	Require []struct {
		Services []string `toml:"services"`
		Prover   string   `toml:"prover"`
		Key      string   `toml:"key"`
		Carry    string   `toml:"carry"`
	} `toml:"require"`
}

// ParsePolicy reads the text of a policy file.
func ParsePolicy(text []byte) (Policy, error) {
	var f file
	var p Policy
	d := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return p, fmt.Errorf("not a policy: %s", tomlError(err))
	}
	if f.Prove != nil {
		after := DefaultAfter
		var err error
		if f.Prove.After != "" {
			after, err = time.ParseDuration(f.Prove.After)
		}
		switch {
		case err != nil || after < time.Second || after > 30*24*time.Hour:
			return p, fmt.Errorf("[prove] after %q: want a duration from 1s to 720h", f.Prove.After)
		case !proverForm.MatchString(f.Prove.Prover):
			return p, fmt.Errorf("[prove] prover %q: want a name for this host, [a-z0-9][a-z0-9.-]{0,62}", f.Prove.Prover)
		case f.Prove.Key == "":
			return p, errors.New("[prove] key: name the file that toad proof keygen wrote")
		}
		p.Prove = &Prove{f.Prove.Prover, f.Prove.Key, after, f.Prove.Services, f.Prove.Carry}
		if err := carry(f.Prove.Carry); err != nil {
			return p, fmt.Errorf("[prove] %w", err)
		}
	}
	for i, r := range f.Require {
		key, err := ParsePublic(r.Key)
		if err == nil && !proverForm.MatchString(r.Prover) {
			err = fmt.Errorf("prover %q: want the name of the host whose proof is required", r.Prover)
		}
		if err := errors.Join(err, carry(r.Carry)); err != nil {
			return p, fmt.Errorf("[[require]] %d: %w", i+1, err)
		}
		p.Require = append(p.Require, Requirement{r.Services, r.Prover, key, r.Carry})
	}
	return p, nil
}

func carry(how string) error {
	if how != "" && how != Registry {
		return fmt.Errorf("carry %q: leave it out, or say %q", how, Registry)
	}
	return nil
}

func tomlError(err error) string {
	var strict *toml.StrictMissingError
	if errors.As(err, &strict) && len(strict.Errors) > 0 {
		row, _ := strict.Errors[0].Position()
		return fmt.Sprintf("line %d: %s is no setting", row, strings.Join(strict.Errors[0].Key(), "."))
	}
	var at *toml.DecodeError
	if errors.As(err, &at) {
		row, _ := at.Position()
		return fmt.Sprintf("line %d: %s", row, strings.TrimPrefix(at.Error(), "toml: "))
	}
	return strings.TrimPrefix(err.Error(), "toml: ")
}

// Under puts a user's policy under the system's: it may add requirements, and takes none away.
func (p Policy) Under(system Policy) Policy {
	merged := Policy{Prove: system.Prove, Require: slices.Concat(system.Require, p.Require)}
	if merged.Prove == nil {
		merged.Prove = p.Prove
	}
	return merged
}

// For lists what is required of a service.
func (p Policy) For(service string) []Requirement {
	var all []Requirement
	for _, r := range p.Require {
		if len(r.Services) == 0 || slices.Contains(r.Services, service) {
			all = append(all, r)
		}
	}
	return all
}

// Proves reports whether this host states what it runs well of a service.
func (p Policy) Proves(service string) bool {
	return p.Prove != nil && (len(p.Prove.Services) == 0 || slices.Contains(p.Prove.Services, service))
}

// Wanted is the release that is to be proven.
type Wanted struct {
	Service    string
	Repository string
	Platform   string
	Digests    []string // every one it is known by
}

// Missing says what keeps a release from meeting the requirement; nil when one of the envelopes meets it. Of several that
// do not, the last one's fault is told.
func (r Requirement) Missing(ctx context.Context, w Wanted, envelopes [][]byte) error {
	missing := fmt.Errorf("it is not proven by %s yet", r.Prover)
	for _, e := range envelopes {
		err := r.meets(ctx, w, e)
		if err == nil {
			return nil
		}
		missing = fmt.Errorf("the proof that is here does not count for %s: %w", r.Prover, err)
	}
	return missing
}

func (r Requirement) meets(ctx context.Context, w Wanted, envelope []byte) error {
	s, err := Open(ctx, envelope, r.Key)
	p := s.Predicate
	switch {
	case err != nil:
		return err
	case p.Prover != r.Prover:
		return fmt.Errorf("it is of the prover %s", p.Prover)
	case p.Service != w.Service:
		return fmt.Errorf("it is about the service %s", p.Service)
	case s.Subject[0].Name != w.Repository:
		return fmt.Errorf("it is about an image of %.200s", s.Subject[0].Name)
	case !slices.ContainsFunc(s.Digests(), func(d string) bool { return slices.Contains(w.Digests, d) }):
		return fmt.Errorf("it is about %s", s.Digests()[0])
	case p.Platform != w.Platform:
		return fmt.Errorf("it was proven on %.40s, this host is %s", p.Platform, w.Platform)
	}
	return nil
}
