package podmanc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"toad/internal/atomicfile"
)

// A store keeps image archives taken apart, so that releases share layers:
//
//	blobs/<sha256>      every file of every archive, once; its name is the sha256 of its bytes
//	<image id>.json     the index of one archive; it is written last, so an image is retained if its index is there
//	lock                shared by those who write or read blobs, exclusive for removing them
type store string

const indexSchema = 1

// Kinds of entries in an archive.
const (
	kindFile    = "file"
	kindDir     = "dir"
	kindSymlink = "symlink"
	kindLink    = "link"
)

// Formats of archives, as Podman's API names them.
const (
	dockerArchive = "docker-archive"
	ociArchive    = "oci-archive"
)

type index struct {
	Schema  int     `json:"schema"`
	Image   string  `json:"image"` // id, 64 hex digits
	Format  string  `json:"format"`
	Entries []entry `json:"entries"` // in the archive's order
}

type entry struct {
	Name   string `json:"name"`
	Kind   string `json:"kind"`
	Mode   int64  `json:"mode"`
	Size   int64  `json:"size,omitempty"`   // bytes; files only
	SHA256 string `json:"sha256,omitempty"` // 64 hex digits; files only
	Target string `json:"target,omitempty"` // links only
}

// parseIndex takes only what this version could have written: the names in an index become paths in the store.
func parseIndex(data []byte) (index, error) {
	var idx index
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&idx); err != nil {
		return index{}, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return index{}, errors.New("something follows the index")
	}
	switch {
	case idx.Schema != indexSchema:
		return index{}, fmt.Errorf("schema %d is not %d", idx.Schema, indexSchema)
	case !hexID.MatchString(idx.Image):
		return index{}, fmt.Errorf("%q is not an image id", idx.Image)
	case idx.Format != dockerArchive && idx.Format != ociArchive:
		return index{}, fmt.Errorf("unknown format %q", idx.Format)
	case len(idx.Entries) == 0:
		return index{}, errors.New("no entries")
	}
	seen := map[string]bool{}
	for _, e := range idx.Entries {
		if err := e.check(); err != nil {
			return index{}, fmt.Errorf("entry %q: %w", e.Name, err)
		}
		if seen[e.Name] {
			return index{}, fmt.Errorf("entry %q: twice", e.Name)
		}
		seen[e.Name] = true
	}
	return idx, nil
}

func (e entry) check() error {
	file, link := e.Kind == kindFile, e.Kind == kindSymlink || e.Kind == kindLink
	switch {
	case e.Name == "":
		return errors.New("no name")
	case !file && !link && e.Kind != kindDir:
		return fmt.Errorf("unknown kind %q", e.Kind)
	case file != hexID.MatchString(e.SHA256) || !file && e.SHA256 != "":
		return fmt.Errorf("a %s with sha256 %q", e.Kind, e.SHA256)
	case e.Size < 0 || !file && e.Size != 0:
		return fmt.Errorf("a %s of size %d", e.Kind, e.Size)
	case link != (e.Target != ""):
		return fmt.Errorf("a %s with target %q", e.Kind, e.Target)
	}
	return nil
}

func (s store) blobs() string              { return filepath.Join(string(s), "blobs") }
func (s store) blob(sum string) string     { return filepath.Join(s.blobs(), sum) }
func (s store) indexPath(id string) string { return filepath.Join(string(s), id+".json") }

// index reads the index of an image. The error is ErrNotRetained if there is none, or none that can be used.
func (s store) index(id string) (index, error) {
	if !hexID.MatchString(id) {
		return index{}, fmt.Errorf("%q is not an image id of 64 hex digits", id)
	}
	data, err := os.ReadFile(s.indexPath(id))
	if errors.Is(err, fs.ErrNotExist) {
		return index{}, fmt.Errorf("%w: %s", ErrNotRetained, id)
	}
	if err != nil {
		return index{}, err
	}
	idx, err := parseIndex(data)
	if err == nil && idx.Image != id {
		err = fmt.Errorf("it is of image %s", idx.Image)
	}
	if err != nil {
		return index{}, fmt.Errorf("%w: %s: %w", ErrNotRetained, s.indexPath(id), err)
	}
	return idx, nil
}

// whole tells whether every blob of an index is there in its size.
func (s store) whole(idx index) (bool, error) {
	for _, e := range idx.Entries {
		if e.Kind != kindFile {
			continue
		}
		if ok, err := s.has(e.SHA256, e.Size); !ok {
			return false, err
		}
	}
	return true, nil
}

