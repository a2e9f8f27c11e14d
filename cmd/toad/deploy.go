package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/httpd/api"
	"toad/probation"
)

// deployment is what the command line asks for.
type deployment struct {
	g       *globals
	service string
	image   string // as it was given
	digest  string // that it stands for

	generation int // -1: the one the service is at now
	retry      bool
	program    bool
	waitProof  time.Duration
	detach     bool
	dry        bool
	key        string
}

func deployCmd(g *globals) *ffcli.Command {
	d := &deployment{g: g}
	fs := d.flags("toad deploy")
	return &ffcli.Command{
		Name: "deploy", ShortUsage: "toad deploy [flags] SERVICE DIGEST|TAG", FlagSet: fs,
		ShortHelp: "put a release into force, or the previous one back",
		LongHelp: "Puts an image into force if it holds through its probation, and the previous\n" +
			"release back if it does not. Follows to the end. The image is a digest,\n" +
			"REPOSITORY@DIGEST, or a tag, which is looked up first: what is deployed is what\n" +
			"the tag stands for now. If it is being deployed already, that is followed; if it\n" +
			"is in force, nothing is done.\n\n" +
			"Ctrl-C ends the following, not the deployment; the outcome is then not known,\n" +
			"and the exit status is 75.\n\n" +
			"With --json each event is one line: {\"line\":…} of the log, {\"operation\":…} as it\n" +
			"stands, and last {\"end\":…} with the outcome.\n\n" +
			"Exit: 0 promoted, 1 failed and nothing changed, 3 rolled back or withdrawn,\n" +
			"4 the rollback failed, 5 not accepted, 75 try again later.\n\n" +
			"Example: toad deploy web sha256:4f1c… --expect-generation 6\n" +
			"Example: toad deploy web v1.4.2 --dry-run",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) != 2 {
				return hint(usagef("deploy takes a service and an image, have %d arguments", len(args)), "toad deploy web sha256:<64 hex digits>")
			}
			d.service, d.image = args[0], args[1]
			return d.run(ctx)
		},
	}
}

// flags are those of a deployment.
func (d *deployment) flags(command string) *flag.FlagSet {
	fs := flag.NewFlagSet(command, flag.ContinueOnError)
	fs.IntVar(&d.generation, "expect-generation", -1, "refuse unless the service is at generation `N`; default: the one it is at now")
	fs.BoolVar(&d.retry, "retry", false, "try a release again that failed here")
	fs.BoolVar(&d.program, "program-change", false, "accept an image that runs another program than the service ran before")
	fs.DurationVar(&d.waitProof, "wait-proof", 0, "wait up to `DURATION` for the proof that is required of it, e.g. 30m")
	fs.BoolVar(&d.detach, "detach", false, "do not follow; exit as soon as it is accepted")
	fs.BoolVar(&d.dry, "dry-run", false, "do all that comes before the switch, change nothing, and print the plan")
	fs.StringVar(&d.key, "key", "", "idempotency `KEY` of the request; default: made of service, digest, generation and flags")
	return fs
}

func (d *deployment) run(ctx context.Context) error {
	if err := checkGeneration(d.generation); err != nil {
		return err
	}
	c, err := d.g.client()
	if err != nil {
		return err
	}
	if d.digest, err = d.g.resolve(ctx, c, d.service, d.image); err != nil {
		return err
	}
	svc, err := c.Service(ctx, d.service)
	if err != nil {
		return reached(c, err)
	}
	return d.deploy(ctx, c, svc)
}

// deploy asks for the digest, and follows what comes of it.
func (d *deployment) deploy(ctx context.Context, c *api.Client, svc api.Service) error {
	req := d.request(svc.Generation)
	if d.dry {
		return d.dryRun(ctx, c, req)
	}
	if op := svc.Operation; op != nil && !op.Ended() && op.Digest == d.digest && op.Kind == "deployment" {
		d.g.say("%s deploys this digest already", op.ID)
		return d.finish(ctx, c, *op)
	}
	op, replayed, err := c.Deploy(ctx, d.service, req, d.idempotencyKey(svc.Generation))
	if err != nil {
		return reached(c, err)
	}
	if replayed && op.Phase == string(probation.Promoted) && svc.Promoted != nil && svc.Promoted.Generation == op.Generation {
		return d.already(op)
	}
	if replayed {
		d.g.say("%s is what this request led to before", op.ID)
	}
	return d.finish(ctx, c, op)
}

func (d *deployment) request(current int) api.DeployRequest {
	g := d.expected(current)
	return api.DeployRequest{Digest: d.digest, ExpectedGeneration: &g, Retry: d.retry, ProgramChange: d.program, WaitProof: durationText(d.waitProof)}
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// checkGeneration refuses a number that would be taken for none.
func checkGeneration(n int) error {
	if n < -1 {
		return hint(usagef("--expect-generation %d: there is no such generation", n), "toad status tells at which generation a service is")
	}
	return nil
}

func (d *deployment) expected(current int) int {
	if d.generation >= 0 {
		return d.generation
	}
	return current
}

// idempotencyKey is the same for the same wish, so that a command that was cut off can be given again. A wish at another
// generation is another one.
func (d *deployment) idempotencyKey(current int) string {
	if d.key != "" {
		return d.key
	}
	wish := []any{"deploy", d.service, d.digest, d.expected(current), d.retry}
	if d.program {
		wish = append(wish, "program_change")
	}
	if d.waitProof > 0 {
		wish = append(wish, d.waitProof.String())
	}
	data, err := json.Marshal(wish)
	if err != nil {
		panic(err) // strings, a number and booleans
	}
	sum := sha256.Sum256(data)
	return "toad-" + hex.EncodeToString(sum[:16])
}

func (d *deployment) already(op api.Operation) error {
	since := ""
	if op.EndedAt != nil {
		since = " since " + op.EndedAt.UTC().Format("2006-01-02 15:04:05 UTC")
	}
	return d.g.last(op, 0, fmt.Sprintf("%s runs %s already (%s)%s; nothing was done.", d.service, op.Digest, op.ID, since))
}

// finish follows the operation, unless that is not wanted, and tells how it ended.
func (d *deployment) finish(ctx context.Context, c *api.Client, op api.Operation) error {
	if d.detach && !op.Ended() {
		return d.g.detached(op)
	}
	op, err := d.g.follow(ctx, c, op)
	if err != nil {
		return err
	}
	return d.g.tell(ctx, c, op, func(api.Operation) bool { return false })
}

// detached is the last word of a command that does not follow.
func (g *globals) detached(op api.Operation) error {
	if g.JSON {
		return printLine(g.Stdout, streamed{Operation: &op})
	}
	_, err := fmt.Fprintf(g.Stdout, "%s is under way (%s); to see how it ends: toad log %s --follow\n", op.ID, clean(op.Phase), op.ID)
	return err
}

// say prints a line of progress, unless JSON was asked for.
func (g *globals) say(format string, args ...any) {
	if !g.JSON {
		columns := g.width()
		fmt.Fprintln(g.Stdout, wrap(brief(clean(fmt.Sprintf(format, args...)), columns), 0, columns))
	}
}
