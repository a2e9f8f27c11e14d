// Package lostwrites runs toad on a disk that remembers every write and flush, and asserts what must hold of each disk
// that a power cut may leave: all that was written before the last flush, and any part of what was written since.
package lostwrites

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// block is what a disk writes as a whole; a longer write can be torn between two blocks.
const block = 4096

// strict are the options that leave it to the programs what is flushed when: a file that is renamed over another one is
// not written out early, and nothing is committed just because seconds have passed.
const strict = "noauto_da_alloc,commit=600,noatime"

// Disk is a disk in memory with a log, which the kernel reaches as a loop device. The log is that of dm-log-writes.
type Disk struct {
	mu        sync.Mutex
	now, base []byte // the content; what it was when the log began
	log       []entry
}

// entry is a write, or a flush if it has no data.
type entry struct {
	at   int64
	data []byte
}

// Mount makes an ext4 disk of size bytes and mounts it at dir. It is gone when the last mount of it is.
func Mount(t testing.TB, size int64, dir string) *Disk {
	t.Helper()
	d := &Disk{now: make([]byte, size)}
	file := filepath.Join(t.TempDir(), "disk")
	if err := d.export(file); err != nil {
		t.Fatal(err)
	}
	device := must(t, "losetup", "--find", "--show", file)
	// Who uses the file keeps it; its name goes now, so that nothing stays of a test that is killed.
	defer must(t, "umount", "-l", file)
	defer must(t, "losetup", "--detach", device)
	must(t, "mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", "-b", fmt.Sprint(block), device)
	must(t, "mount", "-o", strict, device, dir)
	return d
}

// Begin begins the log anew. What the disk holds is taken for durable: the caller has synced it.
func (d *Disk) Begin() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log, d.base = nil, slices.Clone(d.now)
}

// Pos is how many writes and flushes there were until now.
func (d *Disk) Pos() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.log)
}

func (d *Disk) write(at int64, data []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(d.now[at:], data)
	d.log = append(d.log, entry{at, bytes.Clone(data)})
}

func (d *Disk) flush() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, entry{})
}

// Crash is a disk as a power cut leaves it.
type Crash struct {
	At   int // how many writes and flushes there had been
	Kept int // blocks that were written since the last flush and are there; -1 for none because none was tried
	Disk []byte
}

// Crashes visits the disks that power cuts may leave of the first end entries of the log: for each flush the disk that
// holds nothing of what was written until the next one, at the last instant before that; and tears more, at any instant
// until then, that hold each block of it with even odds. What is visited may not be kept.
func (d *Disk) Crashes(end int, rnd *rand.Rand, tears int, visit func(Crash)) {
	disk := slices.Clone(d.base)
	since := 0 // the first entry after the last flush
	for i, e := range append(slices.Clone(d.log[:end]), entry{}) {
		if e.data != nil {
			continue
		}
		window := d.log[since:i]
		visit(Crash{At: i, Kept: -1, Disk: disk})
		for range tears {
			if len(window) == 0 {
				break
			}
			cut := 1 + rnd.IntN(len(window))
			kept, undo := tear(disk, window[:cut], rnd)
			visit(Crash{At: since + cut, Kept: kept, Disk: disk})
			undo()
		}
		for _, w := range window {
			copy(disk[w.at:], w.data)
		}
		since = i + 1
	}
}

// tear writes each block of some writes with even odds, until undone.
func tear(disk []byte, writes []entry, rnd *rand.Rand) (kept int, undo func()) {
	type old struct {
		at   int64
		data []byte
	}
	var before []old
	for _, w := range writes {
		for part := range slices.Chunk(w.data, block) {
			at := w.at
			w.at += int64(len(part))
			if rnd.IntN(2) == 0 {
				continue
			}
			before = append(before, old{at, bytes.Clone(disk[at : at+int64(len(part))])})
			copy(disk[at:], part)
		}
	}
	return len(before), func() {
		for _, o := range slices.Backward(before) {
			copy(disk[o.at:], o.data)
		}
	}
}

// Open mounts a disk as a host would after the power cut, shows its files to look, and unmounts it.
func (c Crash) Open(t testing.TB, look func(dir string)) {
	t.Helper()
	dir := t.TempDir()
	c.Mount(t, dir)
	look(dir)
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
}

// Mount mounts a copy of a disk, which is gone when the last mount of it is.
func (c Crash) Mount(t testing.TB, dir string) {
	t.Helper()
	device, release, err := c.attach()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := unix.Mount(device, dir, "ext4", unix.MS_NOATIME, strings.TrimSuffix(strict, ",noatime")); err != nil {
		t.Fatalf("cut at %d, %d blocks kept: mount: %v", c.At, c.Kept, err)
	}
}

// Check has e2fsck replay the journal, and finds what that does not mend.
func (c Crash) Check(t testing.TB) {
	t.Helper()
	device, release, err := c.attach()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	out, err := exec.Command("e2fsck", "-fp", device).CombinedOutput()
	if exit := new(exec.ExitError); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) { // 1: the journal was replayed
		t.Fatalf("cut at %d, %d blocks kept: e2fsck: %v\n%s", c.At, c.Kept, err, out)
	}
}

// attach makes a loop device of a copy of the disk. It is gone when it has been released and nobody has it mounted.
func (c Crash) attach() (device string, release func(), err error) {
	fd, err := unix.MemfdCreate("crash", unix.MFD_CLOEXEC)
	if err != nil {
		return "", nil, err
	}
	file := os.NewFile(uintptr(fd), "crash")
	defer file.Close()
	if err := sparse(file, c.Disk); err != nil {
		return "", nil, err
	}
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return "", nil, err
	}
	defer control.Close()
	for { // somebody else may be faster
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return "", nil, err
		}
		loop, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return "", nil, err
		}
		config := unix.LoopConfig{Fd: uint32(fd)}
		config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR
		err = unix.IoctlLoopConfigure(int(loop.Fd()), &config)
		if err == nil {
			return loop.Name(), func() { _ = loop.Close() }, nil
		}
		_ = loop.Close()
		if !errors.Is(err, unix.EBUSY) {
			return "", nil, fmt.Errorf("configure %s: %w", loop.Name(), err)
		}
	}
}

// sparse writes what is not zero.
func sparse(file *os.File, data []byte) error {
	zero := make([]byte, 1<<18)
	if err := file.Truncate(int64(len(data))); err != nil {
		return err
	}
	at := int64(0)
	for part := range slices.Chunk(data, len(zero)) {
		if !bytes.Equal(part, zero[:len(part)]) {
			if _, err := file.WriteAt(part, at); err != nil {
				return err
			}
		}
		at += int64(len(part))
	}
	return nil
}

func must(t testing.TB, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
