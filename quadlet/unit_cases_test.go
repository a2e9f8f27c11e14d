package quadlet

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

var update = flag.Bool("update", false, "record what the host says in testdata/units/*.json, and write docs/compatibility.md")

// unitCase is one file of testdata/units: a tree of files as it lies on a host, one unit of it, and what toad must say
// of that. What systemd and Podman made of the tree stands beside it in a .json file, recorded by TestOnAHost.
type unitCase struct {
	name  string
	story string
	head  map[string][]string // unit, service, image, pin, link, mask, enrollable, verify
	files []txtar.File
}

// loadedUnit is what the manager said before and after toad wrote its pin.
type loadedUnit struct {
	Plain, Pinned *Generated
}

func unitCases(t *testing.T) []unitCase {
	t.Helper()
	paths, err := filepath.Glob("testdata/units/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no testdata", err)
	}
	var all []unitCase
	for _, path := range paths {
		archive, err := txtar.ParseFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c := unitCase{name: strings.TrimSuffix(filepath.Base(path), ".txt"), head: map[string][]string{}, files: archive.Files}
		story, head, _ := strings.Cut(string(archive.Comment), "\n\n")
		if _, rest, ok := strings.Cut(story, ": "); ok && strings.HasPrefix(story, "C") && len(story) > 5 && story[3] == ':' {
			story = strings.ToUpper(rest[:1]) + rest[1:]
		}
		c.story = strings.Join(strings.Fields(story), " ")
		for line := range strings.SplitSeq(head, "\n") {
			if key, value, ok := strings.Cut(line, ": "); ok {
				c.head[key] = append(c.head[key], value)
			}
		}
		all = append(all, c)
	}
	return all
}

func (c unitCase) one(key string) string {
	if len(c.head[key]) == 0 {
		return ""
	}
	return c.head[key][0]
}

func (c unitCase) loadedFile() string { return "testdata/units/" + c.name + ".json" }

func (c unitCase) pin() Pin {
	p := Pin{Operation: "web-g7", Service: "web", Unit: c.one("unit"), Reference: c.one("image") + "@" + digestA}
	switch c.one("pin") {
	case "fenced":
		p.Fenced, p.AdmissionVar = true, "TOAD_ADMITTED_web_g7"
	case "id":
		p.Reference, p.Digest = hexB, digestB
	}
	return p
}

