//go:build e2e

package userbus_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"toad/unitgen"
	"toad/unitgen/userbus"
)

func dial(t *testing.T) *userbus.Bus {
	t.Helper()
	b, err := userbus.Dial(t.Context())
	must(t, err)
	t.Cleanup(func() { b.Close() })
	return b
}

// script makes a program out of shell text, whose $DIR is a folder of the test.
func script(t *testing.T, text string) unitgen.Program {
	t.Helper()
	dir := t.TempDir()
	exe := filepath.Join(dir, "toad")
	must(t, os.WriteFile(exe, []byte("#!/bin/sh\nDIR='"+dir+"'\n"+text+"\n"), 0o700))
	return unitgen.Program{Exe: exe, Env: map[string]string{"DIR": dir}}
}

func log(t *testing.T, p unitgen.Program) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.Env["DIR"], "log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// op is an operation of the test's own.
func op(t *testing.T) string {
	name := strings.ToLower(strings.ReplaceAll(strings.ReplaceAll(t.Name(), "/", "-"), "_", "-"))
	return name[:min(len(name), 60)] + "-g7"
}

func state(t *testing.T, b *userbus.Bus, name string) unitgen.State {
	t.Helper()
	s, err := b.State(t.Context(), name)
	must(t, err)
	return s
}

func gone(t *testing.T, b *userbus.Bus, names ...string) bool {
	t.Helper()
	listed, err := b.List(t.Context(), names...)
	must(t, err)
	return len(listed) == 0
}

// service makes a plain transient service; restart is its Restart=.
func service(t *testing.T, b *userbus.Bus, restart, text string) string {
	t.Helper()
	u := unitgen.Act(op(t), time.Now().UnixNano(), 0, script(t, text))
	u.Properties = slices.DeleteFunc(u.Properties, func(p sd.Property) bool {
		return strings.HasPrefix(p.Name, "Restart")
	})
	u.Properties = append(u.Properties,
		sd.Property{Name: "Restart", Value: dbus.MakeVariant(restart)},
		sd.Property{Name: "RestartUSec", Value: dbus.MakeVariant(uint64(300_000))})
	must(t, b.Create(t.Context(), u))
	t.Cleanup(func() { _ = b.Stop(context.Background(), u.Name) })
	eventually(t, "it runs", func() bool { s := state(t, b, u.Name); return s.Up() && s.Job == 0 })
	return u.Name
}

func run(t *testing.T, argv ...string) string {
	t.Helper()
	out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", argv, err, out)
	}
	return string(out)
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("does not come: %s", what)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
