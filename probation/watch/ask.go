package watch

import (
	"context"

	"toad/probation"
)

// Ask probes what runs once, for one who only wants to tell of it. Nothing is judged by the answer.
func Ask(ctx context.Context, ready probation.Ready, containers Containers, container string) (ok bool, why string) {
	probe, err := newProbe(ready)
	if err != nil {
		return false, err.Error()
	}
	return probe(ctx, &Check{Containers: containers}, probation.UnitSample{Container: container})
}
