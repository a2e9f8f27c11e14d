//go:build e2e

package cases

import (
	"regexp"
	"strings"
	"testing"
)

// Whatever a registry does to a pull, the release that runs is not touched, and nothing is held against a digest that never
// ran here. From the switch on there is no registry any more.
func TestFaultsOfARegistry(t *testing.T) {
	b := behindTheProxy(t, "20s")
	b.forget(t, "v2", "crash")
	config := "/blobs/" + b.Image(t, "v2").ID
	slow := map[string]bool{"hang": true, "stall": true, "rate": true}
	const later = "try again later"
	for _, c := range []struct{ kind, match, arg, code, says string }{
		{"status", "/manifests/", "401", "pull_failed", "podman login 127.0.0.1:5001"},
		{"status", "/manifests/", "403", "pull_failed", "podman login 127.0.0.1:5001"},
		{"status", "/manifests/", "404", "pull_failed", "does not have it"},
		{"status", "/manifests/", "503 Retry-After=1", "pull_unavailable", later},
		{"page", "/v2/", "403", "pull_failed", "podman login 127.0.0.1:5001"},
		{"page", "/v2/", "404", "pull_failed", "does not have it"},
		{"page", "/v2/", "500", "pull_unavailable", later},
		{"page", "/v2/", "200", "pull_unavailable", later},
		{"status", "/v2/", "302 Location=http://127.0.0.1:1/", "pull_unavailable", later},
		{"cut", "/manifests/", "", "pull_unavailable", later},
		{"wrong", "/manifests/", "", "pull_unavailable", later},
		{"page", config, "404", "pull_failed", "does not have it"},
		{"page", config, "502", "pull_unavailable", later},
		{"wrong", config, "", "pull_unavailable", later},
		{"page", "/blobs/", "403", "pull_failed", "podman login 127.0.0.1:5001"},
		{"cut", "/blobs/", "0", "pull_unavailable", later},
		{"wrong", "/blobs/", "", "pull_unavailable", later},
		{"status", "/manifests/", "429 Retry-After=1", "pull_unavailable", later},
		{"hang", "/manifests/", "", "pull_unavailable", later},
		{"stall", "/blobs/", "", "pull_unavailable", later},
		{"rate", "/blobs/", "100", "pull_unavailable", later}, // of an image whose layers are here already
	} {
		t.Run(strings.Join([]string{c.kind, c.match, c.arg}, " "), func(t *testing.T) {
			if slow[c.kind] || strings.HasPrefix(c.arg, "429") { // of which Podman itself tries the last again and again
				b.pullLimit(t, "2s")
			}
			b.Fault(t, c.kind, c.match, 0, c.arg)
			b.deploy(t, "v2", untouched(c.code, "v1", c.says))
		})
	}
	b.pullLimit(t, "20s")
	b.Fault(t, "delay", "/manifests/", 0, "500ms")
	b.deploy(t, "v2", promoted("v2"))

	// The image is here: a registry that is gone stops neither a promotion nor a restore.
	b.Fault(t, "", "", 0, "")
	b.MustUser(t, "podman", "pull", "-q", "127.0.0.1:5001/app@"+b.Digest(t, "crash"))
	b.Fault(t, "hang", "", 0, "")
	b.deploy(t, "crash", rolledBack("candidate_exited", "v2"))
}

// pullLimit says how long a preparation may take from now on.
func (b bed) pullLimit(t *testing.T, limit string) {
	t.Helper()
	text := regexp.MustCompile(`pull = ".*"`).ReplaceAllString(b.ReadFile(t, enrollment), `pull = "`+limit+`"`)
	b.WriteFile(t, enrollment, text, 0o644)
}
