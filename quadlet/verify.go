package quadlet

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// Generated is what the user manager has loaded for a unit: the truth about what a start would run.
type Generated struct {
	Unit                     string // "web.service"
	LoadState                string
	SourcePath, FragmentPath string
	DropInPaths              []string // systemd's own; those of the Quadlet are merged by the generator
	ExecStart, ExecCondition [][]string
	ExecPaths                []string `json:",omitempty"` // what each of ExecStart executes, whatever its argv says
	Type                     string   `json:",omitempty"`
	Operation                string   `json:",omitempty"` // that a plain unit's processes are told they belong to
	EnvNames                 []string `json:",omitempty"` // what its processes are given by the unit; the values may be secrets
	Conditions               []Condition
	After, OnFailure         []string
	DefaultDependencies      bool
	NeedDaemonReload         bool
	UnitFileState            string
}

// Condition is one Condition…= of a loaded unit.
type Condition struct {
	Type, Parameter string
	Negate, Trigger bool
}

// BindingError says in what a loaded unit is not what its pin says.
type BindingError struct {
	Unit       string
	What       string // e.g. "image", "ConditionEnvironment="
	Want, Have string
	Winner     string // the file, with its line where known, that wins over the pin; "" if none was found
}

func (e *BindingError) Error() string {
	if e.Want == "" {
		return fmt.Sprintf("%s: %s: %s", e.Unit, e.What, e.Have)
	}
	msg := fmt.Sprintf("%s: %s is %s, toad's pin wants %s", e.Unit, e.What, e.Have, e.Want)
	if e.Winner == "" {
		return msg + "; no file was found that wins over the pin: look at systemctl --user cat " + e.Unit
	}
	return msg + "; " + e.Winner + " wins over the pin: take the setting out there"
}

// Verify compares a unit as loaded, after a reload, with its pin. What it compares are values: a file that sorts behind
// the pin, or a drop-in of systemd's own, can undo any of them. The error is a *BindingError.
func Verify(d Dirs, p Pin, g Generated) error {
	if Plain(p.Unit) {
		return verifyPlain(d, p, g)
	}
	if g.LoadState != "loaded" {
		return &BindingError{Unit: g.Unit, What: "the unit", Want: "loaded", Have: g.LoadState, Winner: maskedBy(g)}
	}
	if err := verifySource(d, p, g); err != nil {
		return err
	}
	for _, check := range []func(Pin, Generated) *mismatch{
		verifyImage, verifyFence, verifyOrder,
	} {
		if m := check(p, g); m != nil {
			return &BindingError{Unit: g.Unit, What: m.what, Want: m.want, Have: m.have, Winner: winner(d, p, g, m.undoes)}
		}
	}
	return nil
}

// mismatch is a value that is not the pin's, and which settings could have made it so.
type mismatch struct {
	what, have, want string
	undoes           func(Setting) bool
}

func maskedBy(g Generated) string {
	if g.LoadState == "masked" {
		return g.FragmentPath
	}
	return ""
}

// verifySource makes sure that the file which toad pinned is the one that is loaded.
func verifySource(d Dirs, p Pin, g Generated) error {
	want := p.Source
	if want == "" {
		src, err := Find(d, p.Unit)
		if err != nil {
			return &BindingError{Unit: g.Unit, What: "the Quadlet file", Want: p.Unit, Have: fmt.Sprintf("%q (%v)", g.SourcePath, err)}
		}
		want = src.Path
	}
	if filepath.Clean(g.SourcePath) == filepath.Clean(want) && g.SourcePath != "" {
		return nil
	}
	e := &BindingError{Unit: g.Unit, What: "the Quadlet file", Want: quoted(want), Have: quoted(g.SourcePath), Winner: g.SourcePath}
	if g.SourcePath == "" {
		e.Have, e.Winner = "none", g.FragmentPath // a unit file written by hand
	}
	return e
}

func verifyImage(p Pin, g Generated) *mismatch {
	run, err := theRun(g, p.Reference)
	if err != nil {
		return &mismatch{"ExecStart=", err.Error(), "one podman run", sets("Container/Image", "Container/Rootfs", "Service/ExecStart")}
	}
	if run.image != p.Reference {
		return &mismatch{"the image", quoted(run.image), quoted(p.Reference),
			either(sets("Container/Image", "Container/Rootfs", "Service/ExecStart"), passes(run.image))}
	}
	if pull, _ := run.last("pull"); pull != "never" {
		return &mismatch{"the pull policy", quoted(pull), "never", either(sets("Container/Pull", "Service/ExecStart"), passes("--pull"))}
	}
	if have, _ := run.label(OperationLabel); have != p.Operation {
		return &mismatch{"the label " + OperationLabel, quoted(have), quoted(p.Operation),
			either(sets("Container/Label", "Service/ExecStart"), passes(OperationLabel))}
	}
	if what, _, undoes := leads(g, run); what != "" {
		return &mismatch{"ExecStart=", what, "the user's own Podman", undoes}
	}
	return nil
}

