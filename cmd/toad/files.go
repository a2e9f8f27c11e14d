package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"toad/httpd"
	"toad/podmanc"
	"toad/probation"
	"toad/probation/rollout"
	"toad/quadlet"
	"toad/releases"
	"toad/unitgen"
)

// files lend the staged files of a binary service to the rollout, in the rollout's words.
type files struct {
	store  releases.Store
	podman *podmanc.Client
	e      probation.Enrollment
}

func (h *host) files(e probation.Enrollment) rollout.Files {
	return files{h.releases, h.podman, e}
}

// known is the sha256 of the file that a reference stands for, and all digests that it goes by.
func (f files) known(ref string) (id string, digests []string) {
	_, digest, byDigest := strings.Cut(ref, "@")
	id = strings.TrimPrefix(digest, "sha256:")
	if !byDigest {
		id = ref
	}
	if file, ok := f.store.FileOf(id); ok && byDigest {
		return file, []string{digest, "sha256:" + file}
	}
	return id, []string{"sha256:" + id}
}

func (f files) Image(_ context.Context, ref string) (rollout.Image, error) {
	id, digests := f.known(ref)
	if err := f.store.Check(id, f.e.Name); err != nil {
		if errors.Is(err, releases.ErrNone) {
			err = fmt.Errorf("%w: %w", rollout.ErrNoImage, err)
		}
		return rollout.Image{}, err
	}
	// Nothing is staged that is for another machine.
	return rollout.Image{ID: id, Digest: digests[0], Digests: digests, RepoDigests: []string{f.e.Image + "@" + digests[0]}, OS: "linux", Architecture: runtime.GOARCH}, nil
}

func (f files) Pull(ctx context.Context, ref string, progress func(string)) error {
	if f.e.Image == "" {
		_, digest, _ := strings.Cut(ref, "@")
		return &rollout.PullError{Code: probation.CodePullFailed, Err: fmt.Errorf(
			"no file of %s is staged here, and %s is enrolled without an image to pull it from; hand the file over: toad ship %[2]s FILE", digest, f.e.Name)}
	}
	var wrong *releases.NotAReleaseError
	var pull *podmanc.PullError
	err := f.podman.Artifact(ctx, ref, releases.MaxFile, func(manifest []byte, a podmanc.ArtifactFile) error {
		_, digest, _ := strings.Cut(ref, "@")
		progress(fmt.Sprintf("the file %s, %d MiB", a.Digest, a.Size>>20))
		if err := f.store.Stage(strings.TrimPrefix(a.Digest, "sha256:"), f.e.Name, a); err != nil {
			return err
		}
		return f.store.PutManifest(strings.TrimPrefix(digest, "sha256:"), manifest)
	})
	code := probation.CodePullFailed
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		if wrong.Platform {
			code = probation.CodeWrongPlatform
		}
	case !errors.As(err, &pull):
		return err
	case errors.Is(err, podmanc.ErrUnavailable):
		code = probation.CodePullUnavailable
	}
	return &rollout.PullError{Code: code, Err: err}
}

func (f files) Container(_ context.Context, process string) (rollout.Container, error) {
	r, err := releases.Look(process, unitgen.OperationVar)
	return rollout.Container{ID: process, ImageID: r.File, Operation: r.Operation, Running: true}, err
}

// Containers are none: a process that is not its unit's is nobody's.
func (f files) Containers(context.Context, string) ([]rollout.Container, error) { return nil, nil }

func (f files) Retain(_ context.Context, id string) error { return f.store.Keep(id, f.e.Name) }

// Retained looks at the copy alone: from it a file that has changed comes back.
func (f files) Retained(id string) (bool, error) { return f.store.Kept(id) }

func (f files) LoadBack(_ context.Context, id string) error { return f.store.Mend(id, f.e.Name) }

// fresh is how long a file that nothing names yet is left alone: somebody may be about to deploy it.
const fresh = time.Hour

func (f files) DropRetained(keep []string) error { return f.store.Drop(keep, time.Now().Add(-fresh)) }

func (f files) Adopt(process, id string) error { return f.store.Adopt(process, f.e.Name, id) }
func (f files) Target(id string) string        { return f.store.Target(id, f.e.Name) }
func (f files) At() (string, error)            { return f.store.At(f.e.Name) }
func (f files) Turn(to string) (bool, error)   { return f.store.Turn(f.e.Name, to) }
func (f files) Lay(to string) error            { return f.store.Lay(f.e.Name, to) }

// runsAs names what runs as a unit, of whatever kind: a container by its id, or the main process of a plain unit.
func runsAs(s unitgen.State) string {
	if isPlain(s) {
		return releases.Process(s.MainPID)
	}
	return payload(s.ControlGroup)
}

// fileOf is the sha256 of the file that a process executes.
func fileOf(process string) (string, error) {
	r, err := releases.Look(process, unitgen.OperationVar)
	return r.File, err
}

// isPlain tells a plain unit from one that Podman's generator made.
func isPlain(s unitgen.State) bool { return s.SourcePath == "" && s.FragmentPath != "" }

// staging lends the store of files to the API.
type staging struct{ h *host }

func (s staging) Stage(ctx context.Context, e probation.Enrollment, digest string, size int64, from io.Reader) error {
	bad := func(err error) error { return &httpd.FileError{Err: err} }
	if !e.Binary() || !slices.ContainsFunc(e.Units, quadlet.Plain) {
		return bad(fmt.Errorf("%s runs containers: push an image, and deploy its digest; only a service of kind = \"binary\" is shipped files", e.Name))
	}
	free, err := freeBytes(s.h.records.Dir())
	if err != nil {
		return err
	}
	// As much again for the copy that is kept to go back to.
	if want := uint64(2*size) + leftFree; free < want {
		return fmt.Errorf("only %d MiB are free where toad keeps its state, and %d MiB are wanted for this file and a copy to go back to; make room there, and ship it again", free>>20, want>>20)
	}
	err = s.h.releases.Stage(strings.TrimPrefix(digest, "sha256:"), e.Name, from)
	var wrong *releases.NotAReleaseError
	if errors.As(err, &wrong) {
		return bad(wrong)
	}
	return err
}

// leftFree is what a shipped file must leave free, in bytes.
const leftFree = 64 << 20
