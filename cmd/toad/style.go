package main

import (
	"os"
	"regexp"
	"strings"
	"unicode/utf8"
)

// style paints words on a terminal that wants it. What a colour says is said by a word or a mark as well.
type style struct{ colour bool }

const (
	bold   = "1"
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

// style is that of stdout.
func (g *globals) style() style {
	return style{g.width() > 0 && !g.plain && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// width is how many columns stdout has; 0 if it is not a terminal.
func (g *globals) width() int {
	if g.columns > 0 {
		return g.columns
	}
	return width(g.Stdout)
}

func (s style) paint(how, text string) string {
	if !s.colour || how == "" || text == "" {
		return text
	}
	return "\x1b[" + how + "m" + text + "\x1b[0m"
}

// ofEvent is the colour of an event in a log, or of a phase.
func ofEvent(level, event string) string {
	switch {
	case level == "error", event == "rollback_failed", event == "damaged":
		return red
	case level == "warn", event == "rolled_back", event == "withdrawn", event == "failed", event == "restoring":
		return yellow
	case event == "ready", event == "promoted":
		return green
	}
	return ""
}

// drawn reports whether a terminal's locale has more than ASCII.
func drawn() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(os.Getenv(name)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}

// bar is a line that fills.
func bar(filled float64, columns int) string {
	full, empty := "━", "┄"
	if !drawn() {
		full, empty = "#", "."
	}
	n := min(max(int(filled*float64(columns)), 0), columns)
	return strings.Repeat(full, n) + strings.Repeat(empty, columns-n)
}

var anyDigest = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// roomy is how wide a terminal must be for digests in full.
const roomy = 140

// brief shortens the digests of a text where a terminal has no room for them. What goes elsewhere is for a program, or to
// be kept, and keeps them.
func brief(text string, columns int) string {
	if columns == 0 || columns >= roomy {
		return text
	}
	return anyDigest.ReplaceAllStringFunc(text, func(d string) string { return d[:len("sha256:")+12] + "…" })
}

// wrap breaks a text between words, so that it stands in a column of its own behind an indent. A word that is too long is
// left whole: it may be something to copy.
func wrap(text string, indent, columns int) string {
	room := columns - indent
	if columns <= 0 || room < 20 {
		return text
	}
	var b strings.Builder
	at := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case at+1+n > room:
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}
