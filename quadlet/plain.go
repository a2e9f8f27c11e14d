package quadlet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"toad/unitgen"
)

// A binary service has one plain unit of the user's. Its ExecStart runs a link in toad's state folder, and where the link
// leads is what selects the release; the pin carries the fence, and tells whose process it is.

// Plain reports whether a unit of an enrollment is a plain one, and not a Quadlet file.
func Plain(unit string) bool { return filepath.Ext(unit) == ".service" }

// Link is what the unit of a binary service must run.
func (d Dirs) Link(service string) string { return filepath.Join(d.Live, service) }

// pinSection is toad's own: systemd passes over a section whose name begins so.
const pinSection = "X-Toad"

func checkPlainUnit(unit string) (what, fix string) {
	name, ok := strings.CutSuffix(unit, ".service")
	switch {
	case !ok:
		return fmt.Sprintf("%q does not end in .service", unit), `name the unit that runs the file, e.g. "tool.service"`
	case strings.Contains(name, "/"):
		return fmt.Sprintf("%q holds a folder", unit), "name the file alone; it must lie in ~/.config/systemd/user"
	case !unitName.MatchString(name) || strings.HasSuffix(name, "@"):
		return fmt.Sprintf("%q is not a unit name toad takes", unit), "use letters, digits, _ . - and at most one @, and start with a letter, a digit or _"
	case len(unit) > maxUnit:
		return fmt.Sprintf("is longer than %d bytes", maxUnit), "give the file a shorter name"
	}
	return "", ""
}

func readPlainUnits(t *table) []string {
	before := len(t.found)
	units := t.texts("units")
	for _, unit := range units {
		if what, fix := checkPlainUnit(unit); what != "" {
			t.refuse("units", what, fix)
		}
	}
	if len(units) != 1 && len(t.found) == before {
		t.refuse("units", fmt.Sprintf("names %d units, and a file runs as one", len(units)), `write e.g. units = ["tool.service"]`)
	}
	return units
}

// findPlain reads a plain unit's file and the drop-ins beside it.
func findPlain(d Dirs, unit string) (Source, error) {
	path := filepath.Join(d.Units, unit)
	s, err := readUnit(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Source{}, Problem{Key: unit, What: "there is no such file in " + d.Units, Fix: "write the unit there; its ExecStart= runs toad's link"}
	}
	if err != nil {
		return Source{}, *asProblem(path, err)
	}
	src := Source{Unit: unit, Path: path, ServiceUnit: unit, settings: s}
	entries, _ := os.ReadDir(path + ".d") // none is none
	for _, e := range entries {           // in the order of their names
		file := filepath.Join(path+".d", e.Name())
		if filepath.Ext(file) != ".conf" {
			continue
		}
		if more, err := readUnit(file); err == nil {
			src.DropIns, src.settings = append(src.DropIns, file), append(src.settings, more...)
		}
	}
	return src, nil
}

// CheckBinary judges whether toad can pin the plain unit of a binary service. link is what it must run.
func CheckBinary(src Source, g Generated, link string) error {
	blame := Problem{File: src.Path, Key: g.Unit}
	refuse := func(what, fix string) error {
		blame.What, blame.Fix = what, fix
		return Problems{blame}
	}
	if g.LoadState == "masked" {
		return Problems{{File: g.FragmentPath, Key: g.Unit, What: "is masked", Fix: "systemctl --user unmask " + g.Unit}}
	}
	if g.LoadState != "loaded" {
		return refuse(fmt.Sprintf("is %s", g.LoadState), "systemctl --user daemon-reload, and if that does not help: systemd-analyze --user verify "+g.Unit)
	}
	if !samePath(g.FragmentPath, src.Path) {
		return refuse(fmt.Sprintf("is loaded from another file, %s", g.FragmentPath), "systemctl --user daemon-reload, or remove one of the two")
	}
	if !g.DefaultDependencies {
		blame.Key = "[Unit] DefaultDependencies"
		return refuse("is off: the unit could start before toad has decided what it may run", "take it out, or set it to yes")
	}
	if g.Type == "oneshot" || g.Type == "forking" {
		blame.Key = "[Service] Type"
		return refuse(g.Type+": toad watches the process that ExecStart= makes, for as long as it runs", "use exec, or notify")
	}
	if what := runsElse(g, link); what != "" {
		blame.Key = "[Service] ExecStart"
		if s, ok := src.lastThat(g, sets("Service/ExecStart")); ok {
			blame.File, blame.Line = s.File, s.Line
		}
		fix := "write ExecStart=" + link
		if g.NeedDaemonReload {
			fix += "; if the file says so, it is not loaded: systemctl --user daemon-reload"
		}
		return refuse("runs "+what+" instead of toad's link", fix)
	}
	return nil
}

