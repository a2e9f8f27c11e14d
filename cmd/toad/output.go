package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/term"

	"toad/httpd/api"
)

// Rules for what toad says:
//   - An error is "toad: what: why", lower case, no full stop; where there is something to do, "toad: hint: …" follows.
//   - An outcome is one sentence that says what runs now and why, with a full stop.
//   - What a registry, an image or a daemon said never reaches the terminal as it is: control characters are escaped.
//   - A command that failed says so on stderr; stdout is for what was asked for.

// hinted is an error that comes with what to do about it.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

func hint(err error, format string, args ...any) error {
	return hinted{err, fmt.Sprintf(format, args...)}
}

func printError(w io.Writer, err error) {
	priority := ""
	if underJournal(w) {
		priority = "<3>"
	}
	columns := width(w)
	fmt.Fprintf(w, "%stoad: %s\n", priority, wrap(brief(clean(err.Error()), columns), len("toad: "), columns))
	if h := hintOf(err); h != "" {
		fmt.Fprintf(w, "%stoad: hint: %s\n", priority, wrap(brief(clean(h), columns), len("toad: hint: "), columns))
	}
}

// underJournal reports whether what is written arrives in the journal. JOURNAL_STREAM alone does not tell: a child
// inherits it and may write elsewhere.
func underJournal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && os.Getenv("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", st.Dev, st.Ino)
}

func hintOf(err error) string {
	var h hinted
	var p *api.Problem
	switch {
	case errors.As(err, &h):
		return h.hint
	case errors.As(err, &p):
		return p.Hint
	}
	return ""
}

// clean makes text safe for a terminal: what would move the cursor or hide text is shown instead of done.
func clean(s string) string {
	if !strings.ContainsFunc(s, hides) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n' || r == '\t':
			b.WriteByte(' ')
		case hides(r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// hides covers control characters and those that change the direction of text or are not seen.
func hides(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029'
}

func printJSON(w io.Writer, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}

// printLine prints a value as one line of JSON.
func printLine(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}

// short is a digest or image id as it is shown where space is scarce.
func short(digest string) string {
	digest = strings.TrimPrefix(digest, "sha256:")
	if len(digest) > 12 {
		return digest[:12]
	}
	return digest
}

// release names what runs: its digest, or its image where that is all there is.
func release(r *api.Release) string {
	switch {
	case r == nil:
		return "nothing"
	case r.Digest != "":
		return r.Digest
	case r.ImageID != "":
		return "image " + r.ImageID
	}
	return "what ran before toad"
}

// span is a length of time as people say it: 3.2s, 4m48s, 5h12m, 3d4h.
func span(d time.Duration) string {
	d = max(d, 0)
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	if days := int(d.Hours()) / 24; days >= 14 {
		return fmt.Sprintf("%dd", days)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}

// tidy leaves out what is zero at the end of a length of time as Go spells it: 5m for 5m0s.
func tidy(d string) string {
	for _, zero := range []string{"m0s", "h0m"} {
		if rest, ok := strings.CutSuffix(d, zero); ok {
			d = rest + zero[:1]
		}
	}
	return d
}

// width is how many columns a writer has; 0 if it is not a terminal.
func width(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil || columns < 20 {
		return 80
	}
	return columns
}

// fit cuts text to so many columns; 0 = as it is.
func fit(text string, columns int) string {
	runes := []rune(text)
	if columns <= 0 || len(runes) <= columns {
		return text
	}
	return string(runes[:max(columns-1, 0)]) + "…"
}
