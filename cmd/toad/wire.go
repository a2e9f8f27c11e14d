package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"toad/alert"
	"toad/httpd"
	"toad/podmanc"
	"toad/probation"
	"toad/probation/record"
	"toad/probation/rollout"
	"toad/probation/watch"
	"toad/quadlet"
	"toad/releases"
	"toad/unitgen"
	"toad/unitgen/userbus"
)

// host is everything that a command which runs on the host works with. This file alone knows every package.
type host struct {
	records  *record.Store
	bus      *userbus.Bus
	podman   *podmanc.Client
	rollout  *rollout.Rollout
	releases releases.Store
	enrolled *enrolled
	alerts   *alert.Spool
	log      *slog.Logger
}

// wire opens the state folder and the bus. Podman is asked only when something needs it.
func wire(ctx context.Context, g *globals) (*host, error) {
	h, err := wireUp(g)
	if err != nil {
		return nil, err
	}
	if err := h.bus.Ping(ctx); errors.Is(err, userbus.ErrNoBus) {
		return nil, configError{err}
	}
	return h, nil
}

// wireUp is wire for one that can do without the bus for a while.
func wireUp(g *globals) (*host, error) {
	if err := notRoot(); err != nil {
		return nil, err
	}
	state, err := g.stateDir()
	if err != nil {
		return nil, err
	}
	runtimeDir, err := g.runtimeDir()
	if err != nil {
		return nil, err
	}
	records, err := record.Open(state)
	if err != nil {
		return nil, configError{err}
	}
	enrollment, err := g.enrollmentPath()
	if err != nil {
		return nil, err
	}
	h := &host{records: records, bus: userbus.New(), log: logger(g.Stderr)}
	h.enrolled = &enrolled{path: enrollment, last: filepath.Join(state, "enrollment.toml"), folder: filepath.Join(state, "enrollment.d"), log: h.log}
	h.podman = podmanc.New(filepath.Join(runtimeDir, "podman", "podman.sock"))
	installed := installedListening()
	h.releases = releases.In(state)
	h.alerts = alert.New(filepath.Join(state, "alerts"))
	h.rollout = &rollout.Rollout{
		Records: records, Units: h.bus, Jobs: h.bus, Manager: h.bus,
		Images: images{h.podman, filepath.Join(state, "images")},
		Files:  h.files, Runs: runsAs,
		Quadlet: quadletDirs(runtimeDir, state),
		Program: unitgen.Program{Exe: filepath.Join(state, "libexec", "toad"), State: state, Enrollment: enrollment,
			Listen: installed.texts(), Hosts: installed.hosts, Container: installedContainer(state), Agent: exists(agentFolder().ConfigFile())},
		Runtime: runtimeDir, Connections: connections,
		Wake: h.wake, Now: now, Free: freeBytes, Log: h.log, Alert: h.tellEnd, Lines: h.lastLines,
		Identify: h.identify, Unproven: h.unproven, Promoted: h.promoted, Ready: h.ready, Uptime: uptime,
	}
	return h, nil
}

func (h *host) wake() {
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, _ = h.podman.Ping(ctx) // the act is told what is wrong, if it still is
	}()
}

func (h *host) close() { _ = h.bus.Close() }

// onHost does something with a host that is wired for that long.
func onHost(ctx context.Context, g *globals, do func(*host) error) error {
	h, err := wire(ctx, g)
	if err != nil {
		return err
	}
	defer h.close()
	return do(h)
}

// check is the observer of one operation.
func (h *host) check(status func(string)) *watch.Check {
	return &watch.Check{Records: h.records, Units: h.bus, Containers: containers{h.podman}, Runs: runsAs, Now: now,
		Manager: managerID(), Runtime: h.rollout.Runtime, Status: status, Log: h.log, PodmansLines: h.podmansLines, MemoryLimit: memoryLimit, Foreign: foreign}
}

