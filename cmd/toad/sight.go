package main

import (
	"context"
	"os"

	"toad/httpd"
	"toad/probation"
	"toad/quadlet"
	"toad/unitgen"
)

// sight is what the daemon is told of the host beyond records, bus and Podman's socket. In a container of its own it sees
// neither cgroups nor processes, networks, registries' settings or unit files, and asks toad-look.service for these.
type sight struct {
	httpd.Registry
	httpd.Proofs
	httpd.Planner
	httpd.Host
	pageSight
}

// pageSight is what the page asks.
type pageSight interface {
	// ServiceOf is the systemd unit of a Quadlet file.
	ServiceOf(ctx context.Context, unit string) (string, error)
	// Runs names what runs as a unit, a container or a process; empty where nothing does.
	Runs(ctx context.Context, s unitgen.State) string
	// FileOf is the sha256 of the file that a process executes.
	FileOf(ctx context.Context, process string) (string, error)
	// Probe asks the application of a unit whether it is ready, while the unit is up.
	Probe(ctx context.Context, ready probation.Ready, unit string) probed
}

// probed is what a probe found.
type probed struct {
	Known, OK bool
	Why       string
}

// lookSocket names the variable that holds where a daemon in a container asks about the host.
const lookSocket = "TOAD_LOOK"

// sight is the host's own where the daemon runs on it.
func (h *host) sight() sight {
	if at := os.Getenv(lookSocket); at != "" {
		far := newFarSight(at)
		return sight{far, far, far, farHost{far, looks{h}}, far}
	}
	return h.ownSight()
}

func (h *host) ownSight() sight {
	return sight{published{h.podman}, proofs{h}, h.rollout, looks{h}, pageLooks{h}}
}

// pageLooks lends the host to the page.
type pageLooks struct{ h *host }

func (p pageLooks) ServiceOf(_ context.Context, unit string) (string, error) {
	src, err := quadlet.Find(p.h.rollout.Quadlet, unit)
	return src.ServiceUnit, err
}

func (p pageLooks) Runs(_ context.Context, s unitgen.State) string { return runsAs(s) }

func (p pageLooks) FileOf(_ context.Context, process string) (string, error) { return fileOf(process) }

func (p pageLooks) Probe(ctx context.Context, ready probation.Ready, unit string) probed {
	return probe(ctx, p.h.bus, p.h.podman, ready, unit)
}
