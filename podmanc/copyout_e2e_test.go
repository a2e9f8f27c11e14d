//go:build e2e

package podmanc

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

func TestE2ECopyOut(t *testing.T) {
	startRegistry(t)
	c := New("")
	p := push(t, recipe{version: "copied", links: map[string]string{
		"link": "/bin/link2", "bin/link2": "../app", "ring": "ring2", "ring2": "ring", "out": "../../../../etc/passwd", "gone": "nowhere",
	}})
	img := mustPull(t, c, p.ref())
	before := run(t, "podman", "ps", "-aq")
	secret := "host-file-" + t.Name()
	if err := os.WriteFile(os.Getenv("HOME")+"/secret", []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name  string
		paths []string
		found string
	}{
		{"a file", []string{"/app"}, "/app"},
		{"the first of several", []string{"/usr/bin/app", "/app", "/version"}, "/app"},
		{"links", []string{"/link"}, "/app"},
		{"a ring of links", []string{"/ring", "/version"}, "/version"},
		{"a link to nothing", []string{"/gone"}, ""},
		{"a link out of it", []string{"/out"}, ""},
		{"a file of the host", []string{os.Getenv("HOME") + "/secret"}, ""},
		{"a folder", []string{"/bin"}, ""},
		{"none", []string{"/nothing"}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			found, err := c.CopyOut(t.Context(), img.ID, "e2e", tt.paths, 200<<20, &out)
			if err != nil || found != tt.found {
				t.Fatalf("found %q, want %q: %v", found, tt.found, err)
			}
			if found == "/app" && !bytes.Equal(out.Bytes(), program()) {
				t.Errorf("%d bytes, not those of the program", out.Len())
			}
			if strings.Contains(out.String(), secret) {
				t.Error("it is the host's")
			}
		})
	}
	if _, err := c.CopyOut(t.Context(), img.ID, "e2e", []string{"/app"}, 1000, &bytes.Buffer{}); !errors.Is(err, ErrTooLarge) {
		t.Errorf("have %v", err)
	}
	if now := run(t, "podman", "ps", "-aq"); now != before {
		t.Errorf("containers are left:\n%s", now)
	}
	// One that a killed caller left behind is in nobody's way.
	if err := c.createStopped(t.Context(), "toad-copy-e2e", img.ID); err != nil {
		t.Fatal(err)
	}
	if found, err := c.CopyOut(t.Context(), img.ID, "e2e", []string{"/app"}, 200<<20, &bytes.Buffer{}); err != nil || found != "/app" {
		t.Errorf("found %q, %v", found, err)
	}
	if now := run(t, "podman", "ps", "-aq"); now != before {
		t.Errorf("containers are left:\n%s", now)
	}
}
