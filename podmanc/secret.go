package podmanc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// ErrNoSecret says that Podman's store has no secret of that name.
var ErrNoSecret = errors.New("no such secret")

// Secret returns the value of a secret of Podman's store, for no other use than to keep it out of texts.
func (c *Client) Secret(ctx context.Context, name string) (string, error) {
	report, err := get[struct{ SecretData string }](ctx, c, "/secrets/%s/json", url.Values{"showsecret": {"true"}}, name)
	switch {
	case status(err) == http.StatusNotFound:
		return "", fmt.Errorf("%w: %s", ErrNoSecret, name)
	case err != nil:
		return "", fmt.Errorf("inspect secret %s: %w", name, err)
	}
	return report.SecretData, nil
}

// Logins returns what registry logins of a repository must never be shown: user names with their passwords, passwords
// and tokens. A repository that cannot be read, or has no login, has none.
func Logins(repository string) []string {
	named, _, err := splitRef(repository + "@sha256:" + zeros)
	if err != nil {
		return nil
	}
	_, found, _ := credentials(named)
	return found
}

// zeros make a digest of a repository that needs one only to be parsed.
const zeros = "0000000000000000000000000000000000000000000000000000000000000000"
