package probation

import (
	"slices"
	"strings"
	"time"
)

// Door makes a service's two units its sides: they may run at once. One is in force, the other takes the next candidate,
// and a symbolic link to which the door's proxy connects says which one clients reach.
type Door struct {
	Socket string        `json:"socket"` // the socket unit at which clients arrive
	Listen string        `json:"listen"` // the path of a side's own socket; %t is the runtime folder, %i the side's instance
	Drain  time.Duration `json:"drain"`  // how long connections to the former side may last after the door has turned
}

// Address is the path of a side's own socket.
func (d Door) Address(side, runtimeDir string) string { return fill(d.Listen, side, runtimeDir) }

// Of is how the readiness of one side is asked.
func (r Ready) Of(side, runtimeDir string) Ready {
	if side == "" {
		return r
	}
	r.HTTP, r.TCP, r.Unix = fill(r.HTTP, side, runtimeDir), fill(r.TCP, side, runtimeDir), fill(r.Unix, side, runtimeDir)
	return r
}

func fill(text, side, runtimeDir string) string {
	return strings.NewReplacer("%t", runtimeDir, "%i", Instance(side)).Replace(text)
}

// Instance is the a of web@a.container.
func Instance(unit string) string {
	_, after, _ := strings.Cut(strings.TrimSuffix(unit, ".container"), "@")
	return after
}

// Other is the side that a side is not.
func (e Enrollment) Other(side string) string {
	i := slices.IndexFunc(e.Units, func(u string) bool { return u != side })
	if i < 0 {
		return ""
	}
	return e.Units[i]
}

// Sided reports whether the operation runs its candidate beside the release before it.
func (op Operation) Sided() bool { return op.Candidate.Side != "" }

// Moves reports whether a unit is one that the operation gives to its candidate.
func (op Operation) Moves(b UnitBefore) bool { return !op.Sided() || b.Unit == op.Candidate.Side }

// Asked is the side whose readiness counts in the operation's phase; "" where there are no sides.
func (op Operation) Asked() string {
	if op.Sided() && op.Phase == Restoring {
		return op.Enrollment.Other(op.Candidate.Side)
	}
	return op.Candidate.Side
}

// Drain is what a turn of the door leaves to be done: the former side is stopped when its connections have ended, or at
// the limit, and then nothing may start it.
type Drain struct {
	Unit     string   `json:"unit"`
	Service  string   `json:"service"`
	By       Deadline `json:"by"`
	Stopping bool     `json:"stopping,omitempty"` // from here on its pin is fenced
}

// drain is owed from the promotion on. The former side need not run for that: its pin must be fenced in any case.
func (op Operation) drain(at Instant) *Drain {
	for _, b := range op.Before {
		if !op.Moves(b) {
			return &Drain{Unit: b.Unit, Service: b.Service, By: NewDeadline(at, op.Enrollment.Door.Drain)}
		}
	}
	return nil
}

// Draining reports whether a unit is a former side that still serves the connections it has.
func (s Service) Draining(unit string) bool {
	return s.Drain != nil && s.Drain.Unit == unit && !s.Drain.Stopping
}

// Due says what a service owes: what its operation does, and before another candidate may start what the last turn of
// the door left.
func (s Service) Due() Duty {
	if s.Operation == nil {
		return Nothing
	}
	duty := Due(*s.Operation)
	between := duty == Nothing || duty == DoRetain
	if s.Drain != nil && (between || s.Operation.Phase == Preparing && duty == DoSwitch) {
		return DoDrain
	}
	return duty
}