// lay puts the tree below root and returns the folders of the user it belongs to.
func (c unitCase) lay(t *testing.T, root string) Dirs {
	t.Helper()
	for _, f := range c.files {
		path := filepath.Join(root, f.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range c.head["link"] {
		name, target, _ := strings.Cut(link, " -> ")
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	d := UserDirs("/home/toad/.config", "/run/user/1000", 1000)
	d.Config = root + d.Config
	for i := range d.Roots {
		d.Roots[i] = root + d.Roots[i]
	}
	return d
}

// loaded reads what the host said, as if the tree's root were the host's.
func (c unitCase) loaded(t *testing.T, root string) loadedUnit {
	t.Helper()
	data, err := os.ReadFile(c.loadedFile())
	if err != nil {
		t.Fatalf("record it on a host first (see TestOnAHost): %v", err)
	}
	text := string(data)
	for _, dir := range []string{"/home/toad/", "/etc/containers/", "/run/user/1000/containers/"} {
		text = strings.ReplaceAll(text, `"`+dir, `"`+root+dir)
	}
	var l loadedUnit
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestUnitsAreJudgedAsTheirFilesSay(t *testing.T) {
	for _, c := range unitCases(t) {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			dirs := c.lay(t, root)
			loaded := c.loaded(t, root)
			judge(t, dirs, root, c, *loaded.Plain)
			if c.one("verify") == "none" {
				return
			}
			pin := c.pin()
			if err := dirs.Pins().Write(pin.Unit, pin.Text()); err != nil {
				t.Fatal(err)
			}
			checkText(t, "verify", root, c.head["verify"], Verify(dirs, pin, *loaded.Pinned))
			if c.one("enrollable") == "ok" && c.one("verify") == "ok" {
				judge(t, dirs, root, c, *loaded.Pinned) // the next deployment finds the pin in place
			}
		})
	}
}

// judge says whether a unit can be enrolled, and compares what the files say with what the manager has loaded.
func judge(t *testing.T, dirs Dirs, root string, c unitCase, g Generated) {
	t.Helper()
	src, err := Find(dirs, c.one("unit"))
	if err == nil {
		if want := c.one("service"); want != "" && src.ServiceUnit != want {
			t.Errorf("service: want %s, have %s", want, src.ServiceUnit)
		}
		if g.SourcePath != "" && g.SourcePath != src.Path {
			t.Errorf("the generator read %s, we %s", g.SourcePath, src.Path)
		}
		err = CheckEnrollable(src, g, c.one("image"))
	}
	checkText(t, "enrollable", root, c.head["enrollable"], err)
}

// checkText wants an error of as many lines as there are texts, each of them in one line; … stands for anything.
func checkText(t *testing.T, what, root string, want []string, err error) {
	t.Helper()
	if want[0] == "ok" {
		if err != nil {
			t.Errorf("%s: have %v", what, err)
		}
		return
	}
	var lines []string
	if err != nil {
		lines = strings.Split(strings.ReplaceAll(err.Error(), root+"/", ""), "\n")
	}
	for _, w := range want {
		i := slices.IndexFunc(lines, func(line string) bool { return inOrder(line, strings.Split(w, "…")) })
		if i < 0 {
			t.Errorf("%s: want %s", what, w)
			continue
		}
		lines = slices.Delete(lines, i, i+1)
	}
	for _, line := range lines {
		t.Errorf("%s: have %s", what, line)
	}
}

func inOrder(line string, parts []string) bool {
	for _, part := range parts {
		_, rest, ok := strings.Cut(line, part)
		if !ok {
			return false
		}
		line = rest
	}
	return true
}

// A pin must be proven field by field: whichever of them a unit lacks, Verify has to say so.
func TestVerifyMissesNothingThatAPinSays(t *testing.T) {
	root := t.TempDir()
	cases := unitCases(t)
	c := cases[slices.IndexFunc(cases, func(c unitCase) bool { return c.name == "plain" })]
	dirs := c.lay(t, root)
	pin := c.pin()
	for name, spoil := range map[string]func(*Generated){
		"load state":           func(g *Generated) { g.LoadState = "bad-setting" },
		"source":               func(g *Generated) { g.SourcePath = "/elsewhere/web.container" },
		"no source":            func(g *Generated) { g.SourcePath = "" },
		"image":                func(g *Generated) { swap(g.ExecStart[0], pin.Reference, "127.0.0.1:5000/app@"+digestB) },
		"image by tag":         func(g *Generated) { swap(g.ExecStart[0], pin.Reference, "127.0.0.1:5000/app:good1") },
		"image and digest":     func(g *Generated) { swap(g.ExecStart[0], pin.Reference, pin.Reference+"x") },
		"pull":                 func(g *Generated) { swap(g.ExecStart[0], "never", "missing") },
		"label":                func(g *Generated) { swap(g.ExecStart[0], "io.toad.operation=web-g7", "io.toad.operation=web-g6") },
		"no command":           func(g *Generated) { g.ExecStart = nil },
		"two commands":         func(g *Generated) { g.ExecStart = append(g.ExecStart, []string{"/usr/bin/true"}) },
		"other command":        func(g *Generated) { g.ExecStart[0][0] = "/usr/bin/docker" },
		"other podman command": func(g *Generated) { swap(g.ExecStart[0], "run", "create") },
		"no condition":         func(g *Generated) { g.Conditions = nil },
		"other condition":      func(g *Generated) { g.Conditions[0].Parameter = "TOAD_ADMITTED_web_g6=1" },
		"negated condition":    func(g *Generated) { g.Conditions[0].Negate = true },
		"triggering condition": func(g *Generated) { g.Conditions[0].Trigger = true },
		"condition of a kind":  func(g *Generated) { g.Conditions[0].Type = "ConditionPathExists" },
		"no ExecCondition":     func(g *Generated) { g.ExecCondition = nil },
		"other ExecCondition":  func(g *Generated) { g.ExecCondition[0][1] = "-z" },
		"order": func(g *Generated) {
			g.After = slices.DeleteFunc(g.After, func(s string) bool { return s == ReconcileUnit })
		},
		"alert": func(g *Generated) { g.OnFailure = []string{"toad-alert@other.service"} },
	} {
		g := *c.loaded(t, root).Pinned
		if err := Verify(dirs, pin, g); err != nil {
			t.Fatalf("before: %v", err)
		}
		spoil(&g)
		var broken *BindingError
		if err := Verify(dirs, pin, g); !errors.As(err, &broken) || broken.Unit != "web.service" || broken.What == "" || broken.Have == broken.Want {
			t.Errorf("%s: have %v", name, err)
		}
	}
	pin.Source = "/where/it/was/web.container"
	if err := Verify(dirs, pin, *c.loaded(t, root).Pinned); err == nil || !strings.Contains(err.Error(), "/where/it/was") {
		t.Errorf("another source than recorded: have %v", err)
	}
}

// An enrollment may move to another repository while toad's pin of the old one is in force.
func TestAPinOfAnOlderEnrollmentIsNoObstacle(t *testing.T) {
	root := t.TempDir()
	cases := unitCases(t)
	c := cases[slices.IndexFunc(cases, func(c unitCase) bool { return c.name == "plain" })]
	dirs, g := c.lay(t, root), *c.loaded(t, root).Pinned
	path := filepath.Join(dirs.Config, "web.container")
	must(t, os.WriteFile(path, []byte("[Container]\nImage=r.example.org/new:1\n"), 0o644), dirs.Pins().Write("web.container", c.pin().Text()))
	check := func() error {
		src, err := Find(dirs, "web.container")
		must(t, err)
		return CheckEnrollable(src, g, "r.example.org/new")
	}
	if err := check(); err != nil {
		t.Errorf("pinned: have %v", err)
	}
	must(t, dirs.Pins().Remove("web.container"))
	checkText(t, "unpinned, and not yet reloaded", root, []string{"web.service: runs an image of 127.0.0.1:5000/app, but r.example.org/new is enrolled"}, check())
	shadow := g
	shadow.SourcePath = "/run/user/1000/containers/systemd/web.container"
	checkText(t, "made from a file that is gone", root, []string{"web.service: is made from another file, /run/user/1000/"},
		CheckEnrollable(Source{Path: path, settings: settings{{Section: "Container", Key: "Image", Value: "r.example.org/new:1"}}}, shadow, "r.example.org/new"))
	g.NeedDaemonReload = true
	checkText(t, "and the manager says so", root, []string{"runs an image of", "something has changed since; systemctl --user daemon-reload"}, check())
}

func swap(argv []string, old, new string) {
	argv[slices.Index(argv, old)] = new
}

func TestDropInLevelsAreThoseOfPodman(t *testing.T) {
	for _, unit := range []string{"web.container", "web-api.container", "a-b-c.container", "web@a.container", "web-api@a.container",
		"web-api@.container", "-web.container", "web-.container", "web--x@a-b.container", "web.x.container", "web.image"} {
		if want, have := podmanLevels(unit), dropInLevels(unit); !slices.Equal(want, have) {
			t.Errorf("%s:\nwant %q\nhave %q", unit, want, have)
		}
	}
}
