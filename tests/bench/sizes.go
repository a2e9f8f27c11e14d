//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"toad/tests/bench/table"
)

// sizes measures what toad is on disk and in memory, and how long a person waits for an answer.
func sizes(b *bench, l *lab) table.Section {
	s := table.Section{Name: "sizes", Systems: []string{table.Toad, "podman"}}
	size := func(path string) table.Figure {
		info, err := os.Stat("/proc/" + fmt.Sprint(l.Pids(b, "toad.service")[0]) + "/root" + path)
		if err != nil {
			b.Fatal(err)
		}
		return table.Measured(table.Megabytes, []float64{float64(info.Size()) / 1e6})
	}
	n := 3 * l.rounds
	l.MustUser(b, "toad", "status")
	s.Add("program file", size("/usr/local/bin/toad"), size("/usr/bin/podman"))
	s.Add("toad status / podman ps", l.times(b, n, "toad", "status"), l.times(b, n, "podman", "ps"))
	var cold []float64
	for range n {
		l.MustUser(b, "systemctl", "--user", "stop", "toad.service")
		cold = append(cold, l.times(b, 1, "toad", "status").Median)
	}
	s.Add("  with the daemon not running", table.Measured(table.Milliseconds, cold))
	s.Add("toad version / podman --version", l.times(b, n, "toad", "version"), l.times(b, n, "podman", "--version"))
	var daemon, api, daemonOwn, apiOwn []float64
	for range l.rounds {
		l.MustUser(b, "systemctl", "--user", "stop", "toad.service", "podman.service")
		l.MustUser(b, "toad", "status")
		l.MustUser(b, "podman", "--remote", "ps")
		rss, own := l.memory(b, "toad.service")
		daemon, daemonOwn = append(daemon, rss), append(daemonOwn, own)
		rss, own = l.memory(b, "podman.service")
		api, apiOwn = append(api, rss), append(apiOwn, own)
	}
	s.Add("daemon after one request, resident / podman system service", table.Measured(table.Megabytes, daemon), table.Measured(table.Megabytes, api))
	s.Add("  of it its own (not pages of the program file)", table.Measured(table.Megabytes, daemonOwn), table.Measured(table.Megabytes, apiOwn))
	for _, p := range idlePeers(b) {
		s.Add("  beside it, idle: "+p.name, table.Figure{}, table.Measured(table.Megabytes, []float64{p.mb}))
	}
	s.Notes = []string{"Between deployments toad has no process at all: the daemon ends 30 s after its last request. The others idle as Debian's packages start them.",
		fmt.Sprintf("Commands: medians of %d runs, from fork to exit, within the host.", n)}
	return s
}

// times runs a command some times within the host.
func (l *lab) times(b *bench, n int, argv ...string) table.Figure {
	var took []float64
	out := l.MustUser(b, append([]string{"bench", "inside", "time", fmt.Sprint(n)}, argv...)...)
	if err := json.Unmarshal([]byte(out), &took); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	return table.Measured(table.Milliseconds, took)
}

// peer is what another system keeps resident, in MB.
type peer struct {
	name string
	mb   float64
}

// idlePeers asks a host with the peers' own packages, an instant after it has booted.
func idlePeers(b *bench) (peers []peer) {
	h := newPeers(b)
	h.MustExec(b, "systemctl", "start", "docker.service", "caddy.service", "nats-server.service")
	for _, p := range []struct{ name, units string }{
		{"dockerd and containerd", "docker.service containerd.service"}, {"caddy", "caddy.service"}, {"nats-server", "nats-server.service"},
	} {
		out := h.MustExec(b, "sh", "-c", `for u in $1; do awk '/^VmRSS/ { print $2 }' /proc/$(systemctl show -P MainPID $u)/status; done`, "sh", p.units)
		sum := 0.0
		for _, f := range strings.Fields(out) {
			var kb float64
			_, _ = fmt.Sscan(f, &kb)
			sum += kb * 1024 / 1e6
		}
		peers = append(peers, peer{p.name, sum})
	}
	return peers
}
