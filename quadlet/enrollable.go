package quadlet

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// dryRun is how an operator sees why the generator makes no unit.
const dryRun = "run /usr/lib/systemd/user-generators/podman-user-generator --user --dryrun: it says what it cannot read"

// CheckEnrollable judges whether toad can pin a unit, from what its files say and what the manager has loaded. image is
// the enrolled repository. The error is Problems.
func CheckEnrollable(src Source, g Generated, image string) error {
	var found Problems
	if g.LoadState == "masked" {
		return Problems{{File: g.FragmentPath, Key: g.Unit, What: "is masked", Fix: "systemctl --user unmask " + g.Unit}}
	}
	found = append(found, checkTwins(src)...)
	found = append(found, checkImageLine(src, image)...)
	if g.LoadState != "loaded" {
		return append(found, Problem{File: src.Path, What: fmt.Sprintf("has no unit: %s is %s", g.Unit, g.LoadState),
			Fix: "systemctl --user daemon-reload, and if that does not help " + dryRun})
	}
	loaded := checkLoaded(src, g)
	if len(found)+len(loaded) == 0 {
		loaded = checkCommand(src, g, image)
	}
	if len(loaded) > 0 && g.NeedDaemonReload {
		// Not a fault by itself: a deployment reloads. But what is loaded may be wrong in what the files have right.
		loaded = append(loaded, Problem{File: src.Path, What: "is not what is loaded: something has changed since", Fix: "systemctl --user daemon-reload, and try again"})
	}
	return append(found, loaded...).err()
}

func checkTwins(src Source) Problems {
	if len(src.twins) == 0 {
		return nil
	}
	return Problems{{File: src.twins[0], What: "has the same name as " + src.Path + ", and only that one is read",
		Fix: "rename or remove one of the two"}}
}

func checkLoaded(src Source, g Generated) Problems {
	var found Problems
	if g.SourcePath == "" {
		found = append(found, Problem{File: g.FragmentPath, Key: g.Unit, What: "is not made from a Quadlet file: this file takes its place",
			Fix: "remove it and reload"})
	} else if filepath.Clean(g.SourcePath) != filepath.Clean(src.Path) {
		found = append(found, Problem{File: src.Path, Key: g.Unit, What: "is made from another file, " + g.SourcePath,
			Fix: "rename or remove one of the two and reload"})
	}
	if !g.DefaultDependencies {
		p := Problem{File: src.Path, Key: "[Unit] DefaultDependencies", What: "is off: the unit could start before toad has decided what it may run",
			Fix: "take it out, or set it to yes"}
		if s, ok := src.settings.last("Unit", "DefaultDependencies"); ok {
			p.File, p.Line = s.File, s.Line
		}
		found = append(found, p)
	}
	return found
}

// checkImageLine judges what the operator's own files say of the image; toad's pin does not count.
func checkImageLine(src Source, image string) Problems {
	if s, ok := src.Lookup("Container", "Rootfs"); ok && s.Value != "" {
		return Problems{s.problem("runs a folder, not an image", "use Image= with "+image)}
	}
	s, ok := src.Lookup("Container", "Image")
	if !ok || s.Value == "" {
		return Problems{noImage(src, image)}
	}
	if strings.HasSuffix(s.Value, ".build") {
		return Problems{s.problem(fmt.Sprintf("is built on this host by %s: no registry has a digest of it", s.Value),
			"push the image and use Image="+image)}
	}
	if strings.HasSuffix(s.Value, ".image") {
		var p *Problem
		if s, p = src.imageUnit(s); p != nil {
			return Problems{*p}
		}
	}
	if strings.Contains(s.Value, "%") {
		return nil // the manager knows what that stands for, and checkCommand asks it
	}
	return checkSame(s, s.Value, image)
}

func (s Setting) problem(what, fix string) Problem {
	return Problem{File: s.File, Line: s.Line, Key: fmt.Sprintf("[%s] %s", s.Section, s.Key), What: what, Fix: fix}
}

