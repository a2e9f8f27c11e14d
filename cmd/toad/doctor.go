package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/probation"
	"toad/probation/record"
	"toad/probation/rollout"
)

func doctorCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad doctor", flag.ContinueOnError)
	repair := fs.String("repair", "", "rebuild the damaged record of this `SERVICE` from what is left on the host")
	return &ffcli.Command{
		Name: "doctor", ShortUsage: "toad doctor [--repair SERVICE]", FlagSet: fs,
		ShortHelp: "find what is wrong with this host, and say what mends it",
		LongHelp: "Looks at the host, toad's own units and files, and every enrolled service. Each finding is one line, ok, warn\n" +
			"or fail, with what mends it below. With fail a deployment would not work.\n\n" +
			"With --repair it rebuilds the record of a damaged service from its earlier operations, its logs, its pins and\n" +
			"what runs. A release that was on trial is given up, and the one before it is put back. What was refused stays\n" +
			"refused. The damaged file is kept.\n\n" +
			"Exit: 0 a deployment would work, 1 something has to be mended first.\n\nExample: toad doctor",
		Exec: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			if *repair != "" {
				return repairService(ctx, g, *repair)
			}
			return examine(ctx, g)
		},
	}
}

// finding is one thing that the doctor looked at.
type finding struct {
	Level string `json:"level"` // ok, warn, fail
	What  string `json:"what"`
	Why   string `json:"why"`
	Mend  string `json:"mend,omitempty"` // a command, or what to do
}

const (
	levelOK   = "ok"
	levelWarn = "warn"
	levelFail = "fail" // a deployment would not work
)

// findings are gathered in the order in which they are told.
type findings []finding

func (f *findings) add(level, what, why, mend string) {
	*f = append(*f, finding{level, what, why, mend})
}

func (f *findings) ok(what, format string, args ...any) {
	f.add(levelOK, what, fmt.Sprintf(format, args...), "")
}

func (f findings) worst() string {
	for _, level := range []string{levelFail, levelWarn} {
		if slices.ContainsFunc(f, func(one finding) bool { return one.Level == level }) {
			return level
		}
	}
	return levelOK
}

// text is a finding as it is printed: one line, and what mends it.
func (f finding) text() string {
	line := fmt.Sprintf("%-5s %s: %s", f.Level, f.What, clean(f.Why))
	if f.Mend != "" {
		line += "\n      mend: " + clean(f.Mend)
	}
	return line
}

func examine(ctx context.Context, g *globals) error {
	var f findings
	h, err := wireUp(g)
	if err != nil {
		f.add(levelFail, "host", err.Error(), hintOf(err))
		checkLinger(&f)
		checkSystemd(ctx, &f)
		checkGenerator(&f)
		checkSubordinate(&f)
	} else {
		defer h.close()
		h.enrolled.log = slog.New(slog.DiscardHandler) // what it would tell is a finding
		h.examineHost(ctx, &f)
		h.examineToad(ctx, &f)
		h.examineServices(ctx, &f)
	}
	if g.JSON {
		if err := printJSON(g.Stdout, f); err != nil {
			return err
		}
	} else {
		for _, one := range f {
			fmt.Fprintln(g.Stdout, one.text())
		}
	}
	if f.worst() == levelFail {
		return exitError{exitFailed, errors.New("a deployment would fail on this host as it is; what fails is named above")}
	}
	return nil
}

func repairService(ctx context.Context, g *globals, service string) error {
	h, err := wire(ctx, g)
	if err != nil {
		return err
	}
	defer h.close()
	if err := probation.CheckServiceName(service); err != nil {
		return usagef("%w", err)
	}
	var enrolled *probation.Enrollment
	if e, err := h.enrolled.Enrollment(service); err == nil {
		enrolled = &e
	}
	done, err := h.rollout.Repair(ctx, service, enrolled)
	if errors.Is(err, rollout.ErrNotDamaged) {
		_, err := fmt.Fprintf(g.Stdout, "the record of %s is whole; nothing was done\n", service)
		return err
	}
	if errors.Is(err, record.ErrLocked) {
		return hint(exitError{exitAgain, err}, "an act is at work on %s; try again", service)
	}
	if err != nil {
		return err
	}
	if g.JSON {
		return printJSON(g.Stdout, done)
	}
	for _, l := range saysRepaired(done) {
		fmt.Fprintln(g.Stdout, clean(l))
	}
	return nil
}

// saysRepaired tells what was rebuilt and from what.
func saysRepaired(done rollout.Repaired) []string {
	svc := done.Service
	lines := []string{fmt.Sprintf("the record of %s was rebuilt, at generation %d", svc.Name, svc.Generation)}
	if svc.Promoted != nil {
		lines = append(lines, fmt.Sprintf("in force: %s (generation %d)", digestOf(svc.Promoted), svc.Promoted.Generation))
	} else {
		lines = append(lines, "in force: nothing of toad's")
	}
	if op := svc.Operation; op != nil {
		line := fmt.Sprintf("operation: %s, %s", op.ID, op.Phase)
		if op.Phase == probation.Restoring {
			line += ": it was undecided, and the release before it is put back now; to see how it ends: toad log " + svc.Name + " --follow"
		}
		lines = append(lines, line)
	}
	for _, r := range svc.Refusals {
		lines = append(lines, fmt.Sprintf("refused: %s since %s", r.Release.Digest, r.Operation))
	}
	for _, from := range done.From {
		lines = append(lines, "from: "+from)
	}
	if len(done.Kept) > 0 {
		lines = append(lines, "kept: "+strings.Join(done.Kept, " "))
	}
	return lines
}
