package probation

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Release is what a generation puts in force.
type Release struct {
	Digest string `json:"digest"` // as it was asked for; may be empty for an adopted release
	// Digests are all that the image is known by: of the platform's manifest, and of the index it came by. Podman does
	// not tell which is which. Empty while Podman cannot resolve it by a digest.
	Digests    []string  `json:"digests,omitempty"`
	ImageID    string    `json:"image_id,omitempty"` // 64 hex digits
	Generation int       `json:"generation"`
	Side       string    `json:"side,omitempty"` // the unit that runs it, where a door leads to one of two
	PromotedAt time.Time `json:"promoted_at,omitzero"`
	// Definition is set where the texts of the units belong to the release.
	Definition *Definition `json:"definition,omitempty"`
}

// Names reports whether a digest or image id is one of the names this release goes by.
func (r Release) Names(id string) bool {
	return id != "" && (id == r.Digest || id == r.ImageID || slices.Contains(r.Digests, id))
}

// Same reports whether two releases are the same content under any of their names.
func (r Release) Same(o Release) bool {
	return r.Definition.Same(o.Definition) && r.SameImage(o)
}

// SameImage is Same for the image alone.
func (r Release) SameImage(o Release) bool {
	return r.Names(o.Digest) || r.Names(o.ImageID) || slices.ContainsFunc(o.Digests, r.Names)
}

// UnitBefore is what a restore must know of a unit: how it stood when the switch began.
type UnitBefore struct {
	Unit       string `json:"unit"`    // Quadlet file name
	Service    string `json:"service"` // systemd unit name
	Running    bool   `json:"running"`
	Invocation string `json:"invocation,omitempty"`
	Container  string `json:"container,omitempty"`
	ImageID    string `json:"image_id,omitempty"`
	// Pin is the text of toad's drop-in before the switch; empty when there was none.
	Pin string `json:"pin,omitempty"`
	// Dependents are the units that were active and that systemd takes down with this one.
	Dependents  []string      `json:"dependents,omitempty"`
	StopTimeout time.Duration `json:"stop_timeout"`
	// Candidate is the invocation that a restore replaces; Down says that the restore leaves the unit stopped.
	Candidate string `json:"candidate,omitempty"`
	Down      bool   `json:"down,omitempty"`
	// ByID says that the restore must pin by image id: Podman does not know the pinned digest any more.
	ByID bool `json:"by_id,omitempty"`
}

// GoesOn reports whether the release before the operation runs when it is restored. What an operator stopped does not,
// but for a candidate beside it.
func (op Operation) GoesOn() bool {
	if !op.Sided() {
		return op.RanBefore() && !op.StoppedByOperator
	}
	for _, b := range op.Before {
		if !op.Moves(b) && !b.Down {
			return true
		}
	}
	return false
}

// Evidence is what shows that the candidate failed by itself.
type Evidence struct {
	Unit       string   `json:"unit"`
	Invocation string   `json:"invocation"`
	ExitStatus int      `json:"exit_status,omitempty"`
	Lines      []string `json:"lines,omitempty"` // the last lines it logged, redacted
}

// Refusal blocks a release on this host until a named retry ends in promotion.
type Refusal struct {
	Release   Release   `json:"release"`
	Operation string    `json:"operation"`
	Reason    string    `json:"reason"`
	Code      Code      `json:"code"`
	RefusedAt time.Time `json:"refused_at"`
	Evidence  *Evidence `json:"evidence,omitempty"`
}

