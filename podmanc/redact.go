package podmanc

import (
	"encoding/base64"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const hidden = "[redacted]"

// Where secrets stand in the words of registries and HTTP clients. Bodies of answers arrive quoted, hence the \\? before
// each quote.
var redactions = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s"']*@`), "${1}" + hidden + "@"},
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://[^\s"'?#]*)[?#][^\s"']*`), "${1}?" + hidden},
	{regexp.MustCompile(`(?i)([\w.-]*(?:token|secret|passw|passphrase|signature|credential|api-?key)[\w.-]*=)[^&\s"']+`), "${1}" + hidden},
	{regexp.MustCompile(`(?i)((?:authorization|x-registry-auth|x-registry-config|cookie)\\?["']?\s*[:=]\s*\[?\\?["']?)(?:(?:basic|bearer|digest|negotiate)\s+)?[^\s"',\\]+`), "${1}" + hidden},
	{regexp.MustCompile(`(?i)\b(basic|bearer)\s+[A-Za-z0-9+/_.~-]{6,}=*`), "${1} " + hidden},
	{regexp.MustCompile(`(?i)(\\?"[\w-]*(?:password|passwd|secret|token|auth)\\?"\s*:\s*\\?")[^"\\]*`), "${1}" + hidden},
}

// redact makes text of others fit for errors, logs and records: the given secrets, in clear and encoded, and whatever
// stands where secrets stand are replaced, control characters are escaped. It must see whole lines; a secret cut in two
// is not found.
func redact(text string, secrets ...string) string {
	forms := []string{}
	for _, s := range secrets {
		if s != "" {
			forms = append(forms, encodings(s)...)
		}
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) }) // one may hold another
	for _, f := range forms {
		text = strings.ReplaceAll(text, f, hidden)
	}
	for _, r := range redactions {
		text = r.pattern.ReplaceAllString(text, r.with)
	}
	return escape(text)
}

func encodings(s string) []string {
	quoted := strconv.Quote(s)
	return []string{
		s, url.QueryEscape(s), url.PathEscape(s), quoted[1 : len(quoted)-1],
		base64.RawStdEncoding.EncodeToString([]byte(s)), base64.RawURLEncoding.EncodeToString([]byte(s)),
	}
}

func escape(text string) string {
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

// short cuts text to at most n bytes, at a whole character.
func short(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n-len("…")], "") + "…"
}
