package probation

import (
	"maps"
	"time"
)

// Totals count what became of a service's operations, for as long as its record lives.
type Totals struct {
	Ended map[Phase]int   `json:"ended,omitempty"` // operations, by how they ended
	Left  map[Phase]Spent `json:"left,omitempty"`  // phases that operations have left
}

// Spent is how often a phase was left, and how long it had lasted.
type Spent struct {
	Count int           `json:"count"`
	Time  time.Duration `json:"time"`
}

// moved counts that an operation has gone from one phase to another. A clock that was put back counts as no time.
func (t Totals) moved(from, to Phase, spent time.Duration) Totals {
	left := maps.Clone(t.Left)
	if left == nil {
		left = map[Phase]Spent{}
	}
	left[from] = Spent{left[from].Count + 1, left[from].Time + max(spent, 0)}
	t.Left = left
	if to.Terminal() {
		ended := maps.Clone(t.Ended)
		if ended == nil {
			ended = map[Phase]int{}
		}
		ended[to]++
		t.Ended = ended
	}
	return t
}
