// Package probation holds the rules of a deployment: what an event makes of an operation, and what an operation owes.
// It does no I/O and reads no clock; time arrives as a value.
package probation

import (
	"fmt"
	"time"
)

// Phase is where an operation stands. The spelling is the same on disk, in JSON, in logs and in tests.
type Phase string

const (
	Accepted   Phase = "accepted"
	Preparing  Phase = "preparing"
	Switching  Phase = "switching"
	Probation  Phase = "probation"
	Promoting  Phase = "promoting"
	Restoring  Phase = "restoring"
	Promoted   Phase = "promoted"
	RolledBack Phase = "rolled_back"
	// Withdrawn is a release that failed or was stopped where nothing ran before; the unit is left stopped.
	Withdrawn      Phase = "withdrawn"
	RollbackFailed Phase = "rollback_failed"
	// Failed is an operation that ended before anything on the host was changed.
	Failed Phase = "failed"
)

// Phases lists every phase, in the order a deployment passes them.
var Phases = []Phase{Accepted, Preparing, Switching, Probation, Promoting, Restoring,
	Promoted, RolledBack, Withdrawn, RollbackFailed, Failed}

// Terminal reports whether an operation in this phase is decided for good.
func (p Phase) Terminal() bool {
	switch p {
	case Promoted, RolledBack, Withdrawn, RollbackFailed, Failed:
		return true
	}
	return false
}

// Kind names an event.
type Kind string

const (
	Begun          Kind = "begun"           // an act took the operation up
	Prepared       Kind = "prepared"        // the image is here and verified, the way back is proved
	PrepareFailed  Kind = "prepare_failed"  //
	PrepareTimeout Kind = "prepare_timeout" // the preparation's own limit has passed
	SwitchBegun    Kind = "switch_begun"    // the deadline is set; from here the host is touched
	Switched       Kind = "switched"        // the restart jobs of all units are queued
	BindingBroken  Kind = "binding_broken"  // the generated unit is not the pinned one
	Stable         Kind = "stable"          // the candidate was ready through an unbroken window
	Unfit          Kind = "failed"          // the check saw it fail
	Expired        Kind = "expired"         // the deadline has passed undecided
	Aborted        Kind = "aborted"         // somebody asked for the previous release
	Stopped        Kind = "stopped"         // an operator stopped the unit
	CheckLost      Kind = "check_lost"      // no check is loaded and none left a verdict
	PinKept        Kind = "promoted"        // the unfenced pin is in force and verified
	PinLost        Kind = "pin_lost"        // the unfenced pin does not verify
	Replaced       Kind = "replaced"        // the restart jobs of a restore are queued
	Settled        Kind = "settled"         // the restored release was ready through its window
	LeftStopped    Kind = "left_stopped"    // what did not run before is stopped again
	SettleFailed   Kind = "settle_failed"   //
	SettleExpired  Kind = "settle_expired"  //
)

// Kinds lists every event.
var Kinds = []Kind{Begun, Prepared, PrepareFailed, PrepareTimeout, SwitchBegun, Switched, BindingBroken, Stable, Unfit,
	Expired, Aborted, Stopped, CheckLost, PinKept, PinLost, Replaced, Settled, LeftStopped, SettleFailed, SettleExpired}

// Event is what an act found out, or what a step it took came to.
type Event struct {
	Kind   Kind
	At     Instant
	Code   Code   // of a failure
	Reason string // for people
	// Evidence is set when the candidate itself, in an attributed invocation, showed the failure. Only evidence refuses.
	Evidence *Evidence
	// Moved says, with BindingBroken, that a unit already runs the candidate.
	Moved bool
	// Gap comes with Stable and Settled: how long nothing was ready.
	Gap *time.Duration
	// Candidate and InForce come with Prepared: the release as verified, and the one that is in force on the host.
	Candidate Release
	InForce   *Release
	// Program and InForceProgram come with Prepared: what the images run, empty where that could not be read.
	Program, InForceProgram string
	// Refuse says, with PrepareFailed, that the release is not to be tried again unasked.
	Refuse bool
	// Before, DoorWas and Deadline come with SwitchBegun.
	Before   []UnitBefore
	DoorWas  string
	Deadline Deadline
}

// Next returns the operation as the event leaves it. The second result is false for an event that this phase ignores;
// the operation is then unchanged.
func Next(op Operation, ev Event) (Operation, bool) {
	if op.Phase.Terminal() {
		return op, false
	}
	switch op.Phase {
	case Accepted, Preparing:
		return nextPreparing(op, ev)
	case Switching:
		return nextSwitching(op, ev)
	case Probation:
		return nextProbation(op, ev)
	case Promoting:
		return nextPromoting(op, ev)
	case Restoring:
		return nextRestoring(op, ev)
	}
	return op, false
}