// Operation is one attempt to change a service's release. Its record holds all that a restore needs.
type Operation struct {
	ID         string `json:"id"`
	Service    string `json:"service"`
	Generation int    `json:"generation"`
	Phase      Phase  `json:"phase"`
	Code       Code   `json:"code"`
	Reason     string `json:"reason"`
	Rollback   bool   `json:"rollback,omitempty"` // asked for by "toad rollback"
	Retry      bool   `json:"retry,omitempty"`
	// ProgramChange accepts a candidate that is another program; Program is what it is, e.g. "go:example.org/shop/cmd/web",
	// empty when that could not be read.
	ProgramChange bool   `json:"program_change,omitempty"`
	Program       string `json:"program,omitempty"`
	// WaitProof is how much longer the preparation may take, for a proof that is still to come.
	WaitProof time.Duration `json:"wait_proof,omitempty"`

	Key        string     `json:"key"`  // idempotency key
	Body       string     `json:"body"` // sha256 of the request, to tell a replay from another request
	By         string     `json:"by"`   // who asked: "uid 1000" or a token's id
	AcceptedAt time.Time  `json:"accepted_at"`
	Since      time.Time  `json:"since,omitzero"` // in this phase
	EndedAt    *time.Time `json:"ended_at,omitempty"`
	Enrollment Enrollment `json:"enrollment"`

	Candidate Release  `json:"candidate"`
	Previous  *Release `json:"previous,omitempty"` // in force when the switch began
	Prepared  bool     `json:"prepared,omitempty"`
	// Before is per unit, in the enrollment's order; set when the switch begins.
	Before []UnitBefore `json:"before,omitempty"`
	// DoorWas is where the link in the live folder led when the switch began, a door's or a binary service's, and leads
	// again after a restore; empty where there is none.
	DoorWas string `json:"door_was,omitempty"`

	PrepareBy Deadline  `json:"prepare_by"`
	Deadline  *Deadline `json:"deadline,omitempty"`
	RestoreBy *Deadline `json:"restore_by,omitempty"`
	// Timers (of the phase's own limit) and Checks are the last numbers used in unit names; saved before the unit is
	// created.
	Timers     int `json:"timers,omitempty"`
	Checks     int `json:"checks,omitempty"`
	ChecksLost int `json:"checks_lost,omitempty"`
	LostCheck  int `json:"lost_check,omitempty"` // the last check that was counted as lost

	Replaced          bool      `json:"replaced,omitempty"`       // restoring: the restart jobs are queued
	CandidateSeen     bool      `json:"candidate_seen,omitempty"` // restoring: Before names what is replaced
	StoppedByOperator bool      `json:"stopped_by_operator,omitempty"`
	Evidence          *Evidence `json:"evidence,omitempty"`
	// Gap is how long what ran before, and serves now, was not ready because of this operation.
	Gap *time.Duration `json:"gap,omitempty"`

	// Released and Retained are what a terminal operation still owed and has done.
	Released bool `json:"released,omitempty"`
	Retained bool `json:"retained,omitempty"`
}

// RanBefore reports whether anything of the service ran when the switch began.
func (op Operation) RanBefore() bool {
	for _, b := range op.Before {
		if b.Running && (!op.Sided() || !op.Moves(b)) { // what ran on the idle side was nobody's release
			return true
		}
	}
	return false
}

// Service is what toad knows of one enrolled service: the release in force, what is refused, and the latest operation
// in full, so that one write is one decision.
type Service struct {
	Name       string     `json:"service"`
	Generation int        `json:"generation"`
	Promoted   *Release   `json:"promoted,omitempty"` // in force; generation 0 is what ran before the first deployment
	Retained   []Release  `json:"retained,omitempty"` // newest first, the one in force included
	Refusals   []Refusal  `json:"refusals,omitempty"`
	Operation  *Operation `json:"operation,omitempty"`
	Drain      *Drain     `json:"drain,omitempty"` // what the last turn of the door left to be done
	// Programs are the identities of what has been promoted here, newest last; another one is not switched to unasked.
	Programs []string `json:"programs,omitempty"`
	Totals   Totals   `json:"totals,omitzero"`
	// RanWell are releases that this host has itself seen run well for long, newest last; they need no proof from elsewhere.
	RanWell []Release `json:"ran_well,omitempty"`
	// Unpinned is the generation at which the pins were given up; what came before tells nothing of the units since.
	Unpinned int `json:"unpinned,omitempty"`
	// ByID says that Podman knows the image in force by nothing but its id: it came back from its archive.
	ByID bool `json:"by_id,omitempty"`
}

