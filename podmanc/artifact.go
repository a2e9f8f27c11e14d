package podmanc

import (
	"context"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// ArtifactFile is the one file of an artifact. Its bytes can be read once where it is fetched, and are held against Digest.
type ArtifactFile struct {
	io.Reader
	Digest string // sha256:…
	Size   int64
}

// Artifact fetches an OCI artifact of a single file, as oras makes it, and hands its manifest and its file on. The error is
// a *PullError, or what take came to.
func (c *Client) Artifact(ctx context.Context, ref string, limit int64, take func(manifest []byte, file ArtifactFile) error) error {
	var taken error
	err := c.beside(ctx, ref, func(subject name.Digest, opts []remote.Option) error {
		manifest, layer, file, err := only(ref, subject, opts)
		if err != nil {
			return err
		}
		if file.Size > limit {
			return fmt.Errorf("the file of %s has %d MiB, and %d MiB is the most", ref, file.Size>>20, limit>>20)
		}
		data, err := layer.Compressed()
		if err != nil {
			return err
		}
		defer func() { _ = data.Close() }()
		file.Reader = data
		taken = between("pull", func() error { return take(manifest, file) })
		return nil
	})
	if err != nil {
		return err
	}
	return taken
}

// PublishedFile tells of the one file of an artifact without fetching it. The error is a *PullError.
func (c *Client) PublishedFile(ctx context.Context, ref string) (file ArtifactFile, err error) {
	err = c.beside(ctx, ref, func(subject name.Digest, opts []remote.Option) error {
		_, _, file, err = only(ref, subject, opts)
		return err
	})
	return file, err
}

// only is the one file of an artifact.
func only(ref string, subject name.Digest, opts []remote.Option) (manifest []byte, layer v1.Layer, file ArtifactFile, err error) {
	desc, err := remote.Get(subject, opts...)
	if err != nil {
		return nil, nil, file, err
	}
	if desc.MediaType.IsIndex() {
		return nil, nil, file, fmt.Errorf("%s is an index; deploy the digest of this platform's artifact", ref)
	}
	img, err := desc.Image()
	if err != nil {
		return nil, nil, file, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, nil, file, err
	}
	if len(layers) != 1 {
		return nil, nil, file, fmt.Errorf("%s has %d files, and a release is one: push it with oras push REPOSITORY:TAG FILE", ref, len(layers))
	}
	digest, err := layers[0].Digest()
	if err != nil {
		return nil, nil, file, err
	}
	size, err := layers[0].Size()
	return desc.Manifest, layers[0], ArtifactFile{Digest: digest.String(), Size: size}, err
}
