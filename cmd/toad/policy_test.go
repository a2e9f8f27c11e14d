package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toad/probation"
)

// The gate is closed by a policy that cannot be read, and by that alone there is nothing to ask of anybody.
func TestAPolicyThatCannotBeReadTakesNoNewRelease(t *testing.T) {
	config := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", config)
	path := filepath.Join(config, "toad", policyFile)
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	h := &host{log: slog.New(slog.DiscardHandler)} // with nothing that could be asked
	op := probation.Operation{Service: "web", Enrollment: probation.Enrollment{Name: "web", Image: "registry.example.org/web"}}
	rel := probation.Release{Digest: "sha256:" + strings.Repeat("a", 64)}
	if why := h.unproven(t.Context(), op, rel, true); why != "" {
		t.Errorf("without a policy: %s", why)
	}
	for text, mode := range map[string]os.FileMode{"[[require]\n": 0o644, "[[require]]\nprover = \"dev\"\n": 0o644, "": 0o666} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if why := h.unproven(t.Context(), op, rel, true); !strings.Contains(why, "the proof policy cannot be read") {
			t.Errorf("%q, mode %o: %q", text, mode, why)
		}
	}
	if err := os.WriteFile(path, []byte("# nothing is required\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if why := h.unproven(t.Context(), op, rel, true); why != "" {
		t.Errorf("an empty policy: %s", why)
	}
}
