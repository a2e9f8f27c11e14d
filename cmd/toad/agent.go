package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/agent"
	"toad/agent/bao"
	"toad/agent/protocol"
	"toad/agent/transport"
	"toad/internal/atomicfile"
	"toad/internal/redact"
	"toad/unitgen"
)

func agentCmd(g *globals) *ffcli.Command {
	return &ffcli.Command{
		Name: "agent", ShortUsage: "toad agent run|status|bootstrap|bundle", FlagSet: flag.NewFlagSet("toad agent", flag.ContinueOnError),
		ShortHelp: "converge a box that nobody can reach to a published bundle",
		LongHelp: "A box that cannot be reached dials out: it checks in with its control plane, and converges to the bundle that is\n" +
			"published there, each service through its own probation.\n\nExample: toad agent status",
		Subcommands: []*ffcli.Command{agentRunCmd(g), agentStatusCmd(g), agentBootstrapCmd(g), agentBundleCmd(g)},
		Exec: func(_ context.Context, args []string) error {
			if len(args) == 0 {
				return hint(usagef("which one: run, status, bootstrap or bundle?"), "toad agent --help")
			}
			return hint(usagef("unknown command %q", args[0]), "toad agent --help lists them")
		},
	}
}

func agentRunCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad agent run", flag.ContinueOnError)
	retry := fs.Bool("retry", false, "try once more what failed or was refused here, and do not wait for the pause to end")
	return &ffcli.Command{
		Name: "run", ShortUsage: "toad agent run [--retry]", FlagSet: fs,
		ShortHelp: "one tick: check in, and converge; a timer starts it",
		LongHelp: "Carries on what an earlier tick has begun, checks in, and converges to the bundle that is published. What can be\n" +
			"refused is refused before anything is changed.\n\n" +
			"Exit: 0 converged, 1 refused or failed (what was before is in force), 75 later: the timer is the retry, 78 another\n" +
			"environment, or a configuration that cannot be right: not tried again before it changes.\n\nExample: toad agent run",
		Exec: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			return runAgent(ctx, g, *retry)
		},
	}
}

func runAgent(ctx context.Context, g *globals, retry bool) error {
	folder := agentFolder()
	config, err := folder.Load()
	if err != nil {
		return configError{err}
	}
	secrets := &redact.Redactor{}
	safe := secrets.Writer(g.Stderr)
	defer func() { _ = safe.Close() }()
	h, err := wire(ctx, g)
	if err != nil {
		return err
	}
	defer h.close()
	h.log = logger(safe)
	h.rollout.Log, h.enrolled.log = h.log, h.log
	a, err := newAgent(h, config, folder, secrets)
	if err != nil {
		return configError{err}
	}
	a.Retry = retry
	outcome, err := a.Tick(ctx)
	if err == nil {
		return nil
	}
	return exitError{int(outcome), errors.New(secrets.Line(err.Error()))}
}

// newAgent wires a tick.
func newAgent(h *host, c agent.Config, folder agent.Folder, secrets *redact.Redactor) (*agent.Agent, error) {
	via, err := transport.Parse(c.Via)
	if err != nil {
		return nil, err
	}
	if u, err := url.Parse(c.Via); err == nil && u.User != nil { // a proxy's login
		password, _ := u.User.Password()
		secrets.AddLogin(u.User.Username(), password)
	}
	client := transport.Client(via, nil)
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		roots, err := transport.Roots(pem)
		if err != nil {
			return nil, fmt.Errorf("ca: %s: %w", c.CA, err)
		}
		client = transport.Client(via, roots)
	}
	vault, err := bao.New(bao.Config{Address: c.Bao, Plain: c.Plain(), HTTP: client, EnvID: c.EnvID, Mount: c.KV, Redactor: secrets})
	if err != nil {
		return nil, fmt.Errorf("bao: %w", err)
	}
	control, err := protocol.New(protocol.Config{Address: c.Control, Plain: c.Plain(), HTTP: client, EnvID: c.EnvID, Box: c.Box, Token: vault.Token, Redactor: secrets})
	if err != nil {
		return nil, fmt.Errorf("control: %w", err)
	}
	ground := agentGround{h}
	return &agent.Agent{Config: c, Folder: folder, Store: agentStore(h.records.Dir()), Control: control, Vault: vault, Services: ground, Ground: ground,
		Podman: h.podman, Redactor: secrets, Version: version, Now: time.Now, Log: h.log}, nil
}