// Unpin forgets the release in force: the units are the operator's own again, and the next deployment adopts what runs.
// The generation, the refusals and the operations stay. changed is false when there is nothing to forget; an operation
// under way is a *Rejection.
func (s Service) Unpin() (next Service, changed bool, err error) {
	if op := s.Active(); op != nil {
		return s, false, &Rejection{Code: CodeOperationActive, Generation: s.Generation, Operation: op.ID,
			Detail: fmt.Sprintf("%s is in %s; wait for it, or give it up with: toad rollback %s", op.ID, op.Phase, s.Name)}
	}
	if s.Promoted == nil && len(s.Retained) == 0 {
		return s, false, nil
	}
	s.Promoted, s.Retained, s.Programs, s.Drain, s.Unpinned = nil, nil, nil, nil, s.Generation
	return s, true, nil
}

// Active returns the operation that is under way, or nil.
func (s Service) Active() *Operation {
	if s.Operation == nil || s.Operation.Phase.Terminal() {
		return nil
	}
	return s.Operation
}

// Promotion is the operation that put the release into force, as far as the release itself tells of it.
func (s Service) Promotion() Operation {
	at := s.Promoted.PromotedAt
	return Operation{ID: OperationID(s.Name, s.Promoted.Generation), Service: s.Name, Generation: s.Promoted.Generation,
		Phase: Promoted, AcceptedAt: at, EndedAt: &at, Candidate: *s.Promoted, Released: true, Retained: true}
}

// Refusal returns the refusal of a release that goes by this name, or nil.
func (s Service) Refusal(r Release) *Refusal {
	for i := range s.Refusals {
		if s.Refusals[i].Release.Same(r) {
			return &s.Refusals[i]
		}
	}
	return nil
}

// Apply folds an event into the service: the operation moves on, and what its new phase means for the release in force
// and the refusals is drawn in the same value, to be saved by the same write.
func (s Service) Apply(ev Event) (Service, bool) {
	if s.Operation == nil {
		return s, false
	}
	op, ok := Next(*s.Operation, ev)
	if !ok {
		return s, false
	}
	from := s.Operation.Phase
	if len(s.Programs) == 0 {
		s = s.remember(ev.InForceProgram)
	}
	if op.Phase != from {
		spent := time.Duration(0)
		if !op.Since.IsZero() {
			spent = ev.At.Wall.Sub(op.Since)
		}
		s.Totals, op.Since = s.Totals.moved(from, op.Phase, spent), ev.At.Wall.UTC()
	}
	s.Operation = &op
	if op.Prepared && s.Promoted == nil && op.Previous != nil {
		s.Promoted, s.Retained = op.Previous, []Release{*op.Previous} // adopted as generation 0
	}
	switch {
	case op.Phase == Promoted:
		s = s.promote(op)
		if op.Sided() {
			s.Drain = op.drain(ev.At)
		}
	case op.Phase == Restoring && from != Restoring && op.Evidence != nil, op.Phase == Failed && ev.Refuse:
		s = s.refuse(op, ev.At.Wall)
	}
	return s, true
}

func (s Service) promote(op Operation) Service {
	r := op.Candidate
	r.Generation, r.PromotedAt = op.Generation, op.EndedAt.UTC()
	kept := []Release{r}
	for _, old := range s.Retained {
		if !old.Same(r) && len(kept) <= op.Enrollment.Limit.Keep {
			kept = append(kept, old)
		}
	}
	s.Promoted, s.Retained, s.ByID = &r, kept, false
	s = s.remember(op.Program)
	refusals := make([]Refusal, 0, len(s.Refusals))
	for _, f := range s.Refusals {
		if !f.Release.Same(r) {
			refusals = append(refusals, f)
		}
	}
	s.Refusals = refusals
	return s
}

