//go:build e2e

package beside

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"toad/tests/bench/load"
	"toad/tests/host"
	"toad/tests/scene"
)

// bed is a host with the service web as one section of the document sets it up.
type bed struct {
	*scene.Web
	sides [2]string // instances
}

// options are what differs; the zero value is the usual.
type options struct {
	faults bool
	drain  string
	limits string
	host   host.Options
}

const quick = "interval = \"100ms\"\ntimeout = \"1s\""

// newBed sets a host up as a section says, with the test's image and times, and waits until v1 serves.
func newBed(t *testing.T, title string, o options) *bed {
	t.Helper()
	b := &bed{Web: &scene.Web{Host: host.Up(t, o.host)}, sides: [2]string{"a", "b"}}
	if strings.Contains(title, "TCP") {
		b.sides = [2]string{"1", "2"}
	}
	if o.faults {
		b.Faults(t)
	}
	end := "\n[service.web.probation]\n" + o.limits + "\n"
	if o.limits == "" {
		end = "\n[service.web.probation]\ndeadline = \"60s\"\nstable = \"1s\"\n"
	}
	if o.drain != "" {
		end = "drain = \"" + o.drain + "\"\n" + end
	}
	b.Shown(t, "../..", title, quick, end)
	return b
}

// begin starts a deployment that nobody follows. A busy machine may ask to try again.
func (b *bed) begin(t *testing.T, tag string) {
	t.Helper()
	const tryAgain = 75
	host.Eventually(t, "the deployment of "+tag+" to be accepted", 2*time.Minute, func() bool {
		r := b.Deploy(t, tag, "--detach")
		if r.Exit != 0 && r.Exit != tryAgain {
			t.Fatalf("toad deploy web %s --detach: exit %d\n%s%s\n%s", tag, r.Exit, r.Stdout, r.Stderr, b.Log(t))
		}
		return r.Exit == 0
	})
}

// side is the unit of the nth side.
func (b *bed) side(n int) string { return fmt.Sprintf("web@%s.service", b.sides[n]) }

// door is the instance to which the link leads.
func (b *bed) door(t *testing.T) string {
	t.Helper()
	to := b.MustUser(t, "readlink", ".local/state/toad/live/web.sock")
	for _, s := range b.sides {
		if strings.HasSuffix(to, "/web-"+s+".sock") || strings.HasSuffix(to, "/web/"+s+"/app.sock") {
			return s
		}
	}
	t.Fatalf("the door leads to %s", to)
	return ""
}

// settled waits until nothing is owed any more, and asserts that one side runs, to which the door leads, and that the
// other one is down and may not be started by anybody.
func (b *bed) settled(t *testing.T, runs int) {
	t.Helper()
	b.Settled(t)
	if have := b.door(t); have != b.sides[runs] {
		t.Errorf("the door leads to side %s, want %s\n%s", have, b.sides[runs], b.Log(t))
	}
	if have := b.Show(t, b.side(runs), "ActiveState"); have != "active" {
		t.Errorf("%s, which is in force, is %s", b.side(runs), have)
	}
	if have := b.Show(t, b.side(1-runs), "ActiveState"); have != "inactive" {
		t.Errorf("%s, which is idle, is %s\n%s", b.side(1-runs), have, b.Log(t))
	}
	b.Fenced(t, "web@"+b.sides[runs], "web@"+b.sides[1-runs])
}

// asked is a load that runs while something happens.
type asked struct {
	stop func()
	done sync.WaitGroup
	all  []load.Answer
}

// load begins to ask the door, at a rate, on a new connection each time.
func (b *bed) load(rate int) *asked {
	ctx, cancel := context.WithCancel(context.Background())
	a := &asked{stop: cancel}
	a.done.Go(func() {
		client := b.Client()
		client.Timeout = time.Minute // a busy machine is not a refusal
		a.all = load.RunBy(ctx, client, "http://127.0.0.1:8080/", rate)
	})
	time.Sleep(300 * time.Millisecond) // what the old release answers belongs to it
	return a
}

// none ends the load, asserts that nobody was turned away, and that only the named versions answered.
func (a *asked) none(t *testing.T, b *bed, versions ...string) load.Sum {
	t.Helper()
	a.stop()
	a.done.Wait()
	sum := load.Summarise(a.all)
	failed, strange := map[string]int{}, map[string]int{}
	var when []string
	for _, one := range a.all {
		known := false
		for _, v := range versions {
			known = known || one.Version == v
		}
		switch {
		case one.Status != 200:
			failed[fmt.Sprintf("%d %s", one.Status, one.Err)]++
			when = append(when, one.At.UTC().Format("15:04:05.000"))
		case !known:
			strange[one.Version]++
		}
	}
	if len(failed)+len(strange) > 0 {
		t.Log(b.Log(t)) // before what was found: of a long output the end is read
		t.Log(b.MustUser(t, "journalctl", "--user", "-b", "-o", "short-precise", "--no-pager", "-n", "150", "--utc", "-u", "web*"))
		if len(when) > 0 {
			t.Logf("failed were those of %s", strings.Join(when[:min(20, len(when))], ", "))
		}
		t.Errorf("of %d requests failed %v; answered by somebody else %v", sum.Sent, failed, strange)
	}
	t.Logf("%d requests, %d failed, slowest %v", sum.Sent, sum.Lost+sum.Wrong, sum.Slowest.Round(time.Millisecond))
	return sum
}
