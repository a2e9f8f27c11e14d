package quadlet

import (
	"path/filepath"
	"slices"
	"strings"
)

// Foresee names the setting, file and line, that would win over a pin of this unit; "" if none was found. It is what can
// be told without writing the pin: what counts is Verify, after a reload.
func Foresee(d Dirs, unit string, g Generated) string {
	undoes := func(s Setting) bool {
		return sets("Container/Image", "Container/Rootfs", "Container/Pull", "Service/ExecStart")(s) ||
			(s.Value == "" && (s.Section == "Service" && s.Key == "ExecCondition" ||
				s.Section == "Unit" && (strings.HasPrefix(s.Key, "Condition") || s.Key == "After" || s.Key == "OnFailure")))
	}
	if Plain(unit) { // the pin is one of systemd's drop-ins itself
		g.DropInPaths = slices.DeleteFunc(slices.Clone(g.DropInPaths), func(path string) bool { return filepath.Base(path) <= pinName })
	}
	for _, path := range slices.Backward(g.DropInPaths) {
		if s, err := readUnit(path); err == nil {
			if place := lastPlace(s, undoes); place != "" {
				return place
			}
		}
	}
	src, err := Find(d, unit)
	if err != nil {
		return ""
	}
	for _, path := range slices.Backward(src.DropIns) {
		if filepath.Base(path) <= pinName {
			break // they are in the order in which they are merged
		}
		if s, err := readUnit(path); err == nil {
			if place := lastPlace(s, undoes); place != "" {
				return place
			}
		}
	}
	return ""
}
