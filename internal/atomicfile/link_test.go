package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// At every instant the link is there and leads to the old target or to the new one.
func TestALinkTurnsAtOnce(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.sock")
	if err := Link("/run/a", path); err != nil {
		t.Fatal(err)
	}
	stop, bad := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(bad)
		for {
			if to, err := os.Readlink(path); err != nil || (to != "/run/a" && to != "/run/b") {
				bad <- errors.Join(err, errors.New("it leads to "+to))
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	for range 200 {
		for _, to := range []string{"/run/b", "/run/a"} {
			if err := Link(to, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	if err := <-bad; err != nil {
		t.Error(err)
	}
	failAt(t, "rename")
	if err := Link("/run/b", path); !errors.Is(err, errFault) {
		t.Errorf("want the injected error, have %v", err)
	}
	if to, _ := os.Readlink(path); to != "/run/a" {
		t.Errorf("a failed turn leads to %s", to)
	}
	if have := names(t, dir); len(have) != 1 {
		t.Errorf("left beside: %q", have)
	}
}

// A death between the two steps leaves a temporary link, which a sweep takes away when nobody can be at it any more.
func TestATemporaryLinkIsSwept(t *testing.T) {
	dir := t.TempDir()
	stray := filepath.Join(dir, tempPrefix+"1")
	if err := os.Symlink("/run/a", stray); err != nil {
		t.Fatal(err)
	}
	if swept, err := Sweep(dir); err != nil || len(swept) != 0 {
		t.Errorf("a young one was swept: %v, %v", swept, err)
	}
	old := time.Now().Add(-2 * strayAge)
	at := unix.NsecToTimespec(old.UnixNano())
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, stray, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		t.Fatal(err)
	}
	if swept, err := Sweep(dir); err != nil || len(swept) != 1 {
		t.Errorf("swept %v, %v", swept, err)
	}
}
