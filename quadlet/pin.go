package quadlet

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"toad/internal/atomicfile"
	"toad/probation"
	"toad/unitgen"
)

// Pin is the drop-in by which toad makes a unit run one release.
type Pin struct {
	Operation string // "web-g7"
	Service   string // "web"
	Unit      string // "web.container"; not part of the text
	Source    string // the Quadlet file the unit must come from; "" = the one the generator would take; not part of the text
	Reference string // repo@sha256:…, or the 64 hex digits of an image id; of a file its sha256
	File      bool   // the release is a file, run by a plain unit
	Digest    string // of the release, told beside an image id, which does not say it; may be ""
	Release   string // the text of the unit's Quadlet file where it belongs to the release; whole lines
	// Fenced pins refuse every start, automatic ones too, while AdmissionVar is not set in the user manager.
	Fenced       bool
	AdmissionVar string // "TOAD_ADMITTED_web_g7"
}

// What every pin makes of its unit.
const (
	// ReconcileUnit admits candidates after a boot; the pinned unit is ordered after it.
	ReconcileUnit = "toad-reconcile.service"
	// OperationLabel is the container label by which a container is told to be an operation's.
	OperationLabel = "io.toad.operation"
	digestLabel    = "io.toad.digest"
	fencePrefix    = "TOAD_ADMITTED_"
)

// Text is the drop-in. The condition refuses a start; systemd does not test it again before an automatic restart, which
// only the ExecCondition refuses.
func (p Pin) Text() string {
	byID := imageID.MatchString(p.Reference) && p.Digest != ""
	var b strings.Builder
	line := func(when bool, format string, args ...any) {
		if when {
			fmt.Fprintf(&b, format+"\n", args...)
		}
	}
	line(p.Idle(), "# This side is idle: nothing may start it until a candidate takes it.")
	line(true, "# Written by toad for %s. Remove with: toad unpin %s", p.Operation, p.Service)
	line(p.File, "# The link in toad's state folder selects what it runs: the file of sha256 %s.", p.Reference)
	b.WriteString(releaseText(p.Release))
	line(!p.File && byID, "# The image is %s, named by its id: an image that was kept on this host comes back without its digest.", p.Digest)
	line(true, "[Unit]")
	line(true, "After="+ReconcileUnit)
	line(true, "OnFailure=toad-alert@%%N.service")
	line(p.Fenced, "ConditionEnvironment=%s=1", p.AdmissionVar)
	line(!p.File, "[Container]")
	line(!p.File, "Image=%s", p.Reference)
	line(!p.File, "Pull=never")
	line(!p.File, "AutoUpdate=")
	line(!p.File, "Label="+OperationLabel+"=%s", p.Operation)
	line(!p.File && byID, "Label="+digestLabel+"=%s", p.Digest)
	line(p.Fenced || p.File, "[Service]")
	line(p.File, "Environment="+unitgen.OperationVar+"=%s", p.Operation)
	line(p.Fenced, "ExecCondition=/usr/bin/test -n ${%s}", p.AdmissionVar)
	line(p.File, "[%s]", pinSection)
	line(p.File, "File=%s", p.Reference)
	line(p.File && p.Digest != "", "Digest=%s", p.Digest)
	return b.String()
}

// idleEnd ends the name of a variable that nobody ever sets. An operation's ends in its generation.
const idleEnd = "_idle"

// Idle reports whether the pin is one of a side that nothing may start.
func (p Pin) Idle() bool { return p.Fenced && strings.HasSuffix(p.AdmissionVar, idleEnd) }

// ParsePin reads a pin back from its text. Unit and Source are not in it.
func ParsePin(text string) (Pin, error) {
	p := Pin{}
	text, p.Release = cutRelease(text)
	s, err := parseUnit(pinName, []byte(text))
	if err != nil {
		return Pin{}, err
	}
	for _, each := range s {
		switch key, value, _ := strings.Cut(each.Value, "="); {
		case each.Section == pinSection && each.Key == "File":
			p.Reference, p.File = each.Value, true
		case each.Section == pinSection && each.Key == "Digest":
			p.Digest = each.Value
		case each.Key == "Environment" && key == unitgen.OperationVar:
			p.Operation = value
		case each.Key == "Image":
			p.Reference = each.Value
		case each.Key == "Label" && key == OperationLabel:
			p.Operation = value
		case each.Key == "Label" && key == digestLabel:
			p.Digest = value
		case each.Key == "ConditionEnvironment" && strings.HasPrefix(key, fencePrefix):
			p.Fenced, p.AdmissionVar = true, key
		}
	}
	service, _, ok := probation.ParseOperationID(p.Operation)
	if !ok || p.Reference == "" {
		return Pin{}, Problem{File: pinName, What: "is not a pin that toad wrote", Fix: "remove it with: toad unpin"}
	}
	if _, digest, ok := strings.Cut(p.Reference, "@"); ok {
		p.Digest = digest
	}
	p.Service = service
	return p, nil
}

