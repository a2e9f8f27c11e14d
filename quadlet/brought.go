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
	"time"

	"github.com/pelletier/go-toml/v2"

	"toad/probation"
)

// A release may bring the text of its units. It stands in the pin as it is, between two comments, and what the pin itself
// says stands behind it and wins. So whatever puts a pin back puts the text back, and what the unit's own file says, which
// is there to give the unit its name, is the same for all releases.
const (
	releaseBegins = "# What release brings, lines: "
	releaseEnds   = "# What toad says of it:"
)

func releaseText(text string) string {
	if text == "" {
		return ""
	}
	return fmt.Sprintf("%s%d\n%s%s\n", releaseBegins, strings.Count(text, "\n"), text, releaseEnds)
}

var releaseBegin = regexp.MustCompile("(?m)^" + releaseBegins + "([0-9]{1,6})$")

// cutRelease takes the text of a release out of a pin's. The count of its lines, and not what they say, tells its end.
func cutRelease(pin string) (rest, text string) {
	at := releaseBegin.FindStringSubmatchIndex(pin)
	if at == nil {
		return pin, ""
	}
	count, _ := strconv.Atoi(pin[at[2]:at[3]])
	lines := strings.SplitAfter(pin[at[1]:], "\n") // the first is the end of the comment
	if len(lines) < count+2 || lines[count+1] != releaseEnds+"\n" {
		return pin, ""
	}
	return pin[:at[0]] + strings.Join(lines[count+2:], ""), strings.Join(lines[1:count+1], "")
}

// CheckRelease says what keeps a text from being a release's: it could not be told from the rest of a pin.
func CheckRelease(text string) error {
	if text == "" {
		return fmt.Errorf("it is empty")
	}
	if !strings.HasSuffix(text, "\n") || strings.HasSuffix(text, "\\\n") {
		return fmt.Errorf("it does not end with a whole line")
	}
	if strings.ContainsAny(text, "\x00\r") {
		return fmt.Errorf("it holds a character that no unit file has")
	}
	_, err := parseUnit("", []byte(text))
	return err
}

// Settings are the keys that a text sets, in their order, as Podman's generator reads them.
func Settings(file string, text []byte) ([]Setting, error) { return parseUnit(file, text) }

// readTexts takes what a bundle's enrollment brings: the text of each unit.
func readTexts(t *table, e *probation.Enrollment) {
	if !t.has("text") {
		return
	}
	if !t.brought {
		t.refuse("text", "is for what bundles bring", "take it out: the units of this file have files of their own")
		return
	}
	part := t.part("text")
	defer part.refuseTheRest()
	texts := map[string]string{}
	for _, unit := range e.Units {
		texts[unit] = part.checked(unit, func(text string) (what, fix string) {
			if err := CheckRelease(text); err != nil {
				return err.Error(), "have the bundle brought again"
			}
			return "", ""
		})
		if texts[unit] == "" {
			part.refuse(unit, "is missing", "have the bundle brought again")
		}
	}
	e.Definition = probation.Define(texts, e.Ready)
}

// Brought is the enrollment of what bundles bring, from all files of a folder of toad's own, by name. Services that the
// operator has enrolled, or of which he has a unit, are left out: what he says himself counts. A missing folder brings
// nothing. The error tells what is not in force; the rest is.
func Brought(folder string, own *File) (services []probation.Enrollment, err error) {
	files, err := os.ReadDir(folder)
	if ignoreMissing(err) != nil {
		return nil, err
	}
	err = nil
	taken := map[string]string{}
	claim := func(e probation.Enrollment, by string) (key, owner string) {
		keys := append([]string{"service " + e.Name}, e.Units...)
		for _, key := range keys {
			if owner := taken[key]; owner != "" {
				return key, owner
			}
		}
		for _, key := range keys {
			taken[key] = by
		}
		return "", ""
	}
	if own != nil {
		for _, e := range own.Services {
			claim(e, own.Path)
		}
	}
	for _, each := range files {
		if filepath.Ext(each.Name()) != ".toml" {
			continue
		}
		file, bad := load(filepath.Join(folder, each.Name()), true)
		if bad != nil {
			if !errors.Is(bad, fs.ErrNotExist) {
				err = errors.Join(err, bad)
			}
			continue
		}
		for _, e := range file.Services {
			if key, owner := claim(e, file.Path); owner != "" {
				err = errors.Join(err, Problem{File: file.Path, Key: "service." + e.Name, What: key + " is enrolled in " + owner + ", which counts",
					Fix: "take it out of one of the two"})
				continue
			}
			services = append(services, e)
		}
	}
	return services, err
}

// BroughtText is the text of an enrollment file that brings these services.
func BroughtText(services []probation.Enrollment) ([]byte, error) {
	all := map[string]any{}
	for _, e := range services {
		d := e.Definition
		if d == nil {
			return nil, fmt.Errorf("%s brings no text", e.Name)
		}
		ready := map[string]any{"interval": d.Ready.Interval.String(), "timeout": d.Ready.Timeout.String()}
		for key, value := range map[string]string{"http": d.Ready.HTTP, "tcp": d.Ready.TCP, "unix": d.Ready.Unix} {
			if value != "" {
				ready[key] = value
			}
		}
		for key, value := range map[string]bool{"health": d.Ready.Health, "notify": d.Ready.Notify} {
			if value {
				ready[key] = true
			}
		}
		if d.Ready.Status != 0 {
			ready["status"] = d.Ready.Status
		}
		l := e.Limit
		all[e.Name] = map[string]any{"units": e.Units, "image": e.Image, "ready": ready, "text": d.Texts,
			"probation": map[string]any{"deadline": l.Deadline.String(), "stable": l.Stable.String(), "restarts": l.Restarts, "pull": l.Pull.String(), "keep": l.Keep}}
	}
	return toml.Marshal(map[string]any{"service": all})
}

// FillDefaults gives an enrollment what it leaves out, as the reader of a file does.
func FillDefaults(e *probation.Enrollment) {
	for into, value := range map[*time.Duration]time.Duration{
		&e.Ready.Interval: probation.DefaultInterval, &e.Ready.Timeout: probation.DefaultTimeout, &e.Limit.Deadline: probation.DefaultDeadline,
		&e.Limit.Stable: probation.DefaultStable, &e.Limit.Pull: probation.DefaultPull,
	} {
		if *into == 0 {
			*into = value
		}
	}
	if e.Limit.Keep == 0 {
		e.Limit.Keep = probation.DefaultKeep
	}
}

// CheckBrought reads a bundle's enrollment as it would be read from a file, and returns its services.
func CheckBrought(services []probation.Enrollment) ([]probation.Enrollment, error) {
	text, err := BroughtText(services)
	if err != nil {
		return nil, err
	}
	file, err := parse("the bundle", text, true)
	if err != nil {
		return nil, err
	}
	return file.Services, nil
}

// Units are those that services have, sorted.
func Units(services []probation.Enrollment) []string {
	units := map[string]bool{}
	for _, e := range services {
		for _, unit := range e.Units {
			units[unit] = true
		}
	}
	return slices.Sorted(maps.Keys(units))
}
