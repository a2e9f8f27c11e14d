package probation_test

import (
	"testing"

	"toad/probation"
)

func TestAReleaseIsItsImageAndItsText(t *testing.T) {
	ready := probation.Ready{TCP: "127.0.0.1:1"}
	one := probation.Define(map[string]string{"web.container": "a\n"}, ready)
	other := probation.Define(map[string]string{"web.container": "b\n"}, ready)
	elsewhere := probation.Define(map[string]string{"web.container": "a\n"}, probation.Ready{TCP: "127.0.0.1:2"})
	a := probation.Release{Digest: digestA, Definition: one}
	for what, b := range map[string]struct {
		probation.Release
		same bool
	}{
		"the same":                {probation.Release{Digest: digestA, Definition: one.Brief()}, true},
		"another text":            {probation.Release{Digest: digestA, Definition: other}, false},
		"ready elsewhere":         {probation.Release{Digest: digestA, Definition: elsewhere}, false},
		"no text":                 {probation.Release{Digest: digestA}, false},
		"the text, another image": {probation.Release{Digest: digestB, Definition: one}, false},
	} {
		if have := a.Same(b.Release); have != b.same {
			t.Errorf("%s: the same %v, want %v", what, have, b.same)
		}
	}
}

func TestARefusalIsOfTheTextAsWell(t *testing.T) {
	bad := probation.Define(map[string]string{"web.container": "bad\n"}, probation.Ready{})
	mended := probation.Define(map[string]string{"web.container": "mended\n"}, probation.Ready{})
	s := probation.Service{Name: "web", Generation: 3, Refusals: []probation.Refusal{{Release: probation.Release{Digest: digestB, Definition: bad.Brief()}, Operation: "web-g3"}}}
	e := probation.Enrollment{Name: "web", Units: []string{"web.container"}, Definition: bad}
	if _, changed, err := s.Accept(e, probation.Request{Digest: digestB}, probation.Instant{}); err == nil || changed {
		t.Errorf("what failed here is accepted: %v", err)
	}
	e.Definition = mended
	next, changed, err := s.Accept(e, probation.Request{Digest: digestB}, probation.Instant{})
	if err != nil || !changed {
		t.Fatalf("another text is refused: %v", err)
	}
	if op := next.Operation; op.Enrollment.Definition != nil || !op.Candidate.Definition.Same(mended) {
		t.Errorf("the operation: %+v", op)
	}
}

func TestWhatIsPutBackIsAskedAsItSaysItself(t *testing.T) {
	before := probation.Ready{TCP: "127.0.0.1:1"}
	op := probation.Operation{Phase: probation.Probation, Enrollment: probation.Enrollment{Ready: probation.Ready{TCP: "127.0.0.1:2"}},
		Previous: &probation.Release{Definition: probation.Define(map[string]string{}, before)}}
	if op.Asks().TCP != "127.0.0.1:2" {
		t.Errorf("on trial it is asked at %s", op.Asks().TCP)
	}
	if op.Phase = probation.Restoring; op.Asks() != before {
		t.Errorf("put back it is asked at %s", op.Asks().TCP)
	}
}
