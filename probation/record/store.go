// Package record keeps what toad knows on disk, so that a read after any crash finds a whole record or says by name
// which one is damaged.
package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toad/internal/atomicfile"
	"toad/internal/fault"
	"toad/probation"
)

// oldest is the first version of the record files, all of which are read since.
const oldest = 1

// kept is how many operations of a service are kept, with their idempotency keys.
const kept = 100

// ErrDamaged marks a service whose record is not readable; it takes no deployment until it is repaired.
var ErrDamaged = errors.New("record is damaged")

// ErrNewer marks one that is not readable because a newer toad has written it. It is whole, so it is left where it is, for
// that one. It is ErrDamaged, too.
var ErrNewer = fmt.Errorf("%w for this version", ErrDamaged)

// ErrUnknown marks an operation without a record.
var ErrUnknown = errors.New("no such operation")

// Store is the state folder: services/, operations/, and the locks of both.
type Store struct {
	dir string
	now func() time.Time
}

// Open makes the folders of a state folder (0700), or closes those that are there to others, and returns the store.
func Open(dir string) (*Store, error) {
	for _, d := range []string{dir, filepath.Join(dir, "services"), filepath.Join(dir, "operations")} {
		if err := atomicfile.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("state folder: %w", err)
		}
		if err := atomicfile.Private(d); err != nil {
			return nil, fmt.Errorf("state folder: %w", err)
		}
	}
	return &Store{dir: dir, now: time.Now}, nil
}

// Dir is the state folder.
func (s *Store) Dir() string { return s.dir }

func (s *Store) servicePath(name string) string {
	return filepath.Join(s.dir, "services", name+".json")
}

func (s *Store) operationPath(id, ending string) string {
	return filepath.Join(s.dir, "operations", id+ending)
}

type serviceFile struct {
	Schema int `json:"schema"`
	probation.Service
}

type operationFile struct {
	Schema int `json:"schema"`
	probation.Operation
}

// Service reads a service's record. One that was never written is a new service; one that is damaged is set aside and
// is ErrDamaged from then on. One of a newer toad is ErrNewer, and stays.
func (s *Store) Service(name string) (probation.Service, error) {
	if err := probation.CheckServiceName(name); err != nil {
		return probation.Service{}, err
	}
	path := s.servicePath(name)
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if aside, _ := filepath.Glob(path + ".corrupt-*"); len(aside) > 0 {
			return probation.Service{}, fmt.Errorf("%s: %w: set aside as %s; repair it with: toad doctor --repair %s",
				name, ErrDamaged, filepath.Base(aside[len(aside)-1]), name)
		}
		return probation.Service{Name: name}, nil
	case err != nil:
		return probation.Service{}, fmt.Errorf("read record of %s: %w", name, err)
	}
	var f serviceFile
	err = decode(data, &f, &f.Schema)
	switch {
	case errors.Is(err, ErrNewer):
		return probation.Service{}, fmt.Errorf("%s: %w; put that toad back, or rebuild the record for this one with: toad doctor --repair %s", name, err, name)
	case err != nil:
		return probation.Service{}, s.setAside(name, path, err)
	case f.Name != name:
		return probation.Service{}, s.setAside(name, path, fmt.Errorf("it is the record of %q", f.Name))
	}
	return f.Service, nil
}

// SetNewerAside makes way for a record of this version, where somebody has decided not to wait for the newer toad.
func (s *Store) SetNewerAside(name string) error {
	if _, err := s.aside(s.servicePath(name)); err != nil {
		return fmt.Errorf("set the record of %s aside: %w", name, err)
	}
	return nil
}

// aside keeps a file under another name, so that nothing takes the service for a new one, and returns that name.
func (s *Store) aside(path string) (string, error) {
	aside := path + ".corrupt-" + s.now().UTC().Format("20060102T150405.000Z")
	return filepath.Base(aside), atomicfile.Rename(path, aside)
}

func (s *Store) setAside(name, path string, cause error) error {
	aside, err := s.aside(path)
	if err != nil {
		return fmt.Errorf("%s: %w: %v; it could not be set aside: %v", name, ErrDamaged, cause, err)
	}
	return fmt.Errorf("%s: %w: %v; set aside as %s; repair it with: toad doctor --repair %s", name, ErrDamaged, cause, aside, name)
}

func decode(data []byte, into any, schema *int) error {
	if len(bytes.Trim(data, "\x00 \n\t")) == 0 {
		return errors.New("empty or filled with NUL")
	}
	err := json.Unmarshal(data, into)
	if err != nil { // where another version has other fields, it says at least which one it is
		var head struct{ Schema int }
		if json.Unmarshal(data, &head) != nil {
			return err
		}
		*schema = head.Schema
	}
	switch {
	case *schema > Schema:
		return fmt.Errorf("%w: a newer toad has written it (schema %d, this one reads %d)", ErrNewer, *schema, Schema)
	case *schema < oldest:
		return fmt.Errorf("schema %d, this version reads %d to %d", *schema, oldest, Schema)
	}
	return err
}