func quadletDirs(runtimeDir, state string) quadlet.Dirs {
	d := quadlet.UserDirs(configHome(), runtimeDir, os.Getuid())
	d.Live = filepath.Join(state, "live")
	return d
}

func configHome() string {
	if dir := os.Getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(os.Getenv("HOME"), ".config")
}

// images lends Podman to the rollout, in the rollout's words.
type images struct {
	podman *podmanc.Client
	store  string
}

func (i images) Pull(ctx context.Context, ref string, progress func(string)) error {
	err := i.podman.Pull(ctx, ref, progress)
	var p *podmanc.PullError
	if !errors.As(err, &p) {
		return lasting(err)
	}
	code := probation.CodePullFailed
	switch {
	case errors.Is(err, podmanc.ErrUnavailable):
		code = probation.CodePullUnavailable
	case errors.Is(err, podmanc.ErrPlatform):
		code = probation.CodeWrongPlatform
	}
	return &rollout.PullError{Code: code, Err: err}
}

func (i images) Image(ctx context.Context, ref string) (rollout.Image, error) {
	m, err := i.podman.Image(ctx, ref)
	if errors.Is(err, podmanc.ErrNoImage) {
		err = fmt.Errorf("%w: %s", rollout.ErrNoImage, ref)
	}
	return rollout.Image{ID: m.ID, Digest: m.Digest, Digests: m.Digests, RepoDigests: m.RepoDigests, OS: m.OS,
		Architecture: m.Architecture, Healthcheck: m.Healthcheck}, lasting(err)
}

// lasting marks what another try would meet again.
func lasting(err error) error {
	if errors.Is(err, podmanc.ErrTooOld) {
		return &rollout.PullError{Code: probation.CodeUnavailable, Err: err}
	}
	return err
}

func (i images) Container(ctx context.Context, id string) (rollout.Container, error) {
	c, err := i.podman.Container(ctx, id)
	return asContainer(c), lasting(err)
}

func (i images) Containers(ctx context.Context, label string) ([]rollout.Container, error) {
	found, err := i.podman.Containers(ctx, label)
	var all []rollout.Container
	for _, c := range found {
		all = append(all, asContainer(c))
	}
	return all, err
}

func asContainer(c podmanc.Container) rollout.Container {
	return rollout.Container{ID: c.ID, Name: c.Name, Unit: c.Unit, ImageID: c.ImageID, Operation: c.Labels[quadlet.OperationLabel], Running: c.Running}
}

func (i images) Retain(ctx context.Context, id string) error {
	return i.podman.Retain(ctx, i.store, id)
}

func (i images) Retained(id string) (bool, error) { return i.podman.Retained(i.store, id) }

func (i images) LoadBack(ctx context.Context, id string) error {
	return i.podman.LoadBack(ctx, i.store, id)
}

func (i images) DropRetained(keep []string) error { return podmanc.DropRetained(i.store, keep) }

// published lends the registries to the API.
type published struct{ podman *podmanc.Client }

func (p published) Resolve(ctx context.Context, repository, tag string) (string, error) {
	digest, err := p.podman.Resolve(ctx, repository, tag)
	code := probation.CodePullFailed
	switch {
	case err == nil:
		return digest, nil
	case errors.Is(err, podmanc.ErrNotFound):
		code = httpd.CodeUnknownTag
	case errors.Is(err, podmanc.ErrUnavailable):
		code = probation.CodePullUnavailable
	}
	return "", &httpd.TagError{Code: code, Err: err}
}

// containers lends Podman to a check, and what the kernel says of the processes of plain units.
type containers struct{ podman pageContainers }

func (c containers) Container(ctx context.Context, id string) (watch.Container, error) {
	if releases.IsProcess(id) {
		r, err := releases.Look(id, unitgen.OperationVar)
		return watch.Container{ImageID: r.File, Operation: r.Operation}, err
	}
	k, err := c.podman.Container(ctx, id)
	return watch.Container{ImageID: k.ImageID, Operation: k.Labels[quadlet.OperationLabel], Health: k.Health}, err
}
