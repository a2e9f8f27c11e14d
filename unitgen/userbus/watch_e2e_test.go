//go:build e2e

package userbus_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toad/unitgen"
	"toad/unitgen/userbus"
)

func TestWatchTellsOfACrashInOrder(t *testing.T) {
	b := dial(t)
	name := service(t, b, "always", "sleep 60")
	before := state(t, b, name)
	changes := watch(t, b, name)
	run(t, "kill", "-KILL", fmt.Sprint(before.MainPID))

	var told []string
	for state(t, b, name).InvocationID == before.InvocationID || !state(t, b, name).Up() || !strings.Contains(fmt.Sprint(told), "done") {
		told = append(told, next(t, changes))
	}
	t.Log(strings.Join(told, "\n"))
	// The failure is told of before the job of the automatic restart, and its end comes after its beginning.
	all := strings.Join(told, " ")
	first, queued, ended := strings.Index(all, "changed"), strings.Index(all, "job-new"), strings.Index(all, "job-removed")
	if first != 0 || queued < 0 || ended < queued {
		t.Errorf("have %v", told)
	}
	if have := state(t, b, name); have.NRestarts != 1 {
		t.Errorf("%+v", have)
	}
}

// The unit dies so fast that its jobs can often not be asked any more.
func TestWatchTellsAStopFromARestart(t *testing.T) {
	b := dial(t)
	for range 20 {
		name := service(t, b, "always", "exec sleep 60")
		changes := watch(t, b, name)
		must(t, b.Restart(t.Context(), name))
		awaitTold(t, changes, "job-new restart", "job-new start", "job-new")
		awaitTold(t, changes, "job-removed done")
		must(t, b.Stop(t.Context(), name))
		awaitTold(t, changes, "job-new stop")
		awaitTold(t, changes, "job-removed done")
	}
}

func TestWatchTellsOfAReload(t *testing.T) {
	b := dial(t)
	changes := watch(t, b)
	must(t, b.Reload(t.Context()))
	awaitTold(t, changes, "reloading")
	run(t, "systemctl", "--user", "daemon-reexec")
	awaitTold(t, changes, "lost") // no more than suspected
	awaitTold(t, changes, "reloading")
}

// A unit that nothing refers to is loaded and dropped again by every look at it, which must not wake its watcher.
func TestLookingAtAUnitIsNotAChange(t *testing.T) {
	b := dial(t)
	name := "idle-e2e.service"
	file := filepath.Join(os.Getenv("HOME"), ".config/systemd/user", name)
	must(t, os.MkdirAll(filepath.Dir(file), 0o700))
	must(t, os.WriteFile(file, []byte("[Service]\nExecStart=/bin/sleep 60\n"), 0o600))
	t.Cleanup(func() { os.Remove(file) })
	must(t, b.Reload(t.Context()))
	changes := watch(t, b, name, "absent-e2e.service")
	looks := 0
	for quiet := time.After(2 * time.Second); ; {
		state(t, b, "absent-e2e.service")
		state(t, b, name)
		looks++
		select {
		case c := <-changes:
			t.Fatalf("look %d is told of: %v", looks, c)
		case <-time.After(100 * time.Millisecond):
		case <-quiet:
			return
		}
	}
}

func TestWatchAndCallsSurviveTheBus(t *testing.T) {
	b := dial(t)
	name := service(t, b, "always", "sleep 60")
	changes := watch(t, b, name)
	run(t, "systemctl", "--user", "kill", "--signal=KILL", "dbus.service")
	awaitTold(t, changes, "lost")
	if s := state(t, b, name); !s.Up() {
		t.Errorf("%+v", s)
	}
	must(t, b.Restart(t.Context(), name))
	awaitTold(t, changes, "job-removed done")
}

func TestWatchEndsWithItsContext(t *testing.T) {
	b := dial(t)
	connections := func() int {
		return strings.Count(run(t, "busctl", "--user", "list", "--no-legend"), fmt.Sprintf(" %d ", os.Getpid()))
	}
	before := connections()
	ctx, cancel := context.WithCancel(t.Context())
	changes, err := b.Watch(ctx, "some.service")
	must(t, err)
	if want, have := before+1, connections(); want != have {
		t.Errorf("want %d connections, have %d", want, have)
	}
	cancel()
	if c, open := <-changes; open {
		t.Errorf("have %v", c)
	}
	eventually(t, "its connection ends", func() bool { return connections() == before })
}

func watch(t *testing.T, b *userbus.Bus, names ...string) <-chan unitgen.Change {
	t.Helper()
	changes, err := b.Watch(t.Context(), names...)
	must(t, err)
	return changes
}

// next gives what a change says, without what differs from run to run.
func next(t *testing.T, changes <-chan unitgen.Change) string {
	t.Helper()
	select {
	case c, open := <-changes:
		if !open {
			t.Fatal("the watch ended")
		}
		return strings.TrimSpace(string(c.Kind) + " " + c.JobType + c.JobResult)
	case <-time.After(20 * time.Second):
		t.Fatal("nothing comes")
	}
	return ""
}

func awaitTold(t *testing.T, changes <-chan unitgen.Change, want ...string) {
	t.Helper()
	var before []string
	for have := next(t, changes); !slices.Contains(want, have); have = next(t, changes) {
		if before = append(before, have); strings.HasPrefix(have, "job") {
			t.Logf("while waiting for %q: %q", want, before)
		}
	}
}
