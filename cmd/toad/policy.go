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
	if err := p.Unproven(ctx, want, proofsOf{h}, ask); err != nil {
		return err.Error()
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

// proofsOf lends to the policy the proofs that are on this host, and those that are attached to images.
type proofsOf struct{ h *host }

func (p proofsOf) Here(w proof.Wanted) [][]byte {
	var all [][]byte
	for _, d := range w.Digests {
		found, err := p.h.records.Proofs(w.Service, d)
		if err != nil {
			p.h.log.Warn("proofs cannot be read", "service", w.Service, "err", err)
		}
		for _, prover := range slices.Sorted(maps.Keys(found)) {
			all = append(all, found[prover])
		}
	}
	return all
}

func (p proofsOf) Beside(ctx context.Context, w proof.Wanted) ([][]byte, error) {
	var all [][]byte
	for _, d := range w.Digests {
		found, err := p.h.podman.Attached(ctx, w.Repository+"@"+d, proof.ArtifactType, proof.MaxEnvelope)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func (p proofsOf) Keep(w proof.Wanted, s proof.Statement, envelope []byte) error {
	return p.h.records.PutProof(w.Service, s.Predicate.Prover, s.Digests(), envelope)
}
