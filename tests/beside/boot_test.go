//go:build e2e

package beside

import (
	"fmt"
	"os"
	"testing"
	"time"

	"toad/tests/host"
)

// After a boot the door starts the side that it leads to, whether toad is there or not, and an operation that was under way
// is carried on to one of two ends.
func TestTheDoorOutlivesABoot(t *testing.T) {
	t.Parallel()
	for i, kind := range kinds {
		if i > 0 && !all {
			continue // TestNobodyIsTurnedAwayWhateverTheReleaseDoes has them all
		}
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, kind, options{limits: "deadline = \"5m\"\nstable = \"2s\""})
			b.begin(t, "v2")
			b.WaitPhase(t, "probation")
			b.Reboot(t)
			b.promoted(t, "v2", 1)
			b.begin(t, "never")
			b.WaitPhase(t, "probation")
			b.Crash(t)
			b.Serves(t, "v2")
			b.User(t, "timeout", "1", "toad", "rollback", "web")
			if phase := b.WaitPhase(t, "rolled_back", "withdrawn", "rollback_failed", "promoted"); phase != "rolled_back" {
				t.Errorf("it ended %s\n%s", phase, b.Log(t))
			}
			b.settled(t, 1)
			b.Off(t)
			if err := os.Rename(b.Root+host.Home+"/.local/state/toad/libexec/toad", b.Root+host.Home+"/.local/state/toad/libexec/gone"); err != nil {
				t.Fatal(err)
			}
			b.Boot(t)
			b.Serves(t, "v2")
			if have := b.Show(t, b.side(0), "ActiveState"); have == "active" {
				t.Errorf("the idle side runs after a boot without toad")
			}
		})
	}
}

// promoted waits for the end of a deployment, and asserts where it ended.
func (b *bed) promoted(t *testing.T, version string, side int) {
	t.Helper()
	if phase := b.WaitPhase(t, "promoted", "rolled_back", "withdrawn", "rollback_failed", "failed"); phase != "promoted" {
		t.Errorf("it ended %s\n%s", phase, b.Log(t))
	}
	b.Serves(t, version)
	b.settled(t, side)
}

// The turn of the door is one rename. Whoever dies before or after it, the door leads to a side that serves, and in the end
// to the one that the record names.
func TestDeathsAroundTheTurn(t *testing.T) {
	t.Parallel()
	b := newBed(t, kinds[0], options{faults: true, limits: "deadline = \"5m\"\nstable = \"1s\""})
	faults := []string{"file.rename.web.sock 1 kill", "file.renamed.web.sock 1 kill", "file.rename.web.sock 1 cut", "file.renamed.web.sock 1 cut"}
	if all {
		for _, point := range []string{"file.rename.web.sock", "file.renamed.web.sock", "record.put.promoting", "record.saved.promoting", "record.put.promoted",
			"bus.StopUnit.before", "bus.StopUnit.after", "bus.StartUnit.before", "bus.StartUnit.after"} {
			for n := 1; n <= 3; n++ {
				for _, action := range []string{"kill", "cut", "error"} {
					faults = append(faults, fmt.Sprintf("%s %d %s", point, n, action))
				}
			}
		}
	}
	for n, f := range faults {
		t.Run(f, func(t *testing.T) {
			tag := []string{"v2", "v3"}[n%2]
			b.WriteFile(t, "~/.local/state/toad/fault", f+"\n", 0o600)
			side := 1
			if b.door(t) == b.sides[1] {
				side = 0
			}
			b.begin(t, tag)
			cut := b.Root + host.Home + "/.local/state/toad/fault.cut"
			if f[len(f)-3:] == "cut" {
				host.Eventually(t, "the power cut, or the end", 2*time.Minute, func() bool {
					_, err := os.Stat(cut)
					return err == nil || b.Record(t).Operation.Phase == "promoted" && b.User(t, "test", "-e", ".local/state/toad/fault").Exit == 0
				})
				if _, err := os.Stat(cut); err == nil {
					b.Crash(t)
				}
			}
			b.promoted(t, tag, side)
			b.User(t, "rm", "-f", ".local/state/toad/fault", ".local/state/toad/fault.cut")
		})
	}
}
