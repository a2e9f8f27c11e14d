package unitgen

import "strings"

// Text that goes into a unit file passes systemd's own reading: quotes and backslashes, then specifiers. These
// functions make it arrive as it was. A line cannot hold a newline or a NUL, quoted or not, so those are dropped
// where no quoting exists and written as escapes where it does.

var (
	quotedText = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "%", "%%", "\x00", "")
	plainText  = strings.NewReplacer("\n", "", "\r", "", "\x00", "", "%", "%%")
)

// quote makes one word of an ExecStart= or Environment= line.
func quote(word string) string {
	if word != "" && strings.Trim(word, plainLetters) == "" {
		return word
	}
	return `"` + quotedText.Replace(word) + `"`
}

const plainLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./:=@+,-"

// command makes the value of an Exec…= line. The colon keeps systemd from expanding $ in any of the words.
func command(argv ...string) string {
	words := make([]string, len(argv))
	for i, word := range argv {
		words[i] = quote(word)
	}
	// Quoted, the colon still has to be the first letter of the path.
	if rest, quoted := strings.CutPrefix(words[0], `"`); quoted {
		words[0] = `":` + rest
	} else {
		words[0] = ":" + words[0]
	}
	return strings.Join(words, " ")
}

// path makes the value of a line that is one path as a whole, such as PathChanged=, which knows no quotes.
func path(p string) string { return plainText.Replace(p) }
