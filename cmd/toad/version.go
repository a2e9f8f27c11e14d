package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/peterbourgon/ff/v3/ffcli"
)

func versionCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "version", ShortUsage: "toad version", FlagSet: flag.NewFlagSet("toad version", flag.ContinueOnError),
		ShortHelp: "print the version of this binary",
		LongHelp:  "Prints the version that this binary was built as.\n\nExample: toad version",
		Exec: func(_ context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			if g.JSON {
				return printJSON(g.Stdout, map[string]string{"version": version})
			}
			_, err := fmt.Fprintf(g.Stdout, "toad %s\n", version)
			return err
		},
	}
}
