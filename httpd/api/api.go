// Package api is the wire form of toad's HTTP API, and a client of it that loses no answer to a daemon that comes and
// goes. Nothing in it can hold an environment value, a pin or a path of the host.
package api

import (
	"fmt"
	"time"
)

// Service is one enrolled service: the release in force, the latest operation, and what is refused here.
type Service struct {
	Service    string     `json:"service"`
	Image      string     `json:"image,omitempty"` // repository, without tag or digest
	Generation int        `json:"generation"`
	Promoted   *Release   `json:"promoted"`  // null before anything is in force
	Operation  *Operation `json:"operation"` // the latest one, terminal or not; null before the first
	Refusals   []Refusal  `json:"refusals"`
	// Damaged says why the service's record cannot be read; the other fields then tell nothing.
	Damaged string `json:"damaged,omitempty"`
	// Unenrolled is set when the service has a record but no enrollment any more.
	Unenrolled bool `json:"unenrolled,omitempty"`
	// EnrollmentInvalid is as in Services. It is told of a service that is asked for by its name.
	EnrollmentInvalid string `json:"enrollment_invalid,omitempty"`
	// Live and LastAlert are told when they are asked for, with live=1.
	Live      *Live  `json:"live,omitempty"`
	LastAlert *Alert `json:"last_alert,omitempty"`
}

// Live is what the readiness probe of a service said last. It is a moment ago, or, where all services together took too long
// to probe, an earlier time.
type Live struct {
	Ready bool      `json:"ready"`
	Why   string    `json:"why"`
	At    time.Time `json:"at"`
}

// Alert is one incident that was told.
type Alert struct {
	Kind      string    `json:"kind"`
	Severity  string    `json:"severity"`
	Operation string    `json:"operation,omitempty"`
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
}

// Services is the answer of GET /v1/services, sorted by name.
type Services struct {
	Services []Service `json:"services"`
	// EnrollmentInvalid says why the enrollment file as it is now is not in force, and what is; a line for each fault.
	EnrollmentInvalid string `json:"enrollment_invalid,omitempty"`
}

// Release is what a generation put in force. What ran before the first deployment has generation 0, no PromotedAt, and
// may have an image id only.
type Release struct {
	Digest     string     `json:"digest"`
	ImageID    string     `json:"image_id,omitempty"`
	Generation int        `json:"generation"`
	PromotedAt *time.Time `json:"promoted_at"`
}

// Operation is one attempt to change a service's release.
type Operation struct {
	ID         string     `json:"id"`
	Service    string     `json:"service"`
	Generation int        `json:"generation"`
	Kind       string     `json:"kind"` // deployment or rollback
	Phase      string     `json:"phase"`
	Code       string     `json:"code"`
	Reason     string     `json:"reason"`
	Digest     string     `json:"digest"`
	Previous   *Release   `json:"previous,omitempty"` // in force when the operation began
	Stable     string     `json:"stable,omitempty"`   // the window of unbroken readiness it must fill, e.g. "10s"
	Gap        string     `json:"gap,omitempty"`      // how long nothing was ready, e.g. "940ms"; told once it is over
	Deadline   *time.Time `json:"deadline"`           // null before switching
	RestoreBy  *time.Time `json:"restore_by,omitempty"`
	AcceptedAt time.Time  `json:"accepted_at"`
	EndedAt    *time.Time `json:"ended_at"` // null until the phase is terminal
	By         string     `json:"by"`
	// Aborts is set in the answer to a rollback that gives up this operation instead of making a new one.
	Aborts bool `json:"aborts,omitempty"`
}

// Ended reports whether the operation is decided for good.
func (o Operation) Ended() bool { return o.EndedAt != nil }

// Operations is one page of a service's history, newest first. Next is the value of before= for the page that follows;
// 0 after the last.
type Operations struct {
	Operations []Operation `json:"operations"`
	Next       int         `json:"next,omitempty"`
}

// Tag is what a tag of a service's repository stands for at the moment.
type Tag struct {
	Service string `json:"service"`
	Image   string `json:"image"` // repository
	Tag     string `json:"tag"`
	Digest  string `json:"digest"`
}

// Token is a credential for the API over TCP, without its secret.
type Token struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Services   []string   `json:"services"` // names, or "*"
	Verbs      []string   `json:"verbs"`    // read, deploy, override
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`   // null: never
	LastUsedAt *time.Time `json:"last_used_at"` // of a request that was served, to the minute; null before the first
}

// IssuedToken is a new token with its secret, which is told this once.
type IssuedToken struct {
	Token
	Bearer string `json:"token"` // <id>.<secret>
}

// Tokens is the answer of GET /v1/tokens, oldest first.
type Tokens struct {
	Tokens []Token `json:"tokens"`
	// Damaged says that tokens were lost with a damaged file.
	Damaged string `json:"damaged,omitempty"`
}

// TokenRequest is the body of POST /v1/tokens.
type TokenRequest struct {
	Name      string     `json:"name"`
	Services  []string   `json:"services"`
	Verbs     []string   `json:"verbs"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// Refusal blocks a release on this host until a named retry ends in promotion.
type Refusal struct {
	Digest    string    `json:"digest"`
	Reason    string    `json:"reason"`
	RefusedAt time.Time `json:"refused_at"`
	Operation string    `json:"operation"`
	Code      string    `json:"code"`
}

// Line is one entry of an operation's log.
type Line struct {
	At      time.Time         `json:"at"`
	Level   string            `json:"level"` // info, warn, error
	Event   string            `json:"event"` // a transition's phase, "ready", "unready", "pull", "step", "audit"
	Message string            `json:"message"`
	Fields  map[string]string `json:"fields,omitempty"`
}

// DeployRequest is the body of POST /v1/services/:service/deployments.
type DeployRequest struct {
	Digest             string `json:"digest"` // sha256:<64 hex>
	ExpectedGeneration *int   `json:"expected_generation,omitempty"`
	Retry              bool   `json:"retry,omitempty"`
	ProgramChange      bool   `json:"program_change,omitempty"`
	WaitProof          string `json:"wait_proof,omitempty"` // a duration, e.g. "30m"
}

// RollbackRequest is the body of POST /v1/services/:service/rollback.
type RollbackRequest struct {
	ExpectedGeneration *int `json:"expected_generation,omitempty"`
	// Operation names the one that is meant to be given up. If it has ended meanwhile the answer is that operation, and
	// nothing is changed: a rollback that comes late must not go back further than was meant.
	Operation string `json:"operation,omitempty"`
}

// Problem is every answer that is not a success: application/problem+json with a stable code.
type Problem struct {
	Type       string `json:"type"`
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Code       string `json:"code"`
	Detail     string `json:"detail"`
	Generation *int   `json:"generation,omitempty"` // the current one
	Operation  string `json:"operation,omitempty"`  // the one in the way
	Hint       string `json:"hint,omitempty"`       // what to do next
}

// Error is the detail, or the code where there is none.
func (p *Problem) Error() string {
	switch {
	case p.Detail != "":
		return p.Detail
	case p.Code != "":
		return p.Code
	}
	return fmt.Sprintf("HTTP status %d", p.Status)
}
