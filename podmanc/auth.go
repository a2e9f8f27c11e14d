package podmanc

import (
	"fmt"
	"net/http"
	"os"

	"github.com/containers/podman/v5/pkg/auth"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/docker/config"
	"go.podman.io/image/v5/types"
)

// credentials gives the header that carries registry credentials to Podman, and what of them must never be shown.
//
// Podman's service runs as the same user and reads the files of podman login by itself, mirrors and credential helpers
// included, so nothing is sent unless $REGISTRY_AUTH_FILE names a file that the service does not know of. They are
// looked up here in any case, since a registry may echo them.
func credentials(repo reference.Named) (header http.Header, secrets []string, err error) {
	sys := &types.SystemContext{AuthFilePath: os.Getenv("REGISTRY_AUTH_FILE")}
	found, err := config.GetCredentialsForRef(sys, repo)
	if err == nil {
		secrets = secretsOf(found)
	}
	if sys.AuthFilePath == "" {
		return nil, secrets, nil
	}
	if err == nil {
		header, err = auth.MakeXRegistryAuthHeader(sys, "", "")
	}
	if err != nil {
		return nil, secrets, fmt.Errorf("read credentials of $REGISTRY_AUTH_FILE: %w", err)
	}
	return header, secrets, nil
}

func secretsOf(c types.DockerAuthConfig) []string {
	secrets := []string{c.Password, c.IdentityToken}
	if c.Password != "" {
		secrets = append(secrets, c.Username+":"+c.Password) // what HTTP sends, in base64
	}
	return secrets
}
