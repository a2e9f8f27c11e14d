package quadlet

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Dirs are the folders in which Podman's generator finds a user's Quadlets.
type Dirs struct {
	Config string   // $XDG_CONFIG_HOME/containers/systemd; toad's pins go below it
	Roots  []string // all, in the generator's order: of two files of one name the first counts
	Units  string   // $XDG_CONFIG_HOME/systemd/user: the plain units of binary services, and the pins beside them
	Live   string   // the folder of the links that plain units run
}

// UserDirs are the folders of a rootless user. The order is that of Podman's code, which has users before users/<uid>;
// the manual page names them the other way round. Podman reads the two below /usr from version 6 on.
func UserDirs(configHome, runtimeDir string, uid int) Dirs {
	config := filepath.Join(configHome, "containers/systemd")
	d := Dirs{Config: config, Units: filepath.Join(configHome, "systemd/user"), Roots: []string{filepath.Join(runtimeDir, "containers/systemd"), config}}
	for _, base := range []string{"/etc/containers/systemd/users", "/usr/share/containers/systemd/users"} {
		d.Roots = append(d.Roots, base, filepath.Join(base, strconv.Itoa(uid)))
	}
	return d
}

// Source is what the files on disk say of a unit. It is for diagnosis and for names; what runs is what the manager has
// loaded, a Generated.
type Source struct {
	Unit        string   // "web@a.container"
	Path        string   // the file that the generator reads, as the manager shows it in SourcePath
	ServiceUnit string   // "web@a.service", or what ServiceName= says
	DropIns     []string // paths, in the order in which they are merged; toad's pin is among them
	Shadowed    []string // files of the same name that the generator ignores

	twins    []string // those of Shadowed that lie under the same root as Path: nobody does that on purpose
	settings settings
	folders  []folder
}

// Lookup returns the effective value of a key of the operator's own files: toad's pin does not count.
func (s Source) Lookup(section, key string) (Setting, bool) {
	return s.own().last(section, key)
}

// Overridden reports whether the files as they lie, loaded or not, put another image in the place of a pin's.
func Overridden(d Dirs, p Pin) bool {
	src, err := Find(d, p.Unit)
	if err != nil {
		return false
	}
	image, ok := src.settings.last("Container", "Image")
	return ok && image.Value != p.Reference
}

func (s Source) own() settings {
	return slices.DeleteFunc(slices.Clone(s.settings), func(each Setting) bool { return filepath.Base(each.File) == pinName })
}

// Find reads what the generator would read for a unit. That there is no such file, or none that can be read, is a
// Problem.
func Find(d Dirs, unit string) (Source, error) {
	if Plain(unit) {
		return findPlain(d, unit)
	}
	return d.Survey().Find(unit)
}

// Survey is which folders there are at one moment. Who looks for many units makes one for all of them: to list the folders
// takes as long as there are units.
type Survey struct {
	dirs    Dirs
	folders []folder
}

// Survey looks for the folders that the generator reads.
func (d Dirs) Survey() Survey { return Survey{d, walk(d.Roots)} }

// Find is Find in the folders of the survey.
func (v Survey) Find(unit string) (Source, error) {
	if Plain(unit) {
		return findPlain(v.dirs, unit)
	}
	src := Source{Unit: unit, folders: v.folders}
	found, problem := src.readFile()
	if !found {
		if problem != nil {
			return Source{}, *problem
		}
		return Source{}, missing(v.dirs, v.folders, unit)
	}
	if err := src.readDropIns(); err != nil {
		return Source{}, err
	}
	name := strings.TrimSuffix(unit, filepath.Ext(unit))
	if s, ok := src.settings.last("Container", "ServiceName"); ok {
		name = s.Value
	}
	src.ServiceUnit = name + ".service"
	return src, nil
}

