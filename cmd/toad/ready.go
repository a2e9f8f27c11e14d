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

// Ready probes what runs of services now; of two sides the one in force. Which folders
// hold Quadlets is found out once for all of them.
func (l looks) Ready(ctx context.Context, all []probation.Enrollment, tell func(i int, ready bool, why string)) {
	survey := l.h.rollout.Quadlet.Survey()
	services, sides := make([][]string, len(all)), make([]string, len(all))
	for i, e := range all {
		var why string
		if services[i], sides[i], why = l.unitsOf(e, survey); why != "" {
			tell(i, false, why)
		}
	}
	eachOf(ctx, len(all), mostProbes, func(i int) {
		if len(services[i]) == 0 {
			return // told
		}
		ready := all[i].Ready.Of(sides[i], l.h.rollout.Runtime)
		ok, why := watch.Look(ctx, ready, services[i], shortly{l.h.bus}, containers{l.h.podman}, runsAs)
		if ok || ctx.Err() == nil { // else it had no time to answer
			tell(i, ok, why)
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

// shortUnits is what the user manager tells of a unit for the least it can.
type shortUnits interface {
	Running(ctx context.Context, name string) (unitgen.State, error)
	Loaded(ctx context.Context, name string) (bool, error)
}

// shortly reads no more of units than a look takes.
type shortly struct{ shortUnits }

// State asks only whether a unit is loaded where it is not, and then it does not run: to load a unit, only to drop it
// again, is what costs the user manager most.
func (b shortly) State(ctx context.Context, name string) (unitgen.State, error) {
	if loaded, err := b.Loaded(ctx, name); err != nil || !loaded {
		return unitgen.State{Name: name, ActiveState: "inactive", SubState: "dead"}, err
	}
	return b.Running(ctx, name)
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