// runsElse says what a unit runs if that is not the link; "" if it is.
func runsElse(g Generated, link string) string {
	switch {
	case len(g.ExecStart) != 1:
		return fmt.Sprintf("%d commands", len(g.ExecStart))
	case len(g.ExecPaths) != 1 || len(g.ExecStart[0]) == 0:
		return "nothing that can be told"
	case !samePath(g.ExecPaths[0], link):
		return g.ExecPaths[0]
	}
	return ""
}

// samePath compares paths by their text, and else by the folders they lead to: the last part is a link that may lead
// nowhere yet.
func samePath(a, b string) bool {
	return a != "" && (filepath.Clean(a) == filepath.Clean(b) || sameFile(a, b))
}

// verifyPlain holds a plain unit as loaded against its pin. Where the link leads is not the unit's affair.
func verifyPlain(d Dirs, p Pin, g Generated) error {
	broken := func(what, have, want string, undoes func(Setting) bool) error {
		return &BindingError{Unit: g.Unit, What: what, Have: have, Want: want, Winner: plainWinner(d, p, g, undoes)}
	}
	nothing := func(Setting) bool { return false }
	if g.LoadState != "loaded" {
		return &BindingError{Unit: g.Unit, What: "the unit", Want: "loaded", Have: g.LoadState, Winner: maskedBy(g)}
	}
	if file := filepath.Join(d.Units, p.Unit); !samePath(g.FragmentPath, file) {
		return &BindingError{Unit: g.Unit, What: "the unit file", Want: quoted(file), Have: quoted(g.FragmentPath), Winner: g.FragmentPath}
	}
	pin := d.Pins().Path(p.Unit)
	if !slices.ContainsFunc(g.DropInPaths, func(path string) bool { return samePath(path, pin) }) {
		return broken("the drop-in", "not loaded", quoted(pin), nothing)
	}
	if link := d.Link(p.Service); runsElse(g, link) != "" {
		return broken("ExecStart=", runsElse(g, link), quoted(link), sets("Service/ExecStart"))
	}
	if g.Operation != p.Operation {
		return broken(unitgen.OperationVar, quoted(g.Operation), quoted(p.Operation), func(s Setting) bool {
			return s.Section == "Service" && (s.Key == "Environment" && (s.Value == "" || strings.Contains(s.Value, unitgen.OperationVar)) || s.Key == "UnsetEnvironment")
		})
	}
	for _, check := range []func(Pin, Generated) *mismatch{verifyFence, verifyOrder} {
		if m := check(p, g); m != nil {
			return broken(m.what, m.have, m.want, m.undoes)
		}
	}
	return nil
}

// plainWinner names the setting that undoes a pin: a drop-in that sorts behind it, else the unit's own file.
func plainWinner(d Dirs, p Pin, g Generated, undoes func(Setting) bool) string {
	files := slices.DeleteFunc(slices.Clone(g.DropInPaths), func(path string) bool { return samePath(path, d.Pins().Path(p.Unit)) })
	for _, path := range slices.Backward(append([]string{filepath.Join(d.Units, p.Unit)}, files...)) {
		if s, err := readUnit(path); err == nil {
			if place := lastPlace(s, undoes); place != "" {
				return place
			}
		}
	}
	return ""
}

// plainSuggestion is the enrollment that a plain unit would have.
func plainSuggestion(src Source) Suggestion {
	s := Suggestion{Service: serviceOf(src.Unit), Unit: src.Unit, Kind: "binary", Volumes: []string{}, Secrets: []string{},
		Missing: []string{"image: a plain unit names none; add the repository of its artifacts, or ship each file: toad ship"}}
	if kind, _ := src.Lookup("Service", "Type"); kind.Value == "notify" || kind.Value == "notify-reload" {
		s.Ready = "notify = true"
	} else {
		s.Missing = append(s.Missing, "readiness: without a probe it counts as ready while it stays active")
	}
	return s
}
