package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// Proof is the answer to a proof that was put.
type Proof struct {
	Service string `json:"service"`
	Digest  string `json:"digest"`
}

// Proof asks for the proof about a digest, a DSSE envelope in JSON. A *Problem of code not_proven says what is missing.
func (c *Client) Proof(ctx context.Context, service, digest string) ([]byte, error) {
	var out json.RawMessage
	err := c.get(ctx, proofPath(service, digest), &out)
	return out, err
}

// PutProof hands a proof over that another host made. It may be repeated.
func (c *Client) PutProof(ctx context.Context, service, digest string, envelope []byte) error {
	var out Proof
	_, err := c.ask(ctx, http.MethodPut, proofPath(service, digest), envelope, "", &out)
	return err
}

func proofPath(service, digest string) string {
	return "/v1/services/" + url.PathEscape(service) + "/proofs/" + url.PathEscape(digest)
}
