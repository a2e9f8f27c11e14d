package main

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/httpd/api"
	"toad/probation"
)

func diffCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "diff", ShortUsage: "toad diff SERVICE [DIGEST|TAG]", FlagSet: flag.NewFlagSet("toad diff", flag.ContinueOnError),
		ShortHelp: "show what another release would change",
		LongHelp: "Compares the release in force with another: what it runs, as whom, its ports,\n" +
			"labels, size and age, and the names of its environment variables (their values\n" +
			"are never read). Without a digest the other one is that of the latest\n" +
			"operation, or the release before. An image that is not on the host is looked up\n" +
			"in its registry, without pulling it. Of the file of a binary service it tells the\n" +
			"program, read from its bytes, and the size.\n\n" +
			"Example: toad diff web sha256:4f1c…",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return hint(usagef("diff takes a service and perhaps a digest, have %d arguments", len(args)), "toad diff web")
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			digest := ""
			if len(args) == 2 {
				if digest, err = g.resolve(ctx, c, args[0], args[1]); err != nil {
					return err
				}
			}
			return g.diff(ctx, c, args[0], digest)
		},
	}
}

func (g *globals) diff(ctx context.Context, c *api.Client, service, digest string) error {
	d, err := c.Diff(ctx, service, digest)
	if err != nil {
		return reached(c, err)
	}
	if g.JSON {
		return printJSON(g.Stdout, d)
	}
	columns := g.width()
	if d.From == nil {
		g.say("%s runs nothing of toad's yet; this is what %s is:", service, brief(d.To.Digest, columns))
		d.Changes = api.Compare(api.ImageConfig{}, d.To)
	} else {
		g.say("%s", brief(fmt.Sprintf("- %s  %s", d.From.Digest, about(*d.From, g.now())), columns))
		g.say("%s", brief(fmt.Sprintf("+ %s  %s", d.To.Digest, about(d.To, g.now())), columns))
	}
	return g.printChanges(d)
}

// about is what tells one release from another at a glance.
func about(c api.ImageConfig, now time.Time) string {
	var parts []string
	if c.Generation > 0 {
		parts = append(parts, fmt.Sprintf("generation %d", c.Generation))
	}
	if c.OnHost {
		parts = append(parts, c.SizeText())
	} else {
		parts = append(parts, c.SizeText()+" to pull")
	}
	if c.Created != nil && c.Created.Year() > 1980 { // reproducible builds say 1970
		parts = append(parts, "built "+span(now.Sub(*c.Created))+" ago")
	}
	return strings.Join(parts, ", ")
}

func (g *globals) printChanges(d api.Diff) error {
	changes := d.Changes
	if len(changes) == 0 {
		same := "nothing else differs that an image tells of; its files may"
		if d.To.File != "" {
			same = "nothing else differs that a file tells of; its bytes do"
		}
		_, err := fmt.Fprintln(g.Stdout, same)
		return err
	}
	s, columns := g.style(), g.width()
	indent := 0
	const widest = 24 // of a name that stands beside; a longer one stands above
	for _, c := range changes {
		if len(c.What) <= widest {
			indent = max(indent, len(c.What)+4)
		}
	}
	indent = max(indent, 12)
	for _, c := range changes {
		what := fmt.Sprintf("%-*s", indent-2, clean(c.What))
		if len(what) > indent-2 {
			what += "\n" + strings.Repeat(" ", indent-2)
		}
		if _, err := fmt.Fprintf(g.Stdout, "  %s%s\n", what, change(s, c, indent, columns)); err != nil {
			return err
		}
	}
	return nil
}

// change tells from what to what; marks say it where there is no colour.
func change(s style, c api.Change, indent, columns int) string {
	from, to := fit(clean(c.From), 400), fit(clean(c.To), 400)
	switch {
	case c.From == "":
		return s.paint(green, wrap("+ "+to, indent+2, columns))
	case c.To == "":
		return s.paint(red, wrap("- "+from, indent+2, columns))
	case columns > 0 && indent+len(from)+len(to)+4 > columns:
		return s.paint(red, wrap("- "+from, indent+2, columns)) + "\n" + strings.Repeat(" ", indent) + s.paint(green, wrap("+ "+to, indent+2, columns))
	}
	return from + " -> " + to
}

// diffOfFailure shows what a candidate that did not hold had changed; it may be why. That it cannot be told is no matter.
func (g *globals) diffOfFailure(ctx context.Context, c *api.Client, op api.Operation) {
	switch probation.Phase(op.Phase) {
	case probation.RolledBack, probation.Withdrawn, probation.RollbackFailed:
	default:
		return
	}
	if g.JSON || op.Kind != "deployment" || op.Previous == nil || op.Digest == "" || op.Code == string(probation.CodeAborted) {
		return
	}
	d, err := c.Diff(ctx, op.Service, op.Digest)
	if err != nil || d.From == nil || len(d.Changes) == 0 || d.From.Digest == d.To.Digest {
		return
	}
	_, _ = fmt.Fprintln(g.Stdout)
	g.say("what %s changes against %s, which is in force:", op.Digest, d.From.Digest)
	_ = g.printChanges(d)
	_, _ = fmt.Fprintln(g.Stdout)
}
