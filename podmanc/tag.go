package podmanc

import (
	"context"
	"errors"
	"fmt"
	"os"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/manifest"
	"go.podman.io/image/v5/pkg/cli/environment"
	"go.podman.io/image/v5/types"
)

// Resolve asks the registry what a tag of a repository stands for now: the digest of its manifest or index, computed from
// the bytes. Mirrors, insecure registries and logins are those that a pull by Podman as this user would use. The error is
// a *PullError.
func (c *Client) Resolve(ctx context.Context, repository, tag string) (digest string, err error) {
	ref := repository + ":" + tag
	repo, err := reference.ParseNormalizedNamed(repository)
	if err != nil || repo.String() != repository || !reference.IsNameOnly(repo) {
		return "", fmt.Errorf("%q is not a full repository", repository)
	}
	tagged, err := reference.WithTag(repo, tag)
	if err != nil {
		return "", fmt.Errorf("%q is not a tag", tag)
	}
	_, secrets, err := credentials(repo)
	if err != nil {
		return "", c.pullError(ctx, ref, err, secrets)
	}
	data, err := rawManifest(ctx, tagged)
	if err != nil {
		return "", c.pullError(ctx, ref, err, secrets)
	}
	d, err := manifest.Digest(data)
	if err != nil {
		return "", c.pullError(ctx, ref, err, secrets)
	}
	return d.String(), nil
}

func rawManifest(ctx context.Context, tagged reference.NamedTagged) ([]byte, error) {
	ref, err := docker.NewReference(tagged)
	if err != nil {
		return nil, err
	}
	sys, err := systemContext()
	if err != nil {
		return nil, err
	}
	src, err := ref.NewImageSource(ctx, sys)
	if err != nil {
		return nil, err
	}
	data, _, err := src.GetManifest(ctx, nil)
	return data, errors.Join(err, src.Close())
}

// systemContext is what Podman as this user knows of registries and logins.
func systemContext() (*types.SystemContext, error) {
	sys := &types.SystemContext{AuthFilePath: os.Getenv("REGISTRY_AUTH_FILE")}
	return sys, environment.UpdateRegistriesConf(sys) // $CONTAINERS_REGISTRIES_CONF
}
