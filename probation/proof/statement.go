package proof

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

// What a proof is, in the words of in-toto and DSSE.
const (
	StatementType = "https://in-toto.io/Statement/v1"
	PredicateType = "urn:toad:ran-well:v1"
	PayloadType   = "application/vnd.in-toto+json"
	// ArtifactType is what a proof is called beside an image in its registry.
	ArtifactType = "application/vnd.toad.proof.v1+json"

	// MaxEnvelope bounds a proof; a real one has about 1 KiB.
	MaxEnvelope = 64 << 10
)

// Statement says that a release ran well on a host. Nobody is made to believe it: see Requirement.
type Statement struct {
	Type          string    `json:"_type"`
	Subject       []Subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     Predicate `json:"predicate"`
}

// Subject is an image by a digest that was computed from its manifest's bytes; the index it came by is another one.
type Subject struct {
	Name   string            `json:"name"` // repository
	Digest map[string]string `json:"digest"`
}

// Predicate is what was seen.
type Predicate struct {
	Service   string    `json:"service"`
	Platform  string    `json:"platform"` // "linux/amd64"
	Prover    string    `json:"prover"`
	Since     time.Time `json:"active_since"` // start of the one invocation
	ProvenAt  time.Time `json:"proven_at"`
	StableFor string    `json:"stable_for"` // a duration: how long it had to run
	Restarts  int       `json:"restarts"`   // of its probation
	Version   string    `json:"toad_version"`
}

// NewStatement is a statement about the digests of one image, "sha256:…", the manifest's first.
func NewStatement(repository string, digests []string, p Predicate) Statement {
	s := Statement{Type: StatementType, PredicateType: PredicateType, Predicate: p}
	for _, d := range digests {
		s.Subject = append(s.Subject, Subject{repository, map[string]string{"sha256": hexOf(d)}})
	}
	return s
}

func hexOf(digest string) string {
	if digestForm.MatchString(digest) {
		return digest[len("sha256:"):]
	}
	return ""
}

var digestForm = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

// Digests are the subjects, as "sha256:…".
func (s Statement) Digests() []string {
	var all []string
	for _, sub := range s.Subject {
		all = append(all, "sha256:"+sub.Digest["sha256"])
	}
	return all
}

// Sign puts a statement into an envelope.
func Sign(ctx context.Context, s Statement, key PrivateKey) ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	payload, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	signer, err := dsse.NewEnvelopeSigner(key)
	if err != nil {
		return nil, err
	}
	env, err := signer.SignPayload(ctx, PayloadType, payload)
	if err != nil {
		return nil, err
	}
	return json.Marshal(env)
}

// Read takes an envelope apart and checks its shape. What it says is not verified: see Open.
func Read(envelope []byte) (Statement, error) {
	var s Statement
	_, payload, err := unpack(envelope)
	if err != nil {
		return s, err
	}
	if err := strictly(payload, &s); err != nil {
		return s, fmt.Errorf("the statement in it: %w", err)
	}
	return s, s.check()
}

// Open verifies an envelope with one key, and returns what it says.
func Open(ctx context.Context, envelope []byte, key PublicKey) (Statement, error) {
	s, err := Read(envelope)
	if err != nil {
		return s, err
	}
	env, _, err := unpack(envelope)
	if err != nil {
		return s, err
	}
	verifier, err := dsse.NewEnvelopeVerifier(key)
	if err != nil {
		return s, err
	}
	if _, err := verifier.Verify(ctx, env); err == nil {
		return s, nil
	}
	for _, sig := range env.Signatures {
		if sig.KeyID == key.ID() { // which anybody can write; it only tells which mistake was made
			return s, fmt.Errorf("it was changed since the key %s signed it", key.ID())
		}
	}
	return s, fmt.Errorf("it is not signed by the key %s", key.ID())
}

func unpack(envelope []byte) (*dsse.Envelope, []byte, error) {
	if len(envelope) > MaxEnvelope {
		return nil, nil, fmt.Errorf("it has %d bytes, a proof has at most %d", len(envelope), MaxEnvelope)
	}
	var env dsse.Envelope
	if err := strictly(envelope, &env); err != nil {
		return nil, nil, fmt.Errorf("it is not a DSSE envelope: %w", err)
	}
	switch {
	case env.PayloadType != PayloadType:
		return nil, nil, fmt.Errorf("its payload is of type %.80q, want %q", env.PayloadType, PayloadType)
	case len(env.Signatures) == 0 || len(env.Signatures) > 8:
		return nil, nil, fmt.Errorf("it has %d signatures, want 1 to 8", len(env.Signatures))
	}
	payload, err := base64.StdEncoding.Strict().DecodeString(env.Payload)
	if err != nil {
		return nil, nil, errors.New("its payload is not base64")
	}
	return &env, payload, nil
}

// strictly takes one JSON object with known fields and nothing after it.
func strictly(data []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("something follows it")
	}
	return nil
}

var proverForm = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{0,62}$`)

func (s Statement) check() error {
	switch {
	case s.Type != StatementType:
		return fmt.Errorf("it is of type %.80q, want %q", s.Type, StatementType)
	case s.PredicateType != PredicateType:
		return fmt.Errorf("it states %.80q, want %q", s.PredicateType, PredicateType)
	case len(s.Subject) == 0 || len(s.Subject) > 4:
		return fmt.Errorf("it is about %d images, want one, under up to 4 digests", len(s.Subject))
	case !proverForm.MatchString(s.Predicate.Prover):
		return fmt.Errorf("prover %.80q: want [a-z0-9][a-z0-9.-]{0,62}", s.Predicate.Prover)
	case s.Predicate.Service == "" || s.Predicate.Platform == "" || s.Predicate.ProvenAt.IsZero():
		return errors.New("it does not say of which service, for which platform and when")
	}
	for _, sub := range s.Subject {
		if len(sub.Digest) != 1 || !digestForm.MatchString("sha256:"+sub.Digest["sha256"]) || sub.Name != s.Subject[0].Name {
			return errors.New("its subjects are not sha256 digests of one repository")
		}
	}
	return nil
}
