package main

import (
	"flag"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"
)

// reorder brings a command line into the one order that the flag package reads: the flags that every command takes stand
// before the command, where the environment and the configuration file are read for them, and a command's own flags
// before its arguments. "deploy web sha256:… --retry" would else lose its flag without a word.
func reorder(root *ffcli.Command, args []string) []string {
	global, rest := arrange(root, root, args)
	return append(global, rest...)
}

// arrange gives the flags of the root and, of all the rest, the order for c.
func arrange(root, c *ffcli.Command, args []string) (global, rest []string) {
	var flags, plain []string
	for i := 0; i < len(args); i++ {
		arg := args[i]
		switch {
		case arg == "--":
			return global, slices.Concat(flags, []string{"--"}, plain, args[i+1:])
		case len(arg) > 1 && arg[0] == '-':
			into := &flags
			if c != root && root.FlagSet.Lookup(flagName(arg)) != nil && c.FlagSet.Lookup(flagName(arg)) == nil {
				into = &global
			}
			*into = append(*into, arg)
			if (takesValue(c.FlagSet, arg) || takesValue(root.FlagSet, arg)) && i+1 < len(args) {
				i++
				*into = append(*into, args[i])
			}
		default:
			if sub := subcommand(c, arg); sub != nil && len(plain) == 0 {
				more, tail := arrange(root, sub, args[i+1:])
				return append(global, more...), slices.Concat(flags, []string{arg}, tail)
			}
			plain = append(plain, arg)
		}
	}
	return global, append(flags, plain...)
}

func flagName(arg string) string {
	name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	return name
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
