package quadlet

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toad/internal/atomicfile"
	"toad/unitgen"
)

// Units lists the Quadlet files that have a pin, whatever is in it, sorted.
func (p Pins) Units() ([]string, error) { return p.with(pinName) }

// Laid lists the units beside whose pin a previous one lies, for a restore.
func (p Pins) Laid() ([]string, error) { return p.with(previousName) }

func (p Pins) with(name string) (units []string, err error) {
	for _, dir := range []string{p.Dir, p.Plain} {
		entries, err := os.ReadDir(dir)
		if ignoreMissing(err) != nil && dir != "" {
			return nil, err
		}
		for _, e := range entries {
			unit, ok := strings.CutSuffix(e.Name(), ".d")
			if _, err := os.Lstat(filepath.Join(dir, e.Name(), name)); ok && err == nil && Plain(unit) == (dir == p.Plain) {
				units = append(units, unit)
			}
		}
	}
	slices.Sort(units)
	return units, nil
}

// Previous returns the text that LayPrevious laid; ok is false when none lies there.
func (p Pins) Previous(unit string) (text string, ok bool, err error) {
	data, err := os.ReadFile(p.previousPath(unit))
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return string(data), err == nil, err
}

// Written is when a unit's pin was written; zero if there is none.
func (p Pins) Written(unit string) time.Time {
	info, err := os.Stat(p.Path(unit))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Sweep takes away the temporary files that writers killed half way left beside pins, and returns their paths.
func (p Pins) Sweep() (swept []string, err error) {
	folders, err := filepath.Glob(filepath.Join(p.Dir, "*.d"))
	if plain, bad := filepath.Glob(filepath.Join(p.Plain, "*.service.d")); p.Plain != "" {
		folders, err = append(folders, plain...), errors.Join(err, bad)
	}
	for _, d := range folders {
		found, bad := atomicfile.Sweep(d)
		swept, err = append(swept, found...), errors.Join(err, bad)
	}
	return swept, err
}

// Folders are those in which a change may touch the units' pins: their own, those in which a drop-in may undo them, and
// the one of all Quadlets, for systemd does not tell of a folder when one above it is replaced.
func (p Pins) Folders(units ...string) []string {
	all := []string{p.Dir, filepath.Join(p.Dir, "container.d")}
	for _, u := range units {
		if Plain(u) {
			all = append(all, p.folder(u), p.Plain)
			continue
		}
		service := strings.TrimSuffix(u, filepath.Ext(u)) + ".service.d"
		all = append(all, p.folder(u), filepath.Join(p.Dir, "..", "..", "systemd", "user", service))
	}
	return all
}

// VerifyUnpinned makes sure that nothing of a pin is in a loaded unit any more, and returns the image that its next start
// runs; "" where the unit runs no container.
func VerifyUnpinned(g Generated) (image string, err error) {
	if m := verifyNoFence(g); m != nil {
		return "", &BindingError{Unit: g.Unit, What: m.what, Have: m.have, Want: m.want}
	}
	if g.Operation != "" {
		return "", &BindingError{Unit: g.Unit, What: unitgen.OperationVar, Have: quoted(g.Operation), Want: "none"}
	}
	run, err := theRun(g, "")
	if err != nil {
		return "", nil
	}
	if have, _ := run.label(OperationLabel); have != "" {
		return run.image, &BindingError{Unit: g.Unit, What: "the label " + OperationLabel, Have: quoted(have), Want: "none"}
	}
	return run.image, nil
}
