package probation_test

import (
	"strings"
	"testing"

	"toad/probation"
)

const (
	web  = "go:example.org/shop/cmd/web"
	tool = "go:example.org/shop/cmd/tool"
)

func TestAnotherProgramIsNotSwitchedTo(t *testing.T) {
	const label = "label:https://git.example.org/shop#web"
	tests := []struct {
		name             string
		known            []string
		inForce, program string
		change, rollback bool
		want             probation.Code
	}{
		{"the same", []string{web}, "", web, false, false, ""},
		{"another", []string{web}, "", tool, false, false, probation.CodeProgramMismatch},
		{"another, asked for", []string{web}, "", tool, true, false, ""},
		{"one it ran before", []string{tool, web}, "", tool, false, false, ""},
		{"another than what runs without toad", nil, web, tool, false, false, probation.CodeProgramMismatch},
		{"the first of all", nil, "", tool, false, false, ""},
		{"one that cannot be told", []string{web}, "", "", false, false, ""},
		{"a Go program is known, labels are shown", []string{web}, "", label, false, false, probation.CodeProgramMismatch},
		{"labels were known, a Go program is shown", []string{label}, "", web, false, false, probation.CodeProgramMismatch},
		{"a rollback", []string{web}, "", tool, false, true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			svc := inPhase(probation.Preparing)
			svc.Programs, svc.Operation.ProgramChange, svc.Operation.Rollback = tt.known, tt.change, tt.rollback
			ev := event(probation.Prepared)
			ev.Candidate, ev.InForce = svc.Operation.Candidate, svc.Promoted
			ev.Program, ev.InForceProgram = tt.program, tt.inForce
			ev = svc.Judged(ev)
			svc, _ = svc.Apply(ev)
			if ev.Kind == probation.Prepared {
				ev.Code = ""
			}
			if ev.Code != tt.want || (svc.Operation.Phase == probation.Failed) != (tt.want != "") {
				t.Fatalf("%s %q, in %s", ev.Code, ev.Reason, svc.Operation.Phase)
			}
			if refused := svc.Refusal(ev.Candidate) != nil; refused != (tt.want != "") {
				t.Errorf("refused: %v", refused)
			}
			if tt.want != "" && (!strings.Contains(ev.Reason, tt.program) || !strings.Contains(ev.Reason, web) && !strings.Contains(ev.Reason, label)) {
				t.Errorf("the reason does not name both: %s", ev.Reason)
			}
		})
	}
}

// A retry is of a release that failed; another program has to be asked for by its own name.
func TestARefusedProgramIsAcceptedByItsOwnNameOnly(t *testing.T) {
	svc := inPhase(probation.Preparing)
	svc.Programs = []string{web}
	ev := event(probation.Prepared)
	ev.Candidate, ev.InForce, ev.Program = svc.Operation.Candidate, svc.Promoted, tool
	svc, _ = svc.Apply(svc.Judged(ev))
	for _, r := range []probation.Request{{Digest: digestB}, {Digest: digestB, Retry: true}} {
		_, _, err := svc.Accept(enrollment(), r, at(0))
		var rejected *probation.Rejection
		if !asRejection(err, &rejected) || rejected.Code != probation.CodeProgramMismatch || !strings.Contains(rejected.Detail, tool) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	svc, _, err := svc.Accept(enrollment(), probation.Request{Digest: digestB, ProgramChange: true}, at(0))
	if err != nil || !svc.Operation.ProgramChange {
		t.Fatalf("%+v, %v", svc.Operation, err)
	}
	svc, _ = svc.Apply(svc.Judged(ev))
	if !svc.Operation.Prepared {
		t.Fatalf("%+v", svc.Operation)
	}
	svc.Operation.Phase = probation.Promoting
	svc, _ = svc.Apply(event(probation.PinKept))
	if svc.Refusal(ev.Candidate) != nil || len(svc.Programs) != 2 || svc.Programs[1] != tool {
		t.Errorf("refusals %+v, programs %q", svc.Refusals, svc.Programs)
	}
}

func TestWhatRunsIsRememberedBeforeTheFirstDeployment(t *testing.T) {
	svc := inPhase(probation.Preparing)
	ev := event(probation.Prepared)
	ev.Candidate, ev.InForce, ev.Program, ev.InForceProgram = svc.Operation.Candidate, svc.Promoted, web, web
	svc, _ = svc.Apply(svc.Judged(ev))
	if len(svc.Programs) != 1 || svc.Programs[0] != web {
		t.Errorf("programs %q", svc.Programs)
	}
}

func asRejection(err error, into **probation.Rejection) bool {
	r, ok := err.(*probation.Rejection)
	*into = r
	return ok
}
