package webui

import "slices"

// State is where a service or an operation stands: one of those below, in a shape, a tone and words of its own.
type State struct{ s string }

// look is how a state is shown. Tones are good, trial, back, bad and idle.
type look struct {
	words, shape, tone string
	rank               int // 0 needs somebody, 1 is under way, 2 went back, 3 rests
}

var looks = map[string]look{
	"never":           {"Never deployed", "ring", "idle", 3},
	"accepted":        {"Accepted", "seed", "trial", 1},
	"preparing":       {"Preparing", "seed", "trial", 1},
	"switching":       {"Switching", "half", "trial", 1},
	"probation":       {"On probation", "half", "trial", 1},
	"promoting":       {"Promoting", "half", "trial", 1},
	"restoring":       {"Going back", "back", "back", 1},
	"promoted":        {"In force", "disc", "good", 3},
	"rolled_back":     {"Rolled back", "back", "back", 2},
	"withdrawn":       {"Withdrawn", "square", "back", 2},
	"failed":          {"Failed, nothing changed", "diamond", "back", 2},
	"rollback_failed": {"Rollback failed", "octagon", "bad", 0},
	"damaged":         {"Record damaged", "broken", "bad", 0},
	"unpinned":        {"Unpinned, its operator's own", "ring", "idle", 3},
	"unknown":         {"Unknown", "ring", "idle", 3},
}

// States lists every state, sorted.
func States() []string {
	var all []string
	for s := range looks {
		all = append(all, s)
	}
	slices.Sort(all)
	return all
}

// StateOf takes a phase as it is on record, "never" or "damaged"; anything else is unknown.
func StateOf(s string) State {
	if _, known := looks[s]; !known {
		s = "unknown"
	}
	return State{s}
}

func (s State) look() look {
	if s.s == "" {
		return looks["unknown"]
	}
	return looks[s.s]
}

func (s State) String() string               { return s.s }
func (s State) MarshalText() ([]byte, error) { return []byte(s.s), nil }

// Words, Shape and Tone are how it is told to a reader, a looker and the style sheet.
func (s State) Words() string { return s.look().words }
func (s State) Shape() string { return s.look().shape }
func (s State) Tone() string  { return s.look().tone }

// Outcome is Words for an operation: what it put in force may not be any more.
func (s State) Outcome() string {
	if s.s == "promoted" {
		return "Promoted"
	}
	return s.Words()
}

// UnderWay says that it will change by itself.
func (s State) UnderWay() bool { return s.look().rank == 1 }
