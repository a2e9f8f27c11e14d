// Package redact keeps secrets out of text: what it has been told of, and what looks like one.
package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// Mark stands in a text where a secret stood.
const Mark = "[redacted]"

// short is the length below which a value alone is no secret worth hiding: "1" or "true" would turn every text into
// marks. It is hidden as NAME=value only.
const short = 6

// Redactor knows values that must not be told. It may be used by many goroutines; the zero value is ready.
type Redactor struct {
	mu       sync.RWMutex
	words    map[string]bool
	replacer *strings.Replacer
	longest  int
}

// Add makes a value known, as it is and as it is likely to be written: base64, percent-encoded, hexadecimal, and quoted.
// The name it goes by may be empty.
func (r *Redactor) Add(name, value string) {
	if value == "" {
		return
	}
	if len(value) < short {
		if name != "" {
			r.add(name+"="+value, name+"="+url.QueryEscape(value))
		}
		return
	}
	words := []string{value, url.QueryEscape(value), url.PathEscape(value), hex.EncodeToString([]byte(value)),
		strings.ReplaceAll(strings.ReplaceAll(value, `\`, `\\`), `"`, `\"`)}
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		words = append(words, enc.EncodeToString([]byte(value)))
	}
	// A secret of several lines reaches a log line by line.
	for line := range strings.Lines(value) {
		if line = strings.TrimSpace(line); len(line) >= short {
			words = append(words, line)
		}
	}
	r.add(words...)
}

// AddLogin makes a registry login known, also as the header that carries it.
func (r *Redactor) AddLogin(user, password string) {
	r.Add(user, password)
	if password != "" {
		r.Add("", user+":"+password)
	}
}

func (r *Redactor) add(words ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.words == nil {
		r.words = map[string]bool{}
	}
	for _, w := range words {
		r.words[w] = true
		r.longest = max(r.longest, len(w))
	}
	all := make([]string, 0, len(r.words))
	for w := range r.words {
		all = append(all, w)
	}
	// The longer of two that begin alike must win, or its rest stays.
	slices.SortFunc(all, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	pairs := make([]string, 0, 2*len(all))
	for _, w := range all {
		pairs = append(pairs, w, Mark)
	}
	r.replacer = strings.NewReplacer(pairs...)
}

// Where secrets stand in the words of registries and HTTP clients. Bodies of answers arrive quoted, hence the \\? before
// each quote.
var redactions = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s"']*@`), "${1}" + Mark + "@"},
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'?#]*)[?#][^\s"']*`), "${1}?" + Mark},
	{regexp.MustCompile(`(?i)([\w.-]*(?:token|secret|passw|passphrase|signature|credential|api-?key)[\w.-]*=)[^&\s"']+`), "${1}" + Mark},
	{regexp.MustCompile(`(?i)((?:authorization|x-registry-auth|x-registry-config|cookie)\\?["']?\s*[:=]\s*\[?\\?["']?)(?:(?:basic|bearer|digest|negotiate)\s+)?[^\s"',\\]+`), "${1}" + Mark},
	{regexp.MustCompile(`(?i)\b(basic|bearer)\s+[A-Za-z0-9+/_.~-]{6,}=*`), "${1} " + Mark},
	{regexp.MustCompile(`(?i)(\\?"[\w-]*(?:password|passwd|secret|token|auth)\\?"\s*:\s*\\?")[^"\\]*`), "${1}" + Mark},
}

// String returns a text without what must not be told.
func (r *Redactor) String(s string) string {
	r.mu.RLock()
	replacer := r.replacer
	r.mu.RUnlock()
	if replacer != nil {
		s = replacer.Replace(s)
	}
	for _, known := range redactions {
		s = known.pattern.ReplaceAllString(s, known.with)
	}
	return s
}

// Line is String for a line that a stranger wrote: control characters come out escaped.
func (r *Redactor) Line(s string) string { return Escape(r.String(s)) }

// Escape writes what a terminal would act on as Go would.
func Escape(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// Writer redacts what passes through it, line by line, so that a secret that is split over two writes is found. Close
// passes on what is left.
type Writer struct {
	to  io.Writer
	r   *Redactor
	buf bytes.Buffer
}

// Writer returns a writer in front of another.
func (r *Redactor) Writer(to io.Writer) *Writer { return &Writer{to: to, r: r} }

// maxHeld bounds what is held back of a line that does not end.
const maxHeld = 64 << 10

// Write takes a chunk; lines that are whole are passed on.
func (w *Writer) Write(p []byte) (int, error) {
	w.buf.Write(p)
	if i := bytes.LastIndexByte(w.buf.Bytes(), '\n'); i >= 0 {
		if _, err := io.WriteString(w.to, w.r.String(string(w.buf.Next(i+1)))); err != nil {
			return len(p), err
		}
	}
	if w.buf.Len() < maxHeld {
		return len(p), nil
	}
	// The end of what is here may be the beginning of a secret, so it is held back, redacted as far as it goes.
	clean := w.r.String(w.buf.String())
	w.r.mu.RLock()
	n := max(len(clean)-w.r.longest, 0)
	w.r.mu.RUnlock()
	w.buf.Reset()
	w.buf.WriteString(clean[n:])
	_, err := io.WriteString(w.to, clean[:n])
	return len(p), err
}

// Close passes on the last line, whole or not.
func (w *Writer) Close() error {
	_, err := io.WriteString(w.to, w.r.String(w.buf.String()))
	w.buf.Reset()
	return err
}
