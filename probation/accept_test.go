package probation_test

import (
	"errors"
	"testing"

	"toad/probation"
)

func TestAcceptDecidesInTheOrderOfTheDesign(t *testing.T) {
	refused := probation.Refusal{Release: probation.Release{Digest: digestB}, Operation: "web-g5", Reason: "exited"}
	wrong, right := 3, 7
	for _, c := range []struct {
		name    string
		change  func(*probation.Service)
		req     probation.Request
		code    probation.Code
		changed bool
	}{
		{"a new digest", nil, probation.Request{Digest: digestB}, "", true},
		{"with the right generation", nil, probation.Request{Digest: digestB, ExpectedGeneration: &right}, "", true},
		{"with another generation", nil, probation.Request{Digest: digestB, ExpectedGeneration: &wrong}, probation.CodeGenerationMismatch, false},
		{"what is promoted already", nil, probation.Request{Digest: digestA}, "", false},
		{"what ran before the first deployment", func(s *probation.Service) { s.Promoted.Generation = 0 },
			probation.Request{Digest: digestA}, "", true},
		{"while another is under way", func(s *probation.Service) { s.Operation.Phase = probation.Probation },
			probation.Request{Digest: digestB, ExpectedGeneration: &wrong}, probation.CodeOperationActive, false},
		{"a refused digest", func(s *probation.Service) { s.Refusals = []probation.Refusal{refused} },
			probation.Request{Digest: digestB}, probation.CodeDigestRefused, false},
		{"a refused digest, retried", func(s *probation.Service) { s.Refusals = []probation.Refusal{refused} },
			probation.Request{Digest: digestB, Retry: true}, "", true},
		{"a retry of nothing", nil, probation.Request{Digest: digestB, Retry: true}, probation.CodeInvalid, false},
		{"after a failed restore", func(s *probation.Service) { s.Operation.Phase = probation.RollbackFailed },
			probation.Request{Digest: digestB}, probation.CodeRollbackFailed, false},
		{"after a failed restore, retried", func(s *probation.Service) { s.Operation.Phase = probation.RollbackFailed },
			probation.Request{Digest: digestB, Retry: true}, "", true},
		{"a rollback after a failed restore", func(s *probation.Service) { s.Operation.Phase = probation.RollbackFailed },
			probation.Request{Digest: digestA, Rollback: true}, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc := inPhase(probation.Promoted)
			if c.change != nil {
				c.change(&svc)
			}
			got, changed, err := svc.Accept(enrollment(), c.req, at(0))
			var r *probation.Rejection
			if c.code != "" {
				if !errors.As(err, &r) || r.Code != c.code || r.Generation != 7 {
					t.Fatalf("want %s at generation 7, have %v", c.code, err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if changed != c.changed {
				t.Fatalf("want changed %v, have %v", c.changed, changed)
			}
			if !changed {
				return
			}
			op := got.Operation
			if op.ID != "web-g8" || got.Generation != 8 || op.Phase != probation.Accepted || op.Candidate.Digest != c.req.Digest {
				t.Errorf("want web-g8 accepted for %s, have %+v", c.req.Digest, op)
			}
		})
	}
}

func TestRollbackGoesToTheNewestOtherRelease(t *testing.T) {
	svc := inPhase(probation.Promoted)
	if _, err := svc.RollbackTarget(); err == nil {
		t.Fatal("there is nothing to go back to")
	}
	svc.Promoted = &probation.Release{Digest: digestB, ImageID: idB, Generation: 7}
	if r, err := svc.RollbackTarget(); err != nil || r.Digest != digestA {
		t.Errorf("want %s, have %+v, %v", digestA, r, err)
	}
	next, changed, err := svc.Accept(enrollment(), probation.Request{Rollback: true, Key: "k"}, at(0))
	if err != nil || !changed || next.Operation.Candidate.Digest != digestA || !next.Operation.Rollback {
		t.Errorf("want a rollback to %s accepted, have %+v, %v", digestA, next.Operation, err)
	}
	svc.Operation.Phase = probation.RollbackFailed
	if r, err := svc.RollbackTarget(); err != nil || r.Digest != digestB {
		t.Errorf("after a failed restore: want the release in force, have %+v, %v", r, err)
	}
}

func TestDigestsAndNames(t *testing.T) {
	for _, good := range []string{digestA, digestB} {
		if err := probation.CheckDigest(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "v1", "sha256:", digestA[:70], digestA + "a", "sha512:" + digestA[7:], "sha256:" + "AAAA" + digestA[11:], "app@" + digestA} {
		if probation.CheckDigest(bad) == nil {
			t.Errorf("digest %q was taken", bad)
		}
	}
	for id, ok := range map[string]bool{"web-g7": true, "web-g0": true, "a-b-g12": true, "web": false, "web-g": false, "web-g07": false,
		"Web-g1": false, "web-g1-g2": false, "web-g9999999999": false, "web-g-1": false, "../x-g1": false} {
		if _, _, have := probation.ParseOperationID(id); have != ok {
			t.Errorf("operation id %q: want %v", id, ok)
		}
	}
}

func FuzzParseOperationID(f *testing.F) {
	f.Add("web-g7")
	f.Add("a-g-g1")
	f.Fuzz(func(t *testing.T, id string) {
		if service, generation, ok := probation.ParseOperationID(id); ok && probation.OperationID(service, generation) != id {
			t.Errorf("%q reads as %s, %d", id, service, generation)
		}
	})
}
