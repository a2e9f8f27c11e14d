package api

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Plan is what a deployment would do.
type Plan struct {
	Service    string     `json:"service"`
	Operation  string     `json:"operation"` // the id that it would have
	Generation int        `json:"generation"`
	Digest     string     `json:"digest"`
	Image      string     `json:"image"`   // repository
	Already    bool       `json:"already"` // in force: nothing would be done
	Code       string     `json:"code"`    // why it would fail before the switch; empty if it would not
	Reason     string     `json:"reason"`
	Program    string     `json:"program"`  // what the image runs, where that can be told
	InForce    *Release   `json:"in_force"` // what it would go back to
	Units      []PlanUnit `json:"units"`
	Readiness  string     `json:"readiness"`
	Stable     string     `json:"stable"`
	Deadline   string     `json:"deadline"`
	Restarts   int        `json:"restarts"`
}

// PlanUnit is what would become of one unit.
type PlanUnit struct {
	Unit       string   `json:"unit"`
	Service    string   `json:"service"`
	Running    bool     `json:"running"`
	Reference  string   `json:"reference"` // the image that its pin would name
	Dependents []string `json:"dependents"`
}

// PlanEvent is one line of the answer to POST /v1/services/:service/plan: a line of progress, or the end as a plan or a
// problem. Exactly one of them is set.
type PlanEvent struct {
	Line    *Line    `json:"line,omitempty"`
	Plan    *Plan    `json:"plan,omitempty"`
	Problem *Problem `json:"problem,omitempty"`
}

// Plan asks what a deployment would do. It may take as long as a pull; on is told of the progress.
func (c *Client) Plan(ctx context.Context, name string, body DeployRequest, on func(PlanEvent) error) (Plan, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return Plan{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := c.request(ctx, http.MethodPost, "/v1/services/"+url.PathEscape(name)+"/plan", data)
	if err != nil {
		return Plan{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Plan{}, &UnreachableError{c.endpoint, err}
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode != http.StatusOK:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return Plan{}, c.problem(resp, text)
	case mediaType(resp) != "application/x-ndjson":
		return Plan{}, c.instead(resp, "lines of JSON")
	}
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	in := bufio.NewScanner(resp.Body)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		quiet.Reset(silence)
		if len(bytes.TrimSpace(in.Bytes())) == 0 {
			continue // a sign of life
		}
		var ev PlanEvent
		if err := json.Unmarshal(in.Bytes(), &ev); err != nil {
			return Plan{}, fmt.Errorf("answer of %s: %w; is it toad?", c.endpoint, err)
		}
		if err := on(ev); err != nil {
			return Plan{}, err
		}
		switch {
		case ev.Plan != nil:
			return *ev.Plan, nil
		case ev.Problem != nil:
			return Plan{}, ev.Problem
		}
	}
	err = in.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return Plan{}, &UnreachableError{c.endpoint, err}
}

// Diff asks what another release would change; digest is "" for the candidate of the latest operation, or else the
// release before the one in force.
func (c *Client) Diff(ctx context.Context, name, digest string) (Diff, error) {
	var out Diff
	query := ""
	if digest != "" {
		query = "?" + url.Values{"to": {digest}}.Encode()
	}
	err := c.get(ctx, "/v1/services/"+url.PathEscape(name)+"/diff"+query, &out)
	return out, err
}

// Live is Service with how ready it is at this moment.
func (c *Client) Live(ctx context.Context, name string) (Service, error) {
	return c.service(ctx, name, "?live=1")
}

// AllLive is Services with how ready they are at this moment.
func (c *Client) AllLive(ctx context.Context) (Services, error) {
	return c.services(ctx, "?live=1")
}
