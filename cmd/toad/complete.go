package main

import (
	"context"
	"embed"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/httpd/api"
)

//go:embed completion
var completions embed.FS

var shells = []string{"bash", "zsh", "fish"}

func completionCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "completion", ShortUsage: "toad completion bash|zsh|fish", FlagSet: flag.NewFlagSet("toad completion", flag.ContinueOnError),
		ShortHelp: "print what makes a shell complete toad's commands",
		LongHelp: "Prints a script for the shell that is named. With it, Tab completes commands,\n" +
			"flags, services, operations, and the digests that toad has seen.\n\n" +
			"Example: source <(toad completion bash)\n" +
			"Example: source <(toad completion zsh)\n" +
			"Example: toad completion fish | source",
		Exec: func(_ context.Context, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return hint(usagef("completion takes a shell: %s", strings.Join(shells, ", ")), "source <(toad completion bash)")
			}
			script, err := completions.ReadFile("completion/toad." + args[0])
			if err == nil {
				_, err = g.Stdout.Write(script)
			}
			return err
		},
	}
}

// completeCmd is what those scripts ask. It is not for people, and is not in the help.
func completeCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "complete", ShortUsage: "toad complete -- WORD…", FlagSet: flag.NewFlagSet("toad complete", flag.ContinueOnError),
		LongHelp: "Prints what may stand for the last of the words, one a line, with a tab and a\ndescription; or :files.\n\nExample: toad complete -- deploy w",
		Exec: func(ctx context.Context, words []string) error {
			if len(words) == 0 {
				words = []string{""}
			}
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			last := words[len(words)-1]
			for _, c := range g.complete(ctx, words[:len(words)-1], last) {
				if strings.HasPrefix(c[0], last) || c[0] == ":files" {
					fmt.Fprintf(g.Stdout, "%s\t%s\n", c[0], clean(c[1]))
				}
			}
			return nil
		},
	}
}

// choice is a word and what it means.
type choice = [2]string

// complete lists what may follow the words before.
func (g *globals) complete(ctx context.Context, before []string, last string) []choice {
	var help strings.Builder
	root := new(globals).tree(&help) // another one: a tree sets the flags of its globals back
	c, args := root, []string{}
	value := "" // the flag whose value is to be completed
	for _, w := range before {
		switch {
		case value != "":
			if value == "endpoint" {
				g.Endpoint = w
			}
			value = ""
		case strings.HasPrefix(w, "-"):
			if takesValue(c.FlagSet, w) || takesValue(root.FlagSet, w) {
				value = flagName(w)
			}
		case len(args) == 0 && subcommand(c, w) != nil:
			c = subcommand(c, w)
		default:
			args = append(args, w)
		}
	}
	switch {
	case value != "":
		return g.valuesOf(ctx, value)
	case strings.HasPrefix(last, "-"):
		var flags []choice
		for _, o := range append(flagsOf(c), flagsOf(root)...) {
			if one := (choice{"--" + o.flag, o.text}); !slices.Contains(flags, one) {
				flags = append(flags, one)
			}
		}
		return flags
	case len(c.Subcommands) > 0 && len(args) == 0:
		return commandsOf(c)
	}
	return g.argumentsOf(ctx, c, args)
}

func commandsOf(c *ffcli.Command) (found []choice) {
	for _, sub := range c.Subcommands {
		if sub.ShortHelp != "" && !slices.Contains(unitCommands, sub.Name) {
			found = append(found, choice{sub.Name, sub.ShortHelp})
		}
	}
	return found
}

func (g *globals) valuesOf(ctx context.Context, flag string) []choice {
	switch flag {
	case "token-file", "config", "enrollment", "state":
		return []choice{{":files"}}
	case "repair":
		return g.servicesSeen(ctx)
	}
	return nil
}

func (g *globals) argumentsOf(ctx context.Context, c *ffcli.Command, args []string) []choice {
	switch c.FlagSet.Name() {
	case "toad deploy", "toad diff":
		if len(args) == 1 {
			return g.digestsSeen(ctx, args[0])
		}
		fallthrough
	case "toad rollback", "toad status", "toad unpin":
		if len(args) == 0 {
			return g.servicesSeen(ctx)
		}
	case "toad log":
		if len(args) == 0 {
			return append(g.servicesSeen(ctx), g.operationsSeen(ctx)...)
		}
	case "toad enroll":
		if len(args) == 0 {
			return g.quadletsThere()
		}
	case "toad completion":
		if len(args) == 0 {
			return []choice{{"bash"}, {"zsh"}, {"fish"}}
		}
	case "toad man", "toad help":
		return nil
	}
	return nil
}

func (g *globals) all(ctx context.Context) (*api.Client, []api.Service) {
	c, err := g.client()
	if err != nil {
		return nil, nil
	}
	services, err := c.Services(ctx)
	if err != nil {
		return nil, nil
	}
	return c, services.Services
}

func (g *globals) servicesSeen(ctx context.Context) (found []choice) {
	_, services := g.all(ctx)
	for _, s := range services {
		what := "never deployed"
		if s.Operation != nil {
			what = fmt.Sprintf("%s, generation %d", s.Operation.Phase, s.Generation)
		}
		found = append(found, choice{s.Service, what})
	}
	return found
}

func (g *globals) operationsSeen(ctx context.Context) (found []choice) {
	c, services := g.all(ctx)
	for _, s := range services {
		ops, err := c.Operations(ctx, s.Service, 0, 20)
		if err != nil {
			continue
		}
		for _, op := range ops.Operations {
			found = append(found, choice{op.ID, op.Phase + " " + short(candidate(op))})
		}
	}
	return found
}

// digestsSeen are those of a service's history, the newest first.
func (g *globals) digestsSeen(ctx context.Context, service string) (found []choice) {
	c, err := g.client()
	if err != nil {
		return nil
	}
	ops, err := c.Operations(ctx, service, 0, 100)
	if err != nil {
		return nil
	}
	seen := map[string]bool{"": true}
	add := func(digest, what string) {
		if !seen[digest] {
			seen[digest] = true
			found = append(found, choice{digest, what})
		}
	}
	for _, op := range ops.Operations {
		add(op.Digest, op.ID+" "+op.Phase)
		if op.Previous != nil {
			add(op.Previous.Digest, fmt.Sprintf("generation %d", op.Previous.Generation))
		}
	}
	return found
}

// quadletsThere are the Quadlet files of this user.
func (g *globals) quadletsThere() (found []choice) {
	runtimeDir, err := g.runtimeDir()
	if err != nil {
		return nil
	}
	for _, root := range quadletDirs(runtimeDir, "").Roots {
		files, _ := filepath.Glob(filepath.Join(root, "*.container"))
		for _, f := range files {
			found = append(found, choice{filepath.Base(f), root})
		}
	}
	return found
}