func nextPreparing(op Operation, ev Event) (Operation, bool) {
	switch ev.Kind {
	case Begun:
		if op.Phase != Accepted {
			return op, false
		}
		op.Phase = Preparing
		return op, true
	case Prepared:
		op.Phase = Preparing
		op.Candidate, op.Previous, op.Prepared, op.Reason = ev.Candidate, ev.InForce, true, ""
		op.Program = ev.Program
		return op, true
	case SwitchBegun:
		if !op.Prepared {
			return op, false
		}
		deadline := ev.Deadline
		op.Before, op.DoorWas, op.Deadline, op.Timers, op.Phase = ev.Before, ev.DoorWas, &deadline, 0, Switching
		return op, true
	case PrepareFailed, BindingBroken, Unfit:
		op.Reason = "" // the trouble on the way; this is what it came to
		if ev.Refuse {
			op.Candidate, op.Program = ev.Candidate, ev.Program
		}
		return op.end(Failed, ev, ev.Code), true
	case PrepareTimeout, Expired:
		return op.end(Failed, ev, CodePullUnavailable), true
	case Aborted:
		return op.end(Failed, ev, CodeAborted), true
	}
	return op, false
}

func nextSwitching(op Operation, ev Event) (Operation, bool) {
	switch ev.Kind {
	case Switched:
		op.Phase = Probation
		return op, true
	case BindingBroken:
		if !ev.Moved {
			return op.end(Failed, ev, CodeBindingBroken), true
		}
		return op.restore(ev, CodeBindingBroken), true
	case PrepareFailed: // the deadline could not be armed, or the like, before a unit was moved
		return op.end(Failed, ev, ev.Code), true
	case Aborted:
		return op.restore(ev, CodeAborted), true
	case Expired:
		return op.restore(ev, CodeDeadline), true
	case Unfit, Stopped: // the act died after the jobs were queued, and the check was quicker than its successor
		return nextProbation(op, ev)
	}
	return op, false
}

func nextProbation(op Operation, ev Event) (Operation, bool) {
	switch ev.Kind {
	case Stable:
		op.Phase, op.Gap = Promoting, op.gap(ev)
		return op, true
	case Unfit:
		return op.restore(ev, ev.Code), true
	case Expired:
		return op.restore(ev, CodeDeadline), true
	case Aborted:
		return op.restore(ev, CodeAborted), true
	case Stopped:
		op = op.restore(ev, CodeStopped)
		op.StoppedByOperator = true
		return op, true
	case CheckLost:
		op.ChecksLost++
		op.LostCheck = op.Checks
		return op, true
	}
	return op, false
}

func nextPromoting(op Operation, ev Event) (Operation, bool) {
	switch ev.Kind {
	case PinKept:
		return op.end(Promoted, ev, ""), true
	case PinLost:
		code := CodeBindingBroken
		if ev.Code == CodeInterrupted { // the candidate did not come up again
			code = ev.Code
		}
		return op.restore(ev, code), true
	}
	return op, false // an abort comes too late here, and a deadline was met
}

func nextRestoring(op Operation, ev Event) (Operation, bool) {
	switch ev.Kind {
	case Replaced:
		op.Replaced = true
		return op, true
	case CheckLost:
		op.ChecksLost++
		op.LostCheck = op.Checks
		return op, true
	case Settled:
		op.Gap = op.gap(ev)
		return op.end(RolledBack, ev, op.Code), true
	case LeftStopped:
		return op.end(Withdrawn, ev, op.Code), true
	case Stopped:
		op.StoppedByOperator = true
		return op.end(Withdrawn, ev, op.Code), true
	case SettleFailed, SettleExpired:
		return op.end(RollbackFailed, ev, CodeRollbackFailed), true
	}
	return op, false // an abort joins the restore that is under way; the deadline is spent
}

// gap is nothing to tell of where nothing ran before, or where the release before serves until the door turns: what is
// watched then is the side that no client reaches.
func (op Operation) gap(ev Event) *time.Duration {
	if !op.RanBefore() || op.Sided() {
		return nil
	}
	return ev.Gap
}

// end closes the operation. A restore keeps the reason of the failure that led to it and adds what became of it.
func (op Operation) end(p Phase, ev Event, code Code) Operation {
	at := ev.At.Wall
	op.Phase, op.Code, op.EndedAt = p, code, &at
	switch {
	case ev.Reason == "":
	case op.Reason == "":
		op.Reason = ev.Reason
	default:
		op.Reason = fmt.Sprintf("%s; then: %s", op.Reason, ev.Reason)
	}
	return op
}

func (op Operation) restore(ev Event, code Code) Operation {
	op.Phase, op.Code, op.Reason, op.Evidence = Restoring, code, ev.Reason, ev.Evidence
	by := NewDeadline(ev.At, op.restoreLimit())
	op.RestoreBy, op.Replaced, op.ChecksLost, op.LostCheck, op.Timers = &by, false, 0, 0, 0
	return op
}

// restoreLimit is how long a restore may take: the units may take their time to stop, and as long as a switch to settle.
func (op Operation) restoreLimit() time.Duration {
	longest := time.Duration(0)
	for _, b := range op.Before {
		longest = max(longest, b.StopTimeout)
	}
	return op.Enrollment.Limit.Deadline + longest
}
