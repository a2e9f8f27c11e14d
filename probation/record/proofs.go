package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"toad/internal/atomicfile"
	"toad/probation"
)

// proofDir holds the proofs about a service's releases: <sha256>.<prover>.json for each digest that one is about.
func (s *Store) proofDir(service string) string { return filepath.Join(s.dir, "proofs", service) }

// PutProof keeps a proof by one prover about an image, under each digest that it is about. It takes the place of an
// earlier one of the same prover.
func (s *Store) PutProof(service, prover string, digests []string, envelope []byte) error {
	if err := probation.CheckServiceName(service); err != nil {
		return err
	}
	for _, d := range digests {
		if err := probation.CheckDigest(d); err != nil {
			return err
		}
	}
	if prover == "" || filepath.Base(prover) != prover || strings.HasPrefix(prover, ".") {
		return fmt.Errorf("prover %.80q is no name", prover)
	}
	dir := s.proofDir(service)
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := atomicfile.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("keep proof of %s: %w", service, err)
		}
	}
	for _, d := range digests {
		path := filepath.Join(dir, strings.TrimPrefix(d, "sha256:")+"."+prover+".json")
		if err := atomicfile.Write(path, append(envelope, '\n'), 0o600); err != nil {
			return fmt.Errorf("keep proof of %s: %w", service, err)
		}
	}
	return nil
}

// Proofs reads what is kept about a digest, by prover.
func (s *Store) Proofs(service, digest string) (map[string][]byte, error) {
	if err := errors.Join(probation.CheckServiceName(service), probation.CheckDigest(digest)); err != nil {
		return nil, err
	}
	files, err := os.ReadDir(s.proofDir(service))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read proofs of %s: %w", service, err)
	}
	found := map[string][]byte{}
	for _, f := range files {
		rest, ok := strings.CutPrefix(f.Name(), strings.TrimPrefix(digest, "sha256:")+".")
		prover, ok2 := strings.CutSuffix(rest, ".json")
		if !ok || !ok2 {
			continue
		}
		data, err := os.ReadFile(filepath.Join(s.proofDir(service), f.Name()))
		if err != nil {
			return nil, fmt.Errorf("read proofs of %s: %w", service, err)
		}
		found[prover] = data
	}
	return found, nil
}

// RequiredFile holds the services of which a proof was ever required here.
func (s *Store) RequiredFile() string { return filepath.Join(s.dir, "proofs", "required.json") }

// Required are the services of which a proof was ever required here. A file that is damaged counts as none: what is
// required now is written anew.
func (s *Store) Required() (services []string, err error) {
	data, err := os.ReadFile(s.RequiredFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && json.Unmarshal(data, &services) != nil {
		return nil, nil
	}
	return services, err
}

// PutRequired keeps them.
func (s *Store) PutRequired(services []string) error {
	if err := atomicfile.MkdirAll(filepath.Dir(s.RequiredFile()), 0o700); err != nil {
		return err
	}
	data, err := json.Marshal(services)
	if err != nil {
		return err
	}
	return atomicfile.Write(s.RequiredFile(), data, 0o600)
}