const (
	// pinName sorts behind what people commonly call their drop-ins; one that sorts behind it still wins, which Verify
	// finds.
	pinName = "zz-toad.conf"
	// previousName does not end in .conf: no generator reads it.
	previousName = "zz-toad.previous"
	// madeName marks a drop-in folder as toad's, to go with the last pin.
	madeName = ".toad-made"
)

// ErrWrite is wrapped by every error of a pin that could not be written or removed.
var ErrWrite = errors.New("the pin could not be changed")

// Pins are the pins of all units, one drop-in file each below Dir. They take a unit's Quadlet file name.
type Pins struct {
	Dir   string // $XDG_CONFIG_HOME/containers/systemd
	Plain string // $XDG_CONFIG_HOME/systemd/user, for plain units
}

// Pins are those of the folders' user.
func (d Dirs) Pins() Pins { return Pins{Dir: d.Config, Plain: d.Units} }

// Path is where a unit's pin stands.
func (p Pins) Path(unit string) string { return filepath.Join(p.folder(unit), pinName) }

func (p Pins) folder(unit string) string {
	if Plain(unit) {
		return filepath.Join(p.Plain, unit+".d")
	}
	return filepath.Join(p.Dir, unit+".d")
}

func (p Pins) previousPath(unit string) string { return filepath.Join(p.folder(unit), previousName) }

// Read returns the text of a unit's pin; ok is false when there is none.
func (p Pins) Read(unit string) (text string, ok bool, err error) {
	data, err := os.ReadFile(p.Path(unit))
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, nil
	}
	return string(data), err == nil, err
}

// Write puts a pin in place. Anybody's daemon-reload may load it from then on.
func (p Pins) Write(unit, text string) error {
	return pinError(unit, p.write(unit, p.Path(unit), text))
}

func (p Pins) write(unit, path, text string) error {
	if err := p.makeFolder(unit); err != nil {
		return err
	}
	return atomicfile.Write(path, []byte(text), 0o644)
}

func (p Pins) makeFolder(unit string) error {
	dir := p.folder(unit)
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := atomicfile.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, madeName), nil, 0o644)
}

// LayPrevious puts text, which a restore will want, beside the pin under a name that nothing reads; "" stands for no
// pin. A restore then only renames, which works on a full disk. The caller passes the text that it has recorded: after a
// crash the pin that is in place may be the candidate's already.
func (p Pins) LayPrevious(unit, text string) error {
	if laid, err := os.ReadFile(p.previousPath(unit)); err == nil && string(laid) == text {
		return nil
	}
	return pinError(unit, p.write(unit, p.previousPath(unit), text))
}

// Restore makes text the unit's pin, or removes the pin when text is "". It uses what LayPrevious laid if that is the
// same text.
func (p Pins) Restore(unit, text string) error {
	have, ok, err := p.Read(unit)
	if err == nil && have == text && ok == (text != "") {
		return p.DropPrevious(unit)
	}
	if text == "" {
		return p.Remove(unit)
	}
	if laid, err := os.ReadFile(p.previousPath(unit)); err == nil && string(laid) == text {
		return pinError(unit, atomicfile.Rename(p.previousPath(unit), p.Path(unit)))
	}
	if err := p.Write(unit, text); err != nil {
		return err
	}
	return p.DropPrevious(unit)
}

// DropPrevious removes what LayPrevious laid.
func (p Pins) DropPrevious(unit string) error {
	err := atomicfile.Remove(p.previousPath(unit))
	return pinError(unit, errors.Join(err, p.dropFolder(unit)))
}

// Remove takes away the pin and what lies beside it, and the folder if toad made it and nothing else is in it.
func (p Pins) Remove(unit string) error {
	// The pin first: if the rest is cut short, what is left over does nothing.
	if err := atomicfile.Remove(p.Path(unit)); err != nil {
		return pinError(unit, err)
	}
	return p.DropPrevious(unit)
}

// dropFolder removes a folder of toad's own that holds nothing but its mark.
func (p Pins) dropFolder(unit string) error {
	dir := p.folder(unit)
	if _, err := atomicfile.Sweep(dir); err != nil {
		return err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ignoreMissing(err)
	}
	mark := slices.IndexFunc(entries, func(e fs.DirEntry) bool { return e.Name() == madeName })
	if mark < 0 || len(entries) > 1 {
		return nil
	}
	if err := atomicfile.Remove(filepath.Join(dir, madeName)); err != nil {
		return err
	}
	if err := atomicfile.Remove(dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
		return err
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func pinError(unit string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w", unit, ErrWrite, err)
}
