package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"toad/probation"
	"toad/probation/proof"
	"toad/probation/watch"
	"toad/unitgen"
)

// prove states, of every release in force that has run well for long enough, that it did; and it keeps in mind what ran
// well here, where that is asked for. It is repeated until it is stored.
func (h *host) prove(ctx context.Context) error {
	p, err := policy()
	if err != nil {
		h.log.Error("no proof is made, and no new release is taken: the proof policy cannot be read", "err", err)
		return nil
	}
	names, err := h.records.Names()
	if err != nil {
		return err
	}
	all := []error{h.nag(p, names)}
	for _, n := range names {
		if !p.Concerns(n) {
			continue
		}
		if err := h.proveService(ctx, p, n); err != nil {
			all = append(all, fmt.Errorf("prove %s: %w", n, err))
		}
	}
	return errors.Join(all...)
}

// promoted is told of each promotion, and has the proof looked for when it may be due.
func (h *host) promoted(ctx context.Context, op probation.Operation) {
	p, err := policy()
	if err != nil || !p.Concerns(op.Service) {
		return
	}
	h.rollout.ProveIn(ctx, op.ID, p.After())
}

func (h *host) proveService(ctx context.Context, p proof.Policy, name string) error {
	svc, err := h.records.Service(name)
	if err != nil || svc.Promoted == nil || svc.Promoted.Generation == 0 || svc.Active() != nil {
		return nil // a damaged one is told elsewhere
	}
	since, left, err := h.rollout.RunsWell(ctx, svc, p.After())
	if err != nil {
		h.log.Info("not proven: "+err.Error(), "service", name)
		return nil
	}
	op := probation.OperationID(name, svc.Promoted.Generation)
	if left > 0 {
		h.rollout.ProveIn(ctx, op, left)
		return nil
	}
	if err := h.rollout.KeepWell(ctx, name, svc.Promoted.Generation); err != nil {
		return err
	}
	if !p.Proves(name) || svc.Refusal(*svc.Promoted) != nil || svc.Promoted.Digest == "" {
		return nil
	}
	if have, err := h.records.Proofs(name, svc.Promoted.Digest); err != nil || have[p.Prove.Prover] != nil {
		return err
	}
	return h.mint(ctx, *p.Prove, svc, since)
}

// mint signs what was seen, and stores it last, so that whatever fails is done again.
func (h *host) mint(ctx context.Context, by proof.Prove, svc probation.Service, since time.Time) error {
	key, err := readKey(by.KeyFile)
	if err != nil {
		return err
	}
	rel, repository := *svc.Promoted, svc.Operation.Enrollment.Image
	ref := repository + "@" + rel.Digest
	digests, err := h.proves(ctx, svc)
	if err != nil {
		return err
	}
	pulled := !svc.Operation.Enrollment.Binary() || len(digests) > 1 // a file that was shipped has no artifact
	op := probation.OperationID(svc.Name, rel.Generation)
	restarts := 0
	for _, s := range h.records.Watch(op).Seen {
		restarts += max(s.Automatic, s.Invocations, s.Containers)
	}
	envelope, err := proof.Sign(ctx, proof.NewStatement(repository, digests, proof.Predicate{Service: svc.Name, Platform: platform(),
		Prover: by.Prover, Since: since.Truncate(time.Second), ProvenAt: time.Now().UTC().Truncate(time.Second), StableFor: by.After.String(), Restarts: restarts,
		Version: version}), key)
	if err != nil {
		return err
	}
	if by.Carried(pulled) == proof.Registry {
		if err := h.podman.Attach(ctx, ref, proof.ArtifactType, envelope); err != nil {
			return err
		}
	}
	if err := h.records.PutProof(svc.Name, by.Prover, digests, envelope); err != nil {
		return err
	}
	h.log.Info("proven: "+rel.Digest+" ran well here for "+by.After.String(), "service", svc.Name, "operation", op, "prover", by.Prover)
	return nil
}

// proves are the digests of what is in force, each computed from bytes: of an image those of its manifests, of a file its
// sha256 first, which is that of what runs, and then that of the artifact it came by.
func (h *host) proves(ctx context.Context, svc probation.Service) ([]string, error) {
	rel, ref := *svc.Promoted, svc.Operation.Enrollment.Image+"@"+svc.Promoted.Digest
	if svc.Operation.Enrollment.Binary() {
		file := "sha256:" + rel.ImageID
		if of, named := h.releases.FileOf(strings.TrimPrefix(rel.Digest, "sha256:")); named && of == rel.ImageID {
			return []string{file, rel.Digest}, nil
		}
		return []string{file}, nil
	}
	digests, id, err := h.podman.Manifest(ctx, ref)
	if err == nil && id != rel.ImageID {
		err = fmt.Errorf("%s is image %.12s in the registry, but %.12s runs here", ref, id, rel.ImageID)
	}
	return digests, err
}

// ready probes a unit once.
func (h *host) ready(ctx context.Context, r probation.Ready, st unitgen.State) (bool, string) {
	return watch.Look(ctx, r, []string{st.Name}, h.bus, containers{h.podman}, runsAs)
}

// readKey reads a private key that nobody else can read.
func readKey(path string) (proof.PrivateKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return proof.PrivateKey{}, fmt.Errorf("key of [prove]: %w; make one with: toad proof keygen %s", err, path)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return proof.PrivateKey{}, fmt.Errorf("key of [prove]: %s can be read by others; chmod 600 %[1]s", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return proof.PrivateKey{}, fmt.Errorf("key of [prove]: %w", err)
	}
	key, err := proof.ParsePrivate(text)
	if err != nil {
		return key, fmt.Errorf("key of [prove]: %s: %w", path, err)
	}
	return key, nil
}

// nag says every hour which services were once held to proofs and are no more. To take a requirement away is the way
// around it in an emergency; it is not to be forgotten.
func (h *host) nag(p proof.Policy, names []string) error {
	once, err := h.records.Required()
	if err != nil {
		return err
	}
	known, lifted := p.Lifted(once, names)
	if len(lifted) > 0 {
		h.log.Warn("no proof is required any more of "+strings.Join(lifted, ", ")+"; put the [[require]] entry back, or, if that is for good, remove "+h.records.RequiredFile(),
			"event", "proof_not_required")
	}
	if len(known) == len(once) {
		return nil
	}
	return h.records.PutRequired(known)
}
