package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/httpd/api"
)

func tokenCmd(g *globals) *ffcli.Command {
	c := &ffcli.Command{
		Name: "token", ShortUsage: "toad token issue|list|revoke", FlagSet: flag.NewFlagSet("toad token", flag.ContinueOnError),
		ShortHelp: "issue, list and revoke tokens for the API over TCP",
		LongHelp: "A token lets a job or another machine use the API over TCP, for some services and some things only. toad keeps\n" +
			"a hash of it. These commands work on toad's own host, through its Unix socket.\n\n" +
			"Example: toad token issue ci --services web",
		Subcommands: []*ffcli.Command{issueCmd(g), tokensCmd(g), revokeCmd(g)},
	}
	c.Exec = func(_ context.Context, args []string) error {
		if len(args) > 0 {
			return unknownCommand(c, args[0])
		}
		return hint(usagef("which of issue, list and revoke?"), "toad token --help")
	}
	return c
}

func issueCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad token issue", flag.ContinueOnError)
	services := fs.String("services", "", "`NAMES` of the services it is for, with commas between them; * is all")
	verbs := fs.String("verbs", "read,deploy", "`WHAT` it allows: read, deploy (and roll back), override (retry what is refused)")
	expires := fs.String("expires", "", "`DURATION` after which it is not valid any more, e.g. 90d or 12h; without it: never")
	return &ffcli.Command{
		Name: "issue", ShortUsage: "toad token issue NAME --services NAMES [--verbs WHAT] [--expires DURATION]", FlagSet: fs,
		ShortHelp: "make a token and print it",
		LongHelp: "Prints the new token on stdout, this once: it cannot be had again. NAME is for people, it says whose it is.\n\n" +
			"Example: toad token issue ci --services web --expires 90d",
		Exec: func(ctx context.Context, args []string) error {
			switch {
			case len(args) != 1:
				return usagef("token issue takes one name that says whose it is, e.g. ci")
			case *services == "":
				return hint(usagef("for which services?"), "--services web, or --services '*' for all")
			}
			req := api.TokenRequest{Name: args[0], Services: list(*services), Verbs: list(*verbs)}
			if *expires != "" {
				d, err := days(*expires)
				if err != nil {
					return usagef("--expires %s: %v", *expires, err)
				}
				at := g.now().Add(d).UTC().Truncate(time.Second)
				req.ExpiresAt = &at
			}
			return g.issue(ctx, req)
		},
	}
}

func (g *globals) issue(ctx context.Context, req api.TokenRequest) error {
	c, err := g.client()
	if err != nil {
		return err
	}
	t, err := c.IssueToken(ctx, req)
	if err != nil {
		return reached(c, err)
	}
	if g.JSON {
		return printJSON(g.Stdout, t)
	}
	fmt.Fprintf(g.Stderr, "toad: token %s for %s: %s on %s, %s; it is shown this once\n", t.ID, clean(t.Name),
		strings.Join(t.Verbs, ", "), strings.Join(t.Services, ", "), until(t.ExpiresAt))
	_, err = fmt.Fprintln(g.Stdout, t.Bearer)
	return err
}

func tokensCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "list", ShortUsage: "toad token list", FlagSet: flag.NewFlagSet("toad token list", flag.ContinueOnError),
		ShortHelp: "list all tokens, without their secrets",
		LongHelp: "Lists all tokens, expired ones included. The last use is that of a request which was served, to the minute.\n\n" +
			"Example: toad token list",
		Exec: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			all, err := c.Tokens(ctx)
			switch {
			case err != nil:
				return reached(c, err)
			case g.JSON:
				return printJSON(g.Stdout, all)
			}
			g.printTokens(all)
			return nil
		},
	}
}

func (g *globals) printTokens(all api.Tokens) {
	if all.Damaged != "" {
		fmt.Fprintf(g.Stderr, "toad: %s\n", clean(all.Damaged))
	}
	if len(all.Tokens) == 0 {
		fmt.Fprintln(g.Stdout, "no tokens; one is made by: toad token issue NAME --services SERVICE")
		return
	}
	w := tabwriter.NewWriter(g.Stdout, 0, 2, 2, ' ', 0)
	fmt.Fprintln(w, "ID\tNAME\tSERVICES\tALLOWS\tEXPIRES\tLAST USE")
	for _, t := range all.Tokens {
		used := "never"
		if t.LastUsedAt != nil {
			used = t.LastUsedAt.Format("2006-01-02 15:04")
		}
		ends := "never"
		if at := t.ExpiresAt; at != nil {
			ends = at.Format("2006-01-02 15:04")
			if !g.now().Before(*at) {
				ends = "expired"
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", t.ID, clean(t.Name), strings.Join(t.Services, ","), strings.Join(t.Verbs, ","), ends, used)
	}
	_ = w.Flush()
}

func revokeCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "revoke", ShortUsage: "toad token revoke ID", FlagSet: flag.NewFlagSet("toad token revoke", flag.ContinueOnError),
		ShortHelp: "take a token out of force, from the next request on",
		LongHelp:  "ID is what toad token list shows, and what a token begins with.\n\nExample: toad token revoke 3f9c01d2ab",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return hint(usagef("token revoke takes one id"), "toad token list")
			}
			id, secret, _ := strings.Cut(args[0], ".")
			if secret != "" {
				return hint(usagef("an id is what stands before the dot; the rest is secret, and others could read it in the list of processes"),
					"revoke it by its id, and see who had access")
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			t, err := c.RevokeToken(ctx, id)
			switch {
			case err != nil:
				return reached(c, err)
			case g.JSON:
				return printJSON(g.Stdout, t)
			}
			_, err = fmt.Fprintf(g.Stdout, "token %s of %s is revoked.\n", t.ID, clean(t.Name))
			return err
		},
	}
}

func list(text string) (all []string) {
	for _, one := range strings.Split(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

// days reads a duration that may be in days.
func days(text string) (time.Duration, error) {
	if n, ok := strings.CutSuffix(text, "d"); ok {
		d, err := strconv.Atoi(n)
		if err != nil || d < 1 || d > 36500 {
			return 0, fmt.Errorf("want a number of days, e.g. 90d")
		}
		return time.Duration(d) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("want a duration, e.g. 90d or 12h")
	}
	return d, nil
}

func until(at *time.Time) string {
	if at == nil {
		return "without an end"
	}
	return "until " + at.Format(time.RFC3339)
}
