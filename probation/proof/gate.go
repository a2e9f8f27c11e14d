package proof

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Proofs are where the proofs about a release are looked for.
type Proofs interface {
	// Here are those on this host.
	Here(w Wanted) [][]byte
	// Beside are those that are attached to it in its registry.
	Beside(ctx context.Context, w Wanted) ([][]byte, error)
	// Keep keeps one that counts, so that the registry is not asked again.
	Keep(w Wanted, s Statement, envelope []byte) error
}

// Unproven says why a release may not be switched to; nil when it is proven as the policy requires. Only with ask, and
// only for a requirement that says so, its registry is asked.
func (p Policy) Unproven(ctx context.Context, w Wanted, from Proofs, ask bool) error {
	for _, r := range p.For(w.Service) {
		missing := r.Missing(ctx, w, from.Here(w))
		if missing != nil && r.Carry == Registry && ask && w.Repository != "" {
			missing = r.beside(ctx, w, from, missing)
		}
		if missing != nil {
			return fmt.Errorf("%s is required to be proven by %s: %w; deploy it there first, carry its proof here with toad proof put, or wait for it with --wait-proof 30m",
				w.Digests[0], r.Prover, missing)
		}
	}
	return nil
}

// beside looks for a proof beside the release in its registry, and keeps one that counts.
func (r Requirement) beside(ctx context.Context, w Wanted, from Proofs, missing error) error {
	found, err := from.Beside(ctx, w)
	if err != nil {
		return fmt.Errorf("%w; the registry could not be asked: %w", missing, err)
	}
	for _, envelope := range found {
		if err := r.Missing(ctx, w, [][]byte{envelope}); err != nil {
			missing = err
			continue
		}
		s, err := Read(envelope)
		if err != nil {
			return err
		}
		return from.Keep(w, s, envelope)
	}
	return missing
}

// Takes judges a proof that is handed over for a release: one that no requirement here would count is not taken, with
// what is wrong with it for each of them. Without a requirement its shape is enough.
func (p Policy) Takes(ctx context.Context, w Wanted, envelope []byte) (Statement, error) {
	s, err := Read(envelope)
	switch {
	case err != nil:
		return s, err
	case s.Predicate.Service != w.Service:
		return s, fmt.Errorf("it is about the service %.80s", s.Predicate.Service)
	case !slices.Contains(s.Digests(), w.Digests[0]):
		return s, fmt.Errorf("it is about %s", s.Digests()[0])
	}
	var faults []error
	for _, r := range p.For(w.Service) {
		missing := r.Missing(ctx, w, [][]byte{envelope})
		if missing == nil {
			return s, nil
		}
		faults = append(faults, missing)
	}
	return s, errors.Join(faults...)
}

// Concerns reports whether it matters here how long a service's releases run: they are proven, or a proof is required of
// them, which one that ran well here already needs no more.
func (p Policy) Concerns(service string) bool { return p.Proves(service) || len(p.For(service)) > 0 }

// After is how long a release must have run in one invocation.
func (p Policy) After() time.Duration {
	if p.Prove != nil {
		return p.Prove.After
	}
	return DefaultAfter
}

// Lifted are those services of which a proof was once required, and is not any more. once are all that it was ever
// required of; known is what that is now.
func (p Policy) Lifted(once, services []string) (known, lifted []string) {
	known = slices.Clone(once)
	for _, s := range services {
		switch required := len(p.For(s)) > 0; {
		case required && !slices.Contains(known, s):
			known = append(known, s)
		case !required && slices.Contains(known, s):
			lifted = append(lifted, s)
		}
	}
	return known, lifted
}

// Carried is how a proof is carried on from here: of a release that came by no registry there is nothing to attach it to.
func (p Prove) Carried(pulled bool) string {
	if !pulled {
		return ""
	}
	return p.Carry
}
