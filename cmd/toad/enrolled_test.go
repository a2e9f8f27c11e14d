package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// Right after an edit the time of a file does not tell whether it was edited again; its text does, and need not be parsed anew.
func TestAnEnrollmentIsParsedOncePerEdit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "enrollment.toml")
	write := func(service string) {
		t.Helper()
		text := "[service." + service + "]\nunits = [\"" + service + ".container\"]\nimage = \"registry.example.org/team/" + service + "\"\n"
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	e := &enrolled{path: path, log: slog.New(slog.DiscardHandler)}
	write("web")
	first := e.current()
	if first == nil || len(first.Services) != 1 {
		t.Fatalf("%+v, %v", first, e.Invalid())
	}
	if e.current() != first {
		t.Error("it was parsed again though nothing has changed")
	}
	write("app") // of the same length, in the same instant
	if now := e.current(); now == first || now.Services[0].Name != "app" {
		t.Errorf("an edit was missed: %+v", now)
	}
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if e.Invalid() == nil {
		t.Error("that others may write it now was missed")
	}
}
