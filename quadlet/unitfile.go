package quadlet

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Setting is one key of a Quadlet file or drop-in, and where it stands.
type Setting struct {
	Section, Key string
	Value        string // as Podman's generator takes it: joined, trimmed, without outer quotes
	File         string
	Line         int // of its first line, from 1
}

// place names a setting for a person: file:line.
func (s Setting) place() string { return fmt.Sprintf("%s:%d", s.File, s.Line) }

// settings are all keys of one or more unit files, in the order in which they take effect: of a key that holds one
// value the last one counts, over all sections of that name.
type settings []Setting

func (s settings) last(section, key string) (Setting, bool) {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i].Section == section && s[i].Key == key {
			return s[i], true
		}
	}
	return Setting{}, false
}

// parseUnit reads the text of a unit file by the rules of Podman's generator, faults included, since what it makes of a
// file is what runs. It is for reading only: a file is never written back from it. The error is a Problem.
func parseUnit(file string, data []byte) (settings, error) {
	p := unitParser{file: file}
	lines := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	joined, start := "", 0
	for i, line := range lines {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue // also within a continuation, which goes on behind it
		}
		if joined == "" {
			start = i + 1
		}
		if rest, ok := strings.CutSuffix(line, `\`); ok {
			line = rest
			if i != len(lines)-1 {
				joined += line
				continue
			}
		}
		line, joined = joined+line, ""
		if err := p.take(line, start); err != nil {
			return nil, Problem{File: file, Line: start, What: err.Error(), Fix: "mend the line: Podman's generator reads no further"}
		}
	}
	return p.found, nil
}

type unitParser struct {
	file    string
	section string
	inside  bool // a section
	found   settings
}

func (p *unitParser) take(line string, number int) error {
	if line == "" {
		return nil // nothing but a backslash
	}
	if name, ok := sectionName(line); ok {
		if name == "" || strings.ContainsFunc(name, func(c rune) bool { return c == '[' || unicode.IsControl(c) }) {
			return fmt.Errorf("%q is not the name of a section", name)
		}
		p.section, p.inside = name, true
		return nil
	}
	key, value, ok := strings.Cut(line, "=")
	if !ok || key == "" {
		return errors.New("neither a section, a key=value nor a comment")
	}
	if !p.inside {
		return errors.New("a key before the first section")
	}
	for key != "" && isSpace(key[len(key)-1]) {
		key = key[:len(key)-1]
	}
	for value != "" && isSpace(value[0]) {
		value = value[1:]
	}
	if key == "" || key[0] == ' ' {
		return fmt.Errorf("%q is not a key", key)
	}
	p.found = append(p.found, Setting{Section: p.section, Key: key, Value: unquote(value),
		File: p.file, Line: number})
	return nil
}

// sectionName takes "[Name]" with blanks behind it. A line that only looks like one is read as a key.
func sectionName(line string) (string, bool) {
	name, rest, ok := strings.Cut(line, "]")
	return strings.TrimPrefix(name, "["), ok && name != "" && name[0] == '[' && strings.Trim(rest, " \t") == ""
}

// isSpace looks at bytes, as the generator does: half a letter may count as a blank.
func isSpace(b byte) bool { return unicode.IsSpace(rune(b)) }

// unquote drops what the generator drops from the value of a key that holds one: blanks at the end, and quotes at both,
// paired or not.
func unquote(value string) string {
	return strings.Trim(strings.TrimRightFunc(value, unicode.IsSpace), `"`)
}
