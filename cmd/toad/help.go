package main

import (
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/peterbourgon/ff/v3/ffcli"
)

// unitCommands are what systemd starts; people need them when they look for a fault.
var unitCommands = []string{"serve", "act", "check", "reconcile", "alert", "tick", "look", "fence", "deliver"}

// helpColumns is how wide help may be, wherever it is printed.
const helpColumns = 80

// manual is the text of a command, taken apart: help and manual pages are made of the same.
type manual struct {
	text     []string    // paragraphs
	exits    [][2]string // what each exit status says
	examples []string
}

func manualOf(c *ffcli.Command) manual {
	var m manual
	for _, p := range strings.Split(c.LongHelp, "\n\n") {
		if !strings.HasPrefix(p, "Example: ") {
			p = strings.Join(strings.Fields(p), " ")
			if exit, ok := strings.CutPrefix(p, "Exit: "); ok {
				m.exits = exitsOf(exit)
			} else {
				m.text = append(m.text, p)
			}
			continue
		}
		for line := range strings.Lines(p) {
			m.examples = append(m.examples, strings.TrimPrefix(strings.TrimSpace(line), "Example: "))
		}
	}
	return m
}

var exitStatus = regexp.MustCompile(`(?:^|, )(\d+) `)

// exitsOf takes "0 done, 1 not done" apart.
func exitsOf(text string) (exits [][2]string) {
	found := exitStatus.FindAllStringSubmatchIndex(text, -1)
	for i, at := range found {
		end := len(text)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		exits = append(exits, [2]string{text[at[2]:at[3]], strings.TrimSuffix(text[at[1]:end], ".")})
	}
	return exits
}

// usage is the help of one command. Flags that fit every command stand in the root's.
func usage(c *ffcli.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, "usage: %s\n", wrap(c.ShortUsage, len("usage: "), helpColumns))
	m := manualOf(c)
	for _, p := range m.text {
		fmt.Fprintf(&b, "\n%s\n", wrap(p, 0, helpColumns))
	}
	columnsOf(&b, "exit status", m.exits)
	if len(m.examples) > 0 {
		fmt.Fprintf(&b, "\nexamples:\n  %s\n", strings.Join(m.examples, "\n  "))
	}
	var mine, units [][2]string
	for _, sub := range c.Subcommands {
		switch line := [2]string{sub.Name, sub.ShortHelp}; {
		case sub.ShortHelp == "": // not for people
		case slices.Contains(unitCommands, sub.Name):
			units = append(units, line)
		default:
			mine = append(mine, line)
		}
	}
	columnsOf(&b, "commands", mine)
	columnsOf(&b, "what systemd starts", units)
	var flags [][2]string
	for _, f := range flagsOf(c) {
		flags = append(flags, [2]string{f.name(), f.text})
	}
	columnsOf(&b, "flags", flags)
	if len(c.Subcommands) == 0 {
		fmt.Fprintf(&b, "\ntoad --help lists the flags that every command takes, --json among them.\n")
	}
	return strings.TrimSuffix(b.String(), "\n") // ffcli adds one
}

// columnsOf writes names, and beside each what it is.
func columnsOf(b *strings.Builder, title string, rows [][2]string) {
	if len(rows) == 0 {
		return
	}
	indent := 0
	for _, r := range rows {
		indent = max(indent, utf8.RuneCountInString(r[0])+4)
	}
	fmt.Fprintf(b, "\n%s:\n", title)
	for _, r := range rows {
		fmt.Fprintf(b, "  %-*s%s\n", indent-2, r[0], wrap(r[1], indent, helpColumns))
	}
}

// option is a flag as people see it.
type option struct{ flag, value, text string }

func (o option) name() string { return strings.TrimSpace("--" + o.flag + " " + o.value) }

func flagsOf(c *ffcli.Command) []option {
	var all []option
	c.FlagSet.VisitAll(func(f *flag.Flag) {
		value, text := flag.UnquoteUsage(f)
		if !takesValue(c.FlagSet, f.Name) {
			value = ""
		}
		all = append(all, option{f.Name, value, text})
	})
	return all
}
