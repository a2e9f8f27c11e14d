package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/authstore"
	"toad/httpd"
	"toad/internal/atomicfile"
	"toad/internal/fault"
	"toad/probation/record"
	"toad/releases"
)

// gcPercent is how much garbage the daemon may hold, in percent of what is no garbage; Go's own default is 100.
const gcPercent = 50

// idleLimit is how long a daemon that systemd starts on demand stays without a request or a follower.
const idleLimit = 30 * time.Second

func serveCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad serve", flag.ContinueOnError)
	var l listening
	fs.Func("listen", "`ADDRESS` to answer on beside the Unix socket, e.g. 127.0.0.1:8686; may be given more than once", l.addAddress)
	fs.Func("host", "`NAME` by which it is asked there, beside localhost; may be given more than once", l.addHost)
	idle := fs.Duration("idle", idleLimit, "end after `DURATION` without a request, where systemd holds the sockets")
	noIdle := fs.Bool("no-idle", false, "stay, whether or not there are requests")
	return &ffcli.Command{
		Name: "serve", ShortUsage: "toad serve [--listen ADDRESS]… [--host NAME]… [--no-idle]", FlagSet: fs,
		ShortHelp: "answer requests; started by toad.socket",
		LongHelp: "Accepts deployments, records them and answers. Everything that acts on the host is done by units that\n" +
			"systemd starts, so its life or death does not matter to a deployment under way. Started by toad.socket it\n" +
			"ends when nothing was asked for a while, and the next request starts it again.\n\n" +
			"On the Unix socket only this user is answered. Over TCP every request needs a token: toad token issue.\n" +
			"An address that other machines can reach has to be named; there is no TLS.\n\nExample: toad serve",
		Exec: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			if *noIdle {
				*idle = 0
			}
			return serve(ctx, g, l, *idle)
		},
	}
}

func serve(ctx context.Context, g *globals, l listening, idle time.Duration) error {
	// Without the bus the daemon can still say so, and what is on record; who asks would else wait for an answer in vain.
	h, err := wireUp(g)
	if err != nil {
		return err
	}
	defer h.close()
	unlock, err := h.records.LockServe()
	if err != nil {
		return hint(configError{err}, "one is enough: systemctl --user status toad.service")
	}
	defer unlock()
	if os.Getenv(lookSocket) != "" {
		h.lendBinary(ctx)
	}
	h.enrolled.keeps = true
	// Between two requests a daemon has nothing to do, so it rather collects garbage more often than holds it.
	debug.SetGCPercent(gcPercent)
	all, activated, err := listeners(g, l, h.log)
	if err != nil {
		return configError{err}
	}
	for _, w := range l.warnings() {
		h.log.Warn(w)
	}
	if !activated {
		idle = 0 // nothing would bring it back
	}
	records := record.NewReader(h.records)
	sight := h.sight()
	server := httpd.New(httpd.Options{Deployments: h.rollout, Records: records, Enrolled: h.enrolled,
		Registry: sight, Proofs: sight, Files: staging{h}, MaxFile: releases.MaxFile, Tokens: authstore.New(filepath.Join(h.records.Dir(), "tokens.json")), Hosts: l.names(),
		Planner: sight, Host: sight, Health: h.health, Alerts: h.alerts.Waiting, Version: version,
		StateDir: h.records.Dir(), Log: h.log, Idle: idle})
	server.Page = h.page(records, sight, server.Follow)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	go h.watchdog(ctx, server.Stay)
	err = server.Serve(ctx, all...)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	return err
}

// health says what is wrong with what the daemon stands on.
func (h *host) health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, podmanErr := h.podman.Ping(ctx)
	var wrong []error
	for _, look := range []struct {
		at  string
		err error
	}{{"state", h.heartbeat()}, {"bus", h.bus.Ping(ctx)}, {"podman", podmanErr}, {"enrollment", h.enrolled.Invalid()}} {
		if look.err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", look.at, look.err))
		}
	}
	return errors.Join(wrong...)
}

// carryOn starts an act for all that is owed.
func (h *host) carryOn(ctx context.Context) {
	if err := h.rollout.Resume(ctx); err != nil {
		h.log.Error("carry on", "err", err)
	}
	h.tellDamaged(ctx)
}

// watchdog pings systemd each time a bus call and a state write have come back, with success or an error: only a hang
// kills the daemon. What is owed is carried on at the start, and when a host in trouble is well again; until then it stays.
func (h *host) watchdog(ctx context.Context, stay func()) {
	well := h.bus.Ping(ctx) == nil
	h.carryOn(ctx)
	interval, err := daemon.SdWatchdogEnabled(false)
	if err != nil || interval == 0 {
		return
	}
	tick := time.NewTicker(interval / 4)
	defer tick.Stop()
	for {
		err := errors.Join(h.bus.Ping(ctx), h.heartbeat())
		if err != nil && ctx.Err() == nil {
			h.log.Warn("watchdog", "err", err)
		}
		_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
		if err == nil && !well {
			h.carryOn(ctx)
		}
		if well = err == nil; !well {
			stay()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// heartbeat shows that the state folder takes a durable write.
func (h *host) heartbeat() error {
	if err := fault.Point("serve.heartbeat"); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(h.records.Dir(), "serve.alive"), fmt.Appendf(nil, "%d\n", os.Getpid()), 0o600)
}

// logger writes to stderr. The journal adds the time itself and takes the level from a prefix.
func logger(w io.Writer) *slog.Logger {
	if os.Getenv("JOURNAL_STREAM") == "" {
		return slog.New(slog.NewTextHandler(w, nil))
	}
	return slog.New(&journalHandler{Handler: slog.NewTextHandler(w, &slog.HandlerOptions{
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
				return slog.Attr{}
			}
			return a
		}}), w: w})
}

// levelCritical is for what only a person can put right; the journal files it as crit.
const levelCritical = slog.LevelError + 4

// journalHandler puts the priority that journald reads in front of each line.
type journalHandler struct {
	slog.Handler
	w io.Writer
}

func (j *journalHandler) Handle(ctx context.Context, r slog.Record) error {
	priority := "<6>"
	switch {
	case r.Level >= levelCritical:
		priority = "<2>"
	case r.Level >= slog.LevelError:
		priority = "<3>"
	case r.Level >= slog.LevelWarn:
		priority = "<4>"
	}
	if _, err := io.WriteString(j.w, priority); err != nil {
		return err
	}
	return j.Handler.Handle(ctx, r)
}
