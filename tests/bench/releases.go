//go:build e2e

package main

import (
	"fmt"
	"time"

	"toad/tests/bench/load"
	"toad/tests/bench/table"
	"toad/tests/host"
)

// scenario is one kind of release; each round makes a new digest of it.
type scenario struct {
	name      string
	behaviour string
	window    time.Duration // how long the load goes on, at least, from the command on
}

var scenarios = []scenario{
	{"good release", "good", 9 * time.Second},
	{"crash at start", "crash", 9 * time.Second},
	{"crash after 3 s", "late-crash", 12 * time.Second},
	{"/healthz never good", "never", 18 * time.Second},
}

// What all systems are given: the time in which a release must be ready, and how long it is then watched.
const (
	readyWithin = 10 * time.Second
	watched     = 5 * time.Second
)

// system replaces the release of a running service.
type system interface {
	name() string
	port() int
	// good is the version in force; promote says that another one is.
	good() string
	promote(version string)
	// offer makes an image and puts it where the system will find it.
	offer(b *bench, version, behaviour string)
	// update runs the system's own command on what was offered to its end; it returns what it reported, and its exit status.
	update(b *bench) (said string, exit int)
	// reset brings the release that is in force back, whatever is there now, and serves.
	reset(b *bench)
}

// outcome is one scenario on one system.
type outcome struct {
	said, end, again string
	took             time.Duration
	sum              load.Sum
	all              []load.Answer
	begin            time.Time
}

// outcomes of all rounds, by scenario and system.
type outcomes map[string]map[string][]outcome

// releases drives good and bad releases under load, in turn on each system.
func releases(b *bench, l *lab, failure, peers bool) []table.Section {
	l.enroll(b, fmt.Sprint(readyWithin), fmt.Sprint(watched))
	mine := &toad{lab: l}
	systems := []system{mine}
	var notes []string
	if peers {
		systems = append(systems, newAutoUpdate(b, l.Host, false), newAutoUpdate(b, l.Host, true))
		if s, err := newSwarm(b); err != nil {
			notes = append(notes, "docker service update is left out: "+err.Error())
		} else {
			systems = append(systems, s)
		}
	}
	got, out := outcomes{}, map[string]bool{}
	var back restorations
	for round := range l.rounds {
		if failure {
			back.bare = append(back.bare, bareRestart(b, l))
		}
		for _, sc := range scenarios {
			for _, sys := range systems {
				if out[sys.name()] {
					continue
				}
				l.quiet(b)
				var o outcome
				if err := b.try(sys.name(), func() { o = play(b, l, sys, sc, round) }); err != nil {
					if sys == system(mine) {
						b.Fatal(err)
					}
					out[sys.name()] = true
					notes = append(notes, fmt.Sprintf("%s is left out from round %d, %q, on: %v", sys.name(), round+1, sc.name, err))
					continue
				}
				if got[sc.name] == nil {
					got[sc.name] = map[string][]outcome{}
				}
				got[sc.name][sys.name()] = append(got[sc.name][sys.name()], o)
				b.say("round %d: %s on %s: %s in %v; of %d requests %d lost, %d wrong; %s", round+1, sc.name, sys.name(), o.said,
					o.took.Round(10*time.Millisecond), o.sum.Sent, o.sum.Lost, o.sum.Wrong, o.end)
				if sys == system(mine) && failure {
					back.note(b, l, sc, o)
				}
			}
		}
	}
	var all []table.Section
	if failure {
		all = append(all, back.section())
	}
	if peers {
		all = append(all, compared(systems, got, notes))
	}
	return all
}

// play offers one release to one system under load.
func play(b *bench, l *lab, sys system, sc scenario, round int) (o outcome) {
	version := fmt.Sprintf("%s-%d", sc.behaviour, round)
	sys.offer(b, version, sc.behaviour)
	h := l.Host
	if s, ok := sys.(*swarm); ok {
		h = s.Host
	}
	g := startLoad(b, h, sys.port())
	time.Sleep(500 * time.Millisecond)
	o.begin = time.Now()
	said, exit := sys.update(b)
	o.said, o.took = fmt.Sprintf("%s, exit %d", said, exit), time.Since(o.begin)
	time.Sleep(max(sc.window-o.took, 2*time.Second))
	o.all = g.stop(b)
	o.sum = load.Summarise(o.all)
	o.end = ending(o.all, sys.good())
	if sc.behaviour == "good" {
		if o.end == "new serves" {
			sys.promote(version)
		}
		return o
	}
	if round == 0 { // once is enough: what the system does with it is its rule, not its speed
		said, exit := sys.update(b)
		o.again = fmt.Sprintf("%s, exit %d", said, exit)
	}
	sys.reset(b)
	return o
}

