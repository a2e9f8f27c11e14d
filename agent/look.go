package agent

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"toad/agent/protocol"
)

// look fetches a bundle, if it is not staged, and refuses what can be refused without a lease.
func (a *Agent) look(ctx context.Context, sha string, answer protocol.Answer) (*Bundle, *Plan, error) {
	b, err := a.Store.staged(sha)
	if errors.Is(err, fs.ErrNotExist) {
		if err := a.roomy(); err != nil {
			return nil, nil, err
		}
		if b, err = a.fetch(ctx, sha); err != nil {
			return nil, nil, err
		}
		if err := a.Store.stage(b); err != nil {
			return nil, nil, err
		}
	} else if err != nil {
		return nil, nil, err
	}
	m := b.Manifest
	if m.EnvID != a.Config.EnvID {
		return nil, nil, refuse(CodeEnvMismatch, ManifestName, "is for %s, and this box is of %s", m.EnvID, a.Config.EnvID)
	}
	in := a.st.InForce
	if in != nil && in.Bundle != sha && m.Created.Before(in.Created) && !answer.AllowRollback {
		return nil, nil, refuse(CodeDowngrade, ManifestName, "was created at %s, before the bundle in force, of %s; to go back, have the control plane allow it",
			m.Created.Format(time.RFC3339), in.Created.Format(time.RFC3339))
	}
	had, err := a.Store.plan(in)
	if err != nil {
		return nil, nil, err
	}
	variables := answer.Variables
	if variables == nil && in != nil && in.Bundle == sha {
		variables = had.Variables
	}
	variables = b.values(variables, a.Config.Box)
	if err := b.resolved(variables); err != nil {
		return nil, nil, err
	}
	known := had
	if f := a.st.Failed; f != nil && f.Bundle == sha && f.Plan != "" {
		if known, err = a.Store.plan(&Stand{Bundle: sha, Plan: f.Plan}); err != nil {
			return nil, nil, err
		}
	}
	versions, err := a.versions(ctx, b, known)
	if err != nil {
		return nil, nil, err
	}
	p, err := b.render(variables, func(name string) string { return versions[name] }, a.Config.Mounts)
	if err != nil {
		return nil, nil, err
	}
	if in == nil || in.Bundle != sha {
		if err := a.roomy(); err != nil {
			return nil, nil, err
		}
		if err := a.taken(ctx, p); err != nil {
			return nil, nil, err
		}
	}
	return b, p, nil
}

func (a *Agent) roomy() error {
	free, err := a.Ground.Free()
	if err == nil && free < room {
		err = refuse(CodeDisk, "", "%d MiB are free, a bundle wants %d MiB; free some space", free>>20, room>>20)
	}
	return err
}

func (a *Agent) fetch(ctx context.Context, sha string) (*Bundle, error) {
	body, err := a.Control.Bundle(ctx, sha)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }()
	return Read(body, sha)
}

// taken refuses what the operator has himself.
func (a *Agent) taken(ctx context.Context, p *Plan) error {
	var files []string
	for _, s := range p.Services {
		files = append(files, s.Enrollment.Units...)
	}
	for name := range p.Support {
		files = append(files, name)
	}
	slices.Sort(files)
	found, err := a.Ground.Taken(ctx, p.enrollments(), files)
	if err == nil && len(found) > 0 {
		err = refuse(CodeTaken, "", "%s; rename it in the bundle, or have this box's operator give it up", found[0])
	}
	return err
}

// volumes are the names that the volumes of a plan have in Podman.
func (p *Plan) volumes() (names []string) {
	for file, text := range p.Support {
		if filepath.Ext(file) != ".volume" {
			continue
		}
		if m := volumeName.FindStringSubmatch(text); m != nil {
			names = append(names, m[1])
		}
	}
	slices.Sort(names)
	return names
}
