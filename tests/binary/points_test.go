//go:build e2e

package binary

import (
	"os"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
)

// cell is a point of the store of files at which something happens, at its nth passing.
type cell struct {
	point string
	n     string
	bad   bool // a release that is put back passes it
	long  bool // with TOAD_ALL=1 only: nothing has changed yet since the point before
}

var cells = []cell{
	{"release.stage.before", "1", false, true}, {"release.stage.after", "1", false, false},
	{"release.lay.before", "1", false, true}, {"release.lay.after", "1", false, false},
	{"release.turn.before", "1", false, true}, {"release.turn.after", "1", false, false},
	{"release.turn.before", "2", true, false}, {"release.turn.after", "2", true, false},
	{"release.unlay.before", "1", false, true}, {"release.unlay.after", "1", false, false},
	{"release.keep.before", "1", false, true}, {"release.keep.after", "1", false, false},
}

const fault = "~/.local/state/toad/fault"

// With TOAD_ALL=1 every point is tried with a kill, a power cut and an error; else each after a change with one of them.
func TestEveryPointOfABinaryServiceEndsOnOneOfTwoReleases(t *testing.T) {
	t.Parallel()
	b := up(t, true)
	b.ship(t, 0, "v2")
	b.Quiet(t)
	inForce, other := "v2", "v3"
	refused := false
	actions := []string{"kill", "cut", "error"}
	for i, c := range cells {
		for j, action := range actions {
			if os.Getenv("TOAD_ALL") == "" && (c.long || j != i%len(actions)) {
				continue
			}
			t.Run(strings.Join([]string{c.point, c.n, action}, " "), func(t *testing.T) {
				// Both are built anew now and then, or what is kept already would not be kept again.
				ship, flags := other, []string{}
				if c.bad {
					if ship = "crash"; refused {
						flags = append(flags, "--retry")
					}
				} else if strings.HasPrefix(c.point, "release.keep") {
					b.MustUser(t, "rm", "-rf", ".local/state/toad/releases/"+b.Program(t, ship).ID)
				}
				b.Put(t, ship)
				b.WriteFile(t, fault, c.point+" "+c.n+" "+action+"\n", 0o600)
				argv := strings.Join(append([]string{"toad", "ship", "web", "files/" + ship}, flags...), " ")
				b.MustUser(t, "sh", "-c", "setsid -f "+argv+" >ship.log 2>&1 </dev/null")
				host.Eventually(t, c.point+" to be met", time.Minute, func() bool {
					return b.User(t, "sh", "-c", "test ! -e "+fault).Exit == 0
				})
				if action == "cut" {
					host.Eventually(t, "the power to be cut", time.Minute, func() bool { return b.User(t, "sh", "-c", "test -e "+fault+".cut").Exit == 0 })
					b.MustUser(t, "sh", "-c", "rm "+fault+".cut")
					b.Crash(t)
				}
				want := inForce
				if c.bad {
					b.end(t, argv, 3, 5)
					refused = true
				} else {
					b.end(t, argv, 0)
					want, inForce, other = other, other, inForce
				}
				b.Serves(t, want)
				b.Quiet(t)
				b.inForce(t, want)
				if left := b.MustUser(t, "sh", "-c", "cd .local/state/toad && ls live; find releases -name '*.damaged'"); left != "web" {
					t.Errorf("left behind: %s", left)
				}
			})
		}
	}
}

