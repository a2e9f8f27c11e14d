package quadlet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A side that starts by itself would run after a boot beside the one that the door leads to.
func TestASideWithInstallIsRefused(t *testing.T) {
	dir := t.TempDir()
	text := "[Container]\nImage=registry.example.org/team/web:v1\n"
	for name, content := range map[string]string{"web@.container": text, "own@a.container": text, "boot@.container": text + "[Install]\nWantedBy=default.target\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"web@a.container": "web@.container", "boot@a.container": "boot@.container"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for unit, refused := range map[string]bool{"web@a.container": false, "own@a.container": false, "boot@a.container": true} {
		src, err := Find(Dirs{Config: dir, Roots: []string{dir}}, unit)
		if err != nil {
			t.Fatal(err)
		}
		err = CheckSide(src)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "starts both sides of boot@ at boot") {
			t.Errorf("%s: %v", unit, err)
		}
	}
}

func TestAnIdlePinIsToldFromACandidates(t *testing.T) {
	p := Pin{Operation: "web-g7", Service: "web", Reference: "registry.example.org/team/web@sha256:" + strings.Repeat("1", 64), Fenced: true}
	for variable, idle := range map[string]bool{"TOAD_ADMITTED_web_idle": true, "TOAD_ADMITTED_web_g7": false, "TOAD_ADMITTED_x_idle_g7": false} {
		p.AdmissionVar = variable
		read, err := ParsePin(p.Text())
		if err != nil || read.Idle() != idle || strings.Contains(p.Text(), "This side is idle") != idle {
			t.Errorf("%s: %v, %v\n%s", variable, read.Idle(), err, p.Text())
		}
	}
}
