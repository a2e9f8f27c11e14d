package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/agent"
)

func agentStatusCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "status", ShortUsage: "toad agent status", FlagSet: flag.NewFlagSet("toad agent status", flag.ContinueOnError),
		ShortHelp: "what the agent knows: the bundle in force, the last tick, what was refused",
		LongHelp: "Reads the agent's state; it asks nobody. Exit: 0 nothing is wrong, 1 a bundle is refused or failed, 75 later, 78 it has\n" +
			"stopped or belongs to no environment.\n\nExample: toad agent status --json",
		Exec: func(_ context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			return agentStatus(g)
		},
	}
}

func agentStatus(g *globals) error {
	state, err := g.stateDir()
	if err != nil {
		return err
	}
	c, err := agentFolder().Load()
	if err != nil {
		return configError{err}
	}
	st, err := agentStore(state).Load()
	if err != nil {
		return configError{err}
	}
	if g.JSON {
		return errors.Join(printJSON(g.Stdout, map[string]any{"env_id": c.EnvID, "box": c.Box, "state": st}), agentTrouble(st))
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(g.Stdout, "%-14s %s\n", name, clean(fmt.Sprintf(format, args...)))
	}
	line("box", "%s of %s", c.Box, c.EnvID)
	switch {
	case st.Gone:
		line("bundle", "none: it was brought out of its environment")
	case st.InForce == nil:
		line("bundle", "none yet")
	default:
		line("bundle", "%s, created %s", st.InForce.Bundle, st.InForce.Created.UTC().Format(time.RFC3339))
	}
	if st.Applying != nil {
		line("under way", "%s, since %s", st.Applying.ID, st.Applying.Started.UTC().Format(time.RFC3339))
	}
	if !st.LastCheckIn.IsZero() {
		line("checked in", "%s", st.LastCheckIn.UTC().Format(time.RFC3339))
	}
	if f := st.Failed; f != nil {
		line("failed", "%.12s: %s: %s", f.Bundle, f.Code, f.Detail)
	}
	if st.LastError != "" {
		line("last tick", "%s", st.LastError)
	}
	if !st.NotBefore.IsZero() {
		line("next", "not before %s", st.NotBefore.UTC().Format(time.RFC3339))
	}
	return agentTrouble(st)
}

// agentTrouble is the exit code that says how the agent stands.
func agentTrouble(st agent.State) error {
	switch {
	case st.Stopped != "":
		return exitError{exitConfig, errors.New("the agent has stopped until its configuration changes")}
	case st.Failed != nil:
		return exitError{exitFailed, errors.New("the published bundle is not in force")}
	case !st.NotBefore.IsZero():
		return exitError{exitAgain, errors.New("the agent tries again later")}
	}
	return nil
}