func (s store) has(sum string, size int64) (bool, error) {
	info, err := os.Stat(s.blob(sum))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size() == size, err
}

// copyBlob writes a blob to w and proves it on the way. One that is not what its name says is taken away, so that the
// next Retain writes it anew.
func (s store) copyBlob(w io.Writer, e entry) error {
	f, err := os.Open(s.blob(e.SHA256))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: blob %s of %s is missing", ErrNotRetained, e.SHA256, e.Name)
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	hash := sha256.New()
	if info.Size() == e.Size {
		if _, err := io.Copy(w, io.TeeReader(f, hash)); err != nil {
			return err
		}
	}
	if info.Size() == e.Size && hex.EncodeToString(hash.Sum(nil)) == e.SHA256 {
		return nil
	}
	err = fmt.Errorf("%w: blob %s of %s is damaged", ErrNotRetained, e.SHA256, e.Name)
	return errors.Join(err, atomicfile.Remove(s.blob(e.SHA256)))
}

// Retained tells whether the image can be loaded back from the store, as far as names and sizes tell; VerifyRetained
// reads it all.
func (c *Client) Retained(storeDir, imageID string) (bool, error) {
	idx, err := store(storeDir).index(imageID)
	if errors.Is(err, ErrNotRetained) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return store(storeDir).whole(idx)
}

// VerifyRetained reads every byte of a retained image. The error is ErrNotRetained if it cannot be loaded back.
func VerifyRetained(storeDir, imageID string) error {
	s := store(storeDir)
	idx, err := s.index(imageID)
	if err != nil {
		return err
	}
	for _, e := range idx.Entries {
		if e.Kind != kindFile {
			continue
		}
		if err := s.copyBlob(io.Discard, e); err != nil {
			return fmt.Errorf("image %s: %w", imageID, err)
		}
	}
	if err := s.prove(idx); err != nil {
		return fmt.Errorf("%w: image %s: %w", ErrNotRetained, imageID, err)
	}
	return nil
}

// DropRetained removes the images that are not in keep (ids of 64 hex digits), then the blobs that no image names. While
// another process retains or loads an image, its blobs are named by no index yet, so all blobs stay until the next call.
func DropRetained(storeDir string, keep []string) error {
	s := store(storeDir)
	files, err := os.ReadDir(string(s))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range files {
		id, isIndex := strings.CutSuffix(f.Name(), ".json")
		if !isIndex || !hexID.MatchString(id) || slices.Contains(keep, id) {
			continue
		}
		if err := atomicfile.Remove(s.indexPath(id)); err != nil {
			return err
		}
	}
	lock := s.lock()
	free, err := lock.TryLock()
	if err != nil || !free {
		return err
	}
	defer func() { _ = lock.Unlock() }()
	return s.dropBlobs()
}

// dropBlobs looks at the indexes again: one may have been written before the lock was got.
func (s store) dropBlobs() error {
	named := map[string]bool{}
	files, err := os.ReadDir(string(s))
	if err != nil {
		return err
	}
	for _, f := range files {
		id, isIndex := strings.CutSuffix(f.Name(), ".json")
		if !isIndex || !hexID.MatchString(id) {
			continue
		}
		idx, err := s.index(id)
		if err != nil {
			return fmt.Errorf("blobs are left alone: %w", err)
		}
		for _, e := range idx.Entries {
			named[e.SHA256] = true
		}
	}
	blobs, err := os.ReadDir(s.blobs())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, b := range blobs {
		if !hexID.MatchString(b.Name()) || named[b.Name()] {
			continue
		}
		if err := atomicfile.Remove(s.blob(b.Name())); err != nil {
			return err
		}
	}
	for _, dir := range []string{string(s), s.blobs()} {
		if _, err := atomicfile.Sweep(dir); err != nil {
			return err
		}
	}
	return nil
}

func (s store) lock() *flock.Flock {
	return flock.New(filepath.Join(string(s), "lock"), flock.SetPermissions(0o600))
}

// share takes the store's lock with others who write or read, and makes the store if it is missing.
func (s store) share(ctx context.Context) (unlock func(), err error) {
	if err := atomicfile.MkdirAll(s.blobs(), 0o700); err != nil {
		return nil, err
	}
	lock := s.lock()
	if _, err := lock.TryRLockContext(ctx, 50*time.Millisecond); err != nil {
		return nil, fmt.Errorf("lock %s: %w", s, err)
	}
	return func() { _ = lock.Unlock() }, nil
}
