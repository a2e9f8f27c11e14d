package webui

import (
	"regexp"
	"strings"
	"unicode"
)

// What may be shown is made here and nowhere else: the fields are of this package alone, so whoever fills a view cannot
// put a raw string into it.

// Text is a text for people: one line of bounded length, without control or direction characters and without paths of
// the host.
type Text struct{ s string }

// longest is how many characters of a text are shown. A reason fits; what a stranger wrote may not.
const longest = 400

var (
	// hostPath is an absolute path, or one below a home, within a text.
	hostPath = regexp.MustCompile(`(^|[\s"'` + "`" + `(\[{<=:,;|])(?:~|\$[A-Z_]+)?/([^\s"'` + "`" + `()\[\]{}<>:,;|/][^\s"'` + "`" + `()\[\]{}<>:,;|]*)`)
	// socketURL names a file of the host as an address does.
	socketURL = regexp.MustCompile(`(?i)\b(?:http\+unix|unix|file)://[^\s"'()<>]*`)
)

// Clean makes a text that may be shown of any text.
func Clean(s string) Text {
	s = s[:min(len(s), 16*longest)] // what would be cut anyway costs nothing
	s = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(s, " "), func(r rune) bool {
		return r == ' ' || !unicode.IsPrint(r)
	}), " ")
	s = socketURL.ReplaceAllString(s, "a file of the host")
	s = hostPath.ReplaceAllStringFunc(s, func(m string) string {
		path := hostPath.FindStringSubmatch(m)
		return path[1] + path[2][strings.LastIndexByte(path[2], '/')+1:]
	})
	if cut := []rune(s); len(cut) > longest {
		s = string(cut[:longest-1]) + "…"
	}
	return Text{s}
}

func (t Text) String() string               { return t.s }
func (t Text) MarshalText() ([]byte, error) { return []byte(t.s), nil }

// Term is a word of systemd, Podman or toad: a state, a unit, an event. Anything else reads as empty.
type Term struct{ s string }

var termForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.@:\\-]{0,119}$`)

// TermOf takes a word as it is, or not at all.
func TermOf(s string) Term {
	if !termForm.MatchString(s) {
		return Term{}
	}
	return Term{s}
}

func (t Term) String() string               { return t.s }
func (t Term) MarshalText() ([]byte, error) { return []byte(t.s), nil }

// ID is hexadecimal: a digest, an image, a container or an invocation. Anything else reads as empty.
type ID struct {
	s      string
	digest bool
}

var hexForm = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

// IDOf takes "sha256:" and hexadecimal digits, or the digits alone.
func IDOf(s string) ID {
	hex, digest := strings.CutPrefix(s, "sha256:")
	if !hexForm.MatchString(hex) {
		return ID{}
	}
	return ID{hex, digest}
}

// Short is enough for a person to tell one from another.
func (i ID) Short() string { return i.s[:min(len(i.s), 12)] }

func (i ID) String() string {
	if i.digest {
		return "sha256:" + i.s
	}
	return i.s
}
func (i ID) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// Name is the name of a service. Anything else reads as empty.
type Name struct{ s string }

var nameForm = regexp.MustCompile(`^[a-z][a-z0-9-]{0,59}$`)

// NameOf takes a service's name as it is, or not at all.
func NameOf(s string) Name {
	if !nameForm.MatchString(s) {
		return Name{}
	}
	return Name{s}
}

func (n Name) String() string               { return n.s }
func (n Name) MarshalText() ([]byte, error) { return []byte(n.s), nil }
