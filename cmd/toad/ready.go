package main

import (
	"context"
	"sync"

	"toad/probation"
	"toad/probation/watch"
	"toad/quadlet"
	"toad/unitgen"
)

// mostProbes is how many services are looked at at a time: each holds a connection, and the user manager answers one
// after the other anyway.
const mostProbes = 32

// Ready probes what runs of services now; of two sides the one in force. What all of them need is found out once: which
// folders hold Quadlets, and which units are up.
func (l looks) Ready(ctx context.Context, all []probation.Enrollment, tell func(i int, ready bool, why string)) {
	survey := l.h.rollout.Quadlet.Survey()
	services, sides := make([][]string, len(all)), make([]string, len(all))
	for i, e := range all {
		var why string
		if services[i], sides[i], why = l.unitsOf(e, survey); why != "" {
			tell(i, false, why)
		}
	}
	var units watch.States = l.h.bus
	var err error
	if len(all) > 1 {
		units, err = glimpseAll(ctx, l.h.bus)
	}
	if ctx.Err() != nil {
		return
	}
	eachOf(ctx, len(all), mostProbes, func(i int) {
		switch {
		case len(services[i]) == 0: // told
		case err != nil:
			tell(i, false, err.Error())
		default:
			ready := all[i].Ready.Of(sides[i], l.h.rollout.Runtime)
			ok, why := watch.Look(ctx, ready, services[i], units, containers{l.h.podman}, runsAs)
			if ok || ctx.Err() == nil { // else it had no time to answer
				tell(i, ok, why)
			}
		}
	})
}

// unitsOf are the systemd units of a service, and the side in force if it has sides; none with the reason why not.
func (l looks) unitsOf(e probation.Enrollment, survey quadlet.Survey) (services []string, side, why string) {
	units := e.Units
	if e.Door != nil {
		svc, err := l.h.records.Service(e.Name)
		if err != nil || svc.Promoted == nil {
			return nil, "", "neither side is in force"
		}
		side = svc.Promoted.Side
		units = []string{side}
	}
	for _, unit := range units {
		src, err := survey.Find(unit)
		if err != nil {
			return nil, "", oneLine(err)
		}
		services = append(services, src.ServiceUnit)
	}
	return services, side, ""
}

// manyUnits is what the user manager tells of units.
type manyUnits interface {
	pageUnits
	Running(ctx context.Context, name string) (unitgen.State, error)
	Loaded(ctx context.Context, name string) (bool, error)
}

// glimpsed are all services of the user manager, listed in one call.
type glimpsed struct {
	manyUnits
	seen map[string]glimpse
}

type glimpse struct{ active, sub string }

func glimpseAll(ctx context.Context, bus manyUnits) (glimpsed, error) {
	list, err := bus.List(ctx, "*.service")
	g := glimpsed{bus, make(map[string]glimpse, len(list))}
	for _, st := range list {
		g.seen[st.Name] = glimpse{st.ActiveState, st.SubState}
	}
	return g, err
}

// State asks for more than the list told only where a unit is up. One that is not listed is not in use, unless it has
// another name.
func (g glimpsed) State(ctx context.Context, name string) (unitgen.State, error) {
	was, listed := g.seen[name]
	st := unitgen.State{Name: name, ActiveState: was.active, SubState: was.sub}
	switch {
	case !listed:
		if loaded, err := g.Loaded(ctx, name); err != nil || loaded {
			return g.manyUnits.State(ctx, name)
		}
		st.ActiveState, st.SubState = "inactive", "dead"
	case st.Up():
		return g.Running(ctx, name)
	}
	return st, nil
}

// eachOf does something for each number below n, at most so many at a time, until the context ends.
func eachOf(ctx context.Context, n, most int, do func(i int)) {
	next := make(chan int)
	var all sync.WaitGroup
	for range min(n, most) {
		all.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	defer all.Wait()
	defer close(next)
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
			return
		}
	}
}
