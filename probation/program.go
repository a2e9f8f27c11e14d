package probation

import (
	"fmt"
	"slices"
	"strings"
)

// goProgram begins the identity of a program that was read from a Go binary. It is the stronger kind: labels are what
// a publisher says, build information is what the linker wrote.
const goProgram = "go:"

// maxPrograms bounds what a service remembers; the oldest is forgotten.
const maxPrograms = 20

// Judged decides on a preparation that went well, now that it is known what the image is: a release that is refused
// under another name, or one that is another program, is not switched to.
func (s Service) Judged(ev Event) Event {
	op := s.Operation
	if op == nil || ev.Kind != Prepared || op.Rollback {
		return ev // what ran here before may come back
	}
	if f := s.Refusal(ev.Candidate); f != nil && !op.Retry && (f.Code != CodeProgramMismatch || !op.ProgramChange) {
		return ev.refuse(CodeDigestRefused, fmt.Sprintf("the %s is one that failed here as %s: %s; to try it once more: --retry", op.Enrollment.Artefact(), f.Operation, f.Reason))
	}
	if why := s.strange(ev); why != "" && !op.ProgramChange {
		ev = ev.refuse(CodeProgramMismatch, why+"; if that is meant: --program-change")
		ev.Refuse = true
	}
	return ev
}

func (ev Event) refuse(code Code, reason string) Event {
	ev.Kind, ev.Code, ev.Reason = PrepareFailed, code, reason
	return ev
}

// strange says in which way a candidate's program is none that the service has run. Without an identity there is
// nothing to hold it against.
func (s Service) strange(ev Event) string {
	known := s.Programs
	if len(known) == 0 && ev.InForceProgram != "" {
		known = []string{ev.InForceProgram}
	}
	switch {
	case ev.Program == "" || len(known) == 0 || slices.Contains(known, ev.Program):
		return ""
	}
	last := known[len(known)-1]
	if !strings.HasPrefix(ev.Program, goProgram) && strings.HasPrefix(last, goProgram) {
		return fmt.Sprintf("the image's program cannot be read and is named by labels only, as %s; %s has run %s", ev.Program, s.Name, last)
	}
	return fmt.Sprintf("the %s runs %s, %s has run %s", s.Operation.Enrollment.Artefact(), ev.Program, s.Name, strings.Join(known, ", "))
}

// remember adds a program that was promoted, or ran before the first deployment.
func (s Service) remember(program string) Service {
	if program == "" || slices.Contains(s.Programs, program) {
		return s
	}
	all := append(slices.Clone(s.Programs), program)
	s.Programs = all[max(0, len(all)-maxPrograms):]
	return s
}
