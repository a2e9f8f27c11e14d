package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/podmanc"
	"toad/quadlet"
	"toad/unitgen"
)

func setupCmd(g *globals) *ffcli.Command {
	fs := flag.NewFlagSet("toad setup", flag.ContinueOnError)
	dry := fs.Bool("dry-run", false, "print what would be written, and write nothing")
	var l listening
	shape := fs.String("shape", "", "run the daemon in the `SHAPE` binary, a plain unit, or container, one of its own; default: as it is")
	fs.Func("listen", "`ADDRESS` to answer on over TCP, e.g. 127.0.0.1:8686, may be given more than once; none: no longer", l.addOrNone)
	fs.Func("host", "`NAME` by which it is asked there, beside localhost; may be given more than once", l.addHost)
	uninstall := fs.Bool("uninstall", false, "remove toad's units; services run on, and keep their pins")
	return &ffcli.Command{
		Name: "setup", ShortUsage: "toad setup [--listen ADDRESS]… [--host NAME]… [--shape SHAPE] [--dry-run | --uninstall]", FlagSet: fs,
		ShortHelp: "install and start toad's user units",
		LongHelp: "Copies this binary to the state folder, installs toad's units for this user and starts its socket.\n" +
			"Enables podman.socket, too, where Podman does not answer. Safe to run again, after an upgrade for example.\n\n" +
			"With --listen the API is answered over TCP too, to those who have a token (toad token issue). Without it, what\n" +
			"was said the last time stays.\n\n" +
			"With --shape container the daemon runs in a container that holds nothing but the binary and sees four folders;\n" +
			"what acts on the host is started by systemd as before. --shape binary goes back.\n\n" +
			"With --uninstall it takes the units away again. It is refused while a deployment is under way. Services run\n" +
			"on with their pins, and the records stay.\n\nExample: toad setup",
		Exec: func(ctx context.Context, args []string) error {
			if err := noArgs(args); err != nil {
				return err
			}
			if *uninstall {
				return uninstallUnits(ctx, g, *dry)
			}
			return setup(ctx, g, l, *shape, *dry)
		},
	}
}

// started are the units that setup enables; toad-reconcile is only enabled, the manager alone starts it.
var started = []string{"toad.socket", unitgen.WebSocket, "toad-tick.timer", unitgen.FencePath}

func setup(ctx context.Context, g *globals, l listening, shape string, dry bool) error {
	h, err := wire(ctx, g)
	if err != nil {
		return err
	}
	defer h.close()
	if err := h.understood(); err != nil {
		return err
	}
	was := h.rollout.Program
	if len(l.addresses) > 0 || l.none {
		h.rollout.Program.Listen = l.texts()
	}
	if len(l.hosts) > 0 || l.none {
		h.rollout.Program.Hosts = l.hosts
	}
	if len(l.hosts) > 0 && len(h.rollout.Program.Listen) == 0 {
		return usagef("--host is a name for an address: give --listen too")
	}
	if err := h.reshape(shape); err != nil {
		return err
	}
	if err := h.supported(ctx); err != nil && (dry || h.openPodman(ctx, g, err) != nil) {
		return err
	}
	files, err := h.unitFiles()
	if err != nil {
		return err
	}
	if h.inPlace(ctx) {
		fmt.Fprintf(g.Stdout, "nothing to do: toad is set up, its units run %s\n", version)
		return nil
	}
	for _, f := range files {
		if sameText(f) {
			continue
		}
		fmt.Fprintf(g.Stdout, "write %s\n", f.Name)
		if dry {
			continue
		}
		if err := writeUnit(f); err != nil {
			return err
		}
	}
	for _, w := range l.warnings() {
		fmt.Fprintln(g.Stdout, "warning:", w)
	}
	if dry {
		fmt.Fprintf(g.Stdout, "copy this binary to %s\nenable toad-reconcile.service\nstart %s\n",
			h.rollout.Program.Exe, strings.Join(h.startedUnits(), " "))
		return nil
	}
	if err := h.exportBinaries(); err != nil {
		return err
	}
	runtimeDir, err := g.runtimeDir()
	if err != nil {
		return err
	}
	if err := h.leaveShape(ctx, g, runtimeDir); err != nil {
		return err
	}
	if err := h.moveSockets(ctx, runtimeDir, was); err != nil {
		return err
	}
	for _, argv := range [][]string{
		{"daemon-reload"},
		{"enable", quadlet.ReconcileUnit},
		h.closedSockets(ctx),
		append([]string{"enable", "--now"}, h.startedUnits()...),
		append([]string{"try-restart"}, h.running()...), // the fence may have other folders to watch now
		{"start", "--no-block", "toad-fence.service"},
	} {
		if len(argv) == 0 {
			continue
		}
		if err := systemctl(ctx, runtimeDir, argv...); err != nil {
			return err
		}
	}
	if _, err := os.Stat(h.enrolled.path); err == nil {
		if err := h.enrolled.Invalid(); err != nil {
			for _, l := range lines(err.Error()) {
				fmt.Fprintf(g.Stdout, "enrollment: %s\n", clean(l))
			}
		}
	}
	fmt.Fprintln(g.Stdout, "toad is set up: requests arrive at toad.socket; next, enroll a service and run: toad doctor")
	return nil
}

// inPlace reports whether all is as setup would leave it.
func (h *host) inPlace(ctx context.Context) bool {
	var f findings
	h.checkUnits(ctx, &f)
	h.checkBinary(&f)
	return f.worst() == levelOK
}

// supported refuses a host on which no deployment could work, before anything is written.
func (h *host) supported(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := h.bus.Ping(ctx); err != nil {
		return configError{err}
	}
	_, err := h.podman.Ping(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return hint(configError{errors.New("no answer from Podman within a minute")}, "systemctl --user status podman.service, then toad setup again")
	case err != nil:
		return configError{err}
	}
	return nil
}

// openPodman enables the socket of the user's Podman where that is all that is wrong: not every distribution does.
func (h *host) openPodman(ctx context.Context, g *globals, wrong error) error {
	if !errors.Is(wrong, podmanc.ErrNoPodman) {
		return wrong
	}
	runtimeDir, err := g.runtimeDir()
	if err != nil {
		return err
	}
	if err := systemctl(ctx, runtimeDir, "enable", "--now", "podman.socket"); err != nil {
		return err
	}
	fmt.Fprintln(g.Stdout, "enable podman.socket")
	return h.supported(ctx)
}

// systemctl is given the runtime folder: a login by su or sudo does not set it.
func systemctl(ctx context.Context, runtimeDir string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemctl", append([]string{"--user"}, args...)...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+runtimeDir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("systemctl --user %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
