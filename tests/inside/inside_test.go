//go:build e2e

// Package inside runs, as the user of a test host, the tests that speak to its user manager and its Podman directly.
package inside

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"toad/tests/host"
)

func TestThePackagesThatSpeakToTheHost(t *testing.T) {
	h := host.Up(t, host.Options{NoToad: true, NoRegistry: true})
	for _, c := range []struct{ pkg, run string }{
		{"unitgen/userbus", "."},
		{"podmanc", "E2E"},
	} {
		t.Run(c.pkg, func(t *testing.T) {
			name := filepath.Base(c.pkg) + ".test"
			binary := filepath.Join(t.TempDir(), name)
			build := exec.Command("go", "test", "-c", "-tags", "e2e", "-o", binary, "toad/"+c.pkg)
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			data, err := os.ReadFile(binary)
			if err != nil {
				t.Fatal(err)
			}
			h.WriteFile(t, "~/"+name, string(data), 0o755)
			out, err := h.UserCommand(t.Context(), t, "./"+name, "-test.v", "-test.run", c.run, "-test.timeout", "8m").CombinedOutput()
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
