package httpd

import (
	"context"
	"errors"
	"testing"

	"toad/probation"
)

// proven has a proof about one digest, and takes those about another.
type proven struct{}

func (proven) Proof(_ context.Context, _, digest string) ([]byte, error) {
	if digest == one {
		return []byte(`{"payload":"e30="}`), nil
	}
	return nil, &ProofError{probation.CodeNotProven, errors.New("not proven yet: on dev since noon")}
}

func (proven) PutProof(_ context.Context, _, digest string, envelope []byte) error {
	if digest == one && string(envelope) == `{"payload":"e30="}` {
		return nil
	}
	return &ProofError{probation.CodeInvalid, errors.New("this proof is not taken: see /etc/toad/proof-policy.toml")}
}

func TestProofsComeAndGo(t *testing.T) {
	f := start(t)
	envelope, err := f.client().Proof(t.Context(), "web", one)
	if err != nil || string(envelope) != `{"payload":"e30="}` {
		t.Errorf("%s, %v", envelope, err)
	}
	if err := f.client().PutProof(t.Context(), "web", one, envelope); err != nil {
		t.Error(err)
	}
	f.get("/v1/services/web/proofs/"+two).problem(t, 404, "not_proven")
	f.get("/v1/services/wbe/proofs/"+one).problem(t, 404, "unknown_service")
	f.get("/v1/services/web/proofs/v1").problem(t, 422, "invalid_request")
}
