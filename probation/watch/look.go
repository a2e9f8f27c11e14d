package watch

import (
	"context"
	"fmt"

	"toad/probation"
	"toad/unitgen"
)

// States tells how a unit stands now: its name, its state, and what it takes to find what runs as it.
type States interface {
	State(ctx context.Context, name string) (unitgen.State, error)
}

// Look finds out once whether a service is ready as it runs now, whatever release that is. It judges nothing, and asks
// Podman only for a health check of Podman's: that it is asked must cost next to nothing.
func Look(ctx context.Context, ready probation.Ready, services []string, units States, containers Containers, runs func(unitgen.State) string) (bool, string) {
	ask, err := newProbe(ready)
	if err != nil {
		return false, err.Error()
	}
	var first probation.UnitSample
	for i, name := range services {
		st, err := units.State(ctx, name)
		if err != nil {
			return false, err.Error()
		}
		u := probation.UnitSample{Service: name, Container: runs(st)}
		switch {
		case st.ActiveState != "active":
			return false, fmt.Sprintf("%s is %s (%s)", name, st.ActiveState, st.SubState)
		case u.Container == "":
			return false, "nothing is found that runs as " + name
		case i == 0:
			first = u
		}
	}
	return ask(ctx, &Check{Containers: containers}, first)
}
