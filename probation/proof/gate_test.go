package proof

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

// shelf holds proofs in memory, and counts what is asked of the registry.
type shelf struct {
	here, beside [][]byte
	asked        int
	trouble      error
}

func (s *shelf) Here(Wanted) [][]byte { return s.here }

func (s *shelf) Beside(context.Context, Wanted) ([][]byte, error) {
	s.asked++
	return s.beside, s.trouble
}

func (s *shelf) Keep(_ Wanted, _ Statement, envelope []byte) error {
	s.here = append(s.here, envelope)
	return nil
}

func TestTheRegistryIsAskedOnlyWhereThePolicySaysSo(t *testing.T) {
	key, public := newKey(t)
	other, _ := newKey(t)
	good := sign(t, key, NewStatement(repository, []string{manifest}, predicate()))
	bad := sign(t, other, NewStatement(repository, []string{manifest}, predicate()))
	byHand := Policy{Require: []Requirement{{Prover: "dev", Key: public}}}
	byRegistry := Policy{Require: []Requirement{{Prover: "dev", Key: public, Carry: Registry}}}

	s := &shelf{beside: [][]byte{bad, good}}
	for what, p := range map[string]Policy{"none": {}, "another service's": {Require: []Requirement{{Services: []string{"shop"}, Prover: "dev", Key: public, Carry: Registry}}}} {
		if err := p.Unproven(t.Context(), wanted, s, true); err != nil || s.asked != 0 {
			t.Errorf("%s: %v, asked %d times", what, err, s.asked)
		}
	}
	if err := byHand.Unproven(t.Context(), wanted, s, true); err == nil || s.asked != 0 {
		t.Errorf("by hand: %v, asked %d times", err, s.asked)
	}
	if err := byRegistry.Unproven(t.Context(), wanted, s, false); err == nil || s.asked != 0 {
		t.Errorf("not to ask: %v, asked %d times", err, s.asked)
	}
	if err := byRegistry.Unproven(t.Context(), wanted, s, true); err != nil || s.asked != 1 || len(s.here) != 1 {
		t.Errorf("%v, asked %d times, kept %d", err, s.asked, len(s.here))
	}
	if err := byRegistry.Unproven(t.Context(), wanted, s, true); err != nil || s.asked != 1 {
		t.Errorf("what is kept is not asked for again: %v, asked %d times", err, s.asked)
	}

	if err := byRegistry.Unproven(t.Context(), wanted, &shelf{beside: [][]byte{bad}}, true); err == nil || !strings.Contains(err.Error(), "not signed by the key") {
		t.Errorf("a bad one beside it: %v", err)
	}
	if err := byRegistry.Unproven(t.Context(), wanted, &shelf{trouble: errors.New("away")}, true); err == nil || !strings.Contains(err.Error(), "could not be asked: away") {
		t.Errorf("a registry in trouble: %v", err)
	}
}

func TestEveryRequirementMustBeMetAndOneIsEnoughToTakeAProof(t *testing.T) {
	dev, devKey := newKey(t)
	stage, stageKey := newKey(t)
	both := Policy{Require: []Requirement{{Prover: "dev", Key: devKey}, {Prover: "stage", Key: stageKey}}}
	byDev := sign(t, dev, NewStatement(repository, []string{manifest}, predicate()))
	of := predicate()
	of.Prover = "stage"
	byStage := sign(t, stage, NewStatement(repository, []string{manifest}, of))

	if err := both.Unproven(t.Context(), wanted, &shelf{here: [][]byte{byDev}}, false); err == nil || !strings.Contains(err.Error(), "proven by stage") {
		t.Errorf("one of two: %v", err)
	}
	if err := both.Unproven(t.Context(), wanted, &shelf{here: [][]byte{byDev, byStage}}, false); err != nil {
		t.Error(err)
	}
	for _, envelope := range [][]byte{byDev, byStage} {
		if _, err := both.Takes(t.Context(), wanted, envelope); err != nil {
			t.Error(err)
		}
	}
	if _, err := (Policy{Require: both.Require[1:]}).Takes(t.Context(), wanted, byDev); err == nil {
		t.Error("a proof is taken that counts for nothing")
	}
	if _, err := (Policy{}).Takes(t.Context(), wanted, byDev); err != nil {
		t.Errorf("without a policy its shape is enough: %v", err)
	}
	elsewhere := wanted
	elsewhere.Digests = []string{index}
	if _, err := (Policy{}).Takes(t.Context(), elsewhere, byDev); err == nil || !strings.Contains(err.Error(), "it is about "+manifest) {
		t.Errorf("about other bytes: %v", err)
	}
}

func TestWhatIsNotRequiredAnyMoreIsNotForgotten(t *testing.T) {
	_, public := newKey(t)
	web := Policy{Require: []Requirement{{Services: []string{"web"}, Prover: "dev", Key: public}}}
	known, lifted := web.Lifted(nil, []string{"shop", "web"})
	if !slices.Equal(known, []string{"web"}) || len(lifted) != 0 {
		t.Errorf("%v, %v", known, lifted)
	}
	if known, lifted = (Policy{}).Lifted(known, []string{"shop", "web"}); !slices.Equal(known, []string{"web"}) || !slices.Equal(lifted, []string{"web"}) {
		t.Errorf("%v, %v", known, lifted)
	}
	if !web.Concerns("web") || web.Concerns("shop") || web.After() != DefaultAfter {
		t.Error("a host that requires a proof keeps in mind what ran well here")
	}
	if p := (Policy{Prove: &Prove{After: time.Minute, Carry: Registry}}); !p.Concerns("shop") || p.After() != time.Minute || p.Prove.Carried(false) != "" || p.Prove.Carried(true) != Registry {
		t.Errorf("%+v", p.Prove)
	}
}
