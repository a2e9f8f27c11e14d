package podmanc

import (
	"context"
	"fmt"
	"io"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// ArtifactFile is the one file of an artifact, to be read once. Its bytes are held against Digest.
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
		desc, err := remote.Get(subject, opts...)
		if err != nil {
			return err
		}
		if desc.MediaType.IsIndex() {
			return fmt.Errorf("%s is an index; deploy the digest of this platform's artifact", ref)
		}
		img, err := desc.Image()
		if err != nil {
			return err
		}
		layers, err := img.Layers()
		if err != nil {
			return err
		}
		if len(layers) != 1 {
			return fmt.Errorf("%s has %d files, and a release is one: push it with oras push REPOSITORY:TAG FILE", ref, len(layers))
		}
		file, err := layers[0].Digest()
		if err != nil {
			return err
		}
		size, err := layers[0].Size()
		if err != nil {
			return err
		}
		if size > limit {
			return fmt.Errorf("the file of %s has %d MiB, and %d MiB is the most", ref, size>>20, limit>>20)
		}
		data, err := layers[0].Compressed()
		if err != nil {
			return err
		}
		defer func() { _ = data.Close() }()
		taken = between("pull", func() error {
			return take(desc.Manifest, ArtifactFile{data, file.String(), size})
		})
		return nil
	})
	if err != nil {
		return err
	}
	return taken
}
