package probation

import (
	"fmt"
	"time"
)

// Code is the stable word for why something was refused or failed.
type Code string

const (
	CodeUnknownService     Code = "unknown_service"
	CodeUnknownOperation   Code = "unknown_operation"
	CodeGenerationMismatch Code = "generation_mismatch"
	CodeOperationActive    Code = "operation_active"
	CodeDigestRefused      Code = "digest_refused"
	CodeRollbackFailed     Code = "rollback_failed"
	CodeServiceDamaged     Code = "service_damaged"
	CodeIdempotency        Code = "idempotency_mismatch"
	CodeInvalid            Code = "invalid_request"
	CodeUnauthorized       Code = "unauthorized"
	CodeForbidden          Code = "forbidden"
	CodeUnavailable        Code = "state_unavailable"
	CodePullFailed         Code = "pull_failed"
	CodePullUnavailable    Code = "pull_unavailable"
	CodeWrongPlatform      Code = "wrong_platform"
	CodeBindingBroken      Code = "binding_broken"
	CodeNoWayBack          Code = "no_way_back"
	CodeAborted            Code = "aborted"
	CodeNoHealthcheck      Code = "no_healthcheck"
	CodeProbeMismatch      Code = "probe_mismatch"    // the probe's port is not the unit's
	CodeDeadline           Code = "deadline_exceeded" // undecided at the deadline
	CodeStopped            Code = "stopped"           // by an operator, during probation
	CodeCandidateExited    Code = "candidate_exited"  // or spent its restart budget
	CodeProgramMismatch    Code = "program_mismatch"  // the image is another program
	CodeNotProven          Code = "not_proven"        // it is required to have run well elsewhere
	CodeWrongImage         Code = "wrong_image"       // something else than the candidate runs
	CodeInterrupted        Code = "interrupted"       // the host's trouble, not the candidate's
)

// Rejection is why a request was not accepted. It changes nothing.
type Rejection struct {
	Code       Code
	Detail     string
	Generation int    // the current one
	Operation  string // the one in the way, if any
}

func (r *Rejection) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Detail) }

// Request asks for a change of a service's release.
type Request struct {
	Digest             string
	ExpectedGeneration *int
	Retry              bool
	ProgramChange      bool
	WaitProof          time.Duration
	Rollback           bool // "toad rollback": the digest is left to the decision
	Key                string
	Body               string // sha256 of the request's meaning
	By                 string
	From               string // where the request came from
}

// Accept decides on a request that is well formed and authorised and is not a replay. It returns the service with the
// new operation, or the operation that already did what was asked (changed is false), or a *Rejection.
func (s Service) Accept(e Enrollment, req Request, now Instant) (next Service, changed bool, err error) {
	reject := func(code Code, format string, args ...any) (Service, bool, error) {
		r := &Rejection{Code: code, Detail: fmt.Sprintf(format, args...), Generation: s.Generation}
		if s.Operation != nil {
			r.Operation = s.Operation.ID
		}
		return s, false, r
	}
	if op := s.Active(); op != nil {
		return reject(CodeOperationActive, "%s is in %s; wait for it, or abort it with: toad rollback %s", op.ID, op.Phase, s.Name)
	}
	if g := req.ExpectedGeneration; g != nil && *g != s.Generation {
		return reject(CodeGenerationMismatch, "%s is at generation %d, the request expected %d; see what happened: toad status %s", s.Name, s.Generation, *g, s.Name)
	}
	candidate := Release{Digest: req.Digest, Definition: e.Definition}
	if req.Rollback {
		if candidate, err = s.RollbackTarget(); err != nil {
			return s, false, err
		}
	}
	afterFailure := s.Operation != nil && s.Operation.Phase == RollbackFailed
	inForce := s.Promoted != nil && s.Promoted.Generation > 0 && s.Promoted.Names(candidate.Digest) && s.Promoted.Definition.Same(candidate.Definition)
	if inForce && !afterFailure && !req.Retry {
		return s, false, nil
	}
	refusal := s.Refusal(candidate)
	strange := refusal != nil && refusal.Code == CodeProgramMismatch
	switch {
	case strange && !req.ProgramChange && !req.Rollback:
		return reject(CodeProgramMismatch, "%s was not switched to as %s at %s: %s", short(req.Digest), refusal.Operation,
			refusal.RefusedAt.Format(time.RFC3339), refusal.Reason)
	case req.Retry && refusal == nil && !afterFailure:
		return reject(CodeInvalid, "%s is not refused, there is nothing to retry; deploy it without retry", short(req.Digest))
	case refusal != nil && !strange && !req.Retry && !req.Rollback:
		return reject(CodeDigestRefused, "%s failed here as %s at %s: %s; to try it once more: --retry",
			short(req.Digest), refusal.Operation, refusal.RefusedAt.Format(time.RFC3339), refusal.Reason)
	case afterFailure && !req.Retry && !req.Rollback:
		return reject(CodeRollbackFailed, "the restore of %s failed; look at toad log %s, then: toad rollback %s, or deploy with --retry",
			s.Operation.ID, s.Name, s.Name)
	}
	if e.Definition = nil; candidate.Definition != nil {
		e.Ready = candidate.Definition.Ready
	}
	return s.accepted(e, req, candidate, now), true, nil
}

func (s Service) accepted(e Enrollment, req Request, candidate Release, now Instant) Service {
	s.Generation++
	candidate.Generation, candidate.PromotedAt, candidate.Side = s.Generation, time.Time{}, ""
	s.Operation = &Operation{
		ID: OperationID(s.Name, s.Generation), Service: s.Name, Generation: s.Generation, Phase: Accepted,
		Rollback: req.Rollback, Retry: req.Retry, ProgramChange: req.ProgramChange, WaitProof: req.WaitProof, Key: req.Key, Body: req.Body, By: req.By,
		AcceptedAt: now.Wall.UTC(), Since: now.Wall.UTC(), Enrollment: e,
		Candidate: candidate,
		Previous:  s.Promoted,
		PrepareBy: NewDeadline(now, e.Limit.Pull+req.WaitProof),
	}
	return s
}

// RollbackTarget says which digest a rollback with no operation under way deploys: the retained previous release, or
// after a failed restore the one in force.
func (s Service) RollbackTarget() (Release, error) {
	if s.Operation != nil && s.Operation.Phase == RollbackFailed {
		if s.Promoted != nil {
			return *s.Promoted, nil
		}
		return Release{}, &Rejection{Code: CodeNoWayBack, Generation: s.Generation, Detail: "no release of " + s.Name + " has ever been in force"}
	}
	for _, r := range s.Retained {
		if s.Promoted != nil && !r.Same(*s.Promoted) {
			return r, nil
		}
	}
	return Release{}, &Rejection{Code: CodeNoWayBack, Generation: s.Generation,
		Detail: s.Name + " has no earlier release on this host; deploy a digest instead"}
}

func short(digest string) string {
	if len(digest) > 19 {
		return digest[:19]
	}
	return digest
}
