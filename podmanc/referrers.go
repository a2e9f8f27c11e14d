package podmanc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
)

// maxReferrers bounds how many attachments of an image are read.
const maxReferrers = 32

// Attach stores data beside an image in its registry, as an OCI artifact of this type that refers to it. What is there
// already is not stored again. The error is a *PullError.
func (c *Client) Attach(ctx context.Context, ref, artifactType string, data []byte) error {
	return c.beside(ctx, ref, func(subject name.Digest, opts []remote.Option) error {
		there, err := attached(ctx, subject, artifactType, int64(len(data)), opts)
		if err != nil || slices.ContainsFunc(there, func(d []byte) bool { return bytes.Equal(d, data) }) {
			return err
		}
		desc, err := remote.Head(subject, opts...)
		if err != nil {
			return err
		}
		img, err := artifact(*desc, artifactType, data)
		if err != nil {
			return err
		}
		d, err := img.Digest()
		if err != nil {
			return err
		}
		return between("attach", func() error { return remote.Write(subject.Context().Digest(d.String()), img, opts...) })
	})
}

// Attached reads what is stored beside an image under this type, at most limit bytes each. The error is a *PullError.
func (c *Client) Attached(ctx context.Context, ref, artifactType string, limit int64) (all [][]byte, err error) {
	err = c.beside(ctx, ref, func(subject name.Digest, opts []remote.Option) error {
		all, err = attached(ctx, subject, artifactType, limit, opts)
		return err
	})
	return all, err
}

func artifact(subject v1.Descriptor, artifactType string, data []byte) (v1.Image, error) {
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(artifactType))
	img, err := mutate.AppendLayers(img, static.NewLayer(data, types.MediaType(artifactType)))
	if err != nil {
		return nil, err
	}
	img, ok := mutate.Subject(img, subject).(v1.Image)
	if !ok {
		return nil, fmt.Errorf("an artifact that refers to %s cannot be made", subject.Digest)
	}
	return img, nil
}

func attached(ctx context.Context, subject name.Digest, artifactType string, limit int64, opts []remote.Option) ([][]byte, error) {
	index, err := remote.Referrers(subject, append(opts, remote.WithFilter("artifactType", artifactType))...)
	if err != nil {
		return nil, err
	}
	list, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, d := range list.Manifests {
		if d.ArtifactType != artifactType || len(all) == maxReferrers {
			continue
		}
		data, err := attachment(subject.Context().Digest(d.Digest.String()), limit, opts)
		if err != nil {
			return nil, err
		}
		if data != nil {
			all = append(all, data)
		}
	}
	return all, ctx.Err()
}

// attachment reads the one file of an artifact; nil for one that is not of that form.
func attachment(ref name.Digest, limit int64, opts []remote.Option) ([]byte, error) {
	img, err := remote.Image(ref, opts...)
	if err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil || len(layers) != 1 {
		return nil, err
	}
	if size, err := layers[0].Size(); err != nil || size > limit {
		return nil, err
	}
	r, err := layers[0].Compressed()
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(io.LimitReader(r, limit))
}

// beside does something with an image's registry as a pull by Podman would: the same login, the same registries.conf.
// Mirrors are left out, since nothing is stored in them.
func (c *Client) beside(ctx context.Context, ref string, with func(name.Digest, []remote.Option) error) error {
	repo, _, err := splitRef(ref)
	if err != nil {
		return err
	}
	_, secrets, err := credentials(repo)
	if err != nil {
		return c.pullError(ctx, ref, err, secrets)
	}
	subject, opts, err := remotely(ctx, repo, ref)
	if err == nil {
		err = with(subject, opts)
	}
	if err != nil {
		return c.pullError(ctx, ref, err, secrets)
	}
	return nil
}

func remotely(ctx context.Context, repo reference.Named, ref string) (name.Digest, []remote.Option, error) {
	sys, err := systemContext()
	if err != nil {
		return name.Digest{}, nil, err
	}
	login, err := config.GetCredentialsForRef(sys, repo)
	if err != nil {
		return name.Digest{}, nil, err
	}
	registry, err := sysregistriesv2.FindRegistry(sys, repo.Name())
	if err != nil {
		return name.Digest{}, nil, err
	}
	var how []name.Option
	if registry != nil && registry.Insecure {
		how = append(how, name.Insecure)
	}
	subject, err := name.NewDigest(ref, how...)
	auth := authn.Anonymous
	if login.Username != "" || login.IdentityToken != "" {
		auth = authn.FromConfig(authn.AuthConfig{Username: login.Username, Password: login.Password, IdentityToken: login.IdentityToken})
	}
	return subject, []remote.Option{remote.WithContext(ctx), remote.WithAuth(auth), remote.WithUserAgent("toad")}, err
}
