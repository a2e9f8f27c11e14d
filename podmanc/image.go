package podmanc

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/containers/podman/v5/pkg/inspect"
	"go.podman.io/image/v5/docker/reference"
)

// Image is what Podman knows of an image on this host.
//
// An image that came by an index has the digests of both the index and the platform's manifest, and Podman does not
// tell which is which: its Digest is the one that was asked for, or else the one of the first pull. What identifies the
// image is the id, or the whole set. Nor does Podman tell the variant of the architecture.
type Image struct {
	ID           string    // 64 hex digits, without "sha256:"
	Digest       string    // one of Digests; "" after LoadBack
	Digests      []string  // of RepoDigests for any repository, sorted, each once; none after LoadBack
	RepoDigests  []string  // "repo@sha256:…"
	OS           string    // "linux"
	Architecture string    // "amd64"
	Size         int64     // bytes on the host's disk
	Created      time.Time // zero if the image does not say
	Labels       map[string]string
	Entrypoint   []string
	Cmd          []string
	WorkingDir   string
	Path         string // of its environment, for looking a command up
	User         string
	EnvNames     []string // names only, sorted: values may be secrets
	ExposedPorts []string // "8080/tcp", sorted
	Healthcheck  bool     // the image brings a health check of its own

	layers layerDirs
}

var hexID = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Image looks up an image on this host by "repo@sha256:…" or by an id of 64 hex digits. The error is ErrNoImage if there
// is none.
func (c *Client) Image(ctx context.Context, ref string) (Image, error) {
	if !hexID.MatchString(ref) {
		if _, _, err := splitRef(ref); err != nil {
			return Image{}, err
		}
	}
	report, err := get[inspect.ImageData](ctx, c, "/images/%s/json", nil, ref)
	switch {
	case status(err) == http.StatusNotFound:
		return Image{}, fmt.Errorf("%w: %s", ErrNoImage, ref)
	case err != nil:
		return Image{}, fmt.Errorf("inspect image %s: %w", ref, err)
	case !hexID.MatchString(report.ID):
		return Image{}, fmt.Errorf("inspect image %s: podman answers without an image id", ref)
	}
	return imageOf(&report), nil
}

func imageOf(r *inspect.ImageData) Image {
	img := Image{
		ID:           r.ID,
		Digest:       r.Digest.String(),
		RepoDigests:  r.RepoDigests,
		OS:           r.Os,
		Architecture: r.Architecture,
		Size:         r.Size,
		Labels:       r.Labels,
		User:         r.User,
		layers:       layersOf(r.GraphDriver),
		Healthcheck:  r.HealthCheck != nil && len(r.HealthCheck.Test) > 0 && r.HealthCheck.Test[0] != "NONE",
	}
	if r.Created != nil {
		img.Created = *r.Created
	}
	for _, rd := range r.RepoDigests {
		if _, digest, ok := strings.Cut(rd, "@"); ok {
			img.Digests = append(img.Digests, digest)
		}
	}
	slices.Sort(img.Digests)
	img.Digests = slices.Compact(img.Digests)
	if !slices.Contains(img.Digests, img.Digest) {
		img.Digest = "" // of the manifest that a load made up; no registry knows it
	}
	if r.Config == nil {
		return img
	}
	img.Entrypoint, img.Cmd, img.WorkingDir = r.Config.Entrypoint, r.Config.Cmd, r.Config.WorkingDir
	for _, e := range r.Config.Env {
		name, value, _ := strings.Cut(e, "=")
		img.EnvNames = append(img.EnvNames, name)
		if name == "PATH" {
			img.Path = value
		}
	}
	slices.Sort(img.EnvNames)
	for port := range r.Config.ExposedPorts {
		img.ExposedPorts = append(img.ExposedPorts, port)
	}
	slices.Sort(img.ExposedPorts)
	return img
}

// splitRef takes a full reference by digest apart: repository with its registry, "sha256:…". No short names, no tags:
// both mean something else tomorrow.
func splitRef(ref string) (reference.Named, string, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, "", fmt.Errorf("image reference %q: %w", ref, err)
	}
	digested, ok := named.(reference.Canonical)
	_, tagged := named.(reference.Tagged)
	if !ok || tagged || named.String() != ref || digested.Digest().Algorithm() != "sha256" {
		return nil, "", fmt.Errorf("image reference %q is not a full repository@sha256:… or an image id", ref)
	}
	return reference.TrimNamed(named), digested.Digest().String(), nil
}
