package quadlet

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// plainHost is a folder with the plain unit web.service, and what systemd has loaded of it without and with a pin.
func plainHost(t *testing.T) (d Dirs, p Pin, bare, pinned Generated) {
	t.Helper()
	root := t.TempDir()
	d = UserDirs(filepath.Join(root, "config"), filepath.Join(root, "run"), 1000)
	d.Live = filepath.Join(root, "state/live")
	write(t, filepath.Join(d.Units, "web.service"), "[Service]\nExecStart=%h/state/live/web\n")
	p = Pin{Operation: "web-g7", Service: "web", Unit: "web.service", File: true, Reference: strings.Repeat("a", 64),
		Digest: "sha256:" + strings.Repeat("b", 64), Fenced: true, AdmissionVar: "TOAD_ADMITTED_web_g7"}
	if err := d.Pins().Write(p.Unit, p.Text()); err != nil {
		t.Fatal(err)
	}
	link := d.Link("web")
	bare = Generated{Unit: "web.service", LoadState: "loaded", FragmentPath: filepath.Join(d.Units, "web.service"), Type: "simple",
		ExecStart: [][]string{{link}}, ExecPaths: []string{link}, DefaultDependencies: true}
	pinned = bare
	pinned.DropInPaths = []string{d.Pins().Path("web.service")}
	pinned.Operation = "web-g7"
	pinned.ExecCondition = [][]string{{"/usr/bin/test", "-n", "${TOAD_ADMITTED_web_g7}"}}
	pinned.Conditions = []Condition{{Type: "ConditionEnvironment", Parameter: "TOAD_ADMITTED_web_g7=1"}}
	pinned.After, pinned.OnFailure = []string{"toad-reconcile.service"}, []string{"toad-alert@web.service"}
	return d, p, bare, pinned
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func TestThePinOfAPlainUnitIsReadBack(t *testing.T) {
	d, p, _, _ := plainHost(t)
	have, err := ParsePin(p.Text())
	have.Unit = p.Unit
	if err != nil || have != p {
		t.Errorf("%+v, %v\n%s", have, err, p.Text())
	}
	if strings.Contains(p.Text(), "[Container]") {
		t.Errorf("it speaks of containers:\n%s", p.Text())
	}
	if units, err := d.Pins().Units(); err != nil || len(units) != 1 || units[0] != "web.service" {
		t.Errorf("%v, %v", units, err)
	}
	if err := d.Pins().Remove(p.Unit); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(d.Units); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

func TestOnlyAUnitThatRunsTheLinkIsTaken(t *testing.T) {
	d, _, good, _ := plainHost(t)
	src, err := Find(d, "web.service")
	if err != nil {
		t.Fatal(err)
	}
	if err := CheckBinary(src, good, d.Link("web")); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		change func(*Generated)
		says   string
	}{
		"another program":    {func(g *Generated) { g.ExecPaths = []string{"/usr/bin/web"} }, "/usr/bin/web instead of toad's link"},
		"by another name":    {func(g *Generated) { g.ExecPaths, g.ExecStart = []string{"/bin/sh"}, good.ExecStart }, "/bin/sh instead"},
		"two commands":       {func(g *Generated) { g.ExecStart = append(g.ExecStart[:1:1], g.ExecStart[0]) }, "2 commands instead"},
		"another's link":     {func(g *Generated) { g.ExecPaths = []string{d.Link("db")} }, "live/db instead"},
		"one that forks":     {func(g *Generated) { g.Type = "forking" }, "the process that ExecStart= makes"},
		"from another file":  {func(g *Generated) { g.FragmentPath = "/etc/systemd/user/web.service" }, "/etc/systemd/user/web.service"},
		"masked":             {func(g *Generated) { g.LoadState = "masked" }, "is masked"},
		"before reconcile":   {func(g *Generated) { g.DefaultDependencies = false }, "DefaultDependencies"},
		"that does not load": {func(g *Generated) { g.LoadState = "bad-setting" }, "bad-setting"},
	} {
		g := good
		c.change(&g)
		if err := CheckBinary(src, g, d.Link("web")); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestVerifyMissesNothingOfAPlainUnit(t *testing.T) {
	d, p, bare, good := plainHost(t)
	if err := Verify(d, p, good); err != nil {
		t.Fatal(err)
	}
	if err := Verify(d, p, bare); err == nil {
		t.Error("a unit without its pin counts as pinned")
	}
	write(t, filepath.Join(d.Units, "web.service.d/zzz.conf"), "[Service]\nExecCondition=\nExecStart=\nExecStart=/bin/sleep 1\nEnvironment=\n")
	for what, c := range map[string]struct {
		change func(*Generated)
		says   string
	}{
		"the command":       {func(g *Generated) { g.ExecPaths = []string{"/bin/sleep"} }, "zzz.conf:4"},
		"the fence":         {func(g *Generated) { g.ExecCondition = nil }, "zzz.conf:2"},
		"the condition":     {func(g *Generated) { g.Conditions = nil }, "ConditionEnvironment="},
		"whose it is":       {func(g *Generated) { g.Operation = "web-g6" }, "zzz.conf:5"},
		"the file":          {func(g *Generated) { g.FragmentPath = "/usr/lib/systemd/user/web.service" }, "/usr/lib/systemd/user/web.service"},
		"the drop-in":       {func(g *Generated) { g.DropInPaths = nil }, "the drop-in"},
		"the order":         {func(g *Generated) { g.After = nil }, "After="},
		"the alert":         {func(g *Generated) { g.OnFailure = nil }, "OnFailure="},
		"that it is loaded": {func(g *Generated) { g.LoadState = "masked" }, "masked"},
	} {
		g := good
		g.DropInPaths = append(g.DropInPaths[:1:1], filepath.Join(d.Units, "web.service.d/zzz.conf"))
		c.change(&g)
		var broken *BindingError
		if err := Verify(d, p, g); !errors.As(err, &broken) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", what, err)
		}
	}
	p.Fenced, p.AdmissionVar = false, ""
	if err := Verify(d, p, good); err == nil {
		t.Error("a fence that is left counts for nothing")
	}
	if _, err := VerifyUnpinned(good); err == nil {
		t.Error("a pin that is left counts for nothing")
	}
}
