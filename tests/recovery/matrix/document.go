package matrix

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"toad/internal/fault"
)

// with adds what a list does not have yet.
func with(list []string, s string) []string {
	if s == "" || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

// Document is docs/recovery.md: what was run, and what came of it. Nothing stands in it that was not run.
func Document(all []Result) string {
	var b strings.Builder
	var first, last time.Time
	n, seconds, twice := map[string]int{}, 0.0, 0
	var builds, machines, failed []string
	by := map[string]int{}
	for _, r := range all {
		if r.Result == "" {
			continue
		}
		n[r.Result]++
		seconds += r.Seconds
		if r.Second != "" {
			twice++
		}
		builds, machines = with(builds, r.Build), with(machines, r.Machine)
		by[r.Build]++
		if r.Result == Failed {
			failed = append(failed, fmt.Sprintf("Failed, and not run again since: %s: %s (%s, %s).", r.Scenario, r.Cell, r.Build, day(r.At)))
		}
		if first.IsZero() || r.At.Before(first) {
			first = r.At
		}
		if r.At.After(last) {
			last = r.At
		}
	}
	for i, build := range builds {
		builds[i] = fmt.Sprintf("%s (%d cells)", build, by[build])
	}
	fmt.Fprintf(&b, `# Recovery

toad was killed, the power was cut, and the call was made to fail at every point at which toad changes the host, while a
good release, a bad one and a rollback ran their course; and killed a second time while it recovered. Asserted each time:

- the operation ends on one of two releases; after a kill or a cut a good release is promoted, a bad one rolled back;
- the image that runs is the one that the record names, and it answers; with two sides, through the door, which leads to the
  side in force, and the other side is down and cannot be started;
- no candidate started after a boot before toad had admitted it, by the journal of the host;
- no kill, cut, reboot or failed call made toad refuse a good digest;
- the deadline is the instant that it was set to; the operator's file is byte for byte what it was;
- nothing is left: no timer, check, act, failed unit, queued job, admission or laid-by pin; temporary files go with the next
  operation when they are a minute old.

%d cells run: %d passed, %d failed, %d not met (the operation did not pass that point again, in two tries). %d of them
with a second kill. %s to %s, %.0f minutes of test hosts, on %s. Builds: %s.

Repeat it as root: `+"`scripts/matrix`"+` (what docs/recovery.jsonl holds as passed is not run again; `+"`--anew`"+` runs what another build has passed, too), or
`+"`scripts/test recovery`"+` for a seeded few of each kind. The points stand in internal/fault/fault.go; a test holds that table
against the syntax trees, and this one against the table.

`, n[Passed]+n[Failed]+n[NotMet], n[Passed], n[Failed], n[NotMet], twice, day(first), day(last), seconds/60, strings.Join(machines, "; "), strings.Join(builds, ", "))
	for _, line := range failed {
		fmt.Fprint(&b, line+"\n\n")
	}
	table(&b, all)
	instants(&b, all)
	fmt.Fprint(&b, "\n## What stands for what\n\n")
	fmt.Fprint(&b, `The state of the host after one change is the state before the next one of the same process, so a kill and a cut are tried
at one of the two, a failing call at both. Log lines, watch files and copies decide nothing: of their passings in one phase
the first is tried. In a boot only what reconcile passes is tried anew; what follows is the course of a good release. With
two sides (beside) it is what they add, at its first two passings: of a good release from the turn of the door on the link, the
record, the pin and the stop of the former side, and the timer of its drain, with a second kill after each cut; of a bad one
the same points of the restore, by kills and errors. The acts that pass there again find nothing left to do.

| point | what stands for it |
|---|---|
`)
	for _, row := range fault.Points {
		if row.By != "" {
			fmt.Fprintf(&b, "| `%s` | %s |\n", row.Name, row.By)
		}
	}
	return b.String()
}

func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04") }

// columns are the courses and actions, in the order of the table.
var columns = []struct{ scenario, head string }{
	{"a good release", "good"}, {"a bad release", "bad"}, {"a rollback", "rollback"},
	{"a boot in probation", "boot"}, {"a release given up, its predecessor's image pruned", "given up"},
	{"a good release beside", "good, beside"}, {"a bad release beside", "bad, beside"},
}

// table has a line for each point, and a cell for each course and action: passed of run, with second kills after a +.
func table(b *strings.Builder, all []Result) {
	fmt.Fprint(b, "## Points\n\nEach cell counts the passings of that point: tried by a kill · a power cut · an error. \"2+1\" are two, and one with a second kill. A – stands\nwhere nothing is to be tried (see below), or nothing was.\n\n| point |")
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", c.head)
	}
	fmt.Fprint(b, "\n|---|"+strings.Repeat("---|", len(columns))+"\n")
	for _, row := range fault.Points {
		if row.By != "" {
			continue
		}
		fmt.Fprintf(b, "| `%s` |", row.Name)
		for _, c := range columns {
			var ways []string
			for _, action := range []string{Kill, Cut, Error} {
				ways = append(ways, count(slices.DeleteFunc(slices.Clone(all), func(r Result) bool {
					own, _ := fault.Find(nameIn(r.Point, 1))
					return r.Point == "" || own.Name != row.Name || r.Scenario != c.scenario || r.Action != action
				})))
			}
			if slices.Equal(ways, []string{"–", "–", "–"}) {
				ways = []string{"*not run*"}
			}
			fmt.Fprintf(b, " %s |", strings.Join(ways, " · "))
		}
		fmt.Fprintln(b)
	}
}

// count says how many of the cells passed; where not all did, out of how many.
func count(cells []Result) string {
	number := func(second bool) (passed, run int) {
		for _, r := range cells {
			if (r.Second != "") != second || r.Result == NotMet {
				continue
			}
			run++
			if r.Result == Passed {
				passed++
			}
		}
		return passed, run
	}
	spell := func(passed, run int) string {
		if passed < run {
			return fmt.Sprintf("**%d of %d**", passed, run)
		}
		return fmt.Sprint(run)
	}
	passed, run := number(false)
	passed2, run2 := number(true)
	switch {
	case run+run2 == 0:
		return "–"
	case run2 == 0:
		return spell(passed, run)
	}
	return spell(passed, run) + "+" + spell(passed2, run2)
}

func instants(b *strings.Builder, all []Result) {
	fmt.Fprint(b, "\n## Instants\n\nAt seeded instants of the probation of a good release.\n\n| | run | passed |\n|---|---|---|\n")
	for _, action := range []string{Reboot, Manager} {
		run, passed := 0, 0
		for _, r := range all {
			if r.Action == action {
				run++
				if r.Result == Passed {
					passed++
				}
			}
		}
		if run == 0 {
			fmt.Fprintf(b, "| %s | *not run* | |\n", action)
			continue
		}
		fmt.Fprintf(b, "| %s | %d | %d |\n", action, run, passed)
	}
}
