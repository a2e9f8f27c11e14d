package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const repository = "app"

// built is fixed, so that the same binary gives the same digests.
var built = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// digests is what the tests know about a tag.
type digests struct {
	Digest   string `json:"digest"`   // what the tag resolves to, perhaps an index
	Manifest string `json:"manifest"` // of the platform (linux/amd64, or the only one there is)
	ImageID  string `json:"image_id"`
}

// recipe is one image; the zero value is a good OCI image for linux/amd64 whose version is its tag.
type recipe struct {
	behaviour   string // the entrypoint's argument
	arch        string
	docker      bool // schema 2 media types
	healthcheck bool
	other       bool // another program
}

var recipes = map[string]recipe{
	"good1": {}, "good2": {},
	"v1": {}, "v2": {}, "v3": {}, "v4": {}, "v5": {}, "v6": {}, "v7": {}, "v8": {}, "v9": {},
	"crash":       {behaviour: "crash"},
	"leak":        {behaviour: "leak"},
	"late-crash":  {behaviour: "late-crash"},
	"late-exit0":  {behaviour: "late-exit0"},
	"never":       {behaviour: "never"},
	"slow":        {behaviour: "slow"},
	"slow5":       {behaviour: "slow5"},
	"flap":        {behaviour: "flap"},
	"deaf":        {behaviour: "deaf"},
	"t143":        {behaviour: "t143"},
	"silent":      {behaviour: "silent"},
	"other":       {other: true},
	"arm64-plain": {arch: "arm64"},
	"docker":      {docker: true},
	"healthcheck": {docker: true, healthcheck: true},
}

// indexes have one image for each architecture named.
var indexes = map[string][]string{
	"arm64": {"arm64"},
	"multi": {"amd64", "arm64"},
}

type binaries struct{ sample, other v1.Layer }

func pushAll(host, sample, other string) (map[string]digests, error) {
	s, err := binary(sample)
	if err != nil {
		return nil, err
	}
	o, err := binary(other)
	if err != nil {
		return nil, err
	}
	bins, out := binaries{s, o}, map[string]digests{}
	for tag, r := range recipes {
		img, err := build(r, tag, bins)
		if err != nil {
			return nil, fmt.Errorf("build %s: %w", tag, err)
		}
		if out[tag], err = push(host, tag, img, ""); err != nil {
			return nil, err
		}
	}
	for tag, archs := range indexes {
		if out[tag], err = pushIndex(host, tag, archs, bins); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func pushOne(host, sample, tag, behaviour, version, auth string) (digests, error) {
	if tag == "" {
		return digests{}, errors.New("--tag is needed")
	}
	s, err := binary(sample)
	if err != nil {
		return digests{}, err
	}
	img, err := build(recipe{behaviour: behaviour}, version, binaries{sample: s})
	if err != nil {
		return digests{}, err
	}
	return push(host, tag, img, auth)
}

func build(r recipe, version string, bins binaries) (v1.Image, error) {
	program := bins.sample
	if r.other {
		program = bins.other
	}
	if r.behaviour == "" {
		r.behaviour = "good"
	}
	if r.arch == "" {
		r.arch = "amd64"
	}
	stamp, err := layer("version", []byte(version+"\n"), 0o644)
	if err != nil {
		return nil, err
	}
	config := &v1.ConfigFile{
		Architecture: r.arch,
		OS:           "linux",
		Created:      v1.Time{Time: built},
		RootFS:       v1.RootFS{Type: "layers"},
		Config: v1.Config{
			Entrypoint:   []string{"/app"},
			Cmd:          []string{r.behaviour},
			ExposedPorts: map[string]struct{}{"8080/tcp": {}},
			Labels:       map[string]string{"org.opencontainers.image.version": version},
		},
	}
	if r.healthcheck {
		config.Config.Healthcheck = &v1.HealthConfig{Test: []string{"CMD", "/app", "health"}, Interval: 2 * time.Second}
	}

	img, layerType := empty.Image, types.DockerLayer
	if !r.docker {
		img = mutate.ConfigMediaType(mutate.MediaType(img, types.OCIManifestSchema1), types.OCIConfigJSON)
		layerType = types.OCILayer
	}
	img, err = mutate.ConfigFile(img, config)
	if err != nil {
		return nil, err
	}
	history := v1.History{Created: v1.Time{Time: built}, CreatedBy: "toad tests"}
	return mutate.Append(img,
		mutate.Addendum{Layer: program, MediaType: layerType, History: history},
		mutate.Addendum{Layer: stamp, MediaType: layerType, History: history})
}

func push(host, tag string, img v1.Image, auth string) (digests, error) {
	ref, err := name.NewTag(host+"/"+repository+":"+tag, name.Insecure)
	if err != nil {
		return digests{}, err
	}
	opts := []remote.Option{}
	if user, password, ok := strings.Cut(auth, ":"); ok {
		opts = append(opts, remote.WithAuth(&authn.Basic{Username: user, Password: password}))
	}
	if err := remote.Write(ref, img, opts...); err != nil {
		return digests{}, fmt.Errorf("push %s: %w", tag, err)
	}
	digest, err := img.Digest()
	if err != nil {
		return digests{}, err
	}
	id, err := img.ConfigName()
	return digests{digest.String(), digest.String(), id.String()}, err
}

func pushIndex(host, tag string, archs []string, bins binaries) (digests, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var out digests
	for i, arch := range archs {
		img, err := build(recipe{arch: arch}, tag, bins)
		if err != nil {
			return out, fmt.Errorf("build %s: %w", tag, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}},
		})
		if i == 0 {
			digest, err := img.Digest()
			if err != nil {
				return out, err
			}
			id, err := img.ConfigName()
			if err != nil {
				return out, err
			}
			out.Manifest, out.ImageID = digest.String(), id.String()
		}
	}
	ref, err := name.NewTag(host+"/"+repository+":"+tag, name.Insecure)
	if err != nil {
		return out, err
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		return out, fmt.Errorf("push %s: %w", tag, err)
	}
	digest, err := index.Digest()
	out.Digest = digest.String()
	return out, err
}

// pushIndexOf makes an index of one image that has a tag already.
func pushIndexOf(host, tag, of string) (digests, error) {
	ref, err := name.NewTag(host+"/"+repository+":"+of, name.Insecure)
	if err != nil {
		return digests{}, err
	}
	img, err := remote.Image(ref)
	if err != nil {
		return digests{}, fmt.Errorf("fetch %s: %w", of, err)
	}
	index := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), mutate.IndexAddendum{
		Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	if err := remote.WriteIndex(ref.Context().Tag(tag), index); err != nil {
		return digests{}, fmt.Errorf("push %s: %w", tag, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return digests{}, err
	}
	manifest, err := img.Digest()
	if err != nil {
		return digests{}, err
	}
	id, err := img.ConfigName()
	return digests{digest.String(), manifest.String(), id.String()}, err
}

// binary is the layer with the program, shared by all images made of it.
func binary(path string) (v1.Layer, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return layer("app", b, 0o755)
}

func layer(file string, content []byte, mode int64) (v1.Layer, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := w.WriteHeader(&tar.Header{Name: file, Size: int64(len(content)), Mode: mode, ModTime: built, Format: tar.FormatPAX})
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(content); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buf.Bytes())), nil
	}, tarball.WithCompressedCaching)
}
