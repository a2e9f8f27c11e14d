package podmanc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// agentLabel marks the secrets that toad's agent put into Podman's store; no other is ever changed.
const agentLabel = "io.toad.agent"

type storedSecret struct {
	Spec struct {
		Name   string
		Labels map[string]string
	}
	SecretData string
}

func (s storedSecret) own() bool { return s.Spec.Labels[agentLabel] != "" }

// FindSecret returns the value of a secret of Podman's store, and whether the agent put it there; ok is false if there is
// none of that name.
func (c *Client) FindSecret(ctx context.Context, name string) (value string, own, ok bool, err error) {
	s, err := get[storedSecret](ctx, c, "/secrets/%s/json", url.Values{"showsecret": {"true"}}, name)
	switch {
	case status(err) == http.StatusNotFound:
		return "", false, false, nil
	case err != nil:
		return "", false, false, fmt.Errorf("inspect secret %s: %w", name, err)
	case s.Spec.Name != name:
		return "", false, false, nil // the name is another one's id, or the beginning of it
	}
	return s.SecretData, s.own(), true, nil
}

// PutSecret makes a secret of the agent's. The value is the body of a request, and goes nowhere else.
func (c *Client) PutSecret(ctx context.Context, name, value string) error {
	query := url.Values{"name": {name}, "labels": {`{"` + agentLabel + `":"1"}`}}
	return between("secret", func() error {
		resp, err := c.do(ctx, http.MethodPost, "/secrets/create", query, http.Header{"Content-Type": {"application/octet-stream"}}, strings.NewReader(value))
		if err != nil {
			return fmt.Errorf("make secret %s: %w", name, err)
		}
		return resp.Body.Close()
	})
}

// DropSecrets takes the agent's secrets away, but for those to keep.
func (c *Client) DropSecrets(ctx context.Context, keep []string) error {
	all, err := get[[]storedSecret](ctx, c, "/secrets/json", nil)
	if err != nil {
		return fmt.Errorf("list secrets: %w", err)
	}
	for _, s := range all {
		if name := s.Spec.Name; s.own() && !slices.Contains(keep, name) {
			err = errors.Join(err, c.drop(ctx, "secret", "/secrets/"+url.PathEscape(name)))
		}
	}
	return err
}

// DropVolumes takes volumes away, with all that is in them. One that is not there is no error.
func (c *Client) DropVolumes(ctx context.Context, names []string) (err error) {
	for _, name := range names {
		err = errors.Join(err, c.drop(ctx, "volume", "/volumes/"+url.PathEscape(name)))
	}
	return err
}

func (c *Client) drop(ctx context.Context, what, path string) error {
	return between("drop", func() error {
		resp, err := c.do(ctx, http.MethodDelete, path, nil, nil, nil)
		switch {
		case status(err) == http.StatusNotFound:
			return nil
		case err != nil:
			return fmt.Errorf("drop %s: %w", what, err)
		}
		return resp.Body.Close()
	})
}
