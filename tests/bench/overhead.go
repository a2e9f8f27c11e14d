//go:build e2e

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"toad/tests/bench/table"
)

const addedGoal = 300 // ms that toad may add before the candidate starts

// switched is one switch, as milliseconds from its beginning.
type switched struct {
	typed, act, prepare, queue, stopped, started float64
	cpu                                          float64 // of all processes of the user manager, until it serves
}

// overhead measures what toad adds between the acceptance of a digest that is pulled already and the candidate's start,
// over a bare daemon-reload and restart of the same unit.
func overhead(b *bench, l *lab) table.Section {
	l.enroll(b, "60s", "1s")
	var bare, warm, cold []switched
	for i := range 2 * l.rounds { // they are short, and what is looked for is small
		bare = append(bare, l.bareSwitch(b))
		warm = append(warm, l.toadSwitch(b, fmt.Sprintf("warm-%d", i), true))
		cold = append(cold, l.toadSwitch(b, fmt.Sprintf("cold-%d", i), false))
		b.say("round %d: to the start: bare %.0f ms, toad warm %.0f, cold %.0f", i+1, bare[i].started, warm[i].started, cold[i].started)
	}
	s := table.Section{Name: "overhead", Systems: []string{table.Toad, "bare reload + restart"}}
	column := func(of []switched, f func(switched) float64) []float64 {
		var v []float64
		for _, one := range of {
			v = append(v, f(one))
		}
		return v
	}
	measured := func(of []switched, f func(switched) float64) table.Figure {
		return table.Measured(table.Milliseconds, column(of, f))
	}
	added := func(of []switched, f func(switched) float64) table.Figure {
		mine, theirs := column(of, f), column(bare, f)
		for i := range mine {
			mine[i] -= theirs[i]
		}
		return table.Measured(table.Milliseconds, mine)
	}
	started := func(o switched) float64 { return o.started }
	stopped := func(o switched) float64 { return o.stopped }
	away := func(o switched) float64 { return o.started - o.stopped }
	cpu := func(o switched) float64 { return o.cpu }
	typed := func(o switched) float64 { return o.started + o.typed }
	for _, of := range []struct {
		name string
		all  []switched
	}{{"Podman's API warm", warm}, {"Podman's API cold", cold}} {
		s.Add("accepted → candidate's main process, "+of.name, measured(of.all, started), measured(bare, started))
		more := added(of.all, started)
		s.Add("  added up to the start, "+of.name, more).Want(fmt.Sprintf("≤ %d ms", addedGoal), more.Median <= addedGoal)
		s.Add("accepted → old release told to stop, "+of.name, measured(of.all, stopped), measured(bare, stopped))
		more = added(of.all, stopped)
		s.Add("  added up to the stop, "+of.name, more).Want(fmt.Sprintf("≤ %d ms", addedGoal), more.Median <= addedGoal)
		s.Add("  accepted → act runs", measured(of.all, func(o switched) float64 { return o.act }))
		s.Add("  prepare: image, way back, units", measured(of.all, func(o switched) float64 { return o.prepare }))
		s.Add("  switch: timer, pin, reload, verify, check, restart queued", measured(of.all, func(o switched) float64 { return o.queue }))
		s.Add("old release told to stop → candidate's main process, "+of.name, measured(of.all, away), measured(bare, away))
		s.Add("CPU of all the user's processes until the candidate serves, "+of.name, measured(of.all, cpu), measured(bare, cpu))
	}
	s.Add("toad deploy typed → candidate's main process, Podman's API cold", measured(cold, typed), measured(bare, started))
	s.Notes = []string{
		fmt.Sprintf("%d rounds of bare, warm and cold in turn; added: the median of the differences within a round.", len(bare)),
		"bare: systemctl --user daemon-reload && systemctl --user restart web.service, on the unit as toad left it, from the first command's start.",
		"The stop of the old container and the start of the new one are in the first figure of both; they vary more than what toad adds, " +
			"so the figure up to the stop is the sharper one. systemd gives the main process's start in steps of 10 ms.",
		"CPU time is of the cgroup of user@1000.service: the manager, Podman, the service and, in toad's column, toad; it does not depend on who else uses the machine.",
		"Cold: podman.service had ended (it does 5 s after its last request), which is how a deployment usually finds it.",
	}
	return s
}

// bareSwitch is what an operator would type.
func (l *lab) bareSwitch(b *bench) switched {
	l.quiet(b)
	used := l.cpu("")
	begin := l.began(b, "systemctl --user daemon-reload && systemctl --user restart web.service")
	serves(b, l.Host, 8080, l.good)
	used = l.cpu("") - used
	at := l.stamps(b, "web.service")
	return switched{cpu: ms(used), stopped: ms(at["ActiveExit"].Sub(begin)), started: ms(at["ExecMainStart"].Sub(begin))}
}

func (l *lab) toadSwitch(b *bench, version string, warm bool) switched {
	img := l.Push(b, version, "good", version)
	l.MustUser(b, "podman", "pull", "-q", "127.0.0.1:5000/app@"+img.Digest)
	l.quiet(b)
	if warm {
		l.MustUser(b, "podman", "--remote", "version")
	} else {
		l.MustUser(b, "systemctl", "--user", "stop", "podman.service")
	}
	used := l.cpu("")
	begin := l.began(b, "toad deploy --detach web "+img.Digest)
	serves(b, l.Host, 8080, version)
	used = l.cpu("") - used
	l.settle(b)
	l.good = version
	op := l.record(b).Operation
	log, at := l.moments(b, op.ID), l.stamps(b, "web.service")
	if op.Phase != "promoted" {
		b.Fatalf("%s ended %s", op.ID, op.Phase)
	}
	return switched{
		cpu:     ms(used),
		typed:   ms(op.AcceptedAt.Sub(begin)),
		act:     ms(log["preparing"].Sub(op.AcceptedAt)),
		prepare: ms(log["switching"].Sub(log["preparing"])),
		queue:   ms(log["probation"].Sub(log["switching"])),
		stopped: ms(at["ActiveExit"].Sub(op.AcceptedAt)),
		started: ms(at["ExecMainStart"].Sub(op.AcceptedAt)),
	}
}

// began runs a command line to its end and returns when it began, by the host's own clock.
func (l *lab) began(b *bench, line string) time.Time {
	out := l.MustUser(b, "sh", "-c", "date +%s%N; "+line)
	first, _, _ := strings.Cut(out, "\n")
	ns, err := strconv.ParseInt(first, 10, 64)
	if err != nil {
		b.Fatalf("%s: %q", line, out)
	}
	return time.Unix(0, ns)
}
