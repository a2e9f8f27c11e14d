package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/httpd"
	"toad/internal/atomicfile"
	"toad/internal/fault"
)

func serveCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad serve", flag.ContinueOnError)
	return &ffcli.Command{
		Name: "serve", ShortUsage: "toad serve", FlagSet: fs,
		ShortHelp: "answer requests; started by toad.socket",
		LongHelp: "Accepts deployments, records them and answers. Everything that acts on the host is done by units that\n" +
			"systemd starts, so its life or death does not matter to a deployment under way.\n\nExample: toad serve",
		Exec: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			return serve(ctx, g)
		},
	}
}

func serve(ctx context.Context, g *globals) error {
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
	h.enrolled.keeps = true
	listener, err := apiListener(g)
	if err != nil {
		return configError{err}
	}
	server := httpd.New(httpd.Options{Deployments: h.rollout, Records: h.records, Enrolled: h.enrolled,
		Registry: published{h.podman}, Planner: h.rollout, Host: looks{h}, Health: h.health, StateDir: h.records.Dir(), Log: h.log})
	_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	go h.watchdog(ctx)
	err = server.Serve(ctx, listener)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	return err
}

// apiListener is the socket that systemd passed in, or one of our own: a stale socket file is replaced, a live one is not.
func apiListener(g *globals) (net.Listener, error) {
	passed, err := activation.Listeners()
	if err != nil {
		return nil, fmt.Errorf("sockets from systemd: %w", err)
	}
	if len(passed) > 0 && passed[0] != nil {
		return passed[0], nil
	}
	runtimeDir, err := g.runtimeDir()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(runtimeDir, "toad", "toad.sock")
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("%s is in use: toad runs already, or toad.socket holds it; see systemctl --user status toad.socket", path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("folder of the socket: %w", err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("stale socket: %w", err)
	}
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return net.Listen("unix", path)
}

// health says what is wrong with what the daemon stands on.
func (h *host) health(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, podmanErr := h.podman.Ping(ctx)
	return errors.Join(h.bus.Ping(ctx), podmanErr, h.enrolled.Invalid(), h.heartbeat())
}

// carryOn starts an act for all that is owed.
func (h *host) carryOn(ctx context.Context) {
	if err := h.rollout.Resume(ctx); err != nil {
		h.log.Error("carry on", "err", err)
	}
	h.tellDamaged(ctx)
}

// watchdog pings systemd each time a bus call and a state write have come back, with success or an error: only a hang
// kills the daemon. What is owed is carried on at the start, and when a host in trouble is well again.
func (h *host) watchdog(ctx context.Context) {
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
		well = err == nil
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
