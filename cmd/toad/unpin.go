package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/probation"
	"toad/probation/record"
	"toad/probation/rollout"
)

func unpinCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "unpin", ShortUsage: "toad unpin SERVICE", FlagSet: flag.NewFlagSet("toad unpin", flag.ContinueOnError),
		ShortHelp: "give a service's units back: take toad's pins away",
		LongHelp: "Removes toad's pins of all units of a service, so that what their own files say counts again. What runs is\n" +
			"left running. The release in force is forgotten; what was refused stays refused. The next deployment takes\n" +
			"what runs then for the release to go back to. Safe to run again.\n\n" +
			"Exit: 0 unpinned, 5 a deployment is under way.\n\nExample: toad unpin web",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("unpin takes one service, e.g. web")
			}
			h, err := wire(ctx, g)
			if err != nil {
				return err
			}
			defer h.close()
			return h.unpin(ctx, g, args[0])
		},
	}
}

func (h *host) unpin(ctx context.Context, g *globals, service string) error {
	units, err := h.unitsOf(service)
	if err != nil {
		return err
	}
	done, err := h.rollout.Unpin(ctx, service, units, fmt.Sprintf("uid %d", os.Getuid()))
	var rejected *probation.Rejection
	switch {
	case errors.As(err, &rejected):
		return exitError{exitRefused, errors.New(rejected.Detail)}
	case errors.Is(err, record.ErrDamaged):
		return exitError{exitRefused, err}
	case err != nil && done == nil:
		return err
	}
	if g.JSON {
		return errors.Join(printJSON(g.Stdout, done), err)
	}
	for _, u := range done {
		fmt.Fprintln(g.Stdout, clean(saysUnpinned(u)))
	}
	return err
}

func saysUnpinned(u rollout.Unpinned) string {
	next := "runs no container"
	if u.Image != "" {
		next = "runs " + u.Image
	}
	switch {
	case u.Service == "":
		return u.Unit + " is unpinned; there is no such file any more."
	case u.Running:
		return fmt.Sprintf("%s is unpinned. It is left running as it is; its next restart %s.", u.Service, next)
	}
	return fmt.Sprintf("%s is unpinned. It is down, and is left so; its next start %s.", u.Service, next)
}

// unitsOf are the units that a service is enrolled with. One that is not enrolled any more may still have a record.
func (h *host) unitsOf(service string) ([]string, error) {
	if e, err := h.enrolled.Enrollment(service); err == nil {
		return e.Units, nil
	}
	if err := probation.CheckServiceName(service); err != nil {
		return nil, usagef("%w", err)
	}
	names, err := h.records.Names()
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if n == service {
			return nil, nil
		}
	}
	return nil, hint(configError{fmt.Errorf("there is no service %q", service)}, "toad status lists them")
}
