package releases

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// a program of this machine: the test's own.
func self(t *testing.T) (id string, data []byte) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if data, err = os.ReadFile(exe); err != nil {
		t.Fatal(err)
	}
	return sum(data), data
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

func TestOnlyAProgramWithItsOwnSha256IsStaged(t *testing.T) {
	s := In(t.TempDir())
	id, data := self(t)
	other := bytes.Clone(data)
	other[18] ^= 0xff // the machine
	script := []byte("#!/bin/sh\n")
	for what, c := range map[string]struct {
		id   string
		data []byte
		says string
	}{
		"cut short":       {id, data[:len(data)/2], "has the sha256"},
		"other bytes":     {id, append(bytes.Clone(data), 0), "has the sha256"},
		"a script":        {sum(script), script, "is a script"},
		"no program":      {sum([]byte("hello")), []byte("hello"), "is not a program"},
		"another machine": {sum(other), other, "is a program for"},
		"no sha256":       {"../" + id, data, "is not a sha256"},
	} {
		if err := s.Stage(c.id, "web", bytes.NewReader(c.data)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left, _ := os.ReadDir(s.dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for range 2 {
		if err := s.Stage(id, "web", bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(s.Path(id, "web")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info, err)
	}
	if f, staged := s.Find("", "sha256:"+id); !staged || f != (File{id, s.Path(id, "web"), int64(len(data))}) {
		t.Errorf("%+v, %v", f, staged)
	}
}

func TestADamagedFileIsNotHandedOutAndComesBackFromItsCopy(t *testing.T) {
	s := In(t.TempDir())
	id, data := self(t)
	if err := s.Stage(id, "web", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	damage := func() {
		if err := os.WriteFile(s.Path(id, "web"), data[1:], 0o700); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(id, "web"); !errors.Is(err, ErrNone) {
			t.Fatalf("a damaged file is handed out: %v", err)
		}
	}
	damage()
	if err := s.Mend(id, "web"); !errors.Is(err, ErrNone) {
		t.Errorf("without a copy: %v", err)
	}
	if _, err := os.Lstat(s.Path(id, "web")); err == nil {
		t.Error("a damaged file can still be run")
	}
	if err := s.Stage(id, "web", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	if err := s.Keep(id, "web"); err != nil {
		t.Fatal(err)
	}
	damage()
	if err := errors.Join(s.Mend(id, "web"), s.Check(id, "web")); err != nil {
		t.Error(err)
	}
}

func TestTheLinkTurnsAndGoesBackByWhatWasLaid(t *testing.T) {
	s := In(t.TempDir())
	id, _ := self(t)
	at := func(want string) {
		t.Helper()
		if have, err := s.At("web"); err != nil || have != want {
			t.Errorf("it leads to %q (%v), want %q", have, err, want)
		}
	}
	at("")
	for _, to := range []string{"/opt/web", s.Target(id, "web"), s.Target(id, "web")} {
		if _, err := s.Turn("web", to); err != nil {
			t.Fatal(err)
		}
		at(to)
	}
	if err := s.Lay("web", "/opt/web"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Turn("web", "/opt/web"); err != nil {
		t.Fatal(err)
	}
	at("/opt/web")
	if _, err := os.Lstat(s.laid("web")); err == nil {
		t.Error("what was laid was not used")
	}
	if _, err := s.Turn("web", ""); err != nil {
		t.Fatal(err)
	}
	at("")
	if err := os.WriteFile(s.Link("web"), nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Turn("web", "/opt/web"); err == nil {
		t.Error("somebody's file was replaced by a link")
	}
}

func TestWhatNothingNamesIsDropped(t *testing.T) {
	s := In(t.TempDir())
	id, data := self(t)
	if err := s.Stage(id, "web", bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	manifest := []byte(`{"layers":[{"digest":"sha256:` + id + `"}]}`)
	if err := s.PutManifest(sum(manifest), manifest); err != nil {
		t.Fatal(err)
	}
	if file, ok := s.FileOf(sum(manifest)); !ok || file != id {
		t.Fatalf("the manifest names %q", file)
	}
	drop := func(since time.Time, keep ...string) bool {
		t.Helper()
		if err := s.Drop(keep, since); err != nil {
			t.Fatal(err)
		}
		_, noted := s.FileOf(sum(manifest))
		if _, staged := s.Find(id, ""); staged != noted {
			t.Errorf("staged %v, and its manifest %v", staged, noted)
		}
		return noted
	}
	later := time.Now().Add(time.Hour)
	if _, err := s.Turn("tool", s.Target(id, "web")); err != nil {
		t.Fatal(err)
	}
	if !drop(later) {
		t.Fatal("what a link leads to is gone")
	}
	if _, err := s.Turn("tool", ""); err != nil {
		t.Fatal(err)
	}
	for what, there := range map[string]bool{"young": drop(time.Now().Add(-time.Hour)), "named": drop(later, id), "named by its manifest": drop(later, sum(manifest))} {
		if !there {
			t.Fatalf("what is %s is gone", what)
		}
	}
	if drop(later) {
		t.Error("what nothing names stays")
	}
	if left, _ := os.ReadDir(s.dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestAProcessIsItsBytesAndItsOperation(t *testing.T) {
	dir := t.TempDir()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "web")
	if err := os.WriteFile(program, data, 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "100")
	cmd.Env = []string{"A=b", "TOAD_OPERATION=web-g7", "C=d"}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Wait() }()
	defer func() { _ = cmd.Process.Kill() }()
	name := Process(uint32(cmd.Process.Pid))
	if !IsProcess(name) || IsProcess(sum(data)) {
		t.Errorf("%q", name)
	}
	if err := os.Remove(program); err != nil { // it runs all the same
		t.Fatal(err)
	}
	if r, err := Look(name, "TOAD_OPERATION"); err != nil || r.File != sum(data) || r.Operation != "web-g7" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := Look(name+"1", "TOAD_OPERATION"); err == nil {
		t.Error("another process counts as this one")
	}
	if id := Process(0); id != "" {
		t.Errorf("no process is %q", id)
	}
}
