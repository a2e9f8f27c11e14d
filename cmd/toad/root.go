package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/peterbourgon/ff/v3"
	"github.com/peterbourgon/ff/v3/ffcli"
)

// commands are all subcommands, in the order of the help.
var commands = []func(*globals) *ffcli.Command{
	deployCmd, rollbackCmd, statusCmd, logCmd, unpinCmd, doctorCmd, setupCmd, versionCmd,
	serveCmd, actCmd, checkCmd, reconcileCmd, alertCmd, tickCmd,
}

// globals are what every command is given: where to read and write, and the flags that fit all of them.
type globals struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer

	Endpoint   string // unix:///path or http://host:port
	TokenFile  string
	State      string // folder
	Enrollment string // file
	JSON       bool

	now func() time.Time
}

func (g *globals) register(fs *flag.FlagSet) {
	fs.StringVar(&g.Endpoint, "endpoint", g.Endpoint, "`URL` of toad: unix:///path/toad.sock or http://host:port (TOAD_ENDPOINT)")
	fs.StringVar(&g.TokenFile, "token-file", g.TokenFile, "`FILE` with the token for an http endpoint; else TOAD_TOKEN is used")
	fs.StringVar(&g.State, "state", g.State, "`FOLDER` with toad's state (TOAD_STATE)")
	fs.StringVar(&g.Enrollment, "enrollment", g.Enrollment, "`FILE` with the enrollment (TOAD_ENROLLMENT)")
	fs.BoolVar(&g.JSON, "json", g.JSON, "print JSON")
}

// run is the whole program but for the process around it. It returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	g := &globals{Stdin: stdin, Stdout: stdout, Stderr: stderr, now: time.Now}
	return g.run(ctx, args)
}

func (g *globals) run(ctx context.Context, args []string) int {
	var help bytes.Buffer
	root := g.tree(&help)
	err := root.Parse(reorder(root, args))
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
		FlagSet: flag.NewFlagSet("toad", flag.ContinueOnError), UsageFunc: usage,
		Options: []ff.Option{ff.WithEnvVarPrefix("TOAD")},
	}
	for _, c := range commands {
		root.Subcommands = append(root.Subcommands, c(g))
	}
	for _, c := range append(root.Subcommands, root) {
		c.UsageFunc = usage
		c.FlagSet.Init(c.FlagSet.Name(), flag.ContinueOnError)
		c.FlagSet.SetOutput(help)
		g.register(c.FlagSet)
	}
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

// help is "toad help", with or without a command.
func (g *globals) help(root *ffcli.Command, args []string) error {
	c := root
	if len(args) > 0 {
		if c = subcommand(root, args[0]); c == nil {
			return unknownCommand(root, args[0])
		}
	}
	_, err := fmt.Fprintln(g.Stdout, usage(c))
	return err
}

// mistyped is the error for flags that do not parse.
func mistyped(root *ffcli.Command, args []string, err error) error {
	text := err.Error()
	if i := strings.LastIndex(text, "arguments: "); i >= 0 {
		text = text[i+len("arguments: "):] // ff says twice where it was
	}
	help := "toad --help"
	if i := slices.IndexFunc(args, func(a string) bool { return subcommand(root, a) != nil }); i >= 0 {
		help = "toad " + args[i] + " --help"
	}
	return hint(usagef("%s", text), "%s", help)
}

// reorder puts flags before arguments, for the flag package stops at the first argument: "deploy web sha256:… --retry"
// would lose its flag without a word.
func reorder(c *ffcli.Command, args []string) []string {
	var flags, rest []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return slices.Concat(flags, []string{"--"}, rest, args[i+1:])
		case len(arg) > 1 && arg[0] == '-':
			flags = append(flags, arg)
			if takesValue(c.FlagSet, arg) && i+1 < len(args) {
				i++
				flags = append(flags, args[i])
			}
		default:
			if sub := subcommand(c, arg); sub != nil && len(rest) == 0 {
				return slices.Concat(flags, []string{arg}, reorder(sub, args[i+1:]))
			}
			rest = append(rest, arg)
		}
	}
	return append(flags, rest...)
}

