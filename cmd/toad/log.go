package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/httpd/api"
	"toad/probation"
)

func logCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad log", flag.ContinueOnError)
	follow := fs.Bool("follow", false, "go on until the operation is decided")
	return &ffcli.Command{
		Name: "log", ShortUsage: "toad log [flags] SERVICE|OPERATION", FlagSet: fs,
		ShortHelp: "show what happened to an operation",
		LongHelp: "Shows the log of an operation, or of a service's latest one: the time since it\n" +
			"was accepted, a mark for trouble (! warning, E error), the event and what was\n" +
			"said. --json prints the lines as they are.\n\n" +
			"Example: toad log web-g7 --follow",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return hint(usagef("log takes a service or an operation, have %d arguments", len(args)), "toad log web, or toad log web-g7")
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			op, err := operationOf(ctx, c, args[0])
			if err != nil {
				return reached(c, err)
			}
			if *follow {
				return reached(c, g.followLog(ctx, c, op))
			}
			return reached(c, g.printLog(ctx, c, op))
		},
	}
}

// operationOf is the operation of that id, or the latest one of the service of that name.
func operationOf(ctx context.Context, c *api.Client, name string) (api.Operation, error) {
	if _, _, ok := probation.ParseOperationID(name); ok {
		return c.Operation(ctx, name)
	}
	svc, err := c.Service(ctx, name)
	switch {
	case err != nil:
		return api.Operation{}, err
	case svc.Damaged != "":
		return api.Operation{}, exitError{exitRefused, fmt.Errorf("%s", svc.Damaged)}
	case svc.Operation == nil:
		return api.Operation{}, exitError{exitFailed, fmt.Errorf("%s has no log: it was never deployed", name)}
	}
	return *svc.Operation, nil
}

func (g *globals) printLog(ctx context.Context, c *api.Client, op api.Operation) error {
	lines, err := c.Log(ctx, op.ID)
	if err != nil {
		return err
	}
	for _, raw := range lines {
		if err := g.printLine(op, raw); err != nil {
			return err
		}
	}
	return nil
}

func (g *globals) printLine(op api.Operation, raw json.RawMessage) error {
	if g.JSON {
		_, err := fmt.Fprintf(g.Stdout, "%s\n", raw)
		return err
	}
	var l api.Line
	if err := json.Unmarshal(raw, &l); err != nil {
		return nil // not a line of this version's
	}
	_, err := fmt.Fprintln(g.Stdout, g.line(op.AcceptedAt, l))
	return err
}

// followLog prints what there is and what comes. It succeeds however the operation ends: it was asked for the log.
func (g *globals) followLog(ctx context.Context, c *api.Client, op api.Operation) error {
	if !g.JSON {
		_, err := g.follow(ctx, c, op)
		return err
	}
	return c.Follow(ctx, op.ID, "", func(ev api.Event) error {
		if ev.Line == nil {
			return nil
		}
		return g.printLine(op, ev.Raw)
	})
}
