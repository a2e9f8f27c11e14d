//go:build e2e

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"toad/tests/bench/table"
	"toad/tests/host"
)

const (
	probation   = 20 * time.Second
	cpuGoal     = 1.0  // percent of a core
	memoryGoal  = 30.0 // MB
	managerPart = "init.scope"
	busPart     = "session.slice/dbus.service"
	podmanPart  = "app.slice/podman.service"
)

// usage is CPU used over some time, in percent of one core.
type usage struct{ check, manager, bus, podman, service float64 }

// check measures the observer of a probation, and what it costs those that it asks.
func check(b *bench, l *lab) table.Section {
	l.enroll(b, "60s", fmt.Sprint(probation))
	var (
		idle, busy           []usage
		start, resident, own []float64
		perLook, cpuSeconds  []float64
	)
	for i := range l.rounds {
		idle = append(idle, l.use(b, "", probation/2))
		version := fmt.Sprintf("check-%d", i)
		img := l.Push(b, version, "good", version)
		l.MustUser(b, "toad", "deploy", "--detach", "web", img.Digest)
		l.waitPhase(b, "probation")
		host.Eventually(b, "the check to find the service ready", time.Minute, func() bool {
			_, ready := l.moments(b, l.record(b).Operation.ID)["ready"]
			return ready
		})
		unit := "toad-check-" + l.record(b).Operation.ID + ".service"
		at := l.cpu("app.slice/" + unit)
		start = append(start, ms(at))
		busy = append(busy, l.use(b, unit, probation-4*time.Second))
		rss, anon := l.memory(b, unit)
		resident, own = append(resident, rss), append(own, anon)
		cpuSeconds = append(cpuSeconds, ms(l.cpu("app.slice/"+unit)))
		perLook = append(perLook, busy[i].check/100*500)
		l.settle(b)
		if op := l.record(b).Operation; op.Phase != "promoted" {
			b.Fatalf("%s ended %s", op.ID, op.Phase)
		}
		l.good = version
		b.say("round %d: check %.2f %% of a core, %.1f MB", i+1, busy[i].check, rss)
	}
	s := table.Section{Name: "check", Systems: []string{table.Toad, "the same host without a deployment"}}
	percent := func(of []usage, f func(usage) float64) table.Figure {
		var v []float64
		for _, u := range of {
			v = append(v, f(u))
		}
		return table.Measured(table.Percent, v)
	}
	cpu := percent(busy, func(u usage) float64 { return u.check })
	s.Add("CPU of the check, of one core, while it watches", cpu).Want(fmt.Sprintf("≤ %.0f %%", cpuGoal), cpu.Median <= cpuGoal)
	s.Add("  for each look (every 500 ms)", table.Measured(table.Milliseconds, perLook))
	s.Add("  its start, up to the first ready", table.Measured(table.Milliseconds, start))
	s.Add("  in all, 2 s before the end of its 20 s", table.Measured(table.Milliseconds, cpuSeconds))
	rss := table.Measured(table.Megabytes, resident)
	s.Add("resident memory of the check, peak", rss).Want(fmt.Sprintf("≤ %.0f MB", memoryGoal), rss.Median <= memoryGoal)
	s.Add("  of it its own (not pages of the program file)", table.Measured(table.Megabytes, own))
	for _, part := range []struct {
		name string
		f    func(usage) float64
	}{
		{"CPU of the user manager", func(u usage) float64 { return u.manager }},
		{"CPU of the user's bus", func(u usage) float64 { return u.bus }},
		{"CPU of podman system service", func(u usage) float64 { return u.podman }},
		{"CPU of the service, which answers the probes", func(u usage) float64 { return u.service }},
	} {
		s.Add(part.name, percent(busy, part.f), percent(idle, part.f))
	}
	s.Notes = []string{
		fmt.Sprintf("A probation of %v with the default interval, measured from the first ready for %v; the idle column over %v just before each. "+
			"From the cgroups' own accounting.", probation, probation-4*time.Second, probation/2),
	}
	return s
}

// use is what the check and those it asks use over some time.
func (l *lab) use(b *bench, unit string, d time.Duration) usage {
	parts := []string{"app.slice/" + unit, managerPart, busPart, podmanPart, "app.slice/web.service"}
	before := make([]time.Duration, len(parts))
	newest := make([]time.Duration, len(parts))
	for i, p := range parts {
		before[i] = l.cpu(p)
		newest[i] = before[i]
	}
	begin := time.Now()
	for time.Since(begin) < d {
		time.Sleep(250 * time.Millisecond)
		for i, p := range parts {
			newest[i] = max(newest[i], l.cpu(p)) // podman.service may end in between
		}
	}
	took := time.Since(begin)
	of := func(i int) float64 { return 100 * float64(newest[i]-before[i]) / float64(took) }
	u := usage{check: of(0), manager: of(1), bus: of(2), podman: of(3), service: of(4)}
	if unit == "" {
		u.check = 0
	}
	return u
}

// memory is the peak resident set of a unit's processes, and the part that is not of files, in MB.
func (l *lab) memory(b *bench, unit string) (resident, own float64) {
	pids := l.Pids(b, unit)
	if len(pids) == 0 {
		b.Fatalf("%s has no process", unit)
	}
	for _, pid := range pids {
		text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "status"))
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var kb float64
			if _, err := fmt.Sscanf(line, "VmHWM: %f kB", &kb); err == nil {
				resident += kb * 1024 / 1e6
			}
			if _, err := fmt.Sscanf(line, "RssAnon: %f kB", &kb); err == nil {
				own += kb * 1024 / 1e6
			}
		}
	}
	return resident, own
}
