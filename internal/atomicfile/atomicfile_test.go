package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var errFault = errors.New("injected")

// failAt makes the given step fail for the rest of the test.
func failAt(t *testing.T, name string) {
	t.Helper()
	inject = func(step, _ string) error {
		if step == name {
			return errFault
		}
		return nil
	}
	t.Cleanup(func() { inject = nil })
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestWriteReplacesTheWholeFileAndLeavesNothingBeside(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.json")
	for _, data := range []string{"a long first version", "short", ""} {
		if err := Write(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
		if have := read(t, path); have != data {
			t.Errorf("want %q, have %q", data, have)
		}
	}
	if have := names(t, dir); !reflect.DeepEqual(have, []string{"a.json"}) {
		t.Errorf("left beside: %q", have)
	}
}

func TestModesAreAsGivenWhateverTheUmask(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	path := filepath.Join(dir, "x", "y", "pin.conf")
	if err := MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "x", "log")
	if err := Append(log, []byte("{}\n"), 0o640, false); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{
		path: 0o644, log: 0o640, filepath.Join(dir, "x"): 0o755, filepath.Join(dir, "x", "y"): 0o755,
	} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if have := info.Mode().Perm(); have != want {
			t.Errorf("%s: want %o, have %o", path, want, have)
		}
	}
}

func TestAFailedWriteKeepsTheOldFileAndNoTemporaryOne(t *testing.T) {
	for _, name := range []string{"create", "write", "sync", "rename"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "a.json")
			if err := Write(path, []byte("old"), 0o600); err != nil {
				t.Fatal(err)
			}
			failAt(t, name)
			if err := Write(path, []byte("new"), 0o600); !errors.Is(err, errFault) {
				t.Fatalf("want the injected error, have %v", err)
			}
			if have := read(t, path); have != "old" {
				t.Errorf("want the old bytes, have %q", have)
			}
			if have := names(t, dir); len(have) != 1 {
				t.Errorf("left beside: %q", have)
			}
		})
	}
}

// The bytes are in place then, but a power cut could still take them back: the caller must know.
func TestAnUnflushedFolderIsAnError(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := Write(path, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	failAt(t, "syncdir")
	for name, err := range map[string]error{
		"write":  Write(path, []byte("2"), 0o600),
		"rename": Rename(path, path+"2"),
		"remove": Remove(path + "2"),
		"append": Append(path+"3", []byte("x\n"), 0o600, true),
		"mkdir":  MkdirAll(path+"4", 0o700),
	} {
		if !errors.Is(err, errFault) {
			t.Errorf("%s: want the injected error, have %v", name, err)
		}
	}
}

func TestWriteNamesWhatItCouldNotWrite(t *testing.T) {
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing", "a")
	err := Write(missing, nil, 0o600)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "write "+missing) {
		t.Errorf("missing folder: have %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "a"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(filepath.Join(dir, "a"), nil, 0o600); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if have := names(t, dir); !reflect.DeepEqual(have, []string{"a"}) {
		t.Errorf("left beside: %q", have)
	}
}

func TestWriteFailsInAReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // who may write anywhere, so this thread looks at files as nobody
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		must(t, syscall.Setfsuid(65534))
		defer func() { must(t, syscall.Setfsuid(0)) }()
	}
	path := filepath.Join(dir, "a")
	for name, err := range map[string]error{"write": Write(path, nil, 0o600), "append": Append(path, nil, 0o600, false), "mkdir": MkdirAll(path, 0o700)} {
		if !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: want a permission error, have %v", name, err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestReadersSeeOneVersionOrTheOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	versions := []string{strings.Repeat("a", 1<<16), strings.Repeat("b", 1<<15)}
	if err := Write(path, []byte(versions[0]), 0o600); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 50 {
			if err := Write(path, []byte(versions[i%2]), 0o600); err != nil {
				t.Error(err)
			}
		}
	})
	for range 200 {
		if have := read(t, path); have != versions[0] && have != versions[1] {
			t.Fatalf("a mixed version of %d bytes", len(have))
		}
	}
	wg.Wait()
}

func TestAppendAddsToTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	for i, line := range []string{"one\n", "two\n", "three\n"} {
		if err := Append(path, []byte(line), 0o600, i%2 == 0); err != nil {
			t.Fatal(err)
		}
	}
	if have := read(t, path); have != "one\ntwo\nthree\n" {
		t.Errorf("have %q", have)
	}
	if err := Append(filepath.Join(path, "x"), nil, 0o600, false); err == nil {
		t.Error("no error below a file")
	}
}

func TestRemoveOfAMissingFileIsFine(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := Write(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, path, filepath.Join(dir, "no", "such")} {
		if err := Remove(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if have := names(t, dir); len(have) != 0 {
		t.Errorf("still there: %q", have)
	}
	if err := Write(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("a folder in use: want ENOTEMPTY, have %v", err)
	}
}

func TestRenameMovesBetweenFolders(t *testing.T) {
	dir := t.TempDir()
	old, new := filepath.Join(dir, "a"), filepath.Join(dir, "sub", "b")
	if err := errors.Join(MkdirAll(filepath.Dir(new), 0o700), Write(old, []byte("1"), 0o600), Write(new, []byte("2"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := Rename(old, new); err != nil {
		t.Fatal(err)
	}
	if have := read(t, new); have != "1" {
		t.Errorf("have %q", have)
	}
	if err := Rename(old, new); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: have %v", err)
	}
}

func TestMkdirAllLeavesExistingFoldersAlone(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := MkdirAll(filepath.Join(dir, "x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if info, _ := os.Stat(dir); info.Mode().Perm() != 0o700 {
		t.Errorf("changed the mode to %o", info.Mode().Perm())
	}
	if err := Write(filepath.Join(dir, "f"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := MkdirAll(filepath.Join(dir, "f"), 0o755); err == nil {
		t.Error("no error where a file is in the way")
	}
}

func TestSweepTakesOnlyOldTemporaryFiles(t *testing.T) {
	dir := t.TempDir()
	stray := filepath.Join(dir, tempPrefix+"123")
	for _, name := range []string{tempPrefix + "123", tempPrefix + "456", "web.container", ".hidden", "toad-tmp-1"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, tempPrefix+"folder"), 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-time.Hour)
	for _, name := range names(t, dir) {
		if name != tempPrefix+"456" {
			if err := os.Chtimes(filepath.Join(dir, name), old, old); err != nil {
				t.Fatal(err)
			}
		}
	}
	swept, err := Sweep(dir)
	if err != nil || !reflect.DeepEqual(swept, []string{stray}) {
		t.Errorf("want %q, have %q, %v", []string{stray}, swept, err)
	}
	if have := names(t, dir); len(have) != 5 {
		t.Errorf("have %q", have)
	}
	if swept, err := Sweep(filepath.Join(dir, "missing")); swept != nil || err != nil {
		t.Errorf("missing folder: have %q, %v", swept, err)
	}
}

// A writer killed between its steps: what it leaves must be something Sweep takes.
func TestSweepTakesWhatAKilledWriterLeaves(t *testing.T) {
	dir := t.TempDir()
	f, err := os.CreateTemp(dir, tempPrefix)
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if base := filepath.Base(f.Name()); strings.Contains(base[1:], ".") {
		t.Errorf("%s has an ending that a generator could read", base)
	}
	old := time.Now().Add(-2 * strayAge)
	if err := os.Chtimes(f.Name(), old, old); err != nil {
		t.Fatal(err)
	}
	if swept, err := Sweep(dir); err != nil || len(swept) != 1 {
		t.Errorf("have %q, %v", swept, err)
	}
}