func agentStore(state string) agent.Store { return agent.Store{Dir: filepath.Join(state, "agent")} }

func agentBundleCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad agent bundle", flag.ContinueOnError)
	out := fs.String("out", "", "`FILE` to write the tar to; else <sha>.tar in this folder")
	created := fs.String("created", "", "`TIME` that the manifest gets where it says none, e.g. 2026-11-30T12:00:00Z; else now")
	return &ffcli.Command{
		Name: "bundle", ShortUsage: "toad agent bundle [--out FILE] DIR", FlagSet: fs,
		ShortHelp: "make a bundle to publish of a folder with manifest.json and Quadlet files",
		LongHelp: "Reads manifest.json and the .container, .volume and .network files of a folder, refuses what every box would\n" +
			"refuse, and writes the tar. It prints the sha under which the tar is published.\n\n" +
			"Exit: 0 made, 1 refused.\n\nExample: toad agent bundle ./shop",
		Exec: func(_ context.Context, args []string) error {
			if len(args) != 1 {
				return usagef("bundle takes one folder, e.g. ./shop")
			}
			at := g.now()
			if *created != "" {
				var err error
				if at, err = time.Parse(time.RFC3339, *created); err != nil {
					return usagef("--created: %w", err)
				}
			}
			b, data, err := agent.Make(args[0], at)
			if err != nil {
				return err
			}
			path := *out
			if path == "" {
				path = b.SHA + ".tar"
			}
			if err := atomicfile.Write(path, data, 0o644); err != nil {
				return err
			}
			if g.JSON {
				return printJSON(g.Stdout, map[string]any{"bundle_sha": b.SHA, "file": path, "manifest": b.Manifest})
			}
			_, err = fmt.Fprintln(g.Stdout, b.SHA)
			return err
		},
	}
}

func agentBootstrapCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad agent bootstrap", flag.ContinueOnError)
	var c agent.Config
	fs.StringVar(&c.Control, "control", "", "`URL` of the control plane")
	fs.StringVar(&c.Bao, "bao", "", "`URL` of OpenBao")
	fs.StringVar(&c.EnvID, "env", "", "`ENVIRONMENT` of the box, env-<tier>-<nn>")
	fs.StringVar(&c.Box, "box", "", "`NAME` of the box in its environment; else the host's")
	fs.StringVar(&c.Role, "role", "deploy", "`ROLE` of the auth mount that the grant is for")
	fs.StringVar(&c.KV, "kv", "", "`MOUNT` of the secrets, if not kv")
	fs.StringVar(&c.CA, "ca", "", "`FILE` with the certificates to trust in the place of the system's")
	fs.StringVar(&c.Via, "via", "", "`WAY` there: direct, unix:/path, http://proxy:port or socks5://proxy:port")
	fs.Func("mount", "`FOLDER` of this host below which a bundle may mount; may be given more than once", func(s string) error {
		c.Mounts = append(c.Mounts, s)
		return nil
	})
	return &ffcli.Command{
		Name: "bootstrap", ShortUsage: "toad agent bootstrap --control URL --bao URL --env ENVIRONMENT [flags] < GRANT", FlagSet: fs,
		ShortHelp: "bring this box into an environment, with a deploy grant on standard input",
		LongHelp: "Writes the agent's configuration, keeps the grant for the first tick, which consumes it, and installs and starts\n" +
			"the timer. The grant comes on standard input: on a command line others could see it. With a configuration that\n" +
			"is there already only what is given changes, so a new grant alone is enough to log in anew.\n\n" +
			"Example: toad agent bootstrap --control https://control.example.org --bao https://bao.example.org --env env-prod-01 < grant",
		Exec: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			set := map[string]bool{}
			fs.Visit(func(f *flag.Flag) { set[f.Name] = true })
			return bootstrapAgent(ctx, g, c, set)
		},
	}
}

