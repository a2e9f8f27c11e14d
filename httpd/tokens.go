package httpd

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"toad/authstore"
	"toad/httpd/api"
	"toad/probation"
)

// Tokens are the credentials of the API over TCP.
type Tokens interface {
	// Check returns the token that a bearer is. The error is authstore.ErrInvalid, or trouble of the host.
	Check(bearer string) (authstore.Token, error)
	Used(ctx context.Context, id string) error
	TokenStore
}

// TokenStore is what toad token works on.
type TokenStore interface {
	Issue(ctx context.Context, want authstore.Token) (t authstore.Token, bearer string, err error)
	List() (tokens []authstore.Token, damaged []string, err error)
	Revoke(ctx context.Context, id string) (authstore.Token, error)
}

// tokens is GET /v1/tokens.
func (s *Server) tokens(c *call) error {
	list, damaged, err := s.Tokens.List()
	if err != nil {
		return err
	}
	out := api.Tokens{Tokens: []api.Token{}}
	for _, t := range list {
		out.Tokens = append(out.Tokens, wireToken(t))
	}
	if len(damaged) > 0 {
		out.Damaged = fmt.Sprintf("no token in %s is valid any more: it was damaged, and set aside", strings.Join(damaged, ", "))
	}
	writeJSON(c, http.StatusOK, out)
	return nil
}

// issueToken is POST /v1/tokens.
func (s *Server) issueToken(c *call) error {
	var body api.TokenRequest
	if err := readBody(c, &body); err != nil {
		return err
	}
	want := authstore.Token{Name: body.Name, Services: body.Services, ExpiresAt: body.ExpiresAt}
	for _, name := range body.Services {
		if err := probation.CheckServiceName(name); err != nil && name != authstore.All {
			return invalid("services: " + err.Error())
		}
	}
	for _, v := range body.Verbs {
		want.Verbs = append(want.Verbs, authstore.Verb(v))
	}
	token, bearer, err := s.Tokens.Issue(c.r.Context(), want)
	var refused *authstore.RefusedError
	switch {
	case errors.As(err, &refused):
		return invalid(refused.What)
	case err != nil:
		return err
	}
	c.subject = token.ID
	writeJSON(c, http.StatusCreated, api.IssuedToken{Token: wireToken(token), Bearer: bearer})
	return nil
}

// revokeToken is DELETE /v1/tokens/:id.
func (s *Server) revokeToken(c *call) error {
	id := c.param("id")
	token, err := s.Tokens.Revoke(c.r.Context(), id)
	if errors.Is(err, authstore.ErrUnknown) {
		return refuse(http.StatusNotFound, CodeUnknownToken, fmt.Sprintf("there is no token %.40q; toad token list", id))
	}
	if err != nil {
		return err
	}
	c.subject = token.ID
	writeJSON(c, http.StatusOK, wireToken(token))
	return nil
}

func wireToken(t authstore.Token) api.Token {
	out := api.Token{ID: t.ID, Name: t.Name, Services: t.Services, Verbs: []string{}, CreatedAt: t.CreatedAt,
		ExpiresAt: t.ExpiresAt, LastUsedAt: t.LastUsedAt}
	for _, v := range t.Verbs {
		out.Verbs = append(out.Verbs, string(v))
	}
	return out
}
