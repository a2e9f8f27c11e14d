package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"toad/httpd/api"
	"toad/probation"
)

// Exit codes. They are part of the interface: scripts and units branch on them.
const (
	exitFailed         = 1  // nothing was changed
	exitRolledBack     = 3  // or withdrawn
	exitRollbackFailed = 4  //
	exitRefused        = 5  // not accepted, or stopped by a gate
	exitUsage          = 64 //
	exitAgain          = 75 // the outcome is not known, or the daemon or the registry is out of reach
	exitNotAllowed     = 77 //
	exitConfig         = 78 //
)

// exitError is an error that knows its exit code.
type exitError struct {
	code int
	err  error
}

func (e exitError) Error() string { return e.err.Error() }
func (e exitError) Unwrap() error { return e.err }

// configError is trouble with how this host or this user is set up: exit 78.
type configError struct{ err error }

func (e configError) Error() string { return e.err.Error() }
func (e configError) Unwrap() error { return e.err }

// usagef is a mistake in the command line: exit 64.
func usagef(format string, args ...any) error {
	return exitError{exitUsage, fmt.Errorf(format, args...)}
}

// exitCode is what the process ends with after err.
func exitCode(err error) int {
	var exit exitError
	var config configError
	var problem *api.Problem
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &config), errors.Is(err, api.ErrNotToad):
		return exitConfig
	case errors.As(err, &problem):
		return exitOfProblem(problem)
	case errors.Is(err, api.ErrUnreachable) && errors.Is(err, syscall.EACCES):
		return exitNotAllowed
	case errors.Is(err, api.ErrUnreachable), errors.Is(err, context.Canceled):
		return exitAgain
	}
	return exitFailed
}

// exitOfProblem is the exit code of a request that was not accepted.
func exitOfProblem(p *api.Problem) int {
	switch probation.Code(p.Code) {
	case probation.CodeInvalid:
		return exitUsage
	case probation.CodeUnknownService, probation.CodeUnknownOperation:
		return exitConfig
	}
	switch {
	case p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden:
		return exitNotAllowed
	case p.Status == http.StatusTooManyRequests || p.Status >= 500:
		return exitAgain
	}
	return exitRefused
}

// exitOf is the exit code of an operation that ended in a phase with a code.
func exitOf(phase probation.Phase, code probation.Code) int {
	switch phase {
	case probation.Promoted:
		return 0
	case probation.RolledBack, probation.Withdrawn:
		return exitRolledBack
	case probation.RollbackFailed:
		return exitRollbackFailed
	case probation.Failed:
		switch code {
		case probation.CodePullUnavailable:
			return exitAgain
		case probation.CodeDigestRefused, probation.CodeProgramMismatch, probation.CodeNotProven:
			return exitRefused
		}
		return exitFailed
	}
	return exitAgain // it is not decided
}
