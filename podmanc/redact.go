package podmanc

import (
	"strings"

	"toad/internal/redact"
)

// clean makes text of others fit for errors, logs and records: the given secrets, in clear and encoded, and whatever
// stands where secrets stand are replaced, control characters are escaped. It must see whole lines; a secret cut in two
// is not found.
func clean(text string, secrets ...string) string {
	var r redact.Redactor
	for _, s := range secrets {
		r.Add("", s)
	}
	return r.Line(text)
}

// short cuts text to at most n bytes, at a whole character.
func short(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n-len("…")], "") + "…"
}
