package unitgen

import "errors"

// What the user manager may answer that a caller may have to tell apart. They stand here so that who decides need not
// know who asked.
var (
	// ErrNoBus says that the user manager cannot be reached: try later, or do as the message says.
	ErrNoBus = errors.New("the user manager is not reachable")
	// ErrExists says that a unit of this name is loaded already, or has left a file behind.
	ErrExists = errors.New("unit exists")
	// ErrNoUnit says that there is no such unit to start or to stop.
	ErrNoUnit = errors.New("no such unit")
	// ErrDestructive says that a job that must not be replaced is in the way, as at shutdown: later, not failed.
	ErrDestructive = errors.New("another job is in the way")
)

// ChangeKind says what a Change is about.
type ChangeKind string

// The kinds of changes.
const (
	Changed    ChangeKind = "changed"     // a property of the unit changed: read it again
	JobNew     ChangeKind = "job-new"     // a job was queued for the unit
	JobRemoved ChangeKind = "job-removed" // a job of the unit ended
	Reloading  ChangeKind = "reloading"   // the manager has reloaded: read everything again
	Lost       ChangeKind = "lost"        // changes may have been missed, the watch is up again: read everything again
)

// Change tells that something happened to a watched unit. What is, is in its State; a Change only says when to look.
type Change struct {
	Kind ChangeKind
	Unit string // "" for Reloading and Lost
	Job  uint32 // its number; JobNew and JobRemoved
	// JobType is start, stop, restart …; "" if the job had ended before it could be asked and was no stop. A restart job
	// turns into a start job when the old process is gone, and may be read as such. JobNew only.
	JobType   string
	JobResult string // done, failed, canceled, timeout, dependency, skipped …; JobRemoved only
}
