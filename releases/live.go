package releases

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toad/internal/atomicfile"
)

// Target is where the link of a service leads when a release is in force. It is relative, so that a state folder can move.
func (s Store) Target(id, service string) string {
	return filepath.Join("..", "releases", id, service)
}

// Link is the link of a service.
func (s Store) Link(service string) string { return filepath.Join(s.live, service) }

// laid is where the way back lies; no service can be called so.
func (s Store) laid(service string) string { return s.Link(service) + ".previous" }

// At is where a service's link leads; "" if there is none. What is not a link is an error: it is somebody's file.
func (s Store) At(service string) (string, error) {
	to, err := os.Readlink(s.Link(service))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return to, err
}

// Lay makes a link of the way back beside the one in force: to go back then needs no space. "" is no way back.
func (s Store) Lay(service, to string) error {
	at, err := os.Readlink(s.laid(service))
	if err == nil && at == to || errors.Is(err, fs.ErrNotExist) && to == "" {
		return nil
	}
	if to == "" {
		return between("unlay", func() error { return atomicfile.Remove(s.laid(service)) })
	}
	return between("lay", func() error {
		if err := atomicfile.MkdirAll(s.live, 0o700); err != nil {
			return err
		}
		return atomicfile.Link(to, s.laid(service))
	})
}

// Turn makes a service's link lead to a place, by one rename; with "" there is no link.
func (s Store) Turn(service, to string) (turned bool, err error) {
	if at, err := s.At(service); err != nil || at == to {
		return false, err
	}
	return true, between("turn", func() error {
		if to == "" {
			return atomicfile.Remove(s.Link(service))
		}
		if at, err := os.Readlink(s.laid(service)); err == nil && at == to {
			return atomicfile.Rename(s.laid(service), s.Link(service))
		}
		if err := atomicfile.MkdirAll(s.live, 0o700); err != nil {
			return err
		}
		if _, err := atomicfile.Sweep(s.live); err != nil {
			return err
		}
		return atomicfile.Link(to, s.Link(service))
	})
}

// Drop removes what writers killed half way left, and the files that nothing names: neither keep, by the sha256 of the file
// or of its manifest, nor a link. What was staged since is left alone: it may be about to be deployed.
func (s Store) Drop(keep []string, since time.Time) error {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	keep = append(slices.Clone(keep), s.linked()...)
	for _, k := range slices.Clone(keep) {
		if file, ok := s.FileOf(k); ok {
			keep = append(keep, file)
		}
	}
	for _, e := range entries {
		if e.IsDir() {
			_, bad := atomicfile.Sweep(filepath.Join(s.dir, e.Name()))
			err = errors.Join(err, bad)
		}
		id := strings.TrimSuffix(e.Name(), ".manifest")
		file, named := s.FileOf(id)
		if !hexForm.MatchString(id) || slices.Contains(keep, id) || named && slices.Contains(keep, file) {
			continue
		}
		info, bad := e.Info()
		if bad != nil || info.ModTime().After(since) {
			continue
		}
		err = errors.Join(err, between("drop", func() error { return drop(filepath.Join(s.dir, e.Name())) }))
	}
	return err
}

// linked are the files that links lead to.
func (s Store) linked() (ids []string) {
	entries, _ := os.ReadDir(s.live)
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(s.live, e.Name())); err == nil {
			ids = append(ids, filepath.Base(filepath.Dir(to)))
		}
	}
	return ids
}

func drop(path string) error {
	files, _ := os.ReadDir(path) // a manifest is no folder
	for _, f := range files {
		if err := atomicfile.Remove(filepath.Join(path, f.Name())); err != nil {
			return err
		}
	}
	return atomicfile.Remove(path)
}