// ending says who served in the last seconds; a release that crashes again and again shows within them.
func ending(all []load.Answer, good string) string {
	last := load.Last(all).At
	count := map[string]int{}
	n := 0
	for _, a := range all {
		if last.Sub(a.At) > 4*time.Second {
			continue
		}
		n++
		switch {
		case a.Status == 0:
			count["down"]++
		case a.Version == good:
			count["previous serves"]++
		case a.Status/100 == 2:
			count["new serves"]++
		default:
			count[fmt.Sprintf("new answers %d", a.Status)]++
		}
	}
	for what, times := range count {
		if times >= n-n/50 {
			return what
		}
	}
	if count["previous serves"] > 0 {
		return "previous serves, with gaps"
	}
	return "new, crashing again and again"
}

// compared lays the systems side by side.
func compared(systems []system, got outcomes, notes []string) table.Section {
	s := table.Section{Name: "peers"}
	for _, sys := range systems {
		s.Systems = append(s.Systems, sys.name())
	}
	row := func(sc scenario, name string, f func([]outcome) table.Figure) {
		var cells []table.Figure
		for _, sys := range systems {
			cells = append(cells, f(got[sc.name][sys.name()]))
		}
		s.Add(name, cells...)
	}
	words := func(f func(outcome) string) func([]outcome) table.Figure {
		return func(all []outcome) table.Figure {
			var w []string
			for _, o := range all {
				if t := f(o); t != "" {
					w = append(w, t)
				}
			}
			return table.Said(w)
		}
	}
	numbers := func(unit string, f func(outcome) float64) func([]outcome) table.Figure {
		return func(all []outcome) table.Figure {
			var v []float64
			for _, o := range all {
				v = append(v, f(o))
			}
			return table.Measured(unit, v)
		}
	}
	for _, sc := range scenarios {
		row(sc, sc.name+": reported", words(func(o outcome) string { return o.said }))
		row(sc, "  after", numbers(table.Milliseconds, func(o outcome) float64 { return ms(o.took) }))
		row(sc, "  requests lost", numbers(table.Requests, func(o outcome) float64 { return float64(o.sum.Lost) }))
		row(sc, "  answered 5xx", numbers(table.Requests, func(o outcome) float64 { return float64(o.sum.Wrong) }))
		row(sc, "  of requests", numbers(table.Count, func(o outcome) float64 { return float64(o.sum.Sent) }))
		row(sc, "  slowest answer", numbers(table.Milliseconds, func(o outcome) float64 { return ms(o.sum.Slowest) }))
		row(sc, "  in the end", words(func(o outcome) string { return o.end }))
		if sc.behaviour != "good" {
			row(sc, "  the same digest once more", words(func(o outcome) string { return o.again }))
		}
	}
	s.Notes = append([]string{
		fmt.Sprintf("%d requests/s to /healthz, each on a new connection, open loop; the load goes on for %v to %v from the command on, longer where "+
			"the command takes longer. A bad release that stays is counted until then only.", rate, scenarios[0].window, scenarios[3].window),
		fmt.Sprintf("Every system may wait %v for readiness and then watch for %v (toad: deadline and stable; auto-update: TimeoutStartSec and nothing to "+
			"set; swarm: its health check and --update-monitor).", readyWithin, watched),
		"A crash loop (Restart=always, RestartSec=1) is in the end down once it has met systemd's start limit. docker service update at times " +
			"takes a minute more, with the service down; the spread shows it.",
		"Swarm runs on a second host of the same machine, with a port of the host as the others. Not measured here: an overlay network with " +
			"start-first for swarm. What a held socket and two sides do for toad is in the section switch.",
	}, notes...)
	return s
}

// serves waits until a service answers with a version.
func serves(b *bench, h *host.Host, port int, version string) {
	var body string
	host.Eventually(b, fmt.Sprintf("port %d to serve %s", port, version), time.Minute, func() bool {
		var status int
		status, body = h.Get(fmt.Sprintf("http://127.0.0.1:%d/healthz", port))
		return status == 200 && body == "version "+version+"\n"
	})
}
