// Package releases keeps the files of binary services, each under the sha256 of its bytes, and hands none out whose bytes
// have changed.
package releases

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"toad/internal/atomicfile"
	"toad/internal/fault"
)

// MaxFile is how large a release may be, in bytes.
const MaxFile = 512 << 20

// ErrNone marks a file that is not staged, or whose bytes are not those of its name any more.
var ErrNone = errors.New("is not staged here")

// Store is the folder of all staged files, <sha256>/<service>, and the folder of the links that units run.
type Store struct{ dir, live string }

// In is the store of a state folder.
func In(state string) Store {
	return Store{filepath.Join(state, "releases"), filepath.Join(state, "live")}
}

// copyName is the second copy of a release that is kept to go back to; no service can be called so.
const copyName = "kept.copy"

var hexForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Path is where a service's file of this sha256 lies.
func (s Store) Path(id, service string) string { return filepath.Join(s.dir, id, service) }

func (s Store) copy(id string) string { return filepath.Join(s.dir, id, copyName) }

// between passes a fault point before and after something that changes the store.
func between(what string, do func() error) error {
	if err := fault.Point("release." + what + ".before"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return fault.Point("release." + what + ".after")
}

// Check reads a staged file and holds its bytes against its name. ErrNone says that it is not to be run.
func (s Store) Check(id, service string) error { return check(s.Path(id, service), id) }

func check(path, id string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the file of sha256 %.12s %w", id, ErrNone)
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return fmt.Errorf("read the file of sha256 %.12s: %w", id, err)
	}
	if have := hex.EncodeToString(sum.Sum(nil)); have != id {
		return fmt.Errorf("the file of sha256 %.12s %w: its bytes have changed, their sha256 is %.12s", id, ErrNone, have)
	}
	return nil
}

// Stage takes a file in, if its bytes are those of its name and a program of this machine; else nothing is left. One that
// is staged already is replaced by the same bytes, so that it counts as new.
func (s Store) Stage(id, service string, from io.Reader) error {
	if !hexForm.MatchString(id) {
		return fmt.Errorf("%.80q is not a sha256", id)
	}
	v := &verifier{from: from, sum: sha256.New(), want: id}
	path := s.Path(id, service)
	return between("stage", func() error {
		if err := atomicfile.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := atomicfile.WriteFrom(path, v, 0o700); err != nil {
			_ = os.Remove(filepath.Dir(path)) // if it is empty
			return err
		}
		return nil
	})
}

// verifier ends with an error if what it has passed on does not have the sha256 that it should.
type verifier struct {
	from io.Reader
	sum  hash.Hash
	want string
	n    int64
	head []byte
}

func (v *verifier) Read(p []byte) (int, error) {
	n, err := v.from.Read(p)
	v.sum.Write(p[:n])
	if room := headBytes - len(v.head); room > 0 {
		v.head = append(v.head, p[:min(n, room)]...)
	}
	if v.n += int64(n); v.n > MaxFile {
		return n, &NotAReleaseError{What: fmt.Sprintf("is larger than %d MiB", MaxFile>>20)}
	}
	if err != io.EOF {
		return n, err
	}
	if have := hex.EncodeToString(v.sum.Sum(nil)); have != v.want {
		return n, &NotAReleaseError{What: fmt.Sprintf("has the sha256 %.12s, not %.12s", have, v.want)}
	}
	if err := runsHere(v.head); err != nil {
		return n, err
	}
	return n, io.EOF
}

// NotAReleaseError says what is wrong with bytes that were to be staged.
type NotAReleaseError struct {
	What     string
	Platform bool // it is a program of another machine
}

func (e *NotAReleaseError) Error() string { return "the file " + e.What }

// Keep makes the second copy, from which a file that was damaged or removed comes back.
func (s Store) Keep(id, service string) error {
	if kept, err := s.Kept(id); kept || err != nil {
		return err
	}
	f, err := os.Open(s.Path(id, service))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return between("keep", func() error {
		return atomicfile.WriteFrom(s.copy(id), &verifier{from: f, sum: sha256.New(), want: id}, 0o600)
	})
}

// Kept reports whether there is a second copy, whole.
func (s Store) Kept(id string) (bool, error) {
	err := check(s.copy(id), id)
	if errors.Is(err, ErrNone) {
		return false, nil
	}
	return err == nil, err
}

// Mend brings a file back from its second copy. One that cannot be brought back is set aside, so that nothing runs it.
func (s Store) Mend(id, service string) error {
	err := s.mend(id, service)
	if err == nil {
		return nil
	}
	path := s.Path(id, service)
	if _, bad := os.Lstat(path); bad == nil {
		err = errors.Join(err, atomicfile.Rename(path, path+".damaged"))
	}
	return err
}

func (s Store) mend(id, service string) error {
	f, err := os.Open(s.copy(id))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the file of sha256 %.12s %w, and no copy of it is kept", id, ErrNone)
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return s.Stage(id, service, f)
}

// PutManifest notes an artifact's manifest, which has this sha256; it names the file.
func (s Store) PutManifest(id string, raw []byte) error {
	if err := atomicfile.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	return between("manifest", func() error { return atomicfile.Write(s.manifest(id), raw, 0o600) })
}

func (s Store) manifest(id string) string { return filepath.Join(s.dir, id+".manifest") }

// FileOf tells the sha256 of the file of an artifact, by a manifest that was noted.
func (s Store) FileOf(id string) (file string, ok bool) {
	raw, err := os.ReadFile(s.manifest(id))
	if err != nil {
		return "", false
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != id {
		return "", false
	}
	return fileOf(raw)
}

func fileOf(manifest []byte) (file string, ok bool) {
	var m struct{ Layers []struct{ Digest string } }
	if json.Unmarshal(manifest, &m) != nil || len(m.Layers) != 1 {
		return "", false
	}
	file, ok = strings.CutPrefix(m.Layers[0].Digest, "sha256:")
	return file, ok && hexForm.MatchString(file)
}

// File is a staged file.
type File struct {
	ID   string // its sha256
	Path string
	Size int64 // bytes
}

// Find looks a staged file up by its sha256, or by the digest of the file or of its artifact.
func (s Store) Find(id, digest string) (f File, staged bool) {
	if id == "" {
		id = strings.TrimPrefix(digest, "sha256:")
		if file, ok := s.FileOf(id); ok {
			id = file
		}
	}
	if !hexForm.MatchString(id) {
		return f, false
	}
	files, _ := os.ReadDir(filepath.Join(s.dir, id))
	for _, e := range files {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && !strings.Contains(e.Name(), ".") {
			return File{id, filepath.Join(s.dir, id, e.Name()), info.Size()}, true
		}
	}
	return f, false
}
