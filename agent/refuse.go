// Package agent converges a box to the bundle that its control plane publishes: one tick, which checks in, refuses or
// stages, and has the rollout put each changed service on trial. A tick that is killed anywhere is carried on by the next.
package agent

import (
	"errors"
	"fmt"
)

// Code is the stable word for why a bundle is refused.
type Code string

// The codes; there is no other. Whoever refuses says in the text what is to be mended.
const (
	CodeSHA         Code = "SHA"          // it is not what its sha says, or no bundle at all
	CodeEnvMismatch Code = "ENV_MISMATCH" // it is for another environment or tier
	CodeUnresolved  Code = "UNRESOLVED"   // a variable or secret is named and not there
	CodePath        Code = "PATH"         // a name, link, device or folder that has no place in a bundle
	CodePrivileged  Code = "PRIVILEGED"   // a setting that reaches beyond the container
	CodeDowngrade   Code = "DOWNGRADE"    // it is older than the one in force
	CodeDisk        Code = "DISK"         // there is no room for it
	CodeLeaseShape  Code = "LEASE_SHAPE"  // the lease is none that toad can use
	CodeTaken       Code = "TAKEN"        // the operator has a unit, service or secret of that name himself
)

// Codes are all there are.
var Codes = []Code{CodeSHA, CodeEnvMismatch, CodeUnresolved, CodePath, CodePrivileged, CodeDowngrade, CodeDisk, CodeLeaseShape, CodeTaken}

// Refusal is why a bundle is not applied. It names files, keys and variables, and no value.
type Refusal struct {
	Code Code
	File string // of the bundle; may be empty
	What string
}

func (r *Refusal) Error() string {
	if r.File == "" {
		return fmt.Sprintf("%s: %s", r.Code, r.What)
	}
	return fmt.Sprintf("%s: %.100q %s", r.Code, r.File, r.What)
}

func refuse(code Code, file, format string, args ...any) error {
	return &Refusal{code, file, fmt.Sprintf(format, args...)}
}

// refusalOf is the refusal in an error, or nil.
func refusalOf(err error) *Refusal {
	var r *Refusal
	errors.As(err, &r)
	return r
}
