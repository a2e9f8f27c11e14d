package podmanc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const testProof = "application/vnd.example.proof"

// pushTest pushes an index of one image for this platform, and returns both references and the image's id.
func pushTest(t *testing.T, address string) (index, image, id string) {
	t.Helper()
	img, err := random.Image(64, 1)
	if err == nil {
		img, err = mutate.ConfigFile(img, &v1.ConfigFile{Architecture: "amd64", OS: "linux", RootFS: v1.RootFS{Type: "layers"}})
	}
	if err != nil {
		t.Fatal(err)
	}
	idx := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "amd64"}}})
	repo, err := name.NewRepository(address+"/team/web", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(repo.Tag("v1"), idx, remote.WithAuth(&authn.Basic{Username: "ci", Password: "S3NT1NEL"})); err != nil {
		t.Fatal(err)
	}
	di, err1 := idx.Digest()
	dm, err2 := img.Digest()
	conf, err3 := img.ConfigName()
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%s/team/web@%s", address, di), fmt.Sprintf("%s/team/web@%s", address, dm), conf.Hex
}

func TestAManifestIsKnownByItsBytes(t *testing.T) {
	address := tagRegistry(t, "S3NT1NEL")
	index, image, id := pushTest(t, address)
	c := New(t.TempDir() + "/none")
	of := func(ref string) string { return ref[len(address+"/team/web@"):] }
	digests, have, err := c.Manifest(t.Context(), index)
	if err != nil || have != id || !slices.Equal(digests, []string{of(image), of(index)}) {
		t.Errorf("index: %q, %s, %v", digests, have, err)
	}
	digests, have, err = c.Manifest(t.Context(), image)
	if err != nil || have != id || !slices.Equal(digests, []string{of(image)}) {
		t.Errorf("image: %q, %s, %v", digests, have, err)
	}
}

func TestWhatIsAttachedIsFoundAgain(t *testing.T) {
	address := tagRegistry(t, "S3NT1NEL")
	_, image, _ := pushTest(t, address)
	c := New(t.TempDir() + "/none")
	if all, err := c.Attached(t.Context(), image, testProof, 100); err != nil || len(all) != 0 {
		t.Fatalf("%q, %v", all, err)
	}
	for _, data := range []string{"one", "two", "one"} {
		if err := c.Attach(t.Context(), image, testProof, []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	all, err := c.Attached(t.Context(), image, testProof, 100)
	if err != nil || len(all) != 2 {
		t.Errorf("%q, %v", all, err)
	}
	if all, err := c.Attached(t.Context(), image, "application/vnd.example.other", 100); err != nil || len(all) != 0 {
		t.Errorf("another type: %q, %v", all, err)
	}
	if all, err := c.Attached(t.Context(), image, testProof, 2); err != nil || len(all) != 0 {
		t.Errorf("too large: %q, %v", all, err)
	}
}

func TestALoginThatIsRefusedIsToldWithoutIt(t *testing.T) {
	address := tagRegistry(t, "S3NT1NEL-wrong")
	ref := address + "/team/web@sha256:" + fmt.Sprintf("%064d", 0)
	c := New(t.TempDir() + "/none")
	_, err := c.Attached(t.Context(), ref, testProof, 100)
	if !errors.Is(err, ErrDenied) || strings.Contains(err.Error(), "S3NT1NEL") {
		t.Errorf("want denied without the password, have %v", err)
	}
}
