package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"toad/authstore"
	"toad/probation/record"
)

// understood refuses to let this toad take over from a newer one whose files it cannot read: nobody would judge what is on
// trial then, nor keep its deadline.
func (h *host) understood() error {
	names, err := h.records.Names()
	if err != nil {
		return err
	}
	var all []error
	for _, n := range names {
		if _, err := h.records.Service(n); errors.Is(err, record.ErrNewer) {
			all = append(all, err)
		}
	}
	if path := filepath.Join(h.records.Dir(), "tokens.json"); authstore.New(path).Newer() {
		all = append(all, fmt.Errorf("a newer toad has written %s; put that toad back, or move the file away and issue new tokens", path))
	}
	if len(all) > 0 {
		return exitError{exitRefused, fmt.Errorf("this is toad %s, and nothing was changed: %w", version, errors.Join(all...))}
	}
	return nil
}
