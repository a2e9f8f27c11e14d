package authstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"toad/internal/atomicfile"
)

// ErrDamaged says that the file could not be read and was set aside: no token that it held is valid any more.
var ErrDamaged = errors.New("the file of tokens was damaged")

// errNoChange ends a change without a write.
var errNoChange = errors.New("nothing to change")

const schema = 1

type file struct {
	Schema int     `json:"schema"`
	Tokens []entry `json:"tokens"`
}

type entry struct {
	Token
	Hash string `json:"hash"` // SHA-256 of <id>.<secret>, in hexadecimal digits
}

// read returns what the file holds. One that is torn, of a newer schema or with a nonsensical entry is set aside as a
// whole: a token that was revoked must not come back with half a file.
func (s *Store) read() (file, error) {
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return file{Schema: schema}, nil
	}
	if err != nil {
		return file{}, fmt.Errorf("read tokens: %w", err)
	}
	f, err := decode(data)
	if err == nil {
		return f, nil
	}
	aside := s.path + ".corrupt-" + s.now().UTC().Format("20060102T150405Z")
	if moved := atomicfile.Rename(s.path, aside); moved != nil && !errors.Is(moved, fs.ErrNotExist) {
		return file{Schema: schema}, fmt.Errorf("%w: %v; it could not be set aside: %v", ErrDamaged, err, moved)
	}
	return file{Schema: schema}, fmt.Errorf("%w: %v; set aside as %s; issue new tokens", ErrDamaged, err, filepath.Base(aside))
}

// Newer reports whether a newer toad has written the file. It changes nothing.
func (s *Store) Newer() bool {
	data, err := os.ReadFile(s.path)
	var head struct{ Schema int }
	return err == nil && json.Unmarshal(data, &head) == nil && head.Schema > schema
}

func decode(data []byte) (f file, err error) {
	if len(bytes.Trim(data, "\x00 \n\t")) == 0 {
		return f, errors.New("empty or filled with NUL")
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return f, err
	}
	if f.Schema != schema {
		return f, fmt.Errorf("schema %d, this version reads %d", f.Schema, schema)
	}
	for _, e := range f.Tokens {
		if !idForm.MatchString(e.ID) || len(e.Hash) != 64 {
			return f, fmt.Errorf("%.40q is not a token", e.ID)
		}
	}
	return f, nil
}

// aside lists damaged files by name.
func (s *Store) aside() (names []string) {
	paths, _ := filepath.Glob(s.path + ".corrupt-*")
	for _, p := range paths {
		names = append(names, filepath.Base(p))
	}
	return names
}

// change reads, changes and replaces the file under a lock. A damaged file is as good as an empty one here.
func (s *Store) change(ctx context.Context, do func(*file) error) error {
	l := flock.New(s.path+".lock", flock.SetPermissions(0o600))
	ok, err := l.TryLockContext(ctx, 5*time.Millisecond)
	if err != nil || !ok {
		return fmt.Errorf("lock tokens: %w", errors.Join(err, ctx.Err()))
	}
	defer func() { _ = l.Unlock() }()
	f, err := s.read()
	if err != nil && !errors.Is(err, ErrDamaged) {
		return err
	}
	switch err := do(&f); {
	case errors.Is(err, errNoChange):
		return nil
	case err != nil:
		return err
	}
	data, err := json.MarshalIndent(f, "", " ")
	if err != nil {
		return fmt.Errorf("save tokens: %w", err)
	}
	if err := atomicfile.Write(s.path, append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("save tokens: %w", err)
	}
	return nil
}
