//go:build e2e

package lostwrites

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

const seed = 20261130

// bed is a host whose user has his home on a disk with a log. Podman's storage and the copy of toad's binary lie beside
// it: what they lose is not toad's to find.
type bed struct {
	*scene.Web
	disk *Disk

	mu       sync.Mutex
	promises []promise
}

// aside are the folders of the home that are not on the disk.
var aside = []string{".local/share/containers", ".local/state/toad/libexec"}

func newBed(t *testing.T) *bed {
	t.Helper()
	b := &bed{Web: scene.New(t, scene.Options{Limits: "deadline = \"12h\"\npull = \"12h\"\nstable = \"1s\"",
		Ready: "http = \"http://127.0.0.1:8080/healthz\"\ninterval = \"200ms\"\ntimeout = \"5s\""})}
	b.Off(t)
	dir := t.TempDir()
	b.disk = Mount(t, 112<<20, dir)
	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() }) // where the test ends before it does
	for _, folder := range aside {
		must(t, "mkdir", "-p", filepath.Join(dir, folder))
	}
	exclude := []string{"tar", "-C", b.home(), "-c"}
	for _, folder := range aside {
		exclude = append(exclude, "--exclude=./"+folder+"/*")
	}
	must(t, "sh", "-c", strings.Join(append(exclude, "."), " ")+" | tar -x -C "+dir)
	b.lay(t, dir)
	must(t, "umount", dir)
	b.trace(t)
	b.Boot(t)
	b.Serves(t, "v1")
	must(t, "sync", "-f", filepath.Join(b.Root, host.Home))
	b.disk.Begin()
	return b
}

// home is the folder that was the user's home before the disk was laid over it.
func (b *bed) home() string { return filepath.Join(filepath.Dir(b.Root), host.Home) }

// lay mounts what is mounted at dir as the home of a host that is off.
func (b *bed) lay(t *testing.T, dir string) {
	t.Helper()
	home := filepath.Join(b.Root, host.Home)
	must(t, "mount", "--bind", dir, home)
	for _, folder := range aside {
		must(t, "mount", "--bind", filepath.Join(b.home(), folder), filepath.Join(home, folder))
	}
}

// lift takes the home of a host that is off away again.
func (b *bed) lift(t *testing.T) {
	t.Helper()
	must(t, "umount", "-R", filepath.Join(b.Root, host.Home))
}

// promise is what somebody was told, or could see, when the log was at a position. No later disk may forget it.
type promise struct {
	at    int
	what  string
	holds func(found) bool
}

func (b *bed) promise(what string, holds func(found) bool) {
	at := b.disk.Pos()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.promises = append(b.promises, promise{at, what, holds})
}

// deploy follows a deployment to its end, and notes what is told on the way.
func (b *bed) deploy(t *testing.T, generation int, tag string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := b.UserCommand(ctx, t, "toad", "deploy", "web", b.Digest(t, tag))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		for _, word := range strings.Fields(lines.Text()) {
			if r, ok := rank[word]; ok {
				b.promise(word, func(f found) bool { return f.reached(generation, r) })
				break
			}
		}
	}
	_ = cmd.Wait() // 3 where it was rolled back
	b.settled(t)
}

// settled waits until nothing is owed any more.
func (b *bed) settled(t *testing.T) {
	t.Helper()
	host.Eventually(t, "everything owed to be done", 3*time.Minute, func() bool {
		op := b.Record(t).Operation
		return op.Released && (op.Retained || op.Phase != "promoted")
	})
}

// The whole of a deployment that is promoted, and of one that is restored, on a disk that may lose what was not flushed.
func TestWhatAPowerCutLeavesIsAccepted(t *testing.T) {
	b := newBed(t)
	b.deploy(t, 1, "v2")
	b.deploy(t, 2, "crash")
	end := b.disk.Pos()
	b.Off(t)
	b.lift(t)

	t.Run("every change is flushed before anything follows from it", func(t *testing.T) {
		replaced := b.ordered(t)
		for name, times := range map[string]int{"web.json": 20, "zz-toad.conf": 4, "zz-toad.previous": 2, "web-g1.watch.json": 2} {
			if replaced[name] < times {
				t.Errorf("%s was replaced %d times, want %d at least", name, replaced[name], times)
			}
		}
	})

	all := os.Getenv("TOAD_ALL") != ""
	some, tears := 12, 1
	if all {
		some, tears = 1, 4
	}
	rnd, images := rand.New(rand.NewPCG(seed, 1)), 0
	j := &judge{promises: b.promises, deadline: map[int]time.Time{}, states: map[string]int{}}
	b.disk.Crashes(end, rnd, tears, func(c Crash) {
		if rnd.IntN(some) != 0 {
			return
		}
		images++
		var f found
		c.Open(t, func(home string) {
			var err error
			if f, err = read(home); err == nil {
				err = j.judge(c, f)
			}
			if err != nil {
				t.Errorf("cut at %d, %d blocks kept: %v", c.At, c.Kept, err)
			}
		})
		if all && !t.Failed() && j.states[f.state()] == 1 {
			t.Run(fmt.Sprintf("booted from the cut at %d", c.At), func(t *testing.T) {
				c.Check(t)
				b.recovers(t, c, f)
			})
		}
	})
	t.Logf("%d writes and flushes, %d promises, %d disks accepted, %d states", end, len(b.promises), images, len(j.states))
}

// recovers boots the host from a disk, and asserts that it ends where it would have without the power cut.
func (b *bed) recovers(t *testing.T, c Crash, f found) {
	dir := t.TempDir()
	c.Mount(t, dir)
	b.lay(t, dir)
	must(t, "umount", dir)
	b.Boot(t)
	defer func() {
		b.Off(t)
		b.lift(t)
	}()
	phase, tag := "promoted", "v2"
	switch f.svc.Generation {
	case 0: // it was not accepted, and nobody was told that it was
		phase, tag = "", "v1"
	case 2:
		phase = "rolled_back"
	}
	if have := b.WaitPhase(t, "promoted", "rolled_back", "withdrawn", "rollback_failed", "failed", phase); have != phase {
		t.Fatalf("from %s %s it ended %s\n%s", f.op.ID, f.op.Phase, have, b.Log(t))
	}
	b.Serves(t, tag)
	if have := b.ImageID(t); have != b.Image(t, tag).ID {
		t.Errorf("%s runs, not that of %s", have, tag)
	}
	b.Untouched(t)
	if f.svc.Generation > 0 {
		b.settled(t)
		b.Quiet(t)
	}
}