// end repeats a request until it ends as it has to: a client that was cut off is given again.
func (b bed) end(t *testing.T, argv string, want ...int) {
	t.Helper()
	var r host.Result
	for range 20 {
		r = b.User(t, "sh", "-c", argv)
		for _, exit := range want {
			if r.Exit == exit {
				return
			}
		}
		if r.Exit != 75 {
			break
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Fatalf("%s: want exit %v, have %d\n%s%s\n%s", argv, want, r.Exit, r.Stdout, r.Stderr, b.Log(t))
}

// What a kill, an operator and a disk do to a deployment, without a fault of toad's own.
func TestPowerCutsAndHandsOfOthers(t *testing.T) {
	t.Parallel()
	b := up(t, false)
	b.ship(t, 0, "v2")
	b.enroll(t, "deadline = \"60s\"\nstable = \"4s\"")

	// A power cut in the probation: the candidate is admitted again, and promoted.
	b.Put(t, "v3")
	b.MustUser(t, "toad", "ship", "web", "files/v3", "--detach")
	b.WaitPhase(t, "probation")
	b.Serves(t, "v3")
	b.Crash(t)
	if phase := b.WaitPhase(t, "promoted", "rolled_back", "failed", "rollback_failed"); phase != "promoted" {
		t.Fatalf("it ended %s\n%s", phase, b.Log(t))
	}
	b.Quiet(t)
	b.inForce(t, "v3")

	// Past its deadline after the boot, the release before starts first.
	b.enroll(t, "deadline = \"15s\"\nstable = \"4s\"")
	b.Put(t, "never")
	b.MustUser(t, "toad", "ship", "web", "files/never", "--detach")
	b.WaitPhase(t, "probation")
	b.Off(t)
	time.Sleep(15 * time.Second) // the deadline, which no event tells of while the host is off
	b.Boot(t)
	b.WaitPhase(t, "rolled_back")
	b.Quiet(t)
	b.inForce(t, "v3")
	if j := b.Journal(t, "web.service"); strings.Contains(j, "(never) starts") {
		t.Errorf("the candidate ran after the boot:\n%s", j)
	}

	// A link that others change is put right, and what runs is left alone.
	ran := b.Invocation(t)
	b.MustUser(t, "sh", "-c", "ln -sfn /usr/bin/sleep "+live)
	want := "../releases/" + b.Program(t, "v3").ID + "/web"
	host.Eventually(t, "the link to be put right", time.Minute, func() bool { return b.MustUser(t, "sh", "-c", "readlink "+live) == want })
	if b.Invocation(t) != ran {
		t.Error("the unit was restarted")
	}

	// A file that was damaged on the disk is not started: the release before comes back from its copy.
	file := ".local/state/toad/releases/" + b.Program(t, "v3").ID + "/web"
	b.Put(t, "crash")
	b.enroll(t, "deadline = \"20s\"\nstable = \"1s\"\nrestarts = 3")
	b.MustUser(t, "sh", "-c", "cp "+file+" whole && sed s/version/VERSION/ whole >damaged && mv -f damaged "+file+" && chmod 700 "+file)
	b.ship(t, 3, "crash")
	b.Quiet(t)
	b.inForce(t, "v3")
	if sum := b.MustUser(t, "sha256sum", file); !strings.HasPrefix(sum, b.Program(t, "v3").ID) {
		t.Errorf("the file is still damaged: %s", sum)
	}

	// In force, it comes back with the next tick, and what runs is left alone.
	ran = b.Invocation(t)
	b.MustUser(t, "sh", "-c", "sed s/version/VERSION/ whole >next && mv -f next "+file+" && chmod 700 "+file)
	if out := b.User(t, "toad", "doctor"); !strings.Contains(out.Stdout, "its bytes have changed") {
		t.Errorf("doctor says nothing of it:\n%s", out.Stdout)
	}
	b.MustUser(t, "systemctl", "--user", "start", "toad-tick.service")
	host.Eventually(t, "the file to come back", time.Minute, func() bool {
		return strings.HasPrefix(b.MustUser(t, "sha256sum", file), b.Program(t, "v3").ID)
	})
	if b.Invocation(t) != ran {
		t.Error("the unit was restarted")
	}

	// Nor is a candidate started that is not what it is called.
	file = ".local/state/toad/releases/" + b.Program(t, "v2").ID + "/web"
	b.MustUser(t, "sh", "-c", "rm -f .local/state/toad/releases/"+b.Program(t, "v2").ID+"/kept.copy && echo >>"+file)
	ran = b.Invocation(t)
	if r := b.User(t, "toad", "deploy", "web", "sha256:"+b.Program(t, "v2").ID); r.Exit != 1 || !strings.Contains(r.Stdout+r.Stderr, "pull_failed") {
		t.Errorf("a damaged candidate: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	if b.Invocation(t) != ran {
		t.Error("the unit was restarted")
	}
	b.ship(t, 0, "v2")
	b.inForce(t, "v2")
	b.Quiet(t)
}
