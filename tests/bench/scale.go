//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"time"

	"toad/tests/bench/load"
	"toad/tests/bench/table"
	"toad/tests/host"
)

const (
	daemonGoal = 40.0 // MB with a thousand services
	listRate   = 5    // requests per second
	history    = 100  // operations that are kept of a service
)

// counts are how many services are enrolled, in the order in which they come to the host.
var counts = []int{10, 100, 1000}

// scale measures what more services cost those who look, and the daemon. Each has a Quadlet, a pin, an enrollment and a
// record as the deployment of web left them; their containers do not run.
func scale(b *bench, _ *lab) table.Section {
	l := newLab(b, 5) // of its own: a thousand units make every reload slower
	s := table.Section{Name: "scale"}
	kinds := []string{"status of one, p50", "status of one, p99", "  requests without a good answer", "list of all, p50",
		"toad status", "daemon not running → first answer", "resident memory of the daemon", "  of it its own (not pages of the program file)"}
	cells := make([][]table.Figure, len(kinds))
	have := 0
	for _, n := range counts {
		s.Systems = append(s.Systems, fmt.Sprintf("%d services", n))
		l.populate(b, have, n-1) // web is the first
		have = n - 1
		values := make([][]float64, len(kinds))
		note := func(kind int, v ...float64) { values[kind] = append(values[kind], v...) }
		for range l.rounds {
			l.quiet(b)
			l.MustUser(b, "systemctl", "--user", "stop", "toad.service")
			note(5, percentile(l.ask(b, "/v1/services/web", 1, time.Second), 50))
			all := l.ask(b, "/v1/services/web", apiRate, apiTime)
			sum := load.Summarise(all)
			note(0, percentile(all, 50))
			note(1, percentile(all, 99))
			note(2, float64(sum.Lost+sum.Wrong))
			note(3, percentile(l.ask(b, "/v1/services", listRate, apiTime), 50))
			note(4, l.times(b, 3, "toad", "status").Median)
			resident, own := l.memory(b, "toad.service")
			note(6, resident)
			note(7, own)
			b.say("%d services: status p99 %.1f ms, list %.0f ms, daemon %.1f MB", n, last(values[1]), last(values[3]), resident)
		}
		units := []string{table.Milliseconds, table.Milliseconds, table.Requests, table.Milliseconds, table.Milliseconds, table.Milliseconds, table.Megabytes, table.Megabytes}
		for i := range kinds {
			cells[i] = append(cells[i], table.Measured(units[i], values[i]))
		}
	}
	for i, kind := range kinds {
		row := s.Add(kind, cells[i]...)
		switch most := cells[i][len(counts)-1].Median; i {
		case 1:
			row.Want(fmt.Sprintf("< %.0f ms", statusGoal), most < statusGoal)
		case 6:
			row.Want(fmt.Sprintf("≤ %.0f MB", daemonGoal), most <= daemonGoal)
		}
	}
	few, many := l.histories(b)
	s.Add(fmt.Sprintf("a page of history, of 1 and of %d operations", history), few, table.Figure{}, many)
	s.Notes = []string{fmt.Sprintf("Status of one: %d requests/s to the Unix socket for %v, as in api; the list: %d requests/s. A list looks at every unit of every service. "+
		"The daemon was stopped before each round; its memory is read after all of it.", apiRate, apiTime, listRate)}
	return s
}

func last(v []float64) float64 { return v[len(v)-1] }

// ask asks the daemon within the host.
func (l *lab) ask(b *bench, path string, rate int, length time.Duration) (all []load.Answer) {
	out := l.MustUser(b, "bench", "inside", "ask", apiSocket, path, fmt.Sprint(rate), length.String())
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		b.Fatalf("%v: %.500s", err, out)
	}
	return all
}

// populate brings services svc-<from> up to svc-<to - 1> to the host.
func (l *lab) populate(b *bench, from, to int) {
	b.say("%d more services", to-from)
	l.MustUser(b, "sh", "-ec", `
		config=~/.config state=~/.local/state/toad
		for i in $(seq "$1" "$2"); do
			n=$(printf svc-%04d "$i")
			sed '/^PublishPort/d; /Install/,$d' $config/containers/systemd/web.container >$config/containers/systemd/$n.container
			mkdir -p $config/containers/systemd/$n.container.d
			sed "s/web/$n/g" $config/containers/systemd/web.container.d/zz-toad.conf >$config/containers/systemd/$n.container.d/zz-toad.conf
			umask 077
			sed "s/web/$n/g" $state/services/web.json >$state/services/$n.json
			umask 022
			printf '\n[service.%s]\nunits = ["%s.container"]\nimage = "%s"\n' $n $n "$3"
		done >>$config/toad/enrollment.toml
		systemctl --user daemon-reload`, "sh", fmt.Sprint(from), fmt.Sprint(to-1), host.Repository)
	time.Sleep(3 * time.Second) // services rest for days: what changed in the last two seconds is read anew for each request
}

// histories measures a page of one service's operations, with one operation and with as many as are kept.
func (l *lab) histories(b *bench) (few, many table.Figure) {
	page := func() table.Figure {
		var took []float64
		for range l.rounds {
			took = append(took, percentile(l.ask(b, "/v1/services/svc-0000/operations?limit=20", listRate, apiTime), 50))
		}
		return table.Measured(table.Milliseconds, took)
	}
	few = page()
	l.MustUser(b, "sh", "-ec", `
		cd ~/.local/state/toad
		umask 077
		g=$(sed -n 's/^ *"generation": *\([0-9]*\),*$/\1/p' services/svc-0000.json | head -n 1)
		for i in $(seq 1 "$1"); do
			sed "s/web/svc-0000/g; s/-g$g\"/-g$i\"/; s/\"generation\": *$g\b/\"generation\": $i/" operations/web-g$g.json >operations/svc-0000-g$i.json
		done
		sed -i "s/-g$g\"/-g$1\"/; s/\"generation\": *$g\b/\"generation\": $1/" services/svc-0000.json`, "sh", fmt.Sprint(history))
	time.Sleep(3 * time.Second)
	return few, page()
}
