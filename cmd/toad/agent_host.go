package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"toad/agent"
	"toad/internal/atomicfile"
	"toad/probation"
	"toad/quadlet"
)

// agentFolder is where the agent's configuration stands.
func agentFolder() agent.Folder { return agent.Folder(filepath.Join(configHome(), "toad", "agent")) }

// broughtFolder holds what the agent installs, among the user's Quadlets.
const broughtFolder = "toad"

// agentGround lends the host to the agent. Its deployments are accepted by the rollout as the daemon's are, with the same
// locks and records: the agent needs no daemon.
type agentGround struct{ *host }

// Standing is how a service stands by its record.
func (h agentGround) Standing(service string) (probation.Service, error) {
	return h.records.Service(service)
}

// follow is how often a tick looks whether its operation has ended. Nothing depends on it but the tick.
const followAgent = 300 * time.Millisecond

// Deploy has the rollout accept a request, and follows it to its end.
func (h agentGround) Deploy(ctx context.Context, e probation.Enrollment, req probation.Request) (probation.Operation, error) {
	op, _, err := h.rollout.Accept(ctx, e, req)
	for err == nil && !op.Phase.Terminal() {
		select {
		case <-ctx.Done():
			return op, ctx.Err()
		case <-time.After(followAgent):
			op, err = h.records.Operation(op.ID)
		}
	}
	return op, err
}

// Retire takes units out of service.
func (h agentGround) Retire(ctx context.Context, service string, units []string) error {
	return h.rollout.Retire(ctx, service, units, "toad agent")
}

func (h agentGround) broughtDir() string {
	return filepath.Join(h.rollout.Quadlet.Config, broughtFolder)
}

func (h agentGround) broughtFile() string { return filepath.Join(h.enrolled.folder, "agent.toml") }

// Install writes what is new, then enrolls, then takes away what nothing names any more. All of it may be found half done.
func (h agentGround) Install(ctx context.Context, files map[string]string, services []probation.Enrollment) error {
	dir := h.broughtDir()
	if err := atomicfile.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if had, err := os.ReadFile(path); err == nil && string(had) == text {
			continue
		}
		if err := atomicfile.Write(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := h.bring(services); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if _, named := files[e.Name()]; named || e.IsDir() {
			continue
		}
		if err := atomicfile.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := h.rollout.Reload(ctx); err != nil {
		return err
	}
	return h.followEnrollment(ctx)
}

func (h agentGround) bring(services []probation.Enrollment) error {
	if len(services) == 0 {
		return atomicfile.Remove(h.broughtFile())
	}
	text, err := quadlet.BroughtText(services)
	if err != nil {
		return err
	}
	if had, err := os.ReadFile(h.broughtFile()); err == nil && string(had) == string(text) {
		return nil
	}
	if err := atomicfile.MkdirAll(h.enrolled.folder, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(h.broughtFile(), text, 0o600)
}

// supportName tells a file that was given a name by its text from the name that it had.
var supportName = regexp.MustCompile(`^(.*)-[0-9a-f]{8}\.(volume|network)$`)

// Taken names what the operator has himself: a service or unit in his own enrollment, a Quadlet elsewhere, or a unit that
// systemd has from anywhere else.
func (h agentGround) Taken(ctx context.Context, services []probation.Enrollment, files []string) (taken []string, err error) {
	own, err := quadlet.Load(h.enrolled.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		own = nil // what it said last counts
		if kept := h.enrolled.kept(); kept != nil {
			own = kept
		}
	}
	for _, e := range services {
		if own == nil {
			break
		}
		for _, mine := range own.Services {
			for _, unit := range mine.Units {
				if slices.Contains(e.Units, unit) {
					taken = append(taken, "the operator has enrolled "+unit+" himself, as "+mine.Name)
				}
			}
			if mine.Name == e.Name {
				taken = append(taken, "the operator has enrolled a service "+e.Name+" himself")
			}
		}
	}
	for _, name := range files {
		if m := supportName.FindStringSubmatch(name); m != nil {
			name = m[1] + "." + m[2]
		}
		if src, err := quadlet.Find(h.rollout.Quadlet, name); err == nil && filepath.Base(filepath.Dir(src.Path)) != broughtFolder {
			taken = append(taken, "there is a file "+src.Path)
			continue
		}
		unit := strings.TrimSuffix(name, filepath.Ext(name))
		if ext := filepath.Ext(name); ext != ".container" {
			unit += "-" + ext[1:]
		}
		s, err := h.bus.State(ctx, unit+".service")
		if err != nil {
			return nil, err
		}
		if s.LoadState != "not-found" && filepath.Base(filepath.Dir(s.SourcePath)) != broughtFolder {
			taken = append(taken, "systemd has a unit "+s.Name+" of another file, "+s.FragmentPath)
		}
	}
	return taken, nil
}

// Free is the least that is free where the state, the units and Podman's images lie.
func (h agentGround) Free() (uint64, error) {
	places, err := h.places()
	if err != nil {
		return 0, err
	}
	least := ^uint64(0)
	for _, path := range places {
		free, err := freeBytes(path)
		if err != nil {
			return 0, err
		}
		least = min(least, free)
	}
	return least, nil
}

// places are where a bundle and its images lie. The state may be elsewhere than the user's home, Podman's images are there.
func (h agentGround) places() ([]string, error) {
	data, err := dataHome()
	return []string{h.records.Dir(), h.rollout.Quadlet.Config, filepath.Join(data, "containers")}, err
}
