package watch

import (
	"context"
	"fmt"

	"toad/probation"
	"toad/unitgen"
)

// Look finds out once whether a service is ready as it runs now, whatever release that is. It judges nothing.
func Look(ctx context.Context, ready probation.Ready, services []string, units Units, containers Containers, payload func(string) string) (bool, string) {
	ask, err := newProbe(ready)
	if err != nil {
		return false, err.Error()
	}
	c := &Check{Units: units, Containers: containers, Payload: payload, known: map[string]Container{}, stops: map[string]bool{},
		MemoryLimit: func(unitgen.State) bool { return false }}
	var first probation.UnitSample
	for i, name := range services {
		u, _, err := c.unit(ctx, name)
		switch {
		case err != nil:
			return false, err.Error()
		case u.ActiveState != "active":
			return false, fmt.Sprintf("%s is %s (%s)", name, u.ActiveState, u.SubState)
		case u.Container == "":
			return false, name + " has no running container"
		}
		if i == 0 {
			first = u
		}
	}
	return ask(ctx, c, first)
}
