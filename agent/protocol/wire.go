// Package protocol is what a box and its control plane say to each other: the wire types, the errors by class, and the
// box's client. docs/agent-protocol.md tells it in words, openapi.yaml in full. A secret that passes through is known to
// the redactor before anybody else sees it.
package protocol

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Action is what a check-in tells a box to do.
type Action string

// The three actions; there is no other.
const (
	ActionApply Action = "apply" // converge to the bundle that bundle_sha names
	ActionNone  Action = "none"  // nothing changed
	ActionDown  Action = "down"  // stop and unpin what the bundles brought
)

// Result is how an attempt ended.
type Result string

// The three results; there is no other. A refused bundle is failed, with the refusal's code.
const (
	ResultApplied Result = "applied"
	ResultFailed  Result = "failed"
	ResultDown    Result = "down" // what the action down asked for is done
)

// Service is one service of a bundle, as it stands on a box or ended in an attempt.
type Service struct {
	Name       string `json:"name"`                 // as in the manifest and in toad status
	Digest     string `json:"digest,omitempty"`     // sha256:<64 hex> of the image in force; empty if there is none
	Generation int    `json:"generation,omitempty"` // of the service, as in toad status
	Result     Result `json:"result,omitempty"`     // in a report: of this service
	Code       string `json:"code,omitempty"`       // why not, e.g. the code of the refusal or of the operation
}

// CheckIn is what a box sends at each tick: POST /v1/agent/check-in. It is the box's heartbeat.
type CheckIn struct {
	EnvID     string    `json:"env_id"`               // env-<tier>-<nn>
	Box       string    `json:"box"`                  // which of the environment's boxes this is: 1 to 64 of [A-Za-z0-9._-]
	Version   string    `json:"version"`              // of toad
	BundleSHA string    `json:"bundle_sha,omitempty"` // 64 hex: the bundle in force; empty before the first and after down
	Services  []Service `json:"services,omitempty"`   // at most 256
}

// Answer is the reply to a check-in.
type Answer struct {
	EnvID         string            `json:"env_id"`                   // the environment that the bearer belongs to
	Action        Action            `json:"action"`                   //
	BundleSHA     string            `json:"bundle_sha,omitempty"`     // 64 hex: what is published; always there with apply
	AllowRollback bool              `json:"allow_rollback,omitempty"` // with apply: the bundle may be older than the one in force
	Variables     map[string]string `json:"variables,omitempty"`      // plain values of the environment by name ([A-Z][A-Z0-9_]*); no secrets
	Purge         bool              `json:"purge,omitempty"`          // with down: remove volumes as well; never done on tier prod
}

// Why a box asks for a lease.
const (
	ReasonApply           = "apply"           // a bundle has been looked at and is about to be applied
	ReasonUnauthenticated = "unauthenticated" // its token is not accepted any more
)

// LeaseRequest asks for a deploy grant: POST /v1/agent/lease. An environment has 5 leases an hour for each box.
type LeaseRequest struct {
	EnvID     string `json:"env_id"`
	Box       string `json:"box"`
	Reason    string `json:"reason"`               // ReasonApply or ReasonUnauthenticated
	BundleSHA string `json:"bundle_sha,omitempty"` // with ReasonApply
}

// KindJWT is the one kind of lease that toad can use.
const KindJWT = "jwt"

// Lease is the reply: a deploy grant for one login at OpenBao. A newer grant of the same box supersedes it.
type Lease struct {
	Kind    string    `json:"kind"`    // KindJWT
	EnvID   string    `json:"env_id"`  // the environment that the grant is for
	Role    string    `json:"role"`    // of the auth mount jwt-tenancy
	JWT     string    `json:"jwt"`     // the deploy grant: a secret
	Expires time.Time `json:"expires"` // RFC 3339; a login has to come before
}

// Limits of what a report repeats.
const (
	MaxLogLines = 50
	MaxLogLine  = 500 // bytes
	MaxDetail   = 500 // bytes
)

// Report tells how an attempt ended: POST /v1/agent/report, answered with 204. It names variables and secrets, and
// holds no value of one; Client.Report redacts all texts once more.
type Report struct {
	ID        string    `json:"id"` // made once for each attempt, so that a report that is sent twice counts once: 1 to 64 of [A-Za-z0-9._-]
	EnvID     string    `json:"env_id"`
	Box       string    `json:"box"`
	BundleSHA string    `json:"bundle_sha,omitempty"` // 64 hex: what the attempt was about; empty with down
	Result    Result    `json:"result"`
	Code      string    `json:"code,omitempty"`     // with failed: the refusal's (SHA, PATH, …), or that of the service that failed
	Detail    string    `json:"detail,omitempty"`   // one sentence for people, at most MaxDetail
	InForce   string    `json:"in_force,omitempty"` // 64 hex: the bundle in force now, e.g. the one that was put back
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	Services  []Service `json:"services,omitempty"`
	LogTail   []string  `json:"log_tail,omitempty"` // of the service that failed: the last MaxLogLines lines, each cut to MaxLogLine
}

var (
	shaForm = regexp.MustCompile(`^[0-9a-f]{64}$`)
	envForm = regexp.MustCompile(`^env-([a-z][a-z0-9]{0,15})-[0-9]{2}$`)
	boxForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	varForm = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)
)

// ParseEnv returns the tier of an environment's id, env-<tier>-<nn>.
func ParseEnv(id string) (tier string, err error) {
	m := envForm.FindStringSubmatch(id)
	if m == nil {
		return "", fmt.Errorf("%.40q is no environment; it has the form env-<tier>-<nn>, as env-prod-01", id)
	}
	return m[1], nil
}

// ValidSHA says whether a text has the form of a bundle_sha: 64 hexadecimal digits, lower case.
func ValidSHA(sha string) bool { return shaForm.MatchString(sha) }

// ValidBox says whether a text can name a box.
func ValidBox(box string) bool { return boxForm.MatchString(box) }

// ValidToken says whether a text can be a bearer: 1 to 8192 printable characters of ASCII, no space.
func ValidToken(token string) bool {
	return token != "" && len(token) <= 8192 && strings.IndexFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}
