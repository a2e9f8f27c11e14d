//go:build e2e

// Command bench measures toad on a test host next to what it competes with on the same host, and prints one table. It
// asserts nothing about time: goals stand beside the figures with "met" or "missed".
//
//	bench [--quick] [--ahead] [--json] [--write FILE] [SECTION…]
//	bench inside load URL RATE      what the table needs within a host; ends when its stdin does
//	bench inside time N COMMAND…
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"toad/tests/bench/table"
)

func main() {
	err := run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
		if u := misuse(""); errors.As(err, &u) {
			os.Exit(64)
		}
		os.Exit(1)
	}
}

// misuse is a mistake in the command line.
type misuse string

func (u misuse) Error() string { return string(u) }

// names are the sections in the order they are measured and shown.
var names = []string{"overhead", "failure", "switch", "check", "api", "peers", "web", "sizes", "scale", "durable", "reconcile"}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) > 0 && args[0] == "inside" {
		return inside(args[1:], stdin, stdout)
	}
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.SetOutput(stderr)
	quick := fs.Bool("quick", false, "3 rounds instead of 5")
	ahead := fs.Bool("ahead", false, "run ahead of all else on the machine")
	asJSON := fs.Bool("json", false, "print JSON")
	file := fs.String("write", "", "also write the table to this document")
	if err := fs.Parse(args); err != nil {
		return err
	}
	want := fs.Args()
	if len(want) == 0 {
		want = names
	}
	for _, w := range want {
		if !slices.Contains(names, w) {
			return misuse(fmt.Sprintf("no section %q; there are %s", w, strings.Join(names, ", ")))
		}
	}
	if *file != "" && *quick {
		return misuse("a document is not written from a quick run: --write goes without --quick")
	}
	rounds := 5
	if *quick {
		rounds = 3
	}
	tab, err := measure(want, rounds, *ahead, stderr)
	if tab == nil {
		return err
	}
	if *asJSON {
		enc := json.NewEncoder(stdout)
		enc.SetIndent("", " ")
		err = errors.Join(err, enc.Encode(tab))
	} else {
		tab.Text(stdout)
	}
	if *file != "" && len(tab.Sections) > 0 {
		err = errors.Join(err, writeDocument(*file, *tab))
	}
	return err
}

// measure boots a host, measures the sections on it, and takes it down. A section that breaks does not cost the others.
func measure(want []string, rounds int, ahead bool, log io.Writer) (*table.Table, error) {
	b := &bench{log: log}
	defer b.cleanup()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-stop
		b.cleanup()
		os.Exit(130)
	}()

	tab := &table.Table{Date: time.Now().UTC().Format(time.RFC3339), Rounds: rounds}
	var l *lab
	atStart := loadAverage()
	if ahead {
		if err := runAhead(b); err != nil {
			return nil, err
		}
	}
	if err := b.try("host", func() { l = newLab(b, rounds) }); err != nil {
		return nil, err
	}
	l.ahead = ahead
	tab.Machine = l.machine(b)
	has := func(name string) bool { return slices.Contains(want, name) }
	var broken []error
	section := func(name string, f func() []table.Section) {
		b.say("== %s", name)
		broken = append(broken, b.try(name, func() { tab.Sections = append(tab.Sections, f()...) }))
	}
	one := func(f func(*bench, *lab) table.Section) func() []table.Section {
		return func() []table.Section { return []table.Section{f(b, l)} }
	}
	if has("failure") || has("peers") {
		section("failure and peers", func() []table.Section { return releases(b, l, has("failure"), has("peers")) })
	}
	for _, s := range []struct {
		name string
		f    func(*bench, *lab) table.Section
	}{
		{"overhead", overhead}, {"switch", switches}, {"check", check}, {"api", answers}, {"sizes", sizes},
		{"web", web}, {"scale", scale}, {"durable", durable}, {"reconcile", reconcile},
	} {
		if has(s.name) {
			section(s.name, one(s.f))
		}
	}
	measured := tab.Sections
	tab.Sections = nil
	for i := range measured {
		measured[i].Run = fmt.Sprintf("%s, %d rounds, %s; %s.", tab.Date, rounds, strings.TrimSpace(l.MustUser(b, "toad", "version")), l.noise(atStart))
	}
	tab.Merge(measured, names)
	return tab, errors.Join(broken...)
}

// writeDocument puts the sections that were measured into the document; those of earlier runs stay. What the document is made
// of stands beside it, as JSON.
func writeDocument(file string, run table.Table) error {
	data := strings.TrimSuffix(file, filepath.Ext(file)) + ".json"
	var tab table.Table
	text, err := os.ReadFile(data)
	if err == nil {
		err = json.Unmarshal(text, &tab)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w; remove it to begin anew", data, err)
	}
	tab.Date, tab.Machine, tab.Rounds = run.Date, run.Machine, run.Rounds
	tab.Merge(run.Sections, names)
	if text, err = json.MarshalIndent(tab, "", " "); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(data, append(text, '\n'), 0o644), os.WriteFile(file, document(tab), 0o644))
}

// why says what profiles have shown of goals that have been missed.
var why = map[string]string{
	"overhead: added up to the stop, Podman's API cold":  coldPodman,
	"overhead: added up to the start, Podman's API cold": coldPodman,
	"web: first byte of the page, 100 services": "BenchmarkOverview (`go test -run '^$' -bench Overview -cpuprofile FILE ./cmd/toad`) takes 5.5 ms a page with Go's own limit " +
		"of garbage and 8 ms with the daemon's, which holds half as much to stay below 40 MB with 1,000 services: 45 % is html/template, 36 % the records, " +
		"half of that one stat for each. The rest is the host's: a page waits up to 5 ms for what it has not seen of the units yet.",
}

const coldPodman = "podman.service takes 127 ms to its first answer (1.5 ms when it runs) and 145 ms of CPU. toad wakes it when it accepts, and it starts " +
	"while the act does; on two cores the two slow each other down, and the act's first question to Podman waits for the rest."

func document(tab table.Table) []byte {
	var b bytes.Buffer
	fmt.Fprint(&b, `# Performance

What toad costs, and what a failed release costs with it, next to what does the same job without it. Measured, not
estimated; nothing here is a promise for another machine: read the ratios.

Written by `+"`scripts/bench --write`"+`, which also is how to repeat it (as root on Debian or Ubuntu; it installs what it
needs, boots its own test hosts, and takes about an hour; on a shared machine with `+"`--ahead`"+`). With the names of sections it
measures these anew and keeps the others: each says when it was measured. `+"`scripts/bench --quick overhead`"+` only prints one.

`)
	for _, m := range tab.Machine {
		fmt.Fprintln(&b, "- "+m)
	}
	fmt.Fprintln(&b)
	tab.Markdown(&b)
	if missed := tab.Missed(); len(missed) > 0 {
		fmt.Fprintf(&b, "\nGoals missed, and why:\n\n")
		for _, m := range missed {
			fmt.Fprintf(&b, "- %s: %s\n", m, cmp.Or(why[m], "not explained"))
		}
	} else {
		fmt.Fprintf(&b, "\nEvery goal was met.\n")
	}
	return b.Bytes()
}
