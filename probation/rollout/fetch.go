package rollout

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"toad/probation"
)

// A preparation fetches two releases: the candidate, and, if need be, the one that it would go back to.

// pull brings the candidate's image here, if it is not here already, and verifies what it is.
func (r *Rollout) pull(ctx context.Context, op probation.Operation) (probation.Release, Image, error) {
	rel := op.Candidate
	ref := op.Enrollment.Image + "@" + rel.Digest
	if op.Rollback && rel.ImageID != "" {
		if err := r.haveImage(ctx, op.Enrollment, rel.ImageID); err != nil {
			return rel, Image{}, fail(probation.CodeNoWayBack, "the release to go back to is not on this host any more: %w", err)
		}
		if _, err := r.images(op.Enrollment).Image(ctx, ref); rel.Digest == "" || err != nil {
			ref, rel.Digests = rel.ImageID, nil // an archive comes back without its manifest digest
		}
	}
	img, err := r.images(op.Enrollment).Image(ctx, ref)
	if errors.Is(err, ErrNoImage) {
		r.note(op, "info", "pull", "pulling "+ref, nil)
		if err := r.images(op.Enrollment).Pull(ctx, ref, r.progress(op)); err != nil {
			var p *PullError
			if errors.As(err, &p) {
				return rel, Image{}, &failure{p.Code, err}
			}
			return rel, img, err
		}
		img, err = r.images(op.Enrollment).Image(ctx, ref)
		if errors.Is(err, ErrNoImage) {
			return rel, Image{}, fail(probation.CodePullFailed, "the pull of %s ended well, but the image is not here", ref)
		}
	}
	if err != nil {
		return rel, img, err
	}
	rel, err = verified(rel, img, ref)
	return rel, img, err
}

func verified(rel probation.Release, img Image, ref string) (probation.Release, error) {
	if ref != img.ID && !slices.Contains(img.Digests, rel.Digest) {
		return rel, fail(probation.CodePullFailed, "the image that came for %s is known as %s", ref, strings.Join(img.Digests, ", "))
	}
	if img.OS != "linux" || img.Architecture != runtime.GOARCH {
		return rel, fail(probation.CodeWrongPlatform, "the image is for %s/%s, this host is linux/%s; push one for this platform, and deploy its digest",
			img.OS, img.Architecture, runtime.GOARCH)
	}
	rel.ImageID = img.ID
	if ref == img.ID {
		return rel, nil
	}
	rel.Digests = img.Digests
	return rel, nil
}

// progress puts a pull's lines into the operation's log, at most two a second.
func (r *Rollout) progress(op probation.Operation) func(string) {
	var last time.Time
	return func(line string) {
		if now := time.Now(); line != "" && now.Sub(last) > 500*time.Millisecond {
			last = now
			r.note(op, "info", "pull", line, nil)
		}
	}
}

// wayBack proves that the release in force can be put back without a network, before anything is stopped.
func (r *Rollout) wayBack(ctx context.Context, op probation.Operation, rel probation.Release) error {
	kept, err := r.images(op.Enrollment).Retained(rel.ImageID)
	if err != nil {
		return fail(probation.CodeNoWayBack, "the archive of %s, the release in force, cannot be looked at: %w", name(rel), err)
	}
	if kept {
		return nil
	}
	r.note(op, "info", "step", "keeping "+name(rel)+", the release in force", nil)
	err = r.fetchBack(ctx, op, rel)
	if err == nil {
		err = r.images(op.Enrollment).Retain(ctx, rel.ImageID)
	}
	if err != nil && ctx.Err() == nil {
		return fail(probation.CodeNoWayBack, "%s, the release in force, cannot be kept to go back to: %w; to do without it: toad unpin %s", name(rel), err, op.Service)
	}
	return err
}

// fetchBack pulls the release in force once more where somebody has taken both its image and its archive.
func (r *Rollout) fetchBack(ctx context.Context, op probation.Operation, rel probation.Release) error {
	if _, err := r.images(op.Enrollment).Image(ctx, rel.ImageID); !errors.Is(err, ErrNoImage) || rel.Digest == "" {
		return err
	}
	ref := op.Enrollment.Image + "@" + rel.Digest
	r.note(op, "warn", "pull", "the image in force is gone; pulling "+ref, nil)
	if err := r.images(op.Enrollment).Pull(ctx, ref, r.progress(op)); err != nil {
		return err
	}
	img, err := r.images(op.Enrollment).Image(ctx, ref)
	if err == nil && img.ID != rel.ImageID {
		return fmt.Errorf("%s is image %.12s now, and was %.12s", ref, img.ID, rel.ImageID)
	}
	return err
}
