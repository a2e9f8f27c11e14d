//go:build e2e

package scene

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/shown"
)

// Shown writes the files of a section of docs/switch.md, with the test's image and times, types its commands, waits until v1
// serves, and sets toad up. root leads from the test's folder to the repository's; end is added to the enrollment.
func (w *Web) Shown(t *testing.T, root, title, ready, end string) {
	t.Helper()
	const inForce = "v1"
	set, err := shown.Section(filepath.Join(root, "docs/switch.md"), title)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range set.Put(host.Repository, inForce, ready, end) {
		w.WriteFile(t, name, text, 0o644)
		if strings.HasSuffix(name, ".container") {
			w.source, w.quadlet = name, text
		}
	}
	w.MustUser(t, "sh", "-ec", set.Commands)
	w.Serves(t, inForce)
	w.MustUser(t, "toad", "setup")
}

// Settled waits until the latest operation of a service with two sides owes nothing any more: it has let go of all that it
// had made, keeps its image, and the former side is stopped.
func (w *Web) Settled(t *testing.T) {
	t.Helper()
	host.Eventually(t, "nothing to be owed any more", 4*time.Minute, func() bool {
		var rec struct {
			Operation struct {
				Phase              string
				Released, Retained bool
			}
			Drain *struct{}
		}
		text := w.Look(t, record)
		if err := json.Unmarshal([]byte(text), &rec); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		return rec.Operation.Released && rec.Drain == nil && (rec.Operation.Phase != "promoted" || rec.Operation.Retained)
	})
	w.Quiet(t)
}

// Fenced asserts that one side may start and the other one may not.
func (w *Web) Fenced(t *testing.T, inForce, idle string) {
	t.Helper()
	pin := w.ReadFile(t, "~/.config/containers/systemd/"+idle+".container.d/zz-toad.conf")
	if !strings.Contains(pin, "ExecCondition=") || !strings.Contains(pin, "_idle") {
		t.Errorf("the pin of the idle side admits it:\n%s", pin)
	}
	w.MustUser(t, "systemctl", "--user", "start", idle+".service")
	if have := w.Show(t, idle+".service", "ActiveState"); have != "inactive" {
		t.Errorf("the idle side was started: it is %s", have)
	}
	pin = w.ReadFile(t, "~/.config/containers/systemd/"+inForce+".container.d/zz-toad.conf")
	if strings.Contains(pin, "TOAD_ADMITTED") {
		t.Errorf("the pin of the side in force is fenced:\n%s", pin)
	}
}
