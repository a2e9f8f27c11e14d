package httpd

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"toad/authstore"
	"toad/httpd/api"
	"toad/probation"
)

const (
	maxBody = 64 << 10 // bytes
	maxKey  = 200      // characters
	// answerLimit is how long a decision may wait for locks and disks. It goes on when the caller hangs up: an operation
	// that is saved must also be begun.
	answerLimit = 25 * time.Second
	// looked is how many operations are looked through for a key; more are not kept.
	looked = 100
)

// deploy is POST /v1/services/:service/deployments.
func (s *Server) deploy(c *call) error {
	var body api.DeployRequest
	name := c.param("service")
	key, err := s.shape(c, name, &body)
	if err != nil {
		return err
	}
	if err := checkDeploy(body); err != nil {
		return err
	}
	if err := mayOverride(c, name, body); err != nil {
		return err
	}
	req := asked(name, body, key, c)
	// A repeated request has its answer whatever has become of the enrollment.
	if found, err := s.replay(c, name, req); found || err != nil {
		return err
	}
	e, err := s.enrollment(name)
	if err != nil {
		return err
	}
	return s.accept(c, e, req)
}

func checkDeploy(body api.DeployRequest) error {
	if err := probation.CheckDigest(body.Digest); err != nil {
		return invalid(err.Error())
	}
	if body.WaitProof == "" {
		return nil
	}
	if d, err := time.ParseDuration(body.WaitProof); err != nil || d < time.Second || d > maxWait {
		return invalid(fmt.Sprintf("wait_proof %.80q: want a duration from 1s to %v, e.g. 30m", body.WaitProof, maxWait))
	}
	return nil
}

// maxWait is how long a deployment may wait for a proof.
const maxWait = 24 * time.Hour

// mayOverride refuses who asks for more than a deployment and may not.
func mayOverride(c *call, service string, body api.DeployRequest) error {
	if !body.Retry && !body.ProgramChange {
		return nil
	}
	return c.may(authstore.Override, service)
}

// asked is what a checked body asks of a service.
func asked(service string, body api.DeployRequest, key string, c *call) probation.Request {
	wait, _ := time.ParseDuration(body.WaitProof) // empty: none
	return probation.Request{Digest: body.Digest, ExpectedGeneration: body.ExpectedGeneration, Retry: body.Retry, ProgramChange: body.ProgramChange,
		WaitProof: wait, Key: key, By: c.by, From: c.from, Body: meaning{Kind: "deployment", Service: service, Digest: body.Digest, Generation: body.ExpectedGeneration,
			Retry: body.Retry, ProgramChange: body.ProgramChange, WaitProof: wait}.hash()}
}

func (s *Server) accept(c *call, e probation.Enrollment, req probation.Request) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), answerLimit)
	defer cancel()
	op, replay, err := s.Deployments.Accept(ctx, e, req)
	switch {
	case err != nil:
		return err
	case replay:
		return c.show(http.StatusOK, c.wireOperation(op))
	}
	return c.show(http.StatusAccepted, c.wireOperation(op))
}

// rollback is POST /v1/services/:service/rollback: it gives up the operation that is under way, or, with none, deploys
// the release before the one in force.
func (s *Server) rollback(c *call) error {
	var body api.RollbackRequest
	name := c.param("service")
	key, err := s.shape(c, name, &body)
	if err != nil {
		return err
	}
	req := probation.Request{ExpectedGeneration: body.ExpectedGeneration, Key: key, By: c.by, From: c.from,
		Body: meaning{Kind: "rollback", Service: name, Generation: body.ExpectedGeneration, Operation: body.Operation}.hash()}
	// A repeated request has its answer before anything under way is looked at, or it would give up its own operation.
	if found, err := s.replay(c, name, req); found || err != nil {
		return err
	}
	if body.Operation != "" {
		if op, err := s.ended(c, name, body.Operation); err != nil {
			return err
		} else if op != nil {
			return c.show(http.StatusOK, *op)
		}
	}
	svc, err := s.Records.Service(name)
	if err != nil {
		return err
	}
	if op := svc.Active(); op != nil {
		if op.Key == key {
			return c.show(http.StatusOK, c.wireOperation(*op)) // accepted since the look for a replay
		}
		return s.abort(c, *op, body, req)
	}
	e, err := s.enrollment(name)
	if err != nil {
		return err
	}
	req.Rollback = true
	return s.accept(c, e, req)
}

// abort gives up what is under way. The one who asked is written down with the request's id, so that a repetition is
// known as one when the operation has ended.
func (s *Server) abort(c *call, op probation.Operation, body api.RollbackRequest, req probation.Request) error {
	if g := body.ExpectedGeneration; g != nil && *g != op.Generation {
		return &probation.Rejection{Code: probation.CodeGenerationMismatch, Generation: op.Generation, Operation: op.ID,
			Detail: fmt.Sprintf("%s is at generation %d, the request expected %d; see what happened: toad status %s",
				op.Service, op.Generation, *g, op.Service)}
	}
	id := op.ID
	if body.Operation != "" {
		id = body.Operation // what the caller wants to give up decides, not what came next between two looks
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.r.Context()), answerLimit)
	defer cancel()
	op, err := s.Deployments.Abort(ctx, id, c.by+" from "+c.from+" "+requestID(req))
	switch {
	case err != nil:
		return err
	case op.Phase.Terminal():
		return c.show(http.StatusOK, c.wireOperation(op)) // it ended between the look and the lock
	}
	out := c.wireOperation(op)
	out.Aborts = true
	return c.show(http.StatusAccepted, out)
}