func missing(d Dirs, folders []folder, unit string) error {
	p := Problem{Key: unit, What: "there is no such file where Podman's generator looks", Fix: "put it into " + d.Config + " or mend the name"}
	if base, instance, ok := strings.Cut(unit, "@"); ok && instance != ".container" {
		template := base + "@.container"
		for _, f := range folders {
			if path := filepath.Join(f.path, template); exists(path) {
				p.File = path
				p.What = "is a template, and an instance can be pinned only if it has a file of its own"
				p.Fix = fmt.Sprintf("link it: ln -s %s %s", template, filepath.Join(f.path, unit))
				break
			}
		}
	}
	return p
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readFile takes the first file of the unit's name that can be read. One that cannot does not hide a later one.
func (s *Source) readFile() (found bool, problem *Problem) {
	root := 0
	for _, f := range s.folders {
		path := filepath.Join(f.path, s.Unit)
		if found {
			if exists(path) {
				s.Shadowed = append(s.Shadowed, path)
				if f.root == root {
					s.twins = append(s.twins, path)
				}
			}
			continue
		}
		settings, err := readUnit(path)
		switch {
		case err == nil:
			found, root, s.Path, s.settings = true, f.root, path, settings
		case !errors.Is(err, fs.ErrNotExist) && problem == nil:
			problem = asProblem(path, err)
		}
	}
	return found, problem
}

// readDropIns merges the drop-ins of all levels in the order of their file names. Of two with one name the one of the
// narrower level counts, and within a level the one of the earlier folder. The generator passes over a drop-in that it
// cannot read.
func (s *Source) readDropIns() error {
	paths := map[string]string{}
	for _, level := range dropInLevels(s.Unit) {
		for _, f := range s.folders {
			dir := filepath.Join(f.path, level)
			entries, err := os.ReadDir(dir)
			if err != nil {
				continue
			}
			for _, e := range entries {
				if _, ok := paths[e.Name()]; !ok && filepath.Ext(e.Name()) == ".conf" {
					paths[e.Name()] = filepath.Join(dir, e.Name())
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(paths)) {
		more, err := readUnit(paths[name])
		if err != nil {
			continue
		}
		s.DropIns = append(s.DropIns, paths[name])
		s.settings = append(s.settings, more...)
	}
	return nil
}

// dropInLevels are the names of a unit's drop-in folders, narrowest first: for a-b@c.container its own, the template's
// a-b@.container.d, then those of the name cut at each dash, and container.d for all.
func dropInLevels(unit string) []string {
	ext := filepath.Ext(unit)
	name, instance, isTemplate := strings.Cut(strings.TrimSuffix(unit, ext), "@")
	levels := []string{unit + ".d"}
	if instance != "" {
		levels = append(levels, name+"@"+ext+".d")
	}
	for i := len(name) - 1; i >= 0; i-- {
		if name[i] != '-' {
			continue
		}
		if isTemplate {
			levels = append(levels, name[:i+1]+"@"+ext+".d")
		}
		levels = append(levels, name[:i+1]+ext+".d")
	}
	return append(levels, strings.TrimPrefix(ext, ".")+".d")
}

func readUnit(path string) (settings, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseUnit(path, data)
}

func asProblem(path string, err error) *Problem {
	var p Problem
	if !errors.As(err, &p) {
		p = Problem{File: path, What: err.Error(), Fix: "make it a file that the user can read"}
	}
	return &p
}

// folder is one that the generator reads, its links resolved, and the root below which it was found.
type folder struct {
	path string
	root int
}

// walk lists the roots and the folders below them in the generator's order. Links are followed, each folder is visited
// once, and drop-in folders are not searched for units.
func walk(roots []string) []folder {
	w := walker{seen: map[string]bool{}}
	for i, root := range roots {
		w.root, w.users = i, ""
		if filepath.Base(root) == "users" {
			w.users, _ = filepath.EvalSymlinks(root)
		}
		w.visit(root)
	}
	return w.folders
}

type walker struct {
	folders []folder
	seen    map[string]bool
	root    int
	users   string // the folder whose numbered sub-folders belong to single users; "" outside it
}

var numbered = regexp.MustCompile(`^[0-9]+$`)

func (w *walker) visit(path string) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil || strings.HasSuffix(path, ".d") {
		return
	}
	if info, err := os.Stat(path); err != nil || !info.IsDir() {
		return
	}
	w.enter(path)
}

// enter takes in a folder whose links are resolved, and those below it. Most of what lies there is neither a folder nor a
// link, and costs no more than its name.
func (w *walker) enter(path string) {
	if w.seen[path] {
		return
	}
	if below, ok := strings.CutPrefix(path, w.users+"/"); ok && w.users != "" {
		if first, _, _ := strings.Cut(below, "/"); numbered.MatchString(first) {
			return // a user's own, which has a root for itself
		}
	}
	w.seen[path] = true
	w.folders = append(w.folders, folder{path, w.root})
	entries, err := os.ReadDir(path)
	if err != nil {
		return
	}
	for _, e := range entries {
		switch below := filepath.Join(path, e.Name()); {
		case e.Type()&fs.ModeSymlink != 0:
			w.visit(below)
		case e.IsDir() && !strings.HasSuffix(below, ".d"):
			w.enter(below)
		}
	}
}
