package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toad/internal/atomicfile"
	"toad/probation"
)

// SetAside lists the files of a damaged record, oldest first.
func (s *Store) SetAside(name string) ([]string, error) {
	aside, err := filepath.Glob(s.servicePath(name) + ".corrupt-*")
	slices.Sort(aside)
	return aside, err
}

// Salvage reads what is whole in a set-aside record: the generation and the refusals, and of a record that this version reads
// the releases as well. Each is zero if it is not whole.
func Salvage(name string, text []byte) probation.Service {
	var s probation.Service
	own, schema := "", 0
	field(text, "schema", &schema)
	field(text, "service", &own)
	if own != "" && own != name {
		return s
	}
	field(text, "generation", &s.Generation)
	field(text, "refusals", &s.Refusals)
	if oldest <= schema && schema <= Schema {
		field(text, "promoted", &s.Promoted)
		field(text, "retained", &s.Retained)
		field(text, "unpinned", &s.Unpinned)
	}
	return s
}

// field reads one top-level field of an indented record; it leaves into as it is where the field is not whole. Of a list
// it takes the elements that are.
func field[T any](text []byte, key string, into *T) {
	_, rest, found := bytes.Cut(text, []byte("\n \""+key+"\": "))
	if !found {
		return
	}
	var v T
	if json.NewDecoder(bytes.NewReader(rest)).Decode(&v) == nil {
		*into = v
		return
	}
	if list, ok := any(into).(*[]probation.Refusal); ok {
		*list = elements[probation.Refusal](rest)
	}
}

func elements[T any](text []byte) (whole []T) {
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil {
		return nil
	}
	for d.More() {
		var v T
		if d.Decode(&v) != nil {
			break
		}
		whole = append(whole, v)
	}
	return whole
}

// Archived returns the operations of a service that have a file of their own, oldest first, and names those that cannot
// be read.
func (s *Store) Archived(name string) (ops []probation.Operation, damaged []string, err error) {
	files, err := s.operationFiles(name)
	for _, f := range files {
		id, isRecord := strings.CutSuffix(f, ".json")
		if !isRecord || strings.HasSuffix(id, ".watch") {
			continue
		}
		op, err := s.archived(id)
		if err != nil || op.ID != id {
			damaged = append(damaged, f)
			continue
		}
		ops = append(ops, op)
	}
	slices.SortFunc(ops, func(a, b probation.Operation) int { return a.Generation - b.Generation })
	return ops, damaged, err
}

// Highest is the highest generation of which any file tells.
func (s *Store) Highest(name string) (int, error) {
	files, err := s.operationFiles(name)
	highest := 0
	for _, f := range files {
		id, _, _ := strings.Cut(f, ".")
		if _, g, ok := probation.ParseOperationID(id); ok {
			highest = max(highest, g)
		}
	}
	return highest, err
}

// Undecided is the latest operation of a service by its copy, if that was made while it was under way: all that a lost
// record leaves of a release on trial.
func (s *Store) Undecided(name string) (op probation.Operation, ok bool) {
	latest, err := s.Highest(name)
	if err != nil || latest == 0 {
		return op, false
	}
	op, err = s.archived(probation.OperationID(name, latest))
	return op, err == nil && op.Service == name && op.Generation == latest && !op.Phase.Terminal()
}

// operationFiles are the names of all files of a service's operations.
func (s *Store) operationFiles(name string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(s.dir, "operations"))
	if err != nil {
		return nil, fmt.Errorf("list operations: %w", err)
	}
	var files []string
	for _, e := range entries {
		id, _, _ := strings.Cut(e.Name(), ".")
		if service, _, ok := probation.ParseOperationID(id); ok && service == name {
			files = append(files, e.Name())
		}
	}
	return files, nil
}

// Lines are the entries of an operation's log.
func (s *Store) Lines(id string) []Line {
	raw, _, _ := s.ReadLog(id, 0)
	var lines []Line
	for _, r := range raw {
		var l Line
		if json.Unmarshal(r, &l) == nil {
			lines = append(lines, l)
		}
	}
	return lines
}

// PutRepaired saves a rebuilt record, and then keeps the damaged files under a name that counts for nothing. The caller
// holds the service's lock.
func (s *Store) PutRepaired(svc probation.Service) (kept []string, err error) {
	aside, err := s.SetAside(svc.Name)
	if err != nil {
		return nil, err
	}
	if err := s.Put(svc); err != nil {
		return nil, err
	}
	for _, old := range aside {
		name, stamp, _ := strings.Cut(old, ".json.corrupt-")
		repaired := name + ".repaired-" + stamp
		if err := atomicfile.Rename(old, repaired); err != nil {
			return kept, fmt.Errorf("keep %s: %w", filepath.Base(old), err)
		}
		kept = append(kept, repaired)
	}
	return kept, nil
}
