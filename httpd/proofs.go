package httpd

import (
	"context"
	"encoding/json"
	"net/http"

	"toad/httpd/api"
	"toad/probation"
)

// Proofs keeps statements about what ran well, and makes them. Errors are *ProofError, or the host's trouble.
type Proofs interface {
	// Proof returns the proof about a digest, an envelope in JSON.
	Proof(ctx context.Context, service, digest string) ([]byte, error)
	// PutProof keeps one from elsewhere.
	PutProof(ctx context.Context, service, digest string, envelope []byte) error
}

// ProofError says why there is no proof, or why one is not taken.
type ProofError struct {
	Code probation.Code // not_proven or invalid_request
	Err  error
}

func (e *ProofError) Error() string { return e.Err.Error() }
func (e *ProofError) Unwrap() error { return e.Err }

// getProof is GET /v1/services/:service/proofs/:digest.
func (s *Server) getProof(c *call) error {
	name, digest, err := s.proofOf(c)
	if err != nil {
		return err
	}
	envelope, err := s.Proofs.Proof(c.r.Context(), name, digest)
	if err != nil {
		return err
	}
	c.Header().Set("Content-Type", "application/json")
	_, err = c.Write(envelope)
	return err
}

// putProof is PUT /v1/services/:service/proofs/:digest; it may be repeated.
func (s *Server) putProof(c *call) error {
	name, digest, err := s.proofOf(c)
	if err != nil {
		return err
	}
	var envelope json.RawMessage
	if err := readBody(c, &envelope); err != nil {
		return err
	}
	if err := s.Proofs.PutProof(c.r.Context(), name, digest, envelope); err != nil {
		return err
	}
	writeJSON(c, http.StatusOK, api.Proof{Service: name, Digest: digest})
	return nil
}

func (s *Server) proofOf(c *call) (service, digest string, err error) {
	service, digest = c.param("service"), c.param("digest")
	if err := s.known(service); err != nil {
		return "", "", err
	}
	if err := probation.CheckDigest(digest); err != nil {
		return "", "", invalid(err.Error())
	}
	return service, digest, nil
}