// ended returns the operation that a rollback names if there is nothing left to give up.
func (s *Server) ended(c *call, service, id string) (*api.Operation, error) {
	if of, _, ok := probation.ParseOperationID(id); !ok || of != service {
		return nil, invalid(fmt.Sprintf("operation %.80q is not one of %s", id, service))
	}
	op, err := s.Records.Operation(id)
	if err != nil {
		return nil, err
	}
	if !op.Phase.Terminal() {
		return nil, nil
	}
	out := c.wireOperation(op)
	return &out, nil
}

// replay answers a repeated request with the operation that it made or gave up. One that is not decided gets another
// act: the first request may have been cut off before it had started one.
func (s *Server) replay(c *call, service string, req probation.Request) (found bool, err error) {
	op, aborted, found, err := s.replayed(service, req)
	if err != nil || !found {
		return false, err
	}
	if !op.Phase.Terminal() {
		if err := s.Deployments.Again(c.r.Context(), op); err != nil {
			s.Log.Warn("no act for a repeated request", "service", service, "operation", op.ID, "err", err)
		}
	}
	out := c.wireOperation(op)
	out.Aborts = aborted
	return true, c.show(http.StatusOK, out)
}

func (s *Server) replayed(service string, req probation.Request) (op probation.Operation, aborted, found bool, err error) {
	ops, err := s.Records.Operations(service, 0, looked)
	if err != nil {
		return op, false, false, err
	}
	for _, op := range ops {
		if op.Key == req.Key && op.Body != req.Body {
			return op, false, false, &probation.Rejection{Code: probation.CodeIdempotency, Operation: op.ID, Generation: ops[0].Generation,
				Detail: fmt.Sprintf("this Idempotency-Key was used for %s with another request; use a new key", op.ID)}
		}
		by, aborted := s.Records.Aborted(op.ID)
		aborted = aborted && strings.Contains(by, requestID(req))
		if op.Key == req.Key || aborted {
			return op, aborted, true, nil
		}
	}
	return op, false, false, nil
}

// requestID tells one request from another without repeating its key.
func requestID(req probation.Request) string {
	sum := sha256.Sum256([]byte(req.Key + "\n" + req.Body))
	return "(request " + hex.EncodeToString(sum[:4]) + ")"
}

// shape refuses a write that is not well formed, before anything is looked at, and a service that does not exist.
func (s *Server) shape(c *call, service string, body any) (key string, err error) {
	if err := s.body(c, service, body); err != nil {
		return "", err
	}
	return idempotencyKey(c.r.Header)
}

// body is shape without the key.
func (s *Server) body(c *call, service string, into any) error {
	if err := readBody(c, into); err != nil {
		return err
	}
	return s.known(service)
}

func readBody(c *call, into any) error {
	if t, _, err := mime.ParseMediaType(c.r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return refuse(http.StatusUnsupportedMediaType, CodeMediaType, "send Content-Type: application/json")
	}
	data, err := io.ReadAll(http.MaxBytesReader(c, c.r.Body, maxBody))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return refuse(http.StatusRequestEntityTooLarge, CodeTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody))
	case err != nil:
		return invalid("the body did not arrive in full")
	}
	return decode(data, into)
}

// decode takes one JSON object with known fields and nothing after it.
func decode(data []byte, into any) error {
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) {
		return invalid("the body is not a JSON object")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	var typed *json.UnmarshalTypeError
	switch {
	case errors.As(err, &typed):
		return invalid(fmt.Sprintf("the body: %s is a %s, want a %s", typed.Field, typed.Value, typed.Type))
	case err != nil:
		return invalid("the body: " + strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); err != io.EOF {
		return invalid("the body: something follows the JSON object")
	}
	return nil
}

func idempotencyKey(h http.Header) (string, error) {
	keys := h.Values("Idempotency-Key")
	if len(keys) != 1 {
		return "", invalid("send one Idempotency-Key header, new for each request and the same when it is repeated")
	}
	if len(keys[0]) < 1 || len(keys[0]) > maxKey {
		return "", invalid(fmt.Sprintf("Idempotency-Key: want 1 to %d characters, have %d", maxKey, len(keys[0])))
	}
	for _, b := range []byte(keys[0]) {
		if b <= ' ' || b > '~' {
			return "", invalid("Idempotency-Key: only visible ASCII characters, without blanks")
		}
	}
	return keys[0], nil
}

// meaning is what tells a repeated request from another one under the same key. The order of its fields is part of the
// hash that is on record.
type meaning struct {
	Kind          string `json:"kind"`
	Service       string `json:"service"`
	Digest        string `json:"digest"`
	Generation    *int   `json:"expected_generation"`
	Retry         bool   `json:"retry"`
	ProgramChange bool   `json:"program_change"`
	Operation     string `json:"operation"`
	// WaitProof came later, and is left out where it is not used: what is on record keeps its hash.
	WaitProof time.Duration `json:"wait_proof,omitempty"`
}

func (m meaning) hash() string {
	data, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings, numbers and booleans
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
