package podmanc

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// maxJSON bounds the small files of an archive that are read as a whole.
const maxJSON = 8 << 20

// prove follows an archive from its front page to every layer, as Podman does when it loads it: the config must be the
// one the image id is the sum of, and all that the config names must be in the archive.
func (s store) prove(idx index) error {
	files := map[string]entry{}
	for _, e := range idx.Entries {
		if e.Kind == kindFile {
			files[strings.TrimPrefix(e.Name, "./")] = e
		}
	}
	if idx.Format == ociArchive {
		return s.proveOCI(idx.Image, files)
	}
	return s.proveDocker(idx.Image, files)
}

func (s store) proveDocker(imageID string, files map[string]entry) error {
	var manifests []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := s.read(files, "manifest.json", &manifests); err != nil {
		return err
	}
	if len(manifests) != 1 {
		return fmt.Errorf("it holds %d images", len(manifests))
	}
	m := manifests[0]
	if len(m.RepoTags) > 0 {
		return fmt.Errorf("loading it would move the tags %q", m.RepoTags)
	}
	if have := files[m.Config].SHA256; have != imageID {
		return fmt.Errorf("its image id is %q", have)
	}
	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := s.read(files, m.Config, &config); err != nil {
		return err
	}
	want := config.RootFS.DiffIDs
	if len(want) != len(m.Layers) {
		return fmt.Errorf("it has %d layers of %d", len(m.Layers), len(want))
	}
	for i, layer := range m.Layers {
		if have := "sha256:" + files[layer].SHA256; have != want[i] {
			return fmt.Errorf("layer %s has %s, the image names %s", layer, have, want[i])
		}
	}
	return nil
}

// proveOCI relies on the sums of the compressed layers, which the manifest names.
func (s store) proveOCI(imageID string, files map[string]entry) error {
	type descriptor struct {
		Digest      string            `json:"digest"`
		Annotations map[string]string `json:"annotations"`
	}
	var front struct {
		Manifests []descriptor `json:"manifests"`
	}
	if err := s.read(files, "index.json", &front); err != nil {
		return err
	}
	if len(front.Manifests) != 1 {
		return fmt.Errorf("it holds %d images", len(front.Manifests))
	}
	if name := front.Manifests[0].Annotations["org.opencontainers.image.ref.name"]; name != "" {
		return fmt.Errorf("loading it would move the tag %q", name)
	}
	var manifest struct {
		Config descriptor   `json:"config"`
		Layers []descriptor `json:"layers"`
	}
	name := func(digest string) string { return "blobs/" + strings.Replace(digest, ":", "/", 1) }
	if err := s.read(files, name(front.Manifests[0].Digest), &manifest); err != nil {
		return err
	}
	if manifest.Config.Digest != "sha256:"+imageID {
		return fmt.Errorf("its image id is %q", manifest.Config.Digest)
	}
	for _, d := range append(manifest.Layers, manifest.Config, front.Manifests[0]) {
		if have := "sha256:" + files[name(d.Digest)].SHA256; have != d.Digest {
			return fmt.Errorf("blob %s has %s", d.Digest, have)
		}
	}
	return nil
}

func (s store) read(files map[string]entry, name string, into any) error {
	e, ok := files[name]
	if !ok {
		return fmt.Errorf("%s is not in it", name)
	}
	if e.Size > maxJSON {
		return fmt.Errorf("%s: %w", name, errors.New("too big"))
	}
	data, err := os.ReadFile(s.blob(e.SHA256))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
