package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/httpd/api"
	"toad/probation"
)

// rollback is what the command line asks for.
type rollback struct {
	g          *globals
	service    string
	generation int // -1: the one the service is at now
	detach     bool
	key        string
}

func rollbackCmd(g *globals) *ffcli.Command {
	r := &rollback{g: g}
	fs := flag.NewFlagSet("toad rollback", flag.ContinueOnError)
	fs.IntVar(&r.generation, "expect-generation", -1, "refuse unless the service is at generation `N`; default: the one it is at now")
	fs.BoolVar(&r.detach, "detach", false, "do not follow; exit as soon as it is accepted")
	fs.StringVar(&r.key, "key", "", "idempotency `KEY` of the request; default: a new one")
	return &ffcli.Command{
		Name: "rollback", ShortUsage: "toad rollback [flags] SERVICE", FlagSet: fs,
		ShortHelp: "give up what is under way, or go back to the release before",
		LongHelp: "Gives up the operation that is under way, so that the previous release stays or\n" +
			"comes back. With none under way, deploys the release before the one in force,\n" +
			"from this host and without network. Follows to the end.\n\n" +
			"Ctrl-C ends the following, not the rollback; the exit code is then 75.\n\n" +
			"Exit: 0 the previous release is in force, 1 failed and nothing changed, 3 the\n" +
			"release before did not hold, 4 the rollback failed, 5 not accepted, 75 try again\n" +
			"later.\n\n" +
			"Example: toad rollback web",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return hint(usagef("rollback takes a service, have %d arguments", len(args)), "toad rollback web")
			}
			r.service = args[0]
			return r.run(ctx)
		},
	}
}

func (r *rollback) run(ctx context.Context) error {
	if err := checkGeneration(r.generation); err != nil {
		return err
	}
	c, err := r.g.client()
	if err != nil {
		return err
	}
	if r.key == "" {
		r.key = "toad-" + rand.Text()
	}
	op, gaveUp, err := r.ask(ctx, c)
	if err != nil {
		return reached(c, err)
	}
	switch {
	case gaveUp && !op.Ended():
		r.g.say("%s is given up", op.ID)
	case !gaveUp:
		r.g.say("%s goes back to %s", op.ID, candidate(op))
	}
	if r.detach && !op.Ended() {
		return r.g.detached(op)
	}
	if op, err = r.g.follow(ctx, c, op); err != nil {
		return err
	}
	return r.g.tell(ctx, c, op, func(op api.Operation) bool { return gaveUp && left(op) })
}

// left says of an operation that was given up that the previous release is in force: restored, or never left.
func left(op api.Operation) bool {
	switch probation.Phase(op.Phase) {
	case probation.RolledBack, probation.Withdrawn, probation.Failed:
		return true
	}
	return false
}

// ask names what it wants to give up, so that a rollback that comes too late is told so instead of going back further.
// A promotion is not given up: it is waited for, and then gone back from. gaveUp is false for a new operation.
func (r *rollback) ask(ctx context.Context, c *api.Client) (op api.Operation, gaveUp bool, err error) {
	for n := 0; ; n++ {
		svc, err := c.Service(ctx, r.service)
		if err != nil {
			return op, false, err
		}
		req := r.request(svc)
		op, _, err := c.Rollback(ctx, r.service, req, fmt.Sprintf("%s-%d", r.key, n)) // each is another wish
		var p *api.Problem
		if n < 3 && errors.As(err, &p) && p.Code == string(probation.CodeOperationActive) && req.Operation != "" {
			r.g.say("%s is being promoted; it is waited for", req.Operation)
			op, err = r.g.follow(ctx, c, *svc.Operation)
		}
		gaveUp = op.Aborts || op.ID == req.Operation
		if err != nil || !gaveUp || op.Phase != string(probation.Promoted) || n == 3 {
			return op, gaveUp, err
		}
		// It was promoted before it could be given up: now it is the one to go back from.
	}
}

func (r *rollback) request(svc api.Service) api.RollbackRequest {
	req := api.RollbackRequest{ExpectedGeneration: &svc.Generation}
	if r.generation >= 0 {
		req.ExpectedGeneration = &r.generation
	}
	if op := svc.Operation; op != nil && !op.Ended() {
		req.Operation = op.ID
	}
	return req
}
