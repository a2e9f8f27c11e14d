//go:build e2e

package beside

import (
	"fmt"
	"syscall"
	"testing"

	"toad/tests/bench/load"
)

// Between the stop of one release and the first word of the next nobody is turned away: the socket unit of the held form
// keeps listening, whatever the release does before it accepts, and whatever becomes of toad.
func TestAHeldPortRefusesNobody(t *testing.T) {
	t.Parallel()
	b := newBed(t, "Held", options{})
	a := b.load(100)
	b.MustDeploy(t, 0, "v2")
	b.MustDeploy(t, 3, "crash")
	b.begin(t, "v3")
	b.killed(t)
	if phase := b.WaitPhase(t, "promoted", "rolled_back", "failed"); phase != "promoted" {
		t.Errorf("it ended %s\n%s", phase, b.Log(t))
	}
	b.MustUser(t, "toad", "reconcile", "--look")
	b.held(t, a, "v1", "v2", "v3")
	b.MustServe(t, "v3")
}

// killed sends SIGKILL to all that is toad's and runs at the moment.
func (b *bed) killed(t *testing.T) {
	t.Helper()
	n := 0
	for _, units := range []string{"toad.service", "toad-act-*", "toad-check-*"} {
		for _, pid := range b.Pids(t, units) {
			if syscall.Kill(pid, syscall.SIGKILL) == nil {
				n++
			}
		}
	}
	if n == 0 {
		t.Error("nothing of toad's ran")
	}
}

// held ends a load on a held port.
func (b *bed) held(t *testing.T, a *asked, versions ...string) load.Sum {
	t.Helper()
	sum := a.none(t, b, versions...)
	if state := b.Show(t, "web.socket", "ActiveState"); state != "active" {
		t.Errorf("the socket is %s", state)
	}
	b.Quiet(t)
	return sum
}

// The long form: at least ten thousand requests over good deploys, over ones that crash before they accept, with their
// restores, and over deaths of toad, slowly and fast.
func TestAHeldPortRefusesNobodyOfTenThousand(t *testing.T) {
	if !all {
		t.Log("the short form is TestAHeldPortRefusesNobody")
		return
	}
	for _, rate := range []int{100, 500} {
		t.Run(fmt.Sprintf("%d a second", rate), func(t *testing.T) {
			b := newBed(t, "Held", options{})
			for sent, round := 0, 0; sent < 10_000; round++ {
				a := b.load(rate)
				b.MustDeploy(t, 0, []string{"v2", "v3"}[round%2])
				flags := []string{}
				if round > 0 {
					flags = append(flags, "--retry")
				}
				b.MustDeploy(t, 3, "crash", flags...)
				b.begin(t, []string{"v3", "v2"}[round%2])
				b.killed(t)
				if phase := b.WaitPhase(t, "promoted", "rolled_back", "failed"); phase != "promoted" {
					t.Errorf("it ended %s\n%s", phase, b.Log(t))
				}
				sent += b.held(t, a, "v1", "v2", "v3").Sent
			}
		})
	}
}

// The plain form works as it is written down, too.
func TestARestartAsWrittenDown(t *testing.T) {
	t.Parallel()
	b := newBed(t, "Restart", options{})
	b.MustDeploy(t, 0, "v2")
	b.MustServe(t, "v2")
	b.Quiet(t)
}
