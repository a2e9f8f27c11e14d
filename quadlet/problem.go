package quadlet

import (
	"fmt"
	"strings"
)

// Problem is one thing an operator has to put right: where it stands, what is wrong with it and what to do. It never
// repeats a value that could hold a password or a token.
type Problem struct {
	File string // path, or "" when no one file is to blame
	Line int    // from 1; 0 = the file as a whole
	Key  string // dotted, e.g. "service.web.units", or a Quadlet's section and key, e.g. "[Container] Image"
	What string
	Fix  string
}

func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			fmt.Fprintf(&b, ":%d", p.Line)
		}
		b.WriteString(": ")
	}
	if p.Key != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.What)
	if p.Fix != "" {
		b.WriteString("; " + p.Fix)
	}
	return b.String()
}

// Problems is all that was found wrong at once, as one error of a line each.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, one := range p {
		lines[i] = one.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap makes every Problem reachable by errors.As and errors.Is.
func (p Problems) Unwrap() []error {
	errs := make([]error, len(p))
	for i, one := range p {
		errs[i] = one
	}
	return errs
}

// err is nil when nothing was found: an empty Problems in an error would not be.
func (p Problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}
