package watch

import (
	"context"
	"fmt"

	"toad/probation"
)

// Look finds out once whether a service is ready as it runs now, whatever release that is. It judges nothing, and asks
// Podman only for a health check of Podman's: that it is asked must cost next to nothing.
func Look(ctx context.Context, ready probation.Ready, services []string, units Units, containers Containers, payload func(string) string) (bool, string) {
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
		u := probation.UnitSample{Service: name, Container: payload(st.ControlGroup)}
		switch {
		case st.ActiveState != "active":
			return false, fmt.Sprintf("%s is %s (%s)", name, st.ActiveState, st.SubState)
		case u.Container == "":
			return false, name + " has no running container"
		case i == 0:
			first = u
		}
	}
	return ask(ctx, &Check{Containers: containers}, first)
}
