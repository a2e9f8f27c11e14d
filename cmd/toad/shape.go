package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toad/internal/atomicfile"
	"toad/unitgen"
)

// The daemon runs as a plain unit, or in a container of its own. Everything that acts on the host is the same in both.

// containerIn is the daemon's container with its root in this state folder.
func containerIn(state string) *unitgen.Container {
	home, config := os.Getenv("HOME"), ""
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		config = dir
	}
	return &unitgen.Container{Rootfs: filepath.Join(state, "rootfs"), Quadlets: filepath.Join(configHome(), "containers"),
		Config: filepath.Join(configHome(), "toad"), Home: home, User: userName(), ConfigHome: config}
}

// installedContainer is nil where toad is not installed in that shape.
func installedContainer(state string) *unitgen.Container {
	if !unitgen.Own(containerText()) {
		return nil
	}
	return containerIn(state)
}

// containerText is what setup wrote of the daemon's container, empty if it wrote nothing. A toad before this one left no copy.
func containerText() string {
	dir, err := unitDir()
	if err != nil {
		return ""
	}
	text, err := os.ReadFile(pathOf(dir, unitgen.ContainerCopy))
	if err != nil {
		text, _ = os.ReadFile(pathOf(dir, unitgen.ContainerFile))
	}
	return string(text)
}

// reshape sets the shape that is asked for, and refuses what its container would not see.
func (h *host) reshape(shape string) error {
	p := &h.rollout.Program
	switch shape {
	case "":
	case "binary":
		p.Container = nil
	case "container":
		p.Container = containerIn(p.State)
	default:
		return usagef("--shape %.40s: want binary or container", shape)
	}
	if p.Container == nil {
		return nil
	}
	file := pathOf("", unitgen.ContainerFile)
	if text, err := os.ReadFile(file); err == nil && !unitgen.Own(string(text)) {
		return hint(configError{fmt.Errorf("%s is not toad's, and the daemon's container needs that name", file)}, "rename it, or stay with --shape binary")
	}
	if within, err := filepath.Rel(p.Container.Config, p.Enrollment); err != nil || strings.HasPrefix(within, "..") {
		return hint(configError{fmt.Errorf("the container does not see the enrollment %s", p.Enrollment)}, "move it to %s", filepath.Join(p.Container.Config, "enrollment.toml"))
	}
	for _, path := range []string{p.State, p.Container.Quadlets, p.Container.Config} {
		if strings.ContainsAny(path, ": \t\"'\\") {
			return configError{fmt.Errorf("%q cannot be mounted into a container; choose a path without colons, quotes and blanks", path)}
		}
	}
	return nil
}

// startedUnits are those that setup starts in this shape.
func (h *host) startedUnits() []string {
	if h.rollout.Program.Container == nil {
		return started
	}
	return append(slices.Clone(started), unitgen.LookSocket)
}

// running are the units that have to take a new build, or new folders to watch, where they run.
func (h *host) running() []string {
	if h.rollout.Program.Container == nil {
		return []string{"toad.service", unitgen.FencePath}
	}
	return []string{"toad.service", unitgen.FencePath, unitgen.LookService}
}

// otherShape are the files of the shape that is not in force.
func (h *host) otherShape() (files []string) {
	dir, err := unitDir()
	if err != nil {
		return nil
	}
	names := []string{unitgen.ContainerFile, unitgen.LookSocket, unitgen.LookService, unitgen.ContainerCopy}
	if h.rollout.Program.Container != nil {
		names = []string{"toad.service"}
	}
	for _, name := range names {
		path := pathOf(dir, name)
		if text, err := os.ReadFile(path); err == nil && unitgen.Own(string(text)) {
			files = append(files, path)
		}
	}
	return files
}

// leaveShape takes away what the other shape has left, and ends its daemon. The sockets stay: the next request starts the
// daemon in its new shape.
func (h *host) leaveShape(ctx context.Context, g *globals, runtimeDir string) error {
	files := h.otherShape()
	if len(files) == 0 {
		return nil
	}
	for _, f := range files {
		if filepath.Base(f) == unitgen.LookSocket {
			if err := systemctl(ctx, runtimeDir, "disable", "--now", unitgen.LookSocket, unitgen.LookService); err != nil {
				h.log.Warn("disable", "err", err)
			}
		}
	}
	if err := systemctl(ctx, runtimeDir, "stop", "toad.service"); err != nil {
		h.log.Warn("stop", "err", err)
	}
	for _, f := range files {
		fmt.Fprintf(g.Stdout, "remove %s\n", f)
		if err := atomicfile.Remove(f); err != nil {
			return err
		}
	}
	return nil
}

// exportBinaries puts the running binary where units start it from, and into the container's root. The folders that the
// container sees must be there.
func (h *host) exportBinaries() error {
	p := h.rollout.Program
	if _, err := exportBinary(p.Exe); err != nil || p.Container == nil {
		return err
	}
	for _, dir := range []string{p.Container.Quadlets, p.Container.Config} {
		if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	_, err := exportBinary(filepath.Join(p.Container.Rootfs, "toad"))
	return err
}

// exportBinary copies the running binary to the place that units start it from, so that an upgrade or removal of the
// installed one does not take it away from a deployment under way. It reports whether another one was there.
func exportBinary(to string) (changed bool, err error) {
	from, err := os.Executable()
	if err != nil {
		return false, fmt.Errorf("find this binary: %w", err)
	}
	if from == to {
		return false, nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return false, fmt.Errorf("read this binary: %w", err)
	}
	if old, err := os.ReadFile(to); err == nil && bytes.Equal(old, data) {
		return false, nil
	}
	if err := atomicfile.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return false, err
	}
	return true, atomicfile.Write(to, data, 0o700)
}

// lendBinary gives the host's units the toad that this container runs: whoever has replaced its root has upgraded toad.
func (h *host) lendBinary(ctx context.Context) {
	changed, err := exportBinary(h.rollout.Program.Exe)
	if changed && err == nil {
		h.log.Info("the units run the build of this container now", "version", version)
		err = h.bus.Stop(ctx, unitgen.LookService) // it would answer as the build before
	}
	if err != nil {
		h.log.Error("lend the units this build", "err", err)
	}
}
