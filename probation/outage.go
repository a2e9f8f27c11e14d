package probation

import "time"

// Outage adds up how long a service was not ready during an attempt: from the last look that found a release ready to
// the next one that did, whichever release that was.
type Outage struct {
	Ready Instant       `json:"ready"`          // when it was last seen ready
	Open  bool          `json:"open,omitempty"` // it has not been seen ready since
	Total time.Duration `json:"total"`          // of the breaks that are over
}

// See notes one look.
func (o Outage) See(ready bool, at Instant) Outage {
	if !ready {
		o.Open = true
		return o
	}
	if o.Open {
		o.Total += o.Ready.until(at)
	}
	o.Open, o.Ready = false, at
	return o
}

// Outage is what an earlier check of an operation saw, carried to where the phase began: a release that was ready when it
// was last saved has been so until then. Before the first check it was ready until the switch.
func (op Operation) Outage(seen Outage) Outage {
	var began Instant
	switch {
	case op.Phase == Restoring && op.RestoreBy != nil:
		began = op.RestoreBy.less(op.restoreLimit())
	case op.Deadline != nil:
		began = op.Deadline.less(op.Enrollment.Limit.Deadline)
	}
	switch {
	case seen.Ready.BootID == "":
		seen.Ready = began
	case !seen.Open && seen.Ready.BootID == began.BootID && began.Boot > seen.Ready.Boot:
		seen.Ready = began
	}
	return seen
}

// less is the instant d before a deadline.
func (d Deadline) less(by time.Duration) Instant {
	return Instant{Wall: d.At.Add(-by), Boot: d.Boot - by, BootID: d.BootID}
}

// until says how much later another instant is; across boots by the wall clock, which may have been put back.
func (i Instant) until(later Instant) time.Duration {
	if i.BootID == later.BootID {
		return max(0, later.Boot-i.Boot)
	}
	return max(0, later.Wall.Sub(i.Wall))
}
