package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"toad/httpd/api"
)

// client speaks to the toad that the flags name; without any, to this user's own.
func (g *globals) client() (*api.Client, error) {
	endpoint := g.Endpoint
	if endpoint == "" {
		dir, err := g.runtimeDir()
		if err != nil {
			return nil, err
		}
		endpoint = "unix://" + filepath.Join(dir, "toad", "toad.sock")
	}
	token, err := g.token()
	if err != nil {
		return nil, err
	}
	c, err := api.New(endpoint, token)
	if err != nil {
		return nil, configError{err}
	}
	return c, nil
}

// maxToken bounds a token file, in bytes: a wrong file is noticed before it is sent anywhere.
const maxToken = 4096

// token is the token of an http endpoint; empty without one. It is never a flag: argv is for everybody to read.
func (g *globals) token() (string, error) {
	if g.TokenFile == "" {
		return checkToken("TOAD_TOKEN", os.Getenv("TOAD_TOKEN"))
	}
	f, err := os.Open(g.TokenFile)
	if err != nil {
		return "", configError{fmt.Errorf("token: %w", err)}
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", configError{fmt.Errorf("token: %w", err)}
	}
	if info.Mode().Perm()&0o077 != 0 {
		return "", hint(configError{fmt.Errorf("token: %s is open to others (mode %04o)", g.TokenFile, info.Mode().Perm())},
			"chmod 600 %s, and issue a new token if others had access", g.TokenFile)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return "", configError{fmt.Errorf("token: %w", err)}
	}
	token := strings.TrimSpace(string(data))
	if token == "" {
		return "", configError{fmt.Errorf("token: %s is empty", g.TokenFile)}
	}
	return checkToken(g.TokenFile, token)
}

// checkToken refuses what could not be a header's value, without repeating it.
func checkToken(from, token string) (string, error) {
	if len(token) > maxToken || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", configError{fmt.Errorf("token: what %s holds is not a token", from)}
	}
	return token, nil
}

// reached adds what to do to an error of the API.
func reached(c *api.Client, err error) error {
	var p *api.Problem
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return hint(exitError{exitAgain, errors.New("interrupted before toad had answered")}, "toad status tells what it does")
	case errors.Is(err, api.ErrUnreachable) && errors.Is(err, syscall.EACCES):
		return hint(err, "only the user that runs toad may use its socket; log in as that user")
	case errors.Is(err, api.ErrUnreachable) && strings.HasPrefix(c.Endpoint(), "unix:"):
		return hint(err, "systemctl --user status toad.socket; if there is no such unit: toad setup")
	case errors.Is(err, api.ErrUnreachable):
		return hint(err, "is the endpoint right, and toad running there?")
	case errors.As(err, &p) && p.Hint == "" && p.Code == "service_damaged":
		return hint(err, "toad doctor tells what is wrong with the record")
	}
	return err
}
