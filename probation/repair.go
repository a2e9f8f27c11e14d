package probation

import (
	"slices"
	"time"
)

// Fold draws from a decided operation what Apply drew when it ended. A record that was lost is rebuilt so, oldest
// operation first.
func (s Service) Fold(op Operation) Service {
	s.Generation, s.Operation = op.Generation, &op
	if op.Prepared && s.Promoted == nil && op.Previous != nil {
		s.Promoted, s.Retained = op.Previous, []Release{*op.Previous}
	}
	at := op.AcceptedAt
	if op.EndedAt != nil {
		at = *op.EndedAt
	}
	switch {
	case op.Phase == Promoted:
		op.EndedAt = &at
		return s.promote(op)
	case op.Phase != Failed && op.Evidence != nil, op.Phase == Failed && op.Code == CodeProgramMismatch:
		return s.refuse(op, at)
	}
	return s
}

// Refuse adds refusals that are known from elsewhere. One is left out if its release was promoted later.
func (s Service) Refuse(more []Refusal, promoted map[int]Release) Service {
	for _, f := range more {
		_, refused, _ := ParseOperationID(f.Operation)
		lifted := false
		for generation, r := range promoted {
			lifted = lifted || (generation > refused && r.Same(f.Release))
		}
		if !lifted && s.Refusal(f.Release) == nil {
			s.Refusals = append(slices.Clone(s.Refusals), f)
		}
	}
	return s
}

// Interrupt is the event by which an operation is given up without blame.
func Interrupt(now Instant, reason string) Event {
	return Event{Kind: Unfit, At: now, Code: CodeInterrupted, Reason: reason}
}

// Ended closes an operation of which only the end is known.
func (op Operation) Ended(p Phase, code Code, reason string, at time.Time) Operation {
	at = at.UTC()
	op.Phase, op.Code, op.Reason, op.EndedAt = p, code, reason, &at
	return op
}
