package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/probation"
)

func actCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "act", ShortUsage: "toad act OPERATION", FlagSet: flag.NewFlagSet("toad act", flag.ContinueOnError),
		ShortHelp: "do what an operation owes; started by systemd",
		LongHelp:  "Does what an operation owes, until a timer and a check own it. Safe to repeat.\n\nExample: toad act web-g7",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("act takes one operation, e.g. web-g7")
			}
			return onHost(ctx, g, func(h *host) error {
				go alive(ctx)
				return h.rollout.Act(ctx, args[0])
			})
		},
	}
}

func checkCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad check", flag.ContinueOnError)
	number := fs.Int("number", 1, "the check's number; the verdict of any but the current one is ignored")
	return &ffcli.Command{
		Name: "check", ShortUsage: "toad check [--number N] OPERATION", FlagSet: fs,
		ShortHelp: "watch an operation until there is a verdict; started by systemd",
		LongHelp: "Samples units, containers and readiness, and leaves its verdict for the act that systemd starts next.\n" +
			"Exit 0 means stable.\n\nExample: toad check --number 1 web-g7",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("check takes one operation, e.g. web-g7")
			}
			return onHost(ctx, g, func(h *host) error {
				status := func(s string) { _, _ = daemon.SdNotify(false, "STATUS="+s) }
				v, err := h.check(status).Run(ctx, args[0], *number)
				if err == nil && v.Kind != probation.Stable {
					err = fmt.Errorf("%s: %s: %s", args[0], v.Kind, v.Reason)
				}
				return err
			})
		},
	}
}

func reconcileCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad reconcile", flag.ContinueOnError)
	look := fs.Bool("look", false, "compare the pins with the records, put right what others changed, and tell it")
	return &ffcli.Command{
		Name: "reconcile", ShortUsage: "toad reconcile [--look]", FlagSet: fs,
		ShortHelp: "settle pins and admissions before any enrolled unit starts; started by systemd",
		LongHelp: "Runs once after each start of the user manager: writes the way back first, or admits what may go on.\n" +
			"It waits for no unit, no Podman and no network. With --look it runs whenever something changes where the\n" +
			"pins lie, and is silent when they are as recorded.\n\nExample: toad reconcile --look",
		Exec: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			return onHost(ctx, g, func(h *host) error {
				if *look {
					return h.look(ctx)
				}
				return h.rollout.Reconcile(ctx)
			})
		},
	}
}

func tickCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "tick", ShortUsage: "toad tick", FlagSet: flag.NewFlagSet("toad tick", flag.ContinueOnError),
		ShortHelp: "slow duties; started by toad-tick.timer",
		LongHelp: "Starts an act for every operation that still owes something, and looks at the pins as reconcile --look does.\n\n" +
			"Example: toad tick",
		Exec: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			return onHost(ctx, g, func(h *host) error {
				h.tellDamaged(ctx)
				h.nudge(ctx) // what a boot has stopped
				return errors.Join(h.rollout.Resume(ctx), h.rollout.BringBack(ctx), h.look(ctx), h.prove(ctx))
			})
		},
	}
}

// alive tells systemd that the process is not stopped. Every call an act makes is bounded by itself, so this is all that
// the watchdog must find out; a pull may take its time.
func alive(ctx context.Context) {
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return
	}
	tick := time.NewTicker(interval / 4)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
		}
	}
}
