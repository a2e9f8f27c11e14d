package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/httpd"
	"toad/internal/atomicfile"
	"toad/probation"
	"toad/probation/proof"
)

func proofCmd(g *globals) *ffcli.Command {
	c := &ffcli.Command{
		Name: "proof", ShortUsage: "toad proof keygen|get|put|show", FlagSet: flag.NewFlagSet("toad proof", flag.ContinueOnError),
		ShortHelp: "carry the proof that a release ran well from one host to another",
		LongHelp: "A host with [prove] in its proof-policy.toml signs that a release ran well on it. A host\n" +
			"with [[require]] deploys only what is proven so. docs/dev-first.md shows both.\n\n" +
			"Example: toad proof get web sha256:<64 hex digits> > web.proof",
		Subcommands: []*ffcli.Command{keygenCmd(g), proofGetCmd(g), proofPutCmd(g), proofShowCmd(g)},
	}
	c.Exec = func(_ context.Context, args []string) error {
		if len(args) > 0 {
			return unknownCommand(c, args[0])
		}
		return hint(usagef("which of keygen, get, put and show?"), "toad proof --help")
	}
	return c
}

func keygenCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "keygen", ShortUsage: "toad proof keygen FILE", FlagSet: flag.NewFlagSet("toad proof keygen", flag.ContinueOnError),
		ShortHelp: "make the key of a proving host",
		LongHelp: "Writes a new private key to FILE, for [prove], and prints its public half, for [[require]] on\n" +
			"other hosts. A file that is there is left alone.\n\nExample: toad proof keygen ~/.config/toad/proof.key",
		Exec: func(_ context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("proof keygen takes the file to write, e.g. ~/.config/toad/proof.key")
			}
			if exists(args[0]) {
				return hint(exitError{exitFailed, fmt.Errorf("%s is there already, and is left alone", args[0])}, "name another file, or move it away")
			}
			private, public, err := proof.NewKey()
			if err != nil {
				return err
			}
			if err := atomicfile.Write(args[0], private, 0o600); err != nil {
				return err
			}
			if g.JSON {
				return printJSON(g.Stdout, map[string]string{"key": public.Line(), "id": public.ID()})
			}
			_, err = fmt.Fprintln(g.Stdout, public.Line())
			return err
		},
	}
}

func proofGetCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "get", ShortUsage: "toad proof get SERVICE DIGEST", FlagSet: flag.NewFlagSet("toad proof get", flag.ContinueOnError),
		ShortHelp: "print the proof about a release",
		LongHelp:  "Prints the signed proof, or says what is still missing (exit 5).\n\nExample: toad proof get web sha256:<64 hex digits>",
		Exec: func(ctx context.Context, args []string) error {
			service, digest, err := serviceAndDigest(args, "proof get")
			if err != nil {
				return err
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			envelope, err := c.Proof(ctx, service, digest)
			if err != nil {
				return reached(c, err)
			}
			_, err = fmt.Fprintf(g.Stdout, "%s\n", strings.TrimSpace(string(envelope)))
			return err
		},
	}
}

func proofPutCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "put", ShortUsage: "toad proof put SERVICE FILE", FlagSet: flag.NewFlagSet("toad proof put", flag.ContinueOnError),
		ShortHelp: "keep a proof that another host made",
		LongHelp:  "FILE holds a proof as toad proof get prints it; - is stdin. One that no policy here would count is refused.\n\nExample: toad proof put web web.proof",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) != 2 {
				return usagef("proof put takes a service and a file, have %d arguments", len(args))
			}
			envelope, s, err := g.readProof(args[1])
			if err != nil {
				return err
			}
			c, err := g.client()
			if err != nil {
				return err
			}
			if err := c.PutProof(ctx, args[0], s.Digests()[0], envelope); err != nil {
				return reached(c, err)
			}
			g.say("%s has a proof of %s by %s.", args[0], s.Digests()[0], s.Predicate.Prover)
			return nil
		},
	}
}

func proofShowCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "show", ShortUsage: "toad proof show FILE", FlagSet: flag.NewFlagSet("toad proof show", flag.ContinueOnError),
		ShortHelp: "say what a proof states",
		LongHelp:  "FILE holds a proof as toad proof get prints it; - is stdin. The signature is not checked: a policy does that.\n\nExample: toad proof show web.proof",
		Exec: func(_ context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("proof show takes one file, have %d arguments", len(args))
			}
			_, s, err := g.readProof(args[0])
			if err != nil {
				return err
			}
			if g.JSON {
				return printJSON(g.Stdout, s)
			}
			p := s.Predicate
			_, err = fmt.Fprintf(g.Stdout, "%s of %s\nservice %s on %s, %s\nran from %s, proven %s after %s, %d restarts\nthe signature is not checked here\n",
				strings.Join(s.Digests(), ", "), clean(s.Subject[0].Name), clean(p.Service), p.Prover, clean(p.Platform),
				p.Since.Format("2006-01-02 15:04:05 UTC"), p.ProvenAt.Format("2006-01-02 15:04:05 UTC"), clean(p.StableFor), p.Restarts)
			return err
		},
	}
}

// serviceAndDigest takes a service and a digest.
func serviceAndDigest(args []string, command string) (service, digest string, err error) {
	if len(args) != 2 {
		return "", "", usagef("%s takes a service and a digest, have %d arguments", command, len(args))
	}
	if err := probation.CheckDigest(args[1]); err != nil {
		return "", "", usagef("%w", err)
	}
	return args[0], args[1], nil
}

func (g *globals) readProof(name string) ([]byte, proof.Statement, error) {
	from := g.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, proof.Statement{}, usagef("%w", err)
		}
		defer f.Close()
		from = f
	}
	envelope, err := io.ReadAll(io.LimitReader(from, proof.MaxEnvelope+1))
	if err != nil {
		return nil, proof.Statement{}, err
	}
	s, err := proof.Read(envelope)
	if err != nil {
		return nil, s, exitError{exitUsage, fmt.Errorf("%s is not a proof: %w", name, err)}
	}
	return envelope, s, nil
}

// proofs lends the proofs of this host to the API.
type proofs struct{ *host }

// Proof is the one that this host made, else any, else what is missing of it.
func (h proofs) Proof(ctx context.Context, service, digest string) ([]byte, error) {
	have, err := h.records.Proofs(service, digest)
	if err != nil {
		return nil, err
	}
	p, policyErr := policy()
	if policyErr == nil && p.Prove != nil && have[p.Prove.Prover] != nil {
		return have[p.Prove.Prover], nil
	}
	for _, envelope := range have {
		return envelope, nil
	}
	return nil, h.notYet(ctx, p, policyErr, service, digest)
}

// notYet says why there is no proof, and when there may be one.
func (h proofs) notYet(ctx context.Context, p proof.Policy, policyErr error, service, digest string) error {
	not := func(format string, args ...any) error {
		return &httpd.ProofError{Code: probation.CodeNotProven, Err: fmt.Errorf("not proven yet: "+format, args...)}
	}
	switch {
	case policyErr != nil:
		return not("the proof policy of this host cannot be read: %v", policyErr)
	case !p.Proves(service):
		return not("this host proves nothing of %s; [prove] in its proof-policy.toml would", service)
	}
	svc, err := h.records.Service(service)
	switch {
	case err != nil:
		return err
	case svc.Promoted == nil || !svc.Promoted.Names(digest):
		return not("on %s %s is not in force", p.Prove.Prover, digest)
	}
	since, left, err := h.rollout.RunsWell(ctx, svc, p.Prove.After)
	switch {
	case err != nil:
		return not("on %s: %v", p.Prove.Prover, err)
	case left > 0:
		return not("on %s since %s, proven after %s", p.Prove.Prover, since.Format(time.RFC3339), p.Prove.After)
	}
	return not("on %s since %s; it is made at the next tick", p.Prove.Prover, since.Format(time.RFC3339))
}

// PutProof keeps a proof from elsewhere, unless a policy here says that it cannot count.
func (h proofs) PutProof(ctx context.Context, service, digest string, envelope []byte) error {
	bad := func(err error) error {
		return &httpd.ProofError{Code: probation.CodeInvalid, Err: fmt.Errorf("this proof is not taken: %w", err)}
	}
	p, err := policy()
	if err != nil {
		return bad(fmt.Errorf("the proof policy of this host cannot be read: %w", err))
	}
	e, err := h.enrolled.Enrollment(service)
	if err != nil {
		return err
	}
	s, err := p.Takes(ctx, proof.Wanted{Service: service, Repository: e.Image, Platform: platform(), Digests: []string{digest}}, envelope)
	if err != nil {
		return bad(err)
	}
	return h.records.PutProof(service, s.Predicate.Prover, s.Digests(), envelope)
}
