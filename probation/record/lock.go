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
		return nil, fmt.Errorf("%w: another toad serve (pid %s) runs on %s", ErrLocked, strings.TrimSpace(string(holder)), s.dir)
	}
	// The pid is for people; the flock is what holds, so a torn write does no harm.
	_ = os.WriteFile(path, fmt.Appendf(nil, "%d\n", os.Getpid()), 0o600)
	return func() { _ = l.Unlock() }, nil
}

// Lock waits for the lock of a service.
func (s *Store) Lock(ctx context.Context, name string) (unlock func(), err error) {
	return s.lock(ctx, filepath.Join("services", name+".lock"))
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
