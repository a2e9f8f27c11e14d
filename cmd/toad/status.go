package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/httpd/api"
	"toad/probation"
)

func statusCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "status", ShortUsage: "toad status [flags] [SERVICE]", FlagSet: flag.NewFlagSet("toad status", flag.ContinueOnError),
		ShortHelp: "show which release of each service is in force, and what is under way",
		LongHelp: "Shows one line for each service: the phase of its latest operation, the release\n" +
			"in force, its generation, how long that phase lasts or ended ago, and how much\n" +
			"time is left to the deadline. With a service, shows more of it.\n\n" +
			"Example: toad status web --json",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) > 1 {
				return usagef("status takes at most one service, have %d arguments", len(args))
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return g.statusOf(ctx, c, args[0])
			}
			return g.statusOfAll(ctx, c)
		},
	}
}

func (g *globals) statusOfAll(ctx context.Context, c *api.Client) error {
	services, err := c.Services(ctx)
	if err != nil {
		return reached(c, err)
	}
	if g.JSON {
		return printJSON(g.Stdout, services)
	}
	rows := [][]string{{"SERVICE", "PHASE", "DIGEST", "GEN", "AGE", "DEADLINE", "NOTE"}}
	for _, s := range services.Services {
		rows = append(rows, row(s, g.now()))
	}
	if len(rows) == 1 {
		_, err = fmt.Fprintln(g.Stdout, "no service is enrolled")
	} else {
		err = g.table(rows)
	}
	for _, l := range lines(services.EnrollmentInvalid) {
		g.say("enrollment: %s", l)
	}
	return err
}

// lines is a text as its lines; none of an empty one.
func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

func row(s api.Service, now time.Time) []string {
	digest := "-"
	if s.Promoted != nil {
		digest = short(s.Promoted.Digest + s.Promoted.ImageID)
	}
	r := []string{s.Service, "-", digest, strconv.Itoa(s.Generation), "-", "-", ""}
	if op := s.Operation; op != nil {
		r[1], r[4] = op.Phase, age(*op, now)
		if by := limit(*op); by != nil {
			r[5] = span(by.Sub(now))
		}
	}
	if s.Damaged != "" {
		r[1], r[2], r[3] = "damaged", "-", "-"
	}
	r[6] = note(s)
	return r
}

// age is how long an operation has been under way, or how long ago it ended.
func age(op api.Operation, now time.Time) string {
	since := op.AcceptedAt
	if op.EndedAt != nil {
		since = *op.EndedAt
	}
	return span(now.Sub(since))
}

// note is what else is to be known of a service: what is wrong first.
func note(s api.Service) string {
	op := s.Operation
	var notes []string
	switch {
	case s.Damaged != "":
		notes = append(notes, s.Damaged)
	case op == nil:
		notes = append(notes, "never deployed")
	case !op.Ended():
		notes = append(notes, "-> "+short(candidate(*op)))
	case op.Phase != string(probation.Promoted):
		notes = append(notes, short(candidate(*op))+": "+because(*op))
	}
	if s.Unenrolled {
		notes = append(notes, "not enrolled any more")
	}
	return strings.Join(notes, "; ")
}

// table prints rows in columns. Only the last column is cut, and only on a terminal: what goes into a pipe is for a
// program that wants all of it.
func (g *globals) table(rows [][]string) error {
	last := len(rows[0]) - 1
	widths := make([]int, last)
	for _, r := range rows {
		for i := range widths {
			widths[i] = max(widths[i], len(r[i]))
		}
	}
	columns := width(g.Stdout)
	for _, r := range rows {
		var b strings.Builder
		for i, w := range widths {
			fmt.Fprintf(&b, "%-*s  ", w, clean(r[i]))
		}
		end := clean(r[last])
		if columns > 0 {
			end = fit(end, max(columns-b.Len(), 1))
		}
		if _, err := fmt.Fprintln(g.Stdout, strings.TrimRight(b.String()+end, " ")); err != nil {
			return err
		}
	}
	return nil
}

func (g *globals) statusOf(ctx context.Context, c *api.Client, name string) error {
	s, err := c.Service(ctx, name)
	if err != nil {
		return reached(c, err)
	}
	if g.JSON {
		return printJSON(g.Stdout, s)
	}
	for _, l := range detail(s, g.now()) {
		if _, err := fmt.Fprintf(g.Stdout, "%-12s %s\n", l[0], clean(l[1])); err != nil {
			return err
		}
	}
	return nil
}

// detail is what is shown of one service: a word and what it says.
func detail(s api.Service, now time.Time) [][2]string {
	var invalid [][2]string
	for _, l := range lines(s.EnrollmentInvalid) {
		invalid = append(invalid, [2]string{"enrollment", l})
	}
	if s.Damaged != "" {
		return append([][2]string{{"service", s.Service}, {"damaged", s.Damaged}}, invalid...)
	}
	in := "nothing of toad's yet"
	if s.Promoted != nil {
		in = fmt.Sprintf("%s (generation %d)", release(s.Promoted), s.Promoted.Generation)
		if at := s.Promoted.PromotedAt; at != nil {
			in += ", promoted " + ago(*at, now)
		}
	}
	out := [][2]string{{"service", s.Service}, {"in force", in}, {"generation", strconv.Itoa(s.Generation)}}
	if op := s.Operation; op != nil {
		out = append(out, [2]string{"operation", fmt.Sprintf("%s, %s of %s by %s", op.ID, op.Kind, candidate(*op), op.By)})
		phase := fmt.Sprintf("%s, accepted %s", op.Phase, ago(op.AcceptedAt, now))
		if op.EndedAt != nil {
			phase = fmt.Sprintf("%s %s", op.Phase, ago(*op.EndedAt, now))
		}
		out = append(out, [2]string{"phase", phase})
		if by := limit(*op); by != nil {
			out = append(out, [2]string{"deadline", fmt.Sprintf("in %s, at %s", span(by.Sub(now)), by.UTC().Format("15:04:05 UTC"))})
		}
		if op.Reason != "" || op.Code != "" {
			out = append(out, [2]string{"reason", because(*op)})
		}
	}
	for _, r := range s.Refusals {
		out = append(out, [2]string{"refused", fmt.Sprintf("%s since %s: %s (%s)", r.Digest, r.Operation, r.Reason, r.Code)})
	}
	if s.Unenrolled {
		out = append(out, [2]string{"note", "not enrolled any more; it takes no deployment"})
	}
	return append(out, invalid...)
}

func ago(at, now time.Time) string {
	return fmt.Sprintf("%s ago, at %s", span(now.Sub(at)), at.UTC().Format("2006-01-02 15:04:05 UTC"))
}
