package podmanc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"go.podman.io/image/v5/docker"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/image"
	"go.podman.io/image/v5/pkg/cli/environment"
	"go.podman.io/image/v5/types"
)

// Published asks the registry how the image ref, "repo@sha256:…", would run, without bringing it here: its manifest and
// its configuration are read, no layer is. Size is that of the compressed layers. The error is a *PullError.
func (c *Client) Published(ctx context.Context, ref string) (Image, error) {
	repo, digest, err := splitRef(ref)
	if err != nil {
		return Image{}, err
	}
	_, secrets, err := credentials(repo)
	if err != nil {
		return Image{}, c.pullError(ctx, ref, err, secrets)
	}
	img, err := published(ctx, ref)
	if err != nil {
		return Image{}, c.pullError(ctx, ref, err, secrets)
	}
	img.Digest, img.Digests = digest, []string{digest}
	return img, nil
}

func published(ctx context.Context, ref string) (img Image, err error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return img, err
	}
	source, err := docker.NewReference(named)
	if err != nil {
		return img, err
	}
	sys := &types.SystemContext{AuthFilePath: os.Getenv("REGISTRY_AUTH_FILE")}
	if err := environment.UpdateRegistriesConf(sys); err != nil { // $CONTAINERS_REGISTRIES_CONF
		return img, err
	}
	src, err := source.NewImageSource(ctx, sys)
	if err != nil {
		return img, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	of, err := image.FromUnparsedImage(ctx, sys, image.UnparsedInstance(src, nil))
	if err != nil {
		return img, err
	}
	config, err := of.OCIConfig(ctx)
	if err != nil {
		return img, fmt.Errorf("configuration of the image: %w", err)
	}
	for _, layer := range of.LayerInfos() {
		img.Size += max(0, layer.Size)
	}
	img.OS, img.Architecture, img.Labels = config.OS, config.Architecture, config.Config.Labels
	img.Entrypoint, img.Cmd, img.User = config.Config.Entrypoint, config.Config.Cmd, config.Config.User
	if config.Created != nil {
		img.Created = *config.Created
	}
	for _, e := range config.Config.Env {
		name, _, _ := strings.Cut(e, "=")
		img.EnvNames = append(img.EnvNames, name)
	}
	slices.Sort(img.EnvNames)
	for port := range config.Config.ExposedPorts {
		img.ExposedPorts = append(img.ExposedPorts, port)
	}
	slices.Sort(img.ExposedPorts)
	return img, nil
}
