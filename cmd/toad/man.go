package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/internal/atomicfile"
)

// manCmd makes the manual pages of the same text as the help. It is for those who install or package toad.
func manCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad man", flag.ContinueOnError)
	dir := fs.String("dir", "", "write all pages into this `FOLDER`")
	return &ffcli.Command{
		Name: "man", ShortUsage: "toad man [COMMAND] | toad man --dir FOLDER", FlagSet: fs,
		LongHelp: "Prints the manual page of a command, or of toad itself, for man to show.\n\n" +
			"Example: toad man deploy | man -l -\nExample: toad man --dir /usr/local/share/man/man1",
		Exec: func(_ context.Context, args []string) error {
			var unused strings.Builder
			root := new(globals).tree(&unused)
			if *dir != "" {
				return writePages(root, root, *dir)
			}
			c := root
			for _, name := range args {
				sub := subcommand(c, name)
				if sub == nil {
					return unknownCommand(c, name)
				}
				c = sub
			}
			_, err := fmt.Fprint(g.Stdout, page(root, c))
			return err
		},
	}
}

func writePages(root, c *ffcli.Command, dir string) error {
	name := strings.ReplaceAll(c.FlagSet.Name(), " ", "-") + ".1"
	if err := atomicfile.Write(filepath.Join(dir, name), []byte(page(root, c)), 0o644); err != nil {
		return err
	}
	for _, sub := range c.Subcommands {
		if sub.ShortHelp == "" {
			continue
		}
		if err := writePages(root, sub, dir); err != nil {
			return err
		}
	}
	return nil
}

// page is the manual page of one command.
func page(root, c *ffcli.Command) string {
	var b strings.Builder
	title := strings.ReplaceAll(c.FlagSet.Name(), " ", "-")
	about := c.ShortHelp
	if c == root {
		about = "put releases of containers into force, and back"
	}
	m := manualOf(c)
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"toad %s\" \"toad\"\n", strings.ToUpper(title), version)
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n%s\n.SH DESCRIPTION\n", roff(title), roff(about), roff(c.ShortUsage))
	for i, p := range m.text {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		b.WriteString(roff(p) + "\n")
	}
	tagged := func(section string, rows [][2]string) {
		if len(rows) > 0 {
			fmt.Fprintf(&b, ".SH %s\n", section)
		}
		for _, r := range rows {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", roff(r[0]), roff(r[1]))
		}
	}
	var commands, flags [][2]string
	for _, sub := range c.Subcommands {
		if sub.ShortHelp != "" {
			commands = append(commands, [2]string{sub.Name, sub.ShortHelp})
		}
	}
	for _, o := range flagsOf(c) {
		flags = append(flags, [2]string{o.name(), o.text})
	}
	tagged("COMMANDS", commands)
	tagged("OPTIONS", flags)
	if c == root {
		tagged("EXIT STATUS", exitsOfAll)
		tagged("ENVIRONMENT", [][2]string{
			{"TOAD_ENDPOINT, TOAD_TOKEN_FILE, TOAD_STATE, TOAD_ENROLLMENT, TOAD_CONFIG", "as the options of these names; the command line counts before the environment, and that before the file"},
			{"TOAD_TOKEN", "the token for an http endpoint"},
			{"NO_COLOR", "when it is set, no colours are used"}})
		tagged("FILES", [][2]string{
			{"~/.config/toad/enrollment.toml", "what toad may deploy"},
			{"~/.config/toad/toad.conf", "options of every command, one a line, e.g. endpoint http://box:8686"},
			{"~/.local/state/toad", "toad's state"}})
	} else {
		tagged("EXIT STATUS", m.exits)
	}
	if len(m.examples) > 0 {
		b.WriteString(".SH EXAMPLES\n.nf\n" + roff(strings.Join(m.examples, "\n")) + "\n.fi\n")
	}
	see := []string{"toad"}
	if c == root {
		see = nil
		for _, sub := range commands {
			if !slices.Contains(unitCommands, sub[0]) {
				see = append(see, "toad-"+sub[0])
			}
		}
	}
	fmt.Fprintf(&b, ".SH SEE ALSO\n.BR %s (1)\n", strings.Join(see, " (1),\n.BR "))
	return b.String()
}

// exitsOfAll are the exit statuses of all commands.
var exitsOfAll = [][2]string{{"0", "done; of a deployment: promoted"}, {"1", "failed, and nothing was changed"}, {"3", "rolled back, or withdrawn"},
	{"4", "the rollback failed"}, {"5", "not accepted, or stopped by a gate"}, {"64", "the command line is wrong"},
	{"75", "try again later: toad or the registry is out of reach, or the outcome is not known"}, {"77", "not allowed"}, {"78", "something is set up wrong"}}

// roff keeps a text from being taken for requests.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	var lines []string
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}
