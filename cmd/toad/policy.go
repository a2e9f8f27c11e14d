package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"toad/probation"
	"toad/probation/proof"
)

const policyFile = "proof-policy.toml"

// systemPolicy is root's; a user's policy can add to what it requires, and take nothing away.
const systemPolicy = "/etc/toad/" + policyFile

func userPolicy() string { return filepath.Join(configHome(), "toad", policyFile) }

// policy reads both policies afresh: what is decided is decided by what they say now. None is no policy.
func policy() (proof.Policy, error) {
	system, err := readPolicy(systemPolicy)
	if err != nil {
		return proof.Policy{}, err
	}
	user, err := readPolicy(userPolicy())
	return user.Under(system), err
}

func readPolicy(path string) (proof.Policy, error) {
	var p proof.Policy
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	if info.Mode().Perm()&0o022 != 0 {
		return p, fmt.Errorf("%s can be written by others; chmod go-w %[1]s", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return p, err
	}
	if p, err = proof.ParsePolicy(text); err != nil {
		return p, fmt.Errorf("%s: %w", path, err)
	}
	if p.Prove != nil && !filepath.IsAbs(p.Prove.KeyFile) {
		p.Prove.KeyFile = filepath.Join(filepath.Dir(path), p.Prove.KeyFile)
	}
	return p, nil
}

func platform() string { return "linux/" + runtime.GOARCH }

// unproven says what keeps a release from being switched to until it is proven. A policy that cannot be read holds every
// new release back, and nothing else.
func (h *host) unproven(ctx context.Context, op probation.Operation, rel probation.Release, ask bool) string {
	p, err := policy()
	if err != nil {
		return "the proof policy cannot be read, so no new release is taken: " + err.Error()
	}
	want := proof.Wanted{Service: op.Service, Repository: op.Enrollment.Image, Platform: platform(), Digests: digestsOf(rel)}
	for _, req := range p.For(op.Service) {
		missing := req.Missing(ctx, want, h.proofs(want))
		if missing != nil && req.Carry == proof.Registry && ask && want.Repository != "" {
			missing = h.fetchProof(ctx, req, want, missing)
		}
		if missing != nil {
			return fmt.Sprintf("%s is required to be proven by %s: %v; deploy it there first, carry its proof here with toad proof put, or wait for it with --wait-proof 30m",
				rel.Digest, req.Prover, missing)
		}
	}
	return ""
}

func digestsOf(rel probation.Release) []string {
	all := slices.Clone(rel.Digests)
	if rel.Digest != "" && !slices.Contains(all, rel.Digest) {
		all = append([]string{rel.Digest}, all...)
	}
	return all
}

// proofs are the proofs on this host about a release.
func (h *host) proofs(w proof.Wanted) [][]byte {
	var all [][]byte
	for _, d := range w.Digests {
		found, err := h.records.Proofs(w.Service, d)
		if err != nil {
			h.log.Warn("proofs cannot be read", "service", w.Service, "err", err)
		}
		for _, prover := range slices.Sorted(maps.Keys(found)) {
			all = append(all, found[prover])
		}
	}
	return all
}

// fetchProof looks for a proof beside the image in its registry. One that counts is kept; else it says what is missing.
func (h *host) fetchProof(ctx context.Context, req proof.Requirement, w proof.Wanted, missing error) error {
	for _, d := range w.Digests {
		found, err := h.podman.Attached(ctx, w.Repository+"@"+d, proof.ArtifactType, proof.MaxEnvelope)
		if err != nil {
			return fmt.Errorf("%w; the registry could not be asked: %w", missing, err)
		}
		for _, envelope := range found {
			if err := req.Missing(ctx, w, [][]byte{envelope}); err != nil {
				missing = err
				continue
			}
			s, err := proof.Read(envelope)
			if err == nil {
				err = h.records.PutProof(w.Service, s.Predicate.Prover, s.Digests(), envelope)
			}
			return err
		}
	}
	return missing
}