func noImage(src Source, image string) Problem {
	p := Problem{File: src.Path, Key: "[Container] Image", What: "is missing", Fix: "write Image=" + image + " with a tag"}
	for _, s := range src.own() {
		if s.Key != "Image" && strings.EqualFold(s.Key, "Image") {
			return s.problem("is not a key: Podman tells Image from "+s.Key, "write Image")
		}
		if s.Key == "Image" && s.Section != "Container" {
			p = s.problem("stands in the wrong section", "move it to [Container]")
		}
	}
	return p
}

// imageUnit follows Image=web.image to the image that the .image file names. A pin then overrides Image= of this one
// container; the shared file and the other containers that use it stay as they are.
func (src Source) imageUnit(s Setting) (Setting, *Problem) {
	unit := Source{Unit: s.Value, folders: src.folders}
	found, problem := unit.readFile()
	if !found {
		if problem == nil {
			p := s.problem("names "+s.Value+", and there is no such file", "write the .image file, or name the image itself")
			problem = &p
		}
		return s, problem
	}
	if err := unit.readDropIns(); err != nil {
		return s, asProblem(unit.Path, err)
	}
	image, ok := unit.settings.last("Image", "Image")
	if !ok {
		return s, &Problem{File: unit.Path, Key: "[Image] Image", What: "is missing", Fix: "name the image"}
	}
	return image, nil
}

func checkSame(s Setting, ref, image string) Problems {
	repo, _, _, err := Repository(ref)
	if err != nil {
		return Problems{s.problem(err.Error(), "write the image in full, as in the enrollment: "+image)}
	}
	if !SameRepository(repo, image) {
		return Problems{s.problem(fmt.Sprintf("is of %s, but %s is enrolled", repo, image), "make the two agree")}
	}
	return nil
}

// lastThat is the last setting of its kind: of systemd's own drop-ins, else of the Quadlet's files.
func (src Source) lastThat(g Generated, match func(Setting) bool) (Setting, bool) {
	for _, path := range slices.Backward(g.DropInPaths) {
		s, err := readUnit(path)
		if err != nil {
			continue
		}
		for _, each := range slices.Backward(s) {
			if match(each) {
				return each, true
			}
		}
	}
	for _, each := range slices.Backward(src.settings) {
		if match(each) {
			return each, true
		}
	}
	return Setting{}, false
}

// checkCommand judges what would run. It sees what no file of the Quadlet says: a drop-in of systemd's own.
func checkCommand(src Source, g Generated, image string) Problems {
	for _, path := range slices.Backward(g.DropInPaths) {
		s, err := readUnit(path)
		if err != nil {
			continue
		}
		if set, ok := s.last("Service", "ExecStart"); ok {
			return Problems{set.problem("takes the place of the command that Podman's generator made", "take ExecStart= out: a pin cannot reach it")}
		}
	}
	blame := Problem{File: src.Path, Key: g.Unit, Fix: "look at systemctl --user cat " + g.Unit}
	written, _ := src.settings.last("Container", "Image")
	run, err := theRun(g, written.Value)
	if err != nil {
		blame.What = "runs " + err.Error() + ": toad pins units that run one container"
		return Problems{blame}
	}
	if what, fix, undoes := leads(g, run); what != "" {
		blame.What, blame.Fix = what, fix
		if s, ok := src.lastThat(g, undoes); ok {
			blame.File, blame.Line, blame.Key = s.File, s.Line, fmt.Sprintf("[%s] %s", s.Section, s.Key)
		}
		return Problems{blame}
	}
	if filepath.Base(written.File) == pinName && run.image == written.Value {
		return nil // toad's own doing, of an earlier enrollment perhaps
	}
	repo, _, _, err := Repository(run.image)
	switch {
	case err != nil:
		blame.What = err.Error()
	case !SameRepository(repo, image):
		blame.What = fmt.Sprintf("runs an image of %s, but %s is enrolled", repo, image)
	default:
		return nil
	}
	return Problems{blame}
}
