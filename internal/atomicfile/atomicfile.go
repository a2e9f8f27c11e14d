// Package atomicfile changes files so that a crash at any instant leaves each one as it was or as it was meant to be,
// and so that a change that was reported is still there after a power cut.
//
// It is the only package of toad that writes files. A change is durable only when the folder that names the file is
// flushed too; renameio flushes the file alone and names its temporary files after the target, which for a pin would
// be neither sweepable nor told apart from the operator's own, so the few steps stand here.
package atomicfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"toad/internal/fault"
)

// tempPrefix starts the name of every temporary file. The name is hidden and ends in digits: Podman's generator makes
// a unit of any file that ends in .container, hidden or not, and systemd reads every .conf.
const tempPrefix = ".toad-tmp-"

// strayAge is how old a temporary file must be to count as left over: a younger one may belong to a process that is
// writing at this moment, and to take it away would fail that write.
const strayAge = time.Minute

// inject, when set, is asked before each step; its error takes the step's place. Tests of this package set it.
var inject func(step, path string) error

// step stands before everything that can fail on a host, or be the last thing a process does: tests fail and kill here.
func step(name, path string) error {
	if inject != nil {
		return inject(name, path)
	}
	return fault.Point("file." + name + "." + filepath.Base(path))
}

// change is what everything that takes effect goes through: tests fail and kill before and after it.
func change(before, after, path string, do func() error) error {
	if err := step(before, path); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return step(after, path)
}

// Write replaces the file at path by data, or creates it, with exactly mode whatever the umask is. Its folder must
// exist. After an error the file holds the old bytes or the new ones, never anything else.
func Write(path string, data []byte, mode fs.FileMode) error {
	return writing(path, write(path, bytes.NewReader(data), mode))
}

// WriteFrom is Write of what a reader gives. The reader's error leaves the file as it was.
func WriteFrom(path string, data io.Reader, mode fs.FileMode) error {
	return writing(path, write(path, data, mode))
}

func writing(path string, err error) error {
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func write(path string, data io.Reader, mode fs.FileMode) (err error) {
	dir := filepath.Dir(path)
	if err := step("create", path); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, tempPrefix)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // gone already when only the flush of the folder failed
		}
	}()
	if err := fill(f, path, data, mode); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := change("rename", "renamed", path, func() error { return os.Rename(f.Name(), path) }); err != nil {
		return err
	}
	return syncDir(dir)
}

// fill writes and flushes before the rename: without the flush an empty file under the final name is a valid outcome
// of a power cut.
func fill(f *os.File, path string, data io.Reader, mode fs.FileMode) error {
	if err := step("write", path); err != nil {
		return err
	}
	if _, err := io.Copy(f, data); err != nil {
		return err
	}
	if err := f.Chmod(mode); err != nil {
		return err
	}
	if err := step("sync", path); err != nil {
		return err
	}
	return f.Sync()
}

// Scratch is an empty file in dir that has no name: it is gone when it is closed, and after a crash.
func Scratch(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, tempPrefix)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// Append adds line to the end of the file at path by one write, and creates the file with mode if it is missing. The
// caller brings the newline. With sync the line is on the disk when Append returns. A full disk or a power cut can
// leave the last line cut short; readers must expect that.
func Append(path string, line []byte, mode fs.FileMode, sync bool) error {
	created := false
	err := change("append", "appended", path, func() (err error) {
		created, err = appendTo(path, line, mode, sync)
		return err
	})
	if err != nil {
		return fmt.Errorf("append to %s: %w", path, err)
	}
	if created && sync {
		return syncDir(filepath.Dir(path))
	}
	return nil
}

func appendTo(path string, line []byte, mode fs.FileMode, sync bool) (created bool, err error) {
	f, created, err := openAppend(path, mode)
	if err != nil {
		return false, err
	}
	_, err = f.Write(line)
	if err == nil && sync {
		err = f.Sync()
	}
	return created, errors.Join(err, f.Close())
}

