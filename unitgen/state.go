package unitgen

import (
	"slices"
	"time"
)

// State is what the user manager says of a unit. What does not apply to the unit's type, or was not asked for, is zero.
type State struct {
	Name      string
	LoadState string // loaded, not-found, masked, bad-setting, error
	// ActiveState is active, reloading, activating, deactivating, inactive or failed. It is failed for an instant
	// on every automatic restart as well; SubState tells.
	ActiveState string
	SubState    string
	Result      string // success for a unit that does not exist, too: look at LoadState first

	InvocationID   string // 32 hex digits, "" if it never ran
	MainPID        uint32 // 0 = none
	NRestarts      uint32 // automatic ones since the last start by a person or by toad
	ExecMainStatus int32
	ExecMainCode   int32 // CLD_EXITED 1, CLD_KILLED 2, CLD_DUMPED 3; 0 = still runs or never ran
	StatusText     string
	ControlGroup   string // "" if there is none

	SourcePath   string // the Quadlet file
	FragmentPath string
	DropInPaths  []string

	Type          string
	Restart       string
	ExecStart     [][]string // the argv of each
	ExecPaths     []string   // what each of ExecStart executes
	ExecCondition [][]string
	EnvNames      []string // of Environment=; the values may be secrets
	Operation     string   // the value of OperationVar there
	Conditions    []Condition

	After, OnFailure              []string
	Requires, RequiredBy, BoundBy []string
	TriggeredBy                   []string // sockets, timers and paths that start it
	DefaultDependencies           bool
	NeedDaemonReload              bool
	UnitFileState                 string // enabled, disabled, generated, masked, transient …

	Job     uint32 // 0 = none
	JobType string // start, stop, restart …; List only

	TimeoutStartUSec              uint64
	TimeoutStopUSec               uint64
	MemoryMax                     uint64 // bytes; the largest number = no limit
	RestartUSecNext               uint64 // the pause before the next automatic restart; 0 where systemd does not tell
	ActiveEnterTimestampMonotonic uint64 // µs of CLOCK_MONOTONIC
	StateChangeTimestampMonotonic uint64

	// NextElapse is when a calendar timer fires; zero if it will not. A timer that has fired stays active while what it
	// started runs, with SubState running instead of waiting.
	NextElapse time.Time
}

// Condition is one Condition…= of a unit, as last tested.
type Condition struct {
	Type    string // e.g. ConditionEnvironment
	Param   string
	Trigger bool  // one of those with | , of which one must hold
	Negate  bool  // !
	State   int32 // > 0 held, < 0 did not, 0 not tested yet
}

// Exists says that the unit is there and could be started.
func (s State) Exists() bool { return s.LoadState == "loaded" }

// Running says that the unit runs or is about to: waiting for an automatic restart counts.
func (s State) Running() bool {
	switch s.ActiveState {
	case "active", "activating", "reloading", "refreshing":
		return true
	case "failed", "inactive", "deactivating":
		// Passed through on the way to an automatic restart.
		switch s.SubState {
		case "failed-before-auto-restart", "dead-before-auto-restart":
			return true
		}
	}
	return false
}

// KeptDown says that a fence has refused the last start, or that there was none since the user manager started.
func (s State) KeptDown() bool {
	refused := slices.ContainsFunc(s.Conditions, func(c Condition) bool { return c.State < 0 })
	return !s.Running() && s.Job == 0 && (refused || s.Result == "exec-condition" || s.InvocationID == "")
}

// Up says that the unit is active.
func (s State) Up() bool { return s.ActiveState == "active" }