// maxGrant bounds a deploy grant, in bytes.
const maxGrant = 64 << 10

func bootstrapAgent(ctx context.Context, g *globals, c agent.Config, set map[string]bool) error {
	folder := agentFolder()
	c, err := completeConfig(folder, c, set)
	if err != nil {
		return err
	}
	grant, err := io.ReadAll(io.LimitReader(g.Stdin, maxGrant+1))
	if err != nil {
		return err
	}
	if grant = bytes.TrimSpace(grant); len(grant) == 0 || len(grant) > maxGrant || bytes.ContainsAny(grant, " \n\x00") {
		return hint(usagef("no deploy grant on standard input"), "toad agent bootstrap … < grant")
	}
	if err := folder.Save(c); err != nil {
		return err
	}
	if err := atomicfile.Write(folder.GrantFile(), append(grant, '\n'), 0o600); err != nil {
		return err
	}
	h, err := wire(ctx, g)
	if err != nil {
		return err
	}
	defer h.close()
	return h.startAgent(ctx, g)
}

// completeConfig is what was configured before, with what is given now.
func completeConfig(folder agent.Folder, c agent.Config, set map[string]bool) (agent.Config, error) {
	old, err := folder.Load()
	if err != nil && !errors.Is(err, agent.ErrNoConfig) && len(set) == 0 {
		return c, configError{err}
	}
	if err == nil {
		for name, keep := range map[string]struct{ to, from *string }{
			"control": {&c.Control, &old.Control}, "bao": {&c.Bao, &old.Bao}, "env": {&c.EnvID, &old.EnvID}, "box": {&c.Box, &old.Box},
			"role": {&c.Role, &old.Role}, "kv": {&c.KV, &old.KV}, "ca": {&c.CA, &old.CA}, "via": {&c.Via, &old.Via},
		} {
			if !set[name] {
				*keep.to = *keep.from
			}
		}
		if !set["mount"] {
			c.Mounts = old.Mounts
		}
	}
	if c.Box == "" {
		if c.Box, err = os.Hostname(); err != nil {
			return c, err
		}
	}
	if c.CA != "" {
		if c.CA, err = absolute("--ca", c.CA); err != nil {
			return c, err
		}
	}
	if err := c.Check(); err != nil {
		return c, usagef("%w", err)
	}
	return c, nil
}

// startAgent installs and starts the timer; toad setup keeps its units up to date from then on.
func (h *host) startAgent(ctx context.Context, g *globals) error {
	h.rollout.Program.Agent = true
	files, err := h.unitFiles()
	if err != nil {
		return err
	}
	if !exists(h.rollout.Program.Exe) {
		return hint(configError{errors.New("toad is not set up on this host yet")}, "toad setup, then the same again")
	}
	for _, f := range files {
		if name := filepath.Base(f.Name); name != unitgen.AgentTimer && name != "toad-agent.service" || sameText(f) {
			continue
		}
		if err := writeUnit(f); err != nil {
			return err
		}
	}
	runtimeDir, err := g.runtimeDir()
	if err != nil {
		return err
	}
	for _, argv := range [][]string{{"daemon-reload"}, {"enable", "--now", unitgen.AgentTimer}, {"start", "--no-block", "toad-agent.service"}} {
		if err := systemctl(ctx, runtimeDir, argv...); err != nil {
			return err
		}
	}
	g.say("the box checks in now, and every two minutes from now on; see how: toad agent status")
	return nil
}
