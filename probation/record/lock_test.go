package record

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWhatADeadHolderRenamedIsFlushedFirst(t *testing.T) {
	s, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	flushed := 0
	real := flush
	flush = func(dir string) error { flushed++; return real(dir) }
	t.Cleanup(func() { flush = real })
	for range 2 { // in order
		unlock, err := s.Lock(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		unlock()
	}
	if flushed != 0 {
		t.Errorf("flushed %d times after an orderly holder", flushed)
	}
	// The kernel frees the lock of one that is killed; the file stays as it was.
	if err := os.WriteFile(filepath.Join(s.Dir(), "services", "web.lock"), []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		unlock, err := s.Lock(t.Context(), "web")
		if err != nil {
			t.Fatal(err)
		}
		unlock()
	}
	if flushed != 1 {
		t.Errorf("flushed %d times, want once after a holder that died", flushed)
	}
	unlock, err := s.LockServe()
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if flushed != 2 {
		t.Error("a daemon that starts answers from what may be forgotten")
	}
}
