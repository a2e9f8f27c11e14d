package rollout

import (
	"toad/probation"
	"toad/quadlet"
)

// wantedPins are the texts that a service's units must have while no operation is under way, by Quadlet file name; "" is
// no pin. known is false where the records do not tell, so that nothing is to be put right.
func (r *Rollout) wantedPins(svc probation.Service) (want map[string]string, known bool) {
	want = map[string]string{}
	op := svc.Operation
	if op == nil {
		return want, true
	}
	if svc.Promoted == nil {
		for _, b := range op.Before {
			want[b.Unit] = ""
		}
		for _, unit := range op.Enrollment.Units {
			want[unit] = ""
		}
		return want, true
	}
	last, found := r.lastTouched(svc)
	if !found {
		return want, svc.Promoted.Generation == 0
	}
	for _, b := range last.Before {
		want[b.Unit] = r.decidedPin(svc, last, b)
		if p, err := quadlet.ParsePin(want[b.Unit]); svc.ByID && err == nil && !svc.Draining(b.Unit) {
			p.Reference = svc.Promoted.ImageID
			want[b.Unit] = p.Text()
		}
	}
	return want, true
}

// decidedPin is the pin that a unit has when an operation is decided.
func (r *Rollout) decidedPin(svc probation.Service, op probation.Operation, b probation.UnitBefore) string {
	switch op.Phase {
	case probation.Promoted:
		if !op.Moves(b) {
			if svc.Draining(b.Unit) {
				return b.Pin
			}
			return r.idlePin(op, b.Unit, op.Candidate).Text()
		}
		return r.promotedPin(op, b).Text()
	case probation.Failed:
		return b.Pin
	}
	return r.restoredPin(op, b)
}

// lastTouched is the latest operation that got as far as to touch the pins, since they were last given up.
func (r *Rollout) lastTouched(svc probation.Service) (probation.Operation, bool) {
	op := *svc.Operation
	for g := svc.Generation; g > svc.Unpinned; g-- {
		if g != op.Generation {
			var err error
			if op, err = r.Records.Operation(probation.OperationID(svc.Name, g)); err != nil {
				return op, false // older than those that are kept, or damaged
			}
		}
		if len(op.Before) > 0 {
			return op, true
		}
	}
	return op, false
}
