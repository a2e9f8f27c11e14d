package main

import (
	"bytes"
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
	fs := flag.NewFlagSet("toad status", flag.ContinueOnError)
	watch := fs.Bool("watch", false, "show it again whenever it changes, until Ctrl-C")
	return &ffcli.Command{
		Name: "status", ShortUsage: "toad status [flags] [SERVICE]", FlagSet: fs,
		ShortHelp: "show which release of each service is in force, and what is under way",
		LongHelp: "Shows one line for each service: the phase of its latest operation, the release\n" +
			"in force, its generation, how long that phase lasts or ended ago, whether it is\n" +
			"ready now, and how much time is left to the deadline. With a service, shows\n" +
			"more of it.\n\n" +
			"Example: toad status\n" +
			"Example: toad status web --watch",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) > 1 {
				return usagef("status takes at most one service, have %d arguments", len(args))
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			show := func(g *globals) error { return g.statusOfAll(ctx, c) }
			if len(args) == 1 {
				show = func(g *globals) error { return g.statusOf(ctx, c, args[0]) }
			}
			if *watch {
				return g.watch(ctx, show)
			}
			return show(g)
		},
	}
}

// watch shows something again and again. A terminal is drawn anew; elsewhere only what has changed is printed.
func (g *globals) watch(ctx context.Context, show func(*globals) error) error {
	const every = time.Second
	terminal := width(g.Stdout) > 0
	if terminal {
		fmt.Fprint(g.Stdout, "\x1b[?25l\x1b[2J") // no cursor, an empty screen
		defer fmt.Fprint(g.Stdout, "\x1b[?25h")
	}
	last := ""
	for {
		var out bytes.Buffer
		copied := *g
		copied.Stdout, copied.columns, copied.plain = &out, g.width(), !g.style().colour
		err := show(&copied)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && last == "":
			return err
		case err != nil: // it may come back
			printError(&out, err)
		}
		if text := out.String(); text != last {
			last = text
			if terminal {
				// Line by line, so that nothing flickers; then whatever was below.
				text = "\x1b[H" + strings.ReplaceAll(text, "\n", "\x1b[K\n") + "\x1b[J"
			}
			if _, err := fmt.Fprint(g.Stdout, text); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

func (g *globals) statusOfAll(ctx context.Context, c *api.Client) error {
	services, err := c.AllLive(ctx)
	if err != nil {
		return reached(c, err)
	}
	if g.JSON {
		return printJSON(g.Stdout, services)
	}
	if len(services.Services) == 0 {
		_, err = fmt.Fprintln(g.Stdout, "no service is enrolled; toad enroll UNIT.container makes a start")
	} else {
		digests := telling(services.Services)
		rows := []row{{cells: []string{"SERVICE", "PHASE", "DIGEST", "GEN", "AGE", "READY", "LEFT", "NOTE"}}}
		for _, s := range services.Services {
			rows = append(rows, rowOf(s, g.now(), digests))
		}
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

// telling is how many digits of a digest tell those of a listing apart.
func telling(services []api.Service) int {
	var all []string
	for _, s := range services {
		if s.Promoted != nil {
			all = append(all, hexOf(s.Promoted.Digest+s.Promoted.ImageID))
		}
		if s.Operation != nil {
			all = append(all, hexOf(s.Operation.Digest))
		}
	}
	for n := 12; ; n++ {
		seen, same := map[string]string{}, false
		for _, d := range all {
			start := d[:min(n, len(d))]
			if other, ok := seen[start]; ok && other != d {
				same = true
			}
			seen[start] = d
		}
		if !same || n >= 64 {
			return n
		}
	}
}

func hexOf(digest string) string { return strings.TrimPrefix(digest, "sha256:") }

// row is a line of a table, and what its second cell's colour is to be.
type row struct {
	cells []string
	how   string
}

func rowOf(s api.Service, now time.Time, digits int) row {
	digest := "-"
	if s.Promoted != nil {
		full := hexOf(s.Promoted.Digest + s.Promoted.ImageID)
		digest = full[:min(digits, len(full))]
	}
	r := row{cells: []string{s.Service, "-", digest, strconv.Itoa(s.Generation), "-", "-", "-", ""}}
	if op := s.Operation; op != nil {
		r.cells[1], r.cells[4] = op.Phase, age(*op, now)
		if by := limit(*op); by != nil {
			r.cells[6] = span(by.Sub(now))
		}
	}
	if s.Live != nil {
		r.cells[5] = "no"
		if s.Live.Ready {
			r.cells[5] = "yes"
		}
	}
	if s.Damaged != "" {
		r.cells[1], r.cells[2], r.cells[3] = "damaged", "-", "-"
	}
	r.how = ofEvent("", r.cells[1])
	r.cells[7] = note(s, now)
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
func note(s api.Service, now time.Time) string {
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
	if s.Live != nil && !s.Live.Ready && op != nil && op.Ended() {
		notes = append(notes, "not ready: "+s.Live.Why)
	}
	if s.Unenrolled {
		notes = append(notes, "not enrolled any more")
	}
	// An alert that the phase tells of already is not told twice.
	if a := s.LastAlert; a != nil && (op == nil || a.Kind != op.Phase || a.Operation != op.ID) {
		notes = append(notes, fmt.Sprintf("alert %s ago: %s", span(now.Sub(a.At)), strings.ReplaceAll(a.Kind, "_", " ")))
	}
	if n := len(s.Refusals); n > 1 || (n == 1 && (op == nil || s.Refusals[0].Operation != op.ID)) {
		notes = append(notes, fmt.Sprintf("%d refused", n))
	}
	return strings.Join(notes, "; ")
}

// table prints rows in columns. On a terminal a long name is cut, and notes that have no room beside stand below; what
// goes into a pipe is for a program that wants all of it.
func (g *globals) table(rows []row) error {
	const least = 16 // columns of a name
	last := len(rows[0].cells) - 1
	widths, total, longest := make([]int, last), 0, 0
	for _, r := range rows {
		for i := range widths {
			widths[i] = max(widths[i], len(r.cells[i]))
		}
		longest = max(longest, len([]rune(r.cells[last])))
	}
	for _, w := range widths {
		total += w + 2
	}
	columns, s := g.width(), g.style()
	below := columns > 0 && total+longest > columns
	if over := total - 2 - columns; columns > 0 && over > 0 {
		widths[0] = max(min(widths[0], least), widths[0]-over)
	}
	for n, r := range rows {
		text := s.row(r, widths, n == 0)
		note := fit(clean(r.cells[last]), max(columns-4, 0))
		switch {
		case below && n > 0 && note != "":
			text = strings.TrimRight(text, " ") + "\n    " + s.paint(r.how, note)
		case !below && n == 0:
			text += s.paint(dim, note)
		case !below:
			text += note
		}
		if _, err := fmt.Fprintln(g.Stdout, strings.TrimRight(text, " ")); err != nil {
			return err
		}
	}
	return nil
}

// row is all of a row but its note.
func (s style) row(r row, widths []int, head bool) string {
	var b strings.Builder
	for i, w := range widths {
		how := ""
		switch {
		case head:
			how = dim
		case i == 0:
			how = bold
		case i == 1:
			how = r.how
		case i == 5 && r.cells[i] == "no":
			how = yellow
		}
		b.WriteString(s.paint(how, fmt.Sprintf("%-*s", w, fit(clean(r.cells[i]), w))) + "  ")
	}
	return b.String()
}

func (g *globals) statusOf(ctx context.Context, c *api.Client, name string) error {
	s, err := c.Live(ctx, name)
	if err != nil {
		return reached(c, err)
	}
	if g.JSON {
		return printJSON(g.Stdout, s)
	}
	columns, paint := g.width(), g.style()
	for _, l := range detail(s, g.now()) {
		text := wrap(brief(clean(l[1]), columns), 13, columns)
		if l[0] == "phase" {
			phase, rest, _ := strings.Cut(text, " ")
			text = paint.paint(ofEvent("", strings.TrimSuffix(phase, ",")), phase) + " " + rest
		}
		if _, err := fmt.Fprintf(g.Stdout, "%s %s\n", paint.paint(dim, fmt.Sprintf("%-12s", l[0])), text); err != nil {
			return err
		}
	}
	return nil
}

// detail is what is shown of one service: a word and what it says.
func detail(s api.Service, now time.Time) [][2]string {
	var out [][2]string
	add := func(word, format string, args ...any) {
		out = append(out, [2]string{word, fmt.Sprintf(format, args...)})
	}
	add("service", "%s", s.Service)
	if s.Damaged != "" {
		add("damaged", "%s", s.Damaged)
	} else {
		in := "nothing of toad's yet"
		if s.Promoted != nil {
			in = fmt.Sprintf("%s (generation %d)", release(s.Promoted), s.Promoted.Generation)
			if at := s.Promoted.PromotedAt; at != nil {
				in += ", promoted " + ago(*at, now)
			}
		}
		add("in force", "%s", in)
		if s.Live != nil {
			add("ready", "%s", ready(*s.Live))
		}
		add("generation", "%d", s.Generation)
		if op := s.Operation; op != nil {
			detailOf(add, *op, now)
		}
		for _, r := range s.Refusals {
			refused := fmt.Sprintf("%s since %s, %s", r.Digest, r.Operation, ago(r.RefusedAt, now))
			if s.Operation == nil || s.Operation.ID != r.Operation { // else the reason stands above
				refused += fmt.Sprintf(": %s (%s)", r.Reason, r.Code)
			}
			add("refused", "%s", refused)
		}
	}
	if a := s.LastAlert; a != nil {
		alert := fmt.Sprintf("%s, %s", strings.ReplaceAll(a.Kind, "_", " "), ago(a.At, now))
		if s.Operation == nil || s.Operation.ID != a.Operation {
			alert += ": " + a.Reason
		}
		add("last alert", "%s", alert)
	}
	if s.Unenrolled {
		add("note", "not enrolled any more; it takes no deployment")
	}
	for _, l := range lines(s.EnrollmentInvalid) {
		add("enrollment", "%s", l)
	}
	return out
}

func detailOf(add func(word, format string, args ...any), op api.Operation, now time.Time) {
	add("operation", "%s, %s of %s by %s", op.ID, op.Kind, candidate(op), op.By)
	if op.EndedAt != nil {
		add("phase", "%s %s", op.Phase, ago(*op.EndedAt, now))
	} else {
		add("phase", "%s, accepted %s", op.Phase, ago(op.AcceptedAt, now))
	}
	if by := limit(op); by != nil {
		add("deadline", "in %s, at %s", span(by.Sub(now)), by.UTC().Format("15:04:05 UTC"))
	}
	if op.Reason != "" || op.Code != "" {
		add("reason", "%s", because(op))
	}
	if gap, err := time.ParseDuration(op.Gap); err == nil {
		add("gap", "it did not serve for %s", span(gap))
	}
}

func ready(l api.Live) string {
	if l.Ready {
		return "yes: " + l.Why
	}
	return "no: " + l.Why
}

func ago(at, now time.Time) string {
	return fmt.Sprintf("%s ago, at %s", span(now.Sub(at)), at.UTC().Format("2006-01-02 15:04:05 UTC"))
}