func (s Service) refuse(op Operation, at time.Time) Service {
	refusals := make([]Refusal, 0, len(s.Refusals)+1)
	for _, f := range s.Refusals {
		if !f.Release.Same(op.Candidate) {
			refusals = append(refusals, f)
		}
	}
	refused := op.Candidate
	refused.Definition = refused.Definition.Brief()
	s.Refusals = append(refusals, Refusal{Release: refused, Operation: op.ID, Reason: op.Reason, Code: op.Code,
		RefusedAt: at.UTC(), Evidence: op.Evidence})
	return s
}

// Duty is what an operation owes.
type Duty string

const (
	Nothing    Duty = ""
	DoPrepare  Duty = "prepare"
	DoSwitch   Duty = "switch"
	DoWatch    Duty = "watch" // a loaded timer and a check own it
	DoPromote  Duty = "promote"
	DoRestore  Duty = "restore"
	DoRelease  Duty = "release" // stop timers and check, unset the admission
	DoRetain   Duty = "retain"  // keep the promoted image
	DoDrain    Duty = "drain"   // stop the side that the door does not lead to any more
	DoBeginAct Duty = "begin"
)

// Due says what an operation owes. It is a function of the saved state alone, so carrying on after a crash is the
// normal path.
func Due(op Operation) Duty {
	switch op.Phase {
	case Accepted:
		return DoBeginAct
	case Preparing:
		if op.Prepared {
			return DoSwitch
		}
		return DoPrepare
	case Switching:
		return DoSwitch
	case Probation:
		return DoWatch
	case Promoting:
		return DoPromote
	case Restoring:
		if op.Replaced {
			return DoWatch
		}
		return DoRestore
	}
	if !op.Released {
		return DoRelease
	}
	if op.Phase == Promoted && !op.Retained {
		return DoRetain
	}
	return Nothing
}

var (
	serviceName   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,59}$`)
	generationEnd = regexp.MustCompile(`-g[0-9]+$`)
	digestForm    = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
)

// CheckServiceName refuses a name that could not be told from an operation's id or would not do in a unit's name.
func CheckServiceName(name string) error {
	if !serviceName.MatchString(name) || generationEnd.MatchString(name) {
		return fmt.Errorf("service name %q: want [a-z][a-z0-9-]{0,59}, not ending in -g<number>", name)
	}
	return nil
}

// CheckDigest says what is wrong with a digest; a deployment names nothing else.
func CheckDigest(d string) error {
	lower := strings.ToLower(d)
	hex, isSHA256 := strings.CutPrefix(lower, "sha256:")
	odd := strings.IndexFunc(hex, func(r rune) bool { return !strings.ContainsRune("0123456789abcdef", r) })
	switch {
	case digestForm.MatchString(d):
		return nil
	case strings.HasPrefix(lower, "sha512:") || strings.HasPrefix(lower, "sha384:"):
		return fmt.Errorf("digest %.80q: only sha256 digests are deployed", d)
	case digestForm.MatchString(lower):
		return fmt.Errorf("digest %.80q: a digest is written in lower case", d)
	case isSHA256 && odd >= 0:
		return fmt.Errorf("digest %.80q: %.4q is not a hexadecimal digit", d, []rune(hex[odd:])[0])
	case isSHA256:
		return fmt.Errorf("digest %.80q: want 64 hexadecimal digits after sha256:, have %d", d, len(hex))
	}
	return fmt.Errorf("digest %.80q: want sha256:<64 hexadecimal digits>", d)
}

// OperationID names the operation of a service's generation.
func OperationID(service string, generation int) string {
	return service + "-g" + strconv.Itoa(generation)
}

// ParseOperationID splits an operation's id; ok is false when it is not one.
func ParseOperationID(id string) (service string, generation int, ok bool) {
	i := strings.LastIndex(id, "-g")
	if i < 0 || len(id)-i-2 > 9 {
		return "", 0, false
	}
	n, err := strconv.Atoi(id[i+2:])
	if err != nil || n < 0 || OperationID(id[:i], n) != id || CheckServiceName(id[:i]) != nil {
		return "", 0, false
	}
	return id[:i], n, true
}
