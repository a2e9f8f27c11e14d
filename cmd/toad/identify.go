package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"toad/internal/atomicfile"
	"toad/podmanc"
	"toad/probation"
	"toad/probation/proof"
)

// maxProgram is how large a program may be, in bytes, to be read for what it is.
const maxProgram = 200 << 20

// identify tells what an image runs, from the bytes of its program or else from its labels. Podman in trouble and a
// full disk are errors; an image that cannot be read is one without an identity.
func (h *host) identify(ctx context.Context, op probation.Operation, imageID string) (string, error) {
	if op.Enrollment.Binary() {
		return programOf(h.releases.Path(imageID, op.Service))
	}
	img, err := h.podman.Image(ctx, imageID)
	if errors.Is(err, podmanc.ErrNoImage) {
		return "", nil // only its archive is left
	}
	if err != nil {
		return "", err
	}
	paths := proof.Config{Entrypoint: img.Entrypoint, Cmd: img.Cmd, Path: img.Path, WorkingDir: img.WorkingDir}.Candidates()
	if len(paths) == 0 {
		return proof.FromLabels(img.Labels), nil
	}
	f, err := h.program(ctx, op, img, paths)
	defer func() { _ = f.Close() }() // there may be none
	switch {
	case errors.Is(err, podmanc.ErrNoPodman), errors.Is(err, syscall.ENOSPC), ctx.Err() != nil:
		return "", err
	case err != nil:
		h.log.Warn("the program of an image cannot be read", "operation", op.ID, "err", err)
	case f != nil:
		if identity := proof.FromBinary(f); identity != "" {
			return identity, nil
		}
	}
	return proof.FromLabels(img.Labels), nil
}

// program opens the first of paths that is a file of the image; nil if there is none. It is read where Podman keeps it, or
// else through a container, which costs a second of CPU time.
func (h *host) program(ctx context.Context, op probation.Operation, img podmanc.Image, paths []string) (*os.File, error) {
	f, err := img.Open(paths, maxProgram)
	if !errors.Is(err, podmanc.ErrNoLayers) {
		return f, err
	}
	f, err = atomicfile.Scratch(h.records.Dir())
	if err != nil {
		return nil, fmt.Errorf("make room to read the program of an image: %w", err)
	}
	found, err := h.podman.CopyOut(ctx, img.ID, op.ID, paths, maxProgram, f)
	if err != nil || found == "" {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// programOf tells what a staged file is; one that is not there is without an identity.
func programOf(path string) (string, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	return proof.FromBinary(f), nil
}