func takesValue(fs *flag.FlagSet, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	f := fs.Lookup(name)
	if f == nil {
		return false // unknown, or name=value
	}
	b, ok := f.Value.(interface{ IsBoolFlag() bool })
	return !ok || !b.IsBoolFlag()
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
func unknownCommand(root *ffcli.Command, name string) error {
	err := usagef("unknown command %q", name)
	for _, sub := range root.Subcommands {
		if distance(sub.Name, name) <= 2 {
			return hint(err, "toad %s", sub.Name)
		}
	}
	return hint(err, "toad --help lists the commands")
}

// distance counts the letters to insert, drop, change or swap with their neighbour to get from a to b.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			switch {
			case i == 0 || j == 0:
				rows[i][j] = i + j
				continue
			case a[i-1] == b[j-1]:
				rows[i][j] = rows[i-1][j-1]
			default:
				rows[i][j] = 1 + min(rows[i-1][j-1], rows[i-1][j], rows[i][j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], 1+rows[i-2][j-2])
			}
		}
	}
	return rows[len(a)][len(b)]
}

// usage is the help of one command. Flags that fit every command stand in the root's.
func usage(c *ffcli.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s\n\n%s\n", c.ShortUsage, c.LongHelp)
	if len(c.Subcommands) > 0 {
		fmt.Fprintf(&b, "\ncommands:\n")
		w := tabwriter.NewWriter(&b, 0, 2, 2, ' ', 0)
		for _, sub := range c.Subcommands {
			fmt.Fprintf(w, "  %s\t%s\n", sub.Name, sub.ShortHelp)
		}
		_ = w.Flush()
	}
	global := flag.NewFlagSet("", flag.ContinueOnError)
	(&globals{}).register(global)
	var flags []*flag.Flag
	c.FlagSet.VisitAll(func(f *flag.Flag) {
		if len(c.Subcommands) > 0 || f.Name == "json" || global.Lookup(f.Name) == nil {
			flags = append(flags, f)
		}
	})
	fmt.Fprintf(&b, "\nflags:\n")
	w := tabwriter.NewWriter(&b, 0, 2, 2, ' ', 0)
	for _, f := range flags {
		value, text := flag.UnquoteUsage(f)
		if !takesValue(c.FlagSet, f.Name) {
			value = ""
		}
		fmt.Fprintf(w, "  --%s\t%s\n", strings.TrimSpace(f.Name+" "+value), text)
	}
	_ = w.Flush()
	if len(c.Subcommands) == 0 {
		fmt.Fprintf(&b, "\ntoad --help lists the flags that every command takes\n")
	}
	return strings.TrimSuffix(b.String(), "\n") // ffcli adds one
}

func noArgs(args []string) error {
	if len(args) > 0 {
		return usagef("%q is too much; this command takes no arguments", args[0])
	}
	return nil
}

// stateDir is the folder with toad's records.
func (g *globals) stateDir() (string, error) {
	if g.State != "" {
		return absolute("--state", g.State)
	}
	return xdg("XDG_STATE_HOME", ".local/state", "--state")
}

// enrollmentPath is the enrollment file: the user's own, else the host's.
func (g *globals) enrollmentPath() (string, error) {
	if g.Enrollment != "" {
		return absolute("--enrollment", g.Enrollment)
	}
	dir, err := xdg("XDG_CONFIG_HOME", ".config", "--enrollment")
	if err != nil {
		return "", err
	}
	own := filepath.Join(dir, "enrollment.toml")
	const hosts = "/etc/toad/enrollment.toml"
	if _, err := os.Stat(own); errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(hosts); err == nil {
			return hosts, nil
		}
	}
	return own, nil
}

// absolute makes a path the same for the units that are given it.
func absolute(flag, path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", configError{fmt.Errorf("%s %s: %w", flag, path, err)}
	}
	return abs, nil
}

// xdg is toad's folder below one of the user's base folders.
func xdg(variable, fallback, flag string) (string, error) {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "toad"), nil
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, fallback, "toad"), nil
	}
	return "", hint(configError{fmt.Errorf("neither HOME nor %s is set", variable)}, "set HOME, or give %s", flag)
}

// runtimeDir is the user's runtime folder. A login over ssh sets its variable; su, cron and CI runners do not.
func (g *globals) runtimeDir() (string, error) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return dir, nil
	}
	uid := os.Getuid()
	dir := "/run/user/" + strconv.Itoa(uid)
	info, err := os.Stat(dir)
	if err == nil && info.IsDir() {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
			return dir, nil
		}
	}
	missing := configError{fmt.Errorf("XDG_RUNTIME_DIR is not set and there is no %s", dir)}
	if notRoot() != nil {
		return "", hint(missing, "this is root: %s; or give --endpoint", asUser)
	}
	return "", hint(missing,
		"loginctl enable-linger %d, then log in as that user; for another toad give --endpoint", uid)
}