func openAppend(path string, mode fs.FileMode) (f *os.File, created bool, err error) {
	f, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, false, err
	}
	f, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, mode)
	if err != nil {
		return nil, false, err
	}
	return f, true, f.Chmod(mode)
}

// Rename moves old to new, replacing new, and flushes both folders. It needs no space on the disk.
func Rename(old, new string) error {
	if err := change("rename", "renamed", new, func() error { return os.Rename(old, new) }); err != nil {
		return fmt.Errorf("move %s: %w", old, err)
	}
	if from, to := filepath.Dir(old), filepath.Dir(new); from != to {
		// The new name first: a file with two names is better than one with none.
		return errors.Join(syncDir(to), syncDir(from))
	}
	return syncDir(filepath.Dir(new))
}

// Link makes path a symbolic link to target, in the place of whatever file or link has that name. Whoever opens path at
// any instant reaches what it led to before or target.
func Link(target, path string) error {
	if err := link(target, path); err != nil {
		return fmt.Errorf("link %s to %s: %w", path, target, err)
	}
	return nil
}

func link(target, path string) error {
	if err := step("link", path); err != nil {
		return err
	}
	temp := filepath.Join(filepath.Dir(path), tempPrefix+strconv.FormatInt(rand.Int64(), 10))
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	if err := change("rename", "renamed", path, func() error { return os.Rename(temp, path) }); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

// Remove takes away the file or the empty folder at path. That it is missing is no error, and is made durable all the
// same: the removal may be one that was cut short.
func Remove(path string) error {
	err := change("remove", "removed", path, func() error {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("take away %s: %w", filepath.Base(path), err)
	}
	if err := syncDir(filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// MkdirAll makes the folder at path and those above it that are missing, with exactly mode, each of them durable.
// Folders that exist are left as they are.
func MkdirAll(path string, mode fs.FileMode) error {
	info, err := os.Stat(path)
	if err == nil {
		if !info.IsDir() {
			return fmt.Errorf("mkdir %s: a file of that name is in the way", path)
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(path)
	if err := MkdirAll(parent, mode); err != nil {
		return err
	}
	err = change("mkdir", "made", path, func() error {
		if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		return fmt.Errorf("make folder %s: %w", filepath.Base(path), err)
	}
	return errors.Join(syncDir(path), syncDir(parent))
}

// Private takes away all access that others have to the folder at path. One that is not the caller's own is an error: its
// owner could give the access back.
func Private(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to uid %d, and this is uid %d; chown it", path, st.Uid, os.Geteuid())
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	err = change("chmod", "chmodded", path, func() error { return os.Chmod(path, info.Mode().Perm()&0o700) })
	if err != nil {
		return fmt.Errorf("close %s to others: %w", filepath.Base(path), err)
	}
	return syncDir(path)
}

// Sweep removes the temporary files that writers killed half way left in dir, and returns their paths. It leaves
// alone what is younger than a minute, and all that this package did not make. A missing dir holds none.
func Sweep(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	var swept []string
	var errs []error
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) || !e.Type().IsRegular() && e.Type() != fs.ModeSymlink {
			continue
		}
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()).Abs() < strayAge {
			continue // gone by now, or being written
		}
		path := filepath.Join(dir, e.Name())
		if err := Remove(path); err != nil {
			errs = append(errs, err)
			continue
		}
		swept = append(swept, path)
	}
	return swept, errors.Join(errs...)
}

// Flush makes what has been renamed into a folder outlive a power cut. Every change of this package does so by itself; it
// is for what a process that died has left undone.
func Flush(dir string) error { return syncDir(dir) }

func syncDir(dir string) error {
	if err := step("syncdir", dir); err != nil {
		return fmt.Errorf("flush %s: %w", dir, err)
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("flush %s: %w", dir, err)
	}
	return nil
}
