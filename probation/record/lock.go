package record

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"toad/internal/atomicfile"
)

// ErrLocked marks a lock that somebody else holds.
var ErrLocked = errors.New("lock is held")

// Locks are taken in this order: serve, a service, reload. They are flocks: the kernel frees a dead holder's.

// LockServe makes the caller the one daemon on this state folder; the error names the holder.
func (s *Store) LockServe() (unlock func(), err error) {
	path := filepath.Join(s.dir, "serve.lock")
	l := flock.New(path, flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	if !ok {
		holder, _ := os.ReadFile(path)
		return nil, fmt.Errorf("%w: another toad serve (%s) runs on %s", ErrLocked, strings.TrimSpace(string(holder)), s.dir)
	}
	if err := flush(filepath.Join(s.dir, "services")); err != nil { // as after a holder of Lock that died
		_ = l.Unlock()
		return nil, err
	}
	// The pid is for people; the flock is what holds, so a torn write does no harm.
	holder := fmt.Sprintf("pid %d\n", os.Getpid())
	if os.Getpid() == 1 { // the number that all first processes of containers have
		holder = "in a container\n"
	}
	_ = os.WriteFile(path, []byte(holder), 0o600)
	return func() { _ = l.Unlock() }, nil
}

// flush stands for atomicfile.Flush; a test of this package counts it.
var flush = atomicfile.Flush

// Lock waits for the lock of a service. A holder that died may have replaced the record and not have flushed that: it is
// flushed here, since nothing may follow from what a power cut can still undo.
func (s *Store) Lock(ctx context.Context, name string) (unlock func(), err error) {
	file := filepath.Join("services", name+".lock")
	release, err := s.lock(ctx, file)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(s.dir, file)
	if info, err := os.Stat(path); err == nil && info.Size() > 0 {
		if err := flush(filepath.Dir(path)); err != nil {
			release()
			return nil, err
		}
	}
	// The pid stands in the file while the lock is held, and so as long as its holder is dead.
	_ = os.WriteFile(path, fmt.Appendf(nil, "%d\n", os.Getpid()), 0o600)
	return func() {
		_ = os.Truncate(path, 0)
		release()
	}, nil
}

// LockReload waits for the lock under which pins are written, the manager reloads and the units are read back.
func (s *Store) LockReload(ctx context.Context) (unlock func(), err error) {
	return s.lock(ctx, "reload.lock")
}

// LockPrepare takes the lock of an operation's preparation; ErrLocked if another act prepares it.
func (s *Store) LockPrepare(id string) (unlock func(), err error) {
	l := flock.New(s.operationPath(id, ".prepare.lock"), flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("lock preparation of %s: %w", id, err)
	}
	if !ok {
		return nil, fmt.Errorf("preparation of %s: %w", id, ErrLocked)
	}
	return func() { _ = l.Unlock() }, nil
}

func (s *Store) lock(ctx context.Context, name string) (func(), error) {
	l := flock.New(filepath.Join(s.dir, name), flock.SetPermissions(0o600))
	ok, err := l.TryLockContext(ctx, 5*time.Millisecond)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	if !ok {
		return nil, fmt.Errorf("lock %s: %w", name, ErrLocked)
	}
	return func() { _ = l.Unlock() }, nil
}
