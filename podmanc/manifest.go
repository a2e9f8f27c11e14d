package podmanc

import (
	"context"
	"errors"
	"fmt"

	"github.com/opencontainers/go-digest"
	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/types"
)

// Manifest fetches what a digest of a repository stands for on this platform, and computes from the bytes: digests are
// those of the manifest and, when the digest is an index's, of the index; imageID is the digest of its configuration, 64
// hex digits. The error is a *PullError.
func (c *Client) Manifest(ctx context.Context, ref string) (digests []string, imageID string, err error) {
	repo, d, err := splitRef(ref)
	if err != nil {
		return nil, "", err
	}
	_, secrets, err := credentials(repo)
	if err == nil {
		digests, imageID, err = manifestOf(ctx, repo, digest.Digest(d))
	}
	if err != nil {
		return nil, "", c.pullError(ctx, ref, err, secrets)
	}
	return digests, imageID, nil
}

func manifestOf(ctx context.Context, repo reference.Named, d digest.Digest) (digests []string, imageID string, err error) {
	named, err := reference.WithDigest(repo, d)
	if err != nil {
		return nil, "", err
	}
	ref, err := docker.NewReference(named)
	if err != nil {
		return nil, "", err
	}
	sys, err := systemContext()
	if err != nil {
		return nil, "", err
	}
	src, err := ref.NewImageSource(ctx, sys)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	raw, kind, err := fetched(ctx, src, d)
	if err != nil {
		return nil, "", err
	}
	if manifest.MIMETypeIsMultiImage(kind) {
		list, err := manifest.ListFromBlob(raw, kind)
		if err != nil {
			return nil, "", err
		}
		instance, err := list.ChooseInstance(sys)
		if err != nil {
			return nil, "", err
		}
		digests, d = []string{d.String()}, instance
		if raw, kind, err = fetched(ctx, src, d); err != nil {
			return nil, "", err
		}
	}
	m, err := manifest.FromBlob(raw, kind)
	if err != nil {
		return nil, "", err
	}
	return append([]string{d.String()}, digests...), m.ConfigInfo().Digest.Encoded(), nil
}

// fetched gets a manifest, and believes its digest only when the bytes have it.
func fetched(ctx context.Context, src types.ImageSource, d digest.Digest) ([]byte, string, error) {
	raw, kind, err := image.UnparsedInstance(src, &d).Manifest(ctx)
	if err != nil {
		return nil, "", err
	}
	if have := d.Algorithm().FromBytes(raw); have != d {
		return nil, "", fmt.Errorf("the registry's manifest for %s has the digest %s", d, have)
	}
	return raw, kind, nil
}
