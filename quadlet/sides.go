package quadlet

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"toad/probation"
)

// readSwitch reads how a service is switched, and with beside its units.
func readSwitch(t *table, e *probation.Enrollment) {
	defer t.refuseTheRest()
	e.Hold = t.checked("hold", checkSocketUnit)
	if !t.has("beside") {
		for _, key := range []string{"listen", "door", "drain"} {
			if t.has(key) {
				t.refuse(key, "has a meaning with beside only", "name the two sides with beside, or take it out")
			}
		}
		return
	}
	before := len(t.found)
	e.Units = t.texts("beside")
	checkSides(t, e.Units, len(t.found) > before)
	e.Door = &probation.Door{Socket: t.checked("door", checkDoorUnit), Drain: t.duration("drain", probation.DefaultDrain)}
	e.Door.Listen = t.checked("listen", ofSide(checkSocketPath))
	if !t.has("door") {
		t.refuse("door", "is missing: with two sides there is one place where clients arrive", `name its socket unit, e.g. door = "web.socket"`)
	}
	if !t.has("listen") {
		t.refuse("listen", "is missing: the door must know where each side listens", `write the path of a side's socket, e.g. listen = "%t/web-%i.sock"`)
	}
	if e.Hold != "" {
		t.refuse("hold", "does not go with beside: the door keeps the port", "keep one of the two")
	}
}

func checkSides(t *table, units []string, told bool) {
	for _, unit := range units {
		if what, fix := checkUnit(unit); what != "" {
			t.refuse("beside", what, fix)
			told = true
		}
	}
	const form = `write e.g. beside = ["web@a.container", "web@b.container"], both links to web@.container`
	switch {
	case told:
	case len(units) != 2 || units[0] == units[1]:
		t.refuse("beside", "does not name two units", form)
	case probation.Instance(units[0]) == "" || template(units[0]) != template(units[1]):
		t.refuse("beside", fmt.Sprintf("%s and %s are not two instances of one template", units[0], units[1]), form)
	}
}

func template(unit string) string {
	name, _, _ := strings.Cut(unit, "@")
	return name
}

// checkDoorUnit takes a proxy that listens by itself as well.
func checkDoorUnit(unit string) (what, fix string) {
	if name, ok := strings.CutSuffix(unit, ".service"); ok {
		unit = name + ".socket"
	}
	if what, _ := checkSocketUnit(unit); what != "" {
		return fmt.Sprintf("%q is neither a socket unit nor a service", unit), `write e.g. door = "web.socket"`
	}
	return "", ""
}

// ofSide makes of a check of an address one of an address that each side has for itself.
func ofSide(check func(string) (what, fix string)) func(string) (what, fix string) {
	return func(address string) (what, fix string) {
		if !strings.Contains(address, "%i") {
			return "is the same for both sides", "write %i where the sides differ: it is the a of web@a.container"
		}
		return check(strings.NewReplacer("%t", "/run/user/1000", "%i", "1").Replace(address))
	}
}

// CheckSide refuses what would start a side without its door: after a boot both would run.
func CheckSide(src Source) error {
	i := slices.IndexFunc(src.own(), func(s Setting) bool { return s.Section == "Install" && s.Value != "" })
	if i < 0 {
		return nil
	}
	s := src.own()[i]
	return s.problem(fmt.Sprintf("starts both sides of %s@ at boot", template(filepath.Base(src.Unit))),
		"take [Install] out, and enable the socket of each side instead: the door starts the side it leads to")
}
