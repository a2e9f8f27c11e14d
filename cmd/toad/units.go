package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toad/internal/atomicfile"
	"toad/quadlet"
	"toad/unitgen"
)

// unitFiles are toad's units under their paths. They lie in the data folder: systemctl mask cannot hide a unit whose
// file lies in the configuration folder.
func (h *host) unitFiles() ([]unitgen.File, error) {
	dir, err := unitDir()
	if err != nil {
		return nil, err
	}
	files := unitgen.Installed(h.rollout.Program, h.watchedFolders()...)
	for i := range files {
		files[i].Name = pathOf(dir, files[i].Name)
	}
	return files, nil
}

// pathOf is where a file of toad's lies; a Quadlet lies with the others.
func pathOf(dir, name string) string {
	if name == unitgen.ContainerFile {
		dir = filepath.Join(configHome(), "containers", "systemd")
	}
	return filepath.Join(dir, name)
}

// watchedFolders are those in which others can change what toad relies on.
func (h *host) watchedFolders() []string {
	units, doors := h.enrolledUnits()
	folders := h.rollout.Quadlet.Pins().Folders(units...)
	if doors {
		folders = append(folders, h.rollout.DoorLinks())
	}
	return folders
}

func unitDir() (string, error) {
	data, err := dataHome()
	return filepath.Join(data, "systemd", "user"), err
}

// dataHome is the user's folder for data, wherever toad's own state lies.
func dataHome() (string, error) {
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return data, nil
	}
	home := os.Getenv("HOME")
	if !filepath.IsAbs(home) {
		return "", configError{errors.New("HOME is not set")}
	}
	return filepath.Join(home, ".local", "share"), nil
}

// enrolledUnits are the units of all services, and whether any of them has a link in the live folder.
func (h *host) enrolledUnits() (units []string, doors bool) {
	if !exists(h.enrolled.path) && !exists(h.enrolled.last) && !exists(h.enrolled.folder) {
		return nil, false // nothing is enrolled yet, which is no fault
	}
	for _, name := range h.enrolled.Names() {
		if e, err := h.enrolled.Enrollment(name); err == nil {
			units = append(units, e.Units...)
			doors = doors || e.Door != nil || e.Binary()
		}
	}
	return units, doors
}

func sameText(f unitgen.File) bool {
	have, err := os.ReadFile(f.Name)
	return err == nil && bytes.Equal(have, []byte(f.Text))
}

func writeUnit(f unitgen.File) error {
	if err := atomicfile.MkdirAll(filepath.Dir(f.Name), 0o755); err != nil {
		return err
	}
	return atomicfile.Write(f.Name, []byte(f.Text), 0o644)
}

// look is what the fence and the tick do: the pins are held against the records, and the fence against the enrollment.
//
// systemd does not see what changes while the unit runs that a path unit has started. So it is looked again until nothing
// has changed since the look began; a second unit then asks for what changed after that (unitgen.FenceAgain).
func (h *host) look(ctx context.Context) error {
	for try := 1; ; try++ {
		began, before := time.Now(), h.watched()
		err := errors.Join(h.rollout.Look(ctx), h.followEnrollment(ctx), h.keepContainer(ctx))
		settled := h.watched() == before
		if settled && err == nil {
			return h.looked(began)
		}
		if settled || try == maxLooks || ctx.Err() != nil {
			return err
		}
	}
}

