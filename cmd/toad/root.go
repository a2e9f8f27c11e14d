package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3"
	"github.com/peterbourgon/ff/v3/ffcli"
)

// commands are all subcommands, in the order of the help.
func commands() []func(*globals) *ffcli.Command {
	return []func(*globals) *ffcli.Command{
		deployCmd, shipCmd, rollbackCmd, statusCmd, logCmd, diffCmd, enrollCmd, proofCmd, tokenCmd, unpinCmd, agentCmd, doctorCmd, setupCmd,
		completionCmd, versionCmd,
		completeCmd, manCmd,
		serveCmd, actCmd, checkCmd, reconcileCmd, alertCmd, tickCmd, lookCmd,
	}
}

// globals are what every command is given: where to read and write, and the flags that fit all of them.
type globals struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	Endpoint   string // unix:///path or http://host:port
	TokenFile  string
	State      string // folder
	Enrollment string // file
	Config     string // file
	JSON       bool

	now     func() time.Time
	columns int  // of the terminal that Stdout is shown on later; 0: look at Stdout
	plain   bool // no colours
}

func (g *globals) register(fs *flag.FlagSet) {
	fs.StringVar(&g.Endpoint, "endpoint", "", "`URL` of toad: unix:///path/toad.sock or http://host:port (TOAD_ENDPOINT)")
	fs.StringVar(&g.TokenFile, "token-file", "", "`FILE` with the token for an http endpoint; else TOAD_TOKEN is used")
	fs.StringVar(&g.State, "state", "", "`FOLDER` with toad's state (TOAD_STATE)")
	fs.StringVar(&g.Enrollment, "enrollment", "", "`FILE` with the enrollment (TOAD_ENROLLMENT)")
	fs.StringVar(&g.Config, "config", g.Config, "`FILE` with flags of this list, one a line, e.g. endpoint http://box:8686 (TOAD_CONFIG); else toad.conf beside the enrollment")
	fs.BoolVar(&g.JSON, "json", false, "print JSON")
}

// run is the whole program but for the process around it. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	g := &globals{Stdin: stdin, Stdout: stdout, Stderr: stderr, now: time.Now}
	return g.run(ctx, args)
}

func (g *globals) run(ctx context.Context, args []string) int {
	var help bytes.Buffer
	root := g.tree(&help)
	ordered := reorder(root, args)
	root.Options = options(root, ordered)
	err := root.Parse(ordered)
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, _ = io.Copy(g.Stdout, &help)
		return 0
	case err != nil:
		err = mistyped(root, args, err)
	default:
		err = root.Run(ctx)
	}
	if err != nil {
		printError(g.Stderr, err)
	}
	return exitCode(err)
}

// tree is the root command with all others below it. What the flag package prints goes to help: an error is told in
// toad's own words.
func (g *globals) tree(help io.Writer) *ffcli.Command {
	root := &ffcli.Command{
		Name: "toad", ShortUsage: "toad [flags] <command> [arguments]",
		LongHelp: "toad puts a release of a container into force, watches it for a while, and puts\n" +
			"the previous one back if it does not hold.\n\nExample: toad deploy web sha256:<64 hex digits>",
		FlagSet: flag.NewFlagSet("toad", flag.ContinueOnError),
	}
	if dir, err := xdg("XDG_CONFIG_HOME", ".config", ""); err == nil {
		g.Config = filepath.Join(dir, "toad.conf")
	}
	g.register(root.FlagSet)
	for _, c := range commands() {
		root.Subcommands = append(root.Subcommands, c(g))
	}
	g.prepare(root, help)
	root.Exec = func(_ context.Context, args []string) error {
		switch {
		case len(args) == 0:
			return hint(usagef("which command?"), "toad --help lists them")
		case args[0] == "help":
			return g.help(root, args[1:])
		}
		return unknownCommand(root, args[0])
	}
	return root
}

// prepare makes a command and those below it alike.
func (g *globals) prepare(c *ffcli.Command, help io.Writer) {
	c.UsageFunc = usage
	c.FlagSet.Init(c.FlagSet.Name(), flag.ContinueOnError)
	c.FlagSet.SetOutput(help)
	for _, sub := range c.Subcommands {
		g.prepare(sub, help)
	}
}

// options are where the flags of every command come from when they are not given: the environment, then the
// configuration file. Those of one command are said each time. What systemd starts must not hang on a file that is for
// people: it reads none.
func options(root *ffcli.Command, args []string) []ff.Option {
	o := []ff.Option{ff.WithEnvVarPrefix("TOAD")}
	for _, arg := range args {
		if subcommand(root, arg) != nil && (slices.Contains(unitCommands, arg) || arg == "agent") {
			return o
		}
	}
	return append(o, ff.WithConfigFileFlag("config"), ff.WithConfigFileParser(ff.PlainParser), ff.WithAllowMissingConfigFile(true))
}

// help is "toad help", with or without a command.
func (g *globals) help(root *ffcli.Command, args []string) error {
	c := root
	for _, name := range args {
		sub := subcommand(c, name)
		if sub == nil {
			return unknownCommand(c, name)
		}
		c = sub
	}
	_, err := fmt.Fprintln(g.Stdout, usage(c))
	return err
}

// mistyped is the error for flags that do not parse.
func mistyped(root *ffcli.Command, args []string, err error) error {
	text := err.Error()
	if strings.Contains(text, "config file") {
		return hint(configError{fmt.Errorf("configuration file: %s", text)}, "it holds flags that every command takes, one a line; toad --help lists them")
	}
	if _, rest, ok := strings.Cut(text, "environment variables: "); ok {
		return configError{errors.New(rest)}
	}
	if i := strings.LastIndex(text, "arguments: "); i >= 0 {
		text = text[i+len("arguments: "):] // ff says twice where it was
	}
	c := root
	for _, arg := range args {
		if sub := subcommand(c, arg); sub != nil {
			c = sub
		}
	}
	if _, name, ok := strings.Cut(text, "flag provided but not defined: -"); ok {
		err := usagef("unknown flag --%s", strings.TrimPrefix(name, "-"))
		for _, o := range append(flagsOf(c), flagsOf(root)...) {
			if distance(o.flag, strings.TrimPrefix(name, "-")) <= 2 {
				return hint(err, "--%s", o.flag)
			}
		}
		return hint(err, "%s --help", c.FlagSet.Name())
	}
	return hint(usagef("%s", text), "%s --help", c.FlagSet.Name())
}

func subcommand(c *ffcli.Command, name string) *ffcli.Command {
	for _, sub := range c.Subcommands {
		if sub.Name == name {
			return sub
		}
	}
	return nil
}

// unknownCommand names the command that was probably meant.
func unknownCommand(c *ffcli.Command, name string) error {
	err := usagef("unknown command %q", name)
	for _, sub := range c.Subcommands {
		if distance(sub.Name, name) <= 2 {
			return hint(err, "%s", sub.FlagSet.Name())
		}
	}
	return hint(err, "%s --help lists the commands", c.FlagSet.Name())
}

func noArgs(args []string) error {
	if len(args) > 0 {
		return usagef("%q is too much; this command takes no arguments", args[0])
	}
	return nil
}