// theRun is the one command of a unit. Quadlet makes exactly one; others beside it come from elsewhere.
func theRun(g Generated, wanted string) (podmanRun, error) {
	if len(g.ExecStart) != 1 {
		return podmanRun{}, fmt.Errorf("%d commands", len(g.ExecStart))
	}
	run, err := parseRun(g.ExecStart[0], wanted)
	if err != nil {
		return podmanRun{}, fmt.Errorf("a command that %w", err)
	}
	return run, nil
}

// verifyFence wants both halves of the fence, or, of a pin without one, no half of an old one: it would keep a promoted
// unit down for ever.
func verifyFence(p Pin, g Generated) *mismatch {
	if !p.Fenced {
		return verifyNoFence(g)
	}
	condition := Condition{Type: "ConditionEnvironment", Parameter: p.AdmissionVar + "=1"}
	if !slices.Contains(g.Conditions, condition) {
		return &mismatch{"ConditionEnvironment=", "not there", quoted(condition.Parameter), func(s Setting) bool {
			// An empty one of any kind takes back all before it.
			return s.Section == "Unit" && strings.HasPrefix(s.Key, "Condition") && s.Value == ""
		}}
	}
	command := []string{"/usr/bin/test", "-n", "${" + p.AdmissionVar + "}"}
	if !slices.ContainsFunc(g.ExecCondition, func(argv []string) bool { return slices.Equal(argv, command) }) {
		return &mismatch{"ExecCondition=", "not there", quoted(strings.Join(command, " ")), sets("Service/ExecCondition")}
	}
	return nil
}

func verifyNoFence(g Generated) *mismatch {
	undoes := func(s Setting) bool { return strings.Contains(s.Value, fencePrefix) }
	for _, c := range g.Conditions {
		if strings.HasPrefix(c.Parameter, fencePrefix) {
			return &mismatch{c.Type + "=", quoted(c.Parameter), "nothing of a fence", undoes}
		}
	}
	for _, argv := range g.ExecCondition {
		if command := strings.Join(argv, " "); strings.Contains(command, fencePrefix) {
			return &mismatch{"ExecCondition=", quoted(command), "nothing of a fence", undoes}
		}
	}
	return nil
}

func verifyOrder(_ Pin, g Generated) *mismatch {
	if !slices.Contains(g.After, ReconcileUnit) {
		return &mismatch{"After=", "without it", ReconcileUnit, sets("Unit/After")}
	}
	alert := "toad-alert@" + strings.TrimSuffix(g.Unit, ".service") + ".service"
	if !slices.Contains(g.OnFailure, alert) {
		return &mismatch{"OnFailure=", quoted(strings.Join(g.OnFailure, " ")), alert, sets("Unit/OnFailure")}
	}
	return nil
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

// sets matches the settings of the keys given as Section/Key.
func sets(keys ...string) func(Setting) bool {
	return func(s Setting) bool { return slices.Contains(keys, s.Section+"/"+s.Key) }
}

// passes matches what adds the text to podman's command line. It stands behind toad's options there, wherever it is set.
func passes(text string) func(Setting) bool {
	return func(s Setting) bool { return appended(s) && strings.Contains(s.Value, text) }
}

func appended(s Setting) bool {
	return s.Section == "Container" && (s.Key == "PodmanArgs" || s.Key == "GlobalArgs")
}

func either(a, b func(Setting) bool) func(Setting) bool {
	return func(s Setting) bool { return a(s) || b(s) }
}

// winner names the file that undoes the pin: a drop-in of systemd's, which comes after all that the generator makes;
// else a file that hides the pin; else the last setting merged behind it.
func winner(d Dirs, p Pin, g Generated, undoes func(Setting) bool) string {
	for _, path := range slices.Backward(g.DropInPaths) {
		if s, err := readUnit(path); err == nil {
			if place := lastPlace(s, undoes); place != "" {
				return place
			}
		}
	}
	src, err := Find(d, p.Unit)
	if err != nil {
		return ""
	}
	pin := d.Pins().Path(p.Unit)
	at := slices.IndexFunc(src.DropIns, func(path string) bool { return sameFile(path, pin) })
	if at < 0 {
		if i := slices.IndexFunc(src.DropIns, func(path string) bool { return filepath.Base(path) == pinName }); i >= 0 {
			return src.DropIns[i] + " (the generator takes it for " + pin + ")"
		}
		return ""
	}
	behind := map[string]bool{}
	for _, path := range src.DropIns[at+1:] {
		behind[path] = true
	}
	return lastPlace(src.settings, func(s Setting) bool {
		return undoes(s) && (behind[s.File] || appended(s) || s.Key == "Environment") // which the pin does not set
	})
}

func lastPlace(s settings, match func(Setting) bool) string {
	for _, each := range slices.Backward(s) {
		if match(each) {
			return each.place()
		}
	}
	return ""
}

// sameFile compares paths of which one may go through a link: the generator resolves its folders.
func sameFile(a, b string) bool {
	dirA, errA := filepath.EvalSymlinks(filepath.Dir(a))
	dirB, errB := filepath.EvalSymlinks(filepath.Dir(b))
	return errA == nil && errB == nil && dirA == dirB && filepath.Base(a) == filepath.Base(b)
}