// looked leaves the time at which a look began that has seen all. The margin is the grain of a file's time.
func (h *host) looked(began time.Time) error {
	const grain = 10 * time.Millisecond
	dir := filepath.Join(h.rollout.Runtime, "toad")
	if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	stamp := filepath.Join(dir, unitgen.Looked)
	f, err := os.OpenFile(stamp, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	began = began.Add(-grain)
	return errors.Join(f.Close(), os.Chtimes(stamp, began, began))
}

// maxLooks ends the looks at folders that somebody changes all the time; the next change, or the tick, begins anew.
const maxLooks = 10

// watched names the state of all that the fence watches: every file by its name, size and time.
func (h *host) watched() string {
	var state strings.Builder
	for _, path := range append(h.watchedFolders(), h.enrolled.path, h.enrolled.folder) {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		fmt.Fprintln(&state, path, info.Size(), info.ModTime().UnixNano())
		files, _ := os.ReadDir(path) // an enrollment is no folder
		for _, f := range files {
			if info, err := f.Info(); err == nil && !info.IsDir() {
				fmt.Fprintln(&state, f.Name(), info.Size(), info.ModTime().UnixNano())
			}
		}
	}
	return state.String()
}

// followEnrollment lets the fence watch the folders of the units that are enrolled now.
func (h *host) followEnrollment(ctx context.Context) error {
	files, err := h.unitFiles()
	if err != nil {
		return err
	}
	written := false
	for _, f := range files {
		switch name := filepath.Base(f.Name); {
		case name != unitgen.FencePath && name != unitgen.FenceAgain, sameText(f):
			continue
		case name == unitgen.FencePath && !exists(f.Name):
			return nil // toad was uninstalled
		}
		if err := writeUnit(f); err != nil {
			return err
		}
		written = true
	}
	if !written {
		return h.watchAgain(ctx)
	}
	if err := h.rollout.Reload(ctx); err != nil {
		return err
	}
	if err := h.bus.Restart(ctx, unitgen.FencePath); err != nil {
		return err
	}
	h.log.Info("the fence watches the units that are enrolled now")
	return nil
}

// keepContainer puts the Quadlet of toad's own container back: what copies the operator's folder over does not know it.
func (h *host) keepContainer(ctx context.Context) error {
	if h.rollout.Program.Container == nil || exists(pathOf("", unitgen.ContainerFile)) {
		return nil
	}
	files, err := h.unitFiles()
	if err != nil {
		return err
	}
	own := slices.IndexFunc(files, func(f unitgen.File) bool { return filepath.Base(f.Name) == unitgen.ContainerFile })
	installed := slices.ContainsFunc(files, func(f unitgen.File) bool { return filepath.Base(f.Name) == unitgen.FencePath && exists(f.Name) })
	if own < 0 || !installed {
		return nil
	}
	if err := writeUnit(files[own]); err != nil {
		return err
	}
	if err := h.rollout.Reload(ctx); err != nil {
		return err
	}
	h.log.Warn(files[own].Name + " was taken away by others, and is put back; to keep it out of their way: docs/host.md")
	for _, unit := range h.startedUnits() {
		// A socket that was asked while it had no service has failed.
		if s, err := h.bus.State(ctx, unit); err != nil || s.ActiveState != "failed" {
			continue
		}
		if err := h.bus.Restart(ctx, unit); err != nil {
			return err
		}
	}
	return nil
}

// watchAgain starts the watch where it has failed, as it does where the user has no inotify instance left.
func (h *host) watchAgain(ctx context.Context) error {
	s, err := h.bus.State(ctx, unitgen.FencePath)
	if err != nil || s.ActiveState != "failed" {
		return err
	}
	const mend = "if it keeps failing with \"Too many open files\": raise fs.inotify.max_user_instances, which all containers of this user share"
	if err := h.bus.Restart(ctx, unitgen.FencePath); err != nil {
		return fmt.Errorf("start the watch over the pins again, which has failed: %w; %s", err, mend)
	}
	h.log.Warn("the watch over the pins had failed, and is started again; " + mend)
	return nil
}

// uninstallUnits takes away what setup installed. Services run on, and what they run is left pinned.
func uninstallUnits(ctx context.Context, g *globals, dry bool) error {
	h, err := wire(ctx, g)
	if err != nil {
		return err
	}
	defer h.close()
	if err := h.understood(); err != nil {
		return err
	}
	names, err := h.records.Names()
	if err != nil {
		return err
	}
	for _, n := range names {
		svc, err := h.records.Service(n)
		if op := svc.Active(); err == nil && op != nil {
			return hint(exitError{exitRefused, fmt.Errorf("%s is in %s, and nothing would hold its deadline", op.ID, op.Phase)},
				"wait for it, or give it up with: toad rollback %s", n)
		}
	}
	files, err := h.unitFiles()
	if err != nil {
		return err
	}
	runtimeDir, err := g.runtimeDir()
	if err != nil {
		return err
	}
	if !dry {
		argv := append([]string{"disable", "--now"}, h.startedUnits()...)
		if len(h.rollout.Program.Listen) > 0 {
			argv = append(argv, unitgen.TCPSocket)
		}
		if h.rollout.Program.Agent {
			argv = append(argv, unitgen.AgentTimer)
		}
		// A unit that is not there any more is no reason to leave the others.
		if err := systemctl(ctx, runtimeDir, append(argv, quadlet.ReconcileUnit)...); err != nil {
			h.log.Warn("disable", "err", err)
		}
		if err := systemctl(ctx, runtimeDir, append([]string{"stop"}, h.running()...)...); err != nil {
			h.log.Warn("stop", "err", err)
		}
	}
	// Without the fence's own nothing is put back.
	slices.SortStableFunc(files, func(a, b unitgen.File) int { return cmp.Compare(watches(b), watches(a)) })
	for _, f := range files {
		if _, err := os.Stat(f.Name); err != nil {
			continue
		}
		fmt.Fprintf(g.Stdout, "remove %s\n", f.Name)
		if dry {
			continue
		}
		if err := atomicfile.Remove(f.Name); err != nil {
			return err
		}
	}
	if !dry {
		if err := h.rollout.Reload(ctx); err != nil {
			return err
		}
	}
	return h.leaves(g, names)
}

func watches(f unitgen.File) int {
	if filepath.Base(f.Name) == unitgen.FencePath {
		return 1
	}
	return 0
}

// leaves says what an uninstalled toad leaves behind.
func (h *host) leaves(g *globals, names []string) error {
	fmt.Fprintf(g.Stdout, "left: the state folder %s, with this binary in libexec\n", h.records.Dir())
	pins := h.rollout.Quadlet.Pins()
	units, err := pins.Units()
	if err != nil {
		return err
	}
	for _, u := range units {
		fmt.Fprintf(g.Stdout, "left: %s, so %s goes on with its release\n", pins.Path(u), u)
	}
	if len(units) > 0 {
		for _, n := range names {
			fmt.Fprintf(g.Stdout, "to give its units back: toad unpin %s\n", n)
		}
	}
	return nil
}