// Sweep takes away the temporary files that writers killed half way left in the state folder, and returns their paths.
func (s *Store) Sweep() (swept []string, err error) {
	for _, d := range []string{"", "services", "operations", "alerts"} {
		found, bad := atomicfile.Sweep(filepath.Join(s.dir, d))
		swept, err = append(swept, found...), errors.Join(err, bad)
	}
	return swept, err
}

// Put saves a service with its latest operation: one write, one decision. The caller holds the service's lock.
func (s *Store) Put(svc probation.Service) error {
	phase := "none"
	if svc.Operation != nil {
		phase = string(svc.Operation.Phase)
	}
	if err := fault.Point("record.put." + phase); err != nil {
		return fmt.Errorf("save %s: %w", svc.Name, err)
	}
	data, err := json.MarshalIndent(serviceFile{Schema, svc}, "", " ")
	if err != nil {
		return fmt.Errorf("save %s: %w", svc.Name, err)
	}
	if err := atomicfile.Write(s.servicePath(svc.Name), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("save %s: %w", svc.Name, err)
	}
	return fault.Point("record.saved." + phase)
}

// Copy keeps an operation, as it is, in a file of its own. From it a service's record is rebuilt that is lost.
func (s *Store) Copy(op probation.Operation) error {
	data, err := json.MarshalIndent(operationFile{Schema, op}, "", " ")
	if err != nil {
		return fmt.Errorf("archive %s: %w", op.ID, err)
	}
	if err := atomicfile.Write(s.operationPath(op.ID, ".json"), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("archive %s: %w", op.ID, err)
	}
	return nil
}

// Archive copies a terminal operation to its own file, before the next one takes its place in the service's record,
// and drops what is older than the last hundred.
func (s *Store) Archive(op probation.Operation) error {
	if err := s.Copy(op); err != nil {
		return err
	}
	old := probation.OperationID(op.Service, op.Generation-kept)
	for _, ending := range []string{".json", ".log", ".watch.json", ".abort", ".prepare.lock"} {
		if err := atomicfile.Remove(s.operationPath(old, ending)); err != nil {
			return fmt.Errorf("drop %s: %w", old, err)
		}
	}
	return nil
}

// Operation reads an operation by id, from its service's record or from the archive.
func (s *Store) Operation(id string) (probation.Operation, error) {
	name, generation, ok := probation.ParseOperationID(id)
	if !ok {
		return probation.Operation{}, fmt.Errorf("%q: %w", id, ErrUnknown)
	}
	svc, err := s.Service(name)
	if err == nil && svc.Operation != nil && svc.Operation.Generation == generation {
		return *svc.Operation, nil
	}
	return s.archived(id)
}

func (s *Store) archived(id string) (probation.Operation, error) {
	data, err := os.ReadFile(s.operationPath(id, ".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return probation.Operation{}, fmt.Errorf("%q: %w", id, ErrUnknown)
	}
	if err != nil {
		return probation.Operation{}, fmt.Errorf("read operation %s: %w", id, err)
	}
	var f operationFile
	if err := decode(data, &f, &f.Schema); err != nil {
		return probation.Operation{}, fmt.Errorf("operation %s: %w: %v", id, ErrDamaged, err)
	}
	return f.Operation, nil
}

// Operations returns a service's operations, newest first, those below generation before (0 = from the latest) and at
// most limit of them. A damaged one is left out.
func (s *Store) Operations(name string, before, limit int) ([]probation.Operation, error) {
	svc, err := s.Service(name)
	if err != nil {
		return nil, err
	}
	var ops []probation.Operation
	for g := svc.Generation; g > 0 && g > svc.Generation-kept && len(ops) < limit; g-- {
		if before > 0 && g >= before {
			continue
		}
		if svc.Operation != nil && svc.Operation.Generation == g {
			ops = append(ops, *svc.Operation)
			continue
		}
		if op, err := s.archived(probation.OperationID(name, g)); err == nil {
			ops = append(ops, op)
		}
	}
	return ops, nil
}

// ByKey finds the operation of a service that was accepted under an idempotency key.
func (s *Store) ByKey(name, key string) (probation.Operation, bool, error) {
	ops, err := s.Operations(name, 0, kept)
	if err != nil {
		return probation.Operation{}, false, err
	}
	i := slices.IndexFunc(ops, func(op probation.Operation) bool { return op.Key == key })
	if i < 0 {
		return probation.Operation{}, false, nil
	}
	return ops[i], true, nil
}

// Names lists the services that have a record, sorted, damaged ones included.
func (s *Store) Names() ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "services"))
	if err != nil {
		return nil, fmt.Errorf("list services: %w", err)
	}
	var names []string
	for _, e := range entries {
		name, rest, ok := strings.Cut(e.Name(), ".json")
		if ok && (rest == "" || strings.HasPrefix(rest, ".corrupt-")) && probation.CheckServiceName(name) == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
