//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"toad/tests/bench/load"
	"toad/tests/bench/table"
	"toad/tests/host"
	"toad/tests/shown"
)

// forms are the ways in which a release takes the place of another, each as its section of docs/switch.md shows it.
var forms = []struct{ name, section string }{
	{"restart", "Restart"},
	{"held", "Held"},
	{"side by side", "A side that takes its listener from systemd"},
}

// killed is a good release under which all that is toad's and runs is killed, again and again.
const killed = "good release, toad killed -9"

// rates are in requests per second.
var rates = []int{100, 500}

// form is a host on which a service is switched in one of the ways.
type form struct {
	*host.Host
	good string
}

func newForm(b *bench, section string) *form {
	set, err := shown.Section("docs/switch.md", section)
	if err != nil {
		b.Fatalf("%v; run this from the project's folder", err)
	}
	f := &form{Host: host.Up(b, host.Options{}), good: "v1"}
	installSelf(b, f.Host)
	limits := "\n[service.web.probation]\ndeadline = \"10s\"\nstable = \"4s\"\n"
	for name, text := range set.Put(host.Repository, f.good, "", limits) {
		f.WriteFile(b, name, text, 0o644)
	}
	f.MustUser(b, "sh", "-ec", set.Commands)
	serves(b, f.Host, 8080, f.good)
	f.MustUser(b, "toad", "setup")
	return f
}

// within sets the deadline of what comes next. What is killed begins its window anew each time, after a pause that doubles.
func (f *form) within(b *bench, sc scenario) {
	deadline := "10s"
	if sc.name == killed {
		deadline = "40s"
	}
	f.MustUser(b, "sed", "-i", `s/^deadline = .*/deadline = "`+deadline+`"/`, ".config/toad/enrollment.toml")
}

// settled waits until nothing of an operation is under way.
func (f *form) settled(b *bench) {
	host.Eventually(b, "the operation to let go of everything", 2*time.Minute, func() bool {
		var rec struct {
			Operation struct {
				Phase              string
				Released, Retained bool
			}
			Drain *struct{}
		}
		text := f.ReadFile(b, "~/.local/state/toad/services/web.json")
		if err := json.Unmarshal([]byte(text), &rec); err != nil {
			b.Fatalf("%v in %s", err, text)
		}
		return rec.Operation.Released && rec.Drain == nil && (rec.Operation.Phase != "promoted" || rec.Operation.Retained)
	})
}

// deploy offers one release under load; the load goes on until what it came to has settled.
func (f *form) deploy(b *bench, sc scenario, rate, round int) load.Sum {
	version := fmt.Sprintf("%s-%d-%d", strings.Trim(strings.Map(word, sc.name), "-"), rate, round)
	digest := f.Push(b, version, sc.behaviour, version).Digest
	g := startLoadAt(b, f.Host, 8080, rate)
	time.Sleep(500 * time.Millisecond)
	stop := func() {}
	if sc.name == killed {
		stop = f.kill(b)
	}
	r := f.User(b, "toad", "deploy", "web", digest)
	stop()
	f.settled(b)
	time.Sleep(time.Second)
	sum := load.Summarise(g.stop(b))
	switch good := sc.behaviour == "good"; {
	case good && r.Exit != 0, !good && r.Exit != 3:
		b.Fatalf("%s: exit %d\n%s%s", version, r.Exit, r.Stdout, r.Stderr)
	case good:
		f.good = version
	}
	serves(b, f.Host, 8080, f.good)
	return sum
}

// kill sends SIGKILL to every process of toad's units twice a second, three times at least, and has stopped when stop returns.
func (f *form) kill(b *bench) (stop func()) {
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; n < 6; n++ {
			select {
			case <-over:
				if n >= 3 {
					return
				}
			case <-time.After(500 * time.Millisecond):
			}
			for _, unit := range []string{"toad.service", "toad-act-*", "toad-check-*"} {
				_ = f.User(b, "systemctl", "--user", "kill", "--signal=KILL", unit) // fails where there is none
			}
		}
	}()
	return sync.OnceFunc(func() { close(over); <-done })
}

// word is for what a tag may hold.
func word(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}

// switches counts who was turned away in each form, over every kind of release.
func switches(b *bench, l *lab) table.Section {
	s := table.Section{Name: "switch"}
	var hosts []*form
	for _, f := range forms {
		s.Systems = append(s.Systems, f.name)
		hosts = append(hosts, newForm(b, f.section))
	}
	sent := map[int]int{}
	lost := map[int]int{}
	for _, rate := range rates {
		for _, sc := range append(slices.Clone(scenarios), scenario{killed, "good", 0}) {
			for _, f := range hosts {
				f.within(b, sc)
			}
			failed, of, slowest := make([][]float64, len(forms)), make([][]float64, len(forms)), make([][]float64, len(forms))
			for round := range l.rounds {
				for i, f := range hosts {
					l.quiet(b)
					sum := f.deploy(b, sc, rate, round)
					failed[i] = append(failed[i], float64(sum.Lost+sum.Wrong))
					of[i] = append(of[i], float64(sum.Sent))
					slowest[i] = append(slowest[i], ms(sum.Slowest))
					// A held port promises nothing of a release that has accepted.
					if i == 2 || i == 1 && (sc.behaviour == "good" || sc.behaviour == "crash") {
						sent[i] += sum.Sent
						lost[i] += sum.Lost + sum.Wrong
					}
					b.say("%s, %s at %d/s: of %d requests %d lost, %d wrong, slowest %.0f ms", forms[i].name, sc.name, rate, sum.Sent, sum.Lost, sum.Wrong, ms(sum.Slowest))
				}
			}
			row := func(name, unit string, of [][]float64) {
				var cells []table.Figure
				for _, v := range of {
					cells = append(cells, table.Measured(unit, v))
				}
				s.Add(name, cells...)
			}
			row(fmt.Sprintf("%s at %d/s: requests failed", sc.name, rate), table.Requests, failed)
			row("  of", table.Count, of)
			row("  slowest answer", table.Milliseconds, slowest)
		}
	}
	for _, i := range []int{1, 2} {
		cells := make([]table.Figure, len(forms))
		cells[i] = table.Figure{Text: fmt.Sprintf("%d of %d", lost[i], sent[i])}
		s.Add(map[int]string{1: "held, good, crash at start, toad killed: failed in all", 2: "side by side, all kinds: failed in all"}[i], cells...).
			Want("0 of at least 10000", lost[i] == 0 && sent[i] >= 10_000)
	}
	var rate []string
	for _, r := range rates {
		rate = append(rate, fmt.Sprint(r))
	}
	s.Notes = []string{
		"Each form as docs/switch.md shows it, on a host of its own; " + strings.Join(rate, " and ") + " requests/s to /healthz, each on a new connection, open loop, " +
			"from before the command until all that it came to has settled, restores included. Failed: no answer, or one other than 2xx. " +
			fmt.Sprintf("A client waits for %v.", load.Patience),
		"The stable window is 4 s, the deadline 10 s, and 40 s where toad is killed. Held, a release that accepts and then crashes, or answers 503, is seen by clients until it is restored; " +
			"side by side no client reaches it.",
	}
	return s
}
