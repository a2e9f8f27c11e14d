package podmanc

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// tagRegistry is a plain-HTTP registry that asks for a login, trusted by registries.conf and known to auth.json.
func tagRegistry(t *testing.T, password string) (address string) {
	t.Helper()
	store := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, pw, _ := r.BasicAuth(); user != "ci" || pw != "S3NT1NEL" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"`+pw+` is wrong"}]}`, http.StatusUnauthorized)
			return
		}
		store.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	address = server.Listener.Addr().String()
	dir := t.TempDir()
	write := func(file, text string) string {
		path := filepath.Join(dir, file)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("CONTAINERS_REGISTRIES_CONF", write("registries.conf", fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", address)))
	t.Setenv("REGISTRY_AUTH_FILE", write("auth.json", fmt.Sprintf(`{"auths":{%q:{"auth":%q}}}`, address,
		base64.StdEncoding.EncodeToString([]byte("ci:"+password)))))
	return address
}

func TestATagIsResolvedAsAPullWould(t *testing.T) {
	address := tagRegistry(t, "S3NT1NEL")
	img, err := random.Index(64, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	want, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	tag, err := name.NewTag(address+"/team/web:v2", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(tag, img, remote.WithAuth(&authn.Basic{Username: "ci", Password: "S3NT1NEL"})); err != nil {
		t.Fatal(err)
	}
	c := New("/nowhere")
	have, err := c.Resolve(t.Context(), address+"/team/web", "v2")
	if err != nil || have != want.String() {
		t.Errorf("want %s, have %s, %v", want, have, err)
	}
	if _, err := c.Resolve(t.Context(), address+"/team/web", "v3"); !errors.Is(err, ErrNotFound) {
		t.Errorf("want not found, have %v", err)
	}
	for _, bad := range [][2]string{{"web", "v2"}, {address + "/team/web:v1", "v2"}, {address + "/team/web", "a b"}, {address + "/team/web", "sha256:1"}} {
		if _, err := c.Resolve(t.Context(), bad[0], bad[1]); err == nil {
			t.Errorf("%v was resolved", bad)
		}
	}
}

func TestATagThatCannotBeResolvedSaysWhyWithoutTheLogin(t *testing.T) {
	address := tagRegistry(t, "S3NT1NEL-wrong")
	_, err := New("/nowhere").Resolve(t.Context(), address+"/team/web", "v2")
	if !errors.Is(err, ErrDenied) || strings.Contains(err.Error(), "S3NT1NEL") {
		t.Errorf("want denied without the password, have %v", err)
	}
	_, err = New("/nowhere").Resolve(t.Context(), "127.0.0.1:1/team/web", "v2")
	if !errors.Is(err, ErrUnavailable) {
		t.Errorf("want unavailable, have %v", err)
	}
}
