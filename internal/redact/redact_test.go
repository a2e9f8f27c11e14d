package redact_test

import (
	"encoding/base64"
	"net/url"
	"slices"
	"strings"
	"testing"

	"toad/internal/redact"
)

const secret = `S3NT1NEL/pw+"x"`

func TestAKnownValueIsHiddenHoweverItIsWritten(t *testing.T) {
	var r redact.Redactor
	r.AddLogin("rob", secret)
	for _, written := range []string{
		secret,
		url.QueryEscape(secret),
		url.PathEscape(secret),
		base64.StdEncoding.EncodeToString([]byte(secret)),
		base64.RawURLEncoding.EncodeToString([]byte(secret)),
		base64.StdEncoding.EncodeToString([]byte("rob:" + secret)),
		strings.ReplaceAll(secret, `"`, `\"`),
	} {
		have := r.String("before " + written + " after")
		if strings.Contains(have, written) || !strings.HasPrefix(have, "before ") || !strings.HasSuffix(have, " after") {
			t.Errorf("%q came out as %q", written, have)
		}
	}
}

func TestAShortValueIsHiddenOnlyWithItsName(t *testing.T) {
	var r redact.Redactor
	r.Add("PIN", "1234")
	if have := r.String("port 1234, PIN=1234"); have != "port 1234, "+redact.Mark {
		t.Errorf("have %q", have)
	}
}

func TestWhatLooksLikeASecretIsHidden(t *testing.T) {
	var r redact.Redactor
	for in, want := range map[string]string{
		"token=abc&x=1":                        "token=" + redact.Mark + "&x=1",
		"get http://rob:pw@127.0.0.1:5000/v2/": "get http://" + redact.Mark + "@127.0.0.1:5000/v2/",
		"Authorization: Bearer abcdefgh.ijkl":  "Authorization: " + redact.Mark,
		"authorization: basic cm9iOnB3Cg==":    "authorization: " + redact.Mark,
		"http://127.0.0.1:5000/v2/app":         "http://127.0.0.1:5000/v2/app",
		"mail rob@example.org":                 "mail rob@example.org",
	} {
		if have := r.String(in); have != want {
			t.Errorf("%q: want %q, have %q", in, want, have)
		}
	}
}

func TestASecretSplitOverTwoWritesIsHidden(t *testing.T) {
	var r redact.Redactor
	r.Add("PW", secret)
	for cut := range len(secret) {
		var out strings.Builder
		w := r.Writer(&out)
		for _, chunk := range []string{"one ", secret[:cut], secret[cut:], " two\nthree"} {
			if _, err := w.Write([]byte(chunk)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if want := "one " + redact.Mark + " two\nthree"; out.String() != want {
			t.Fatalf("cut at %d: want %q, have %q", cut, want, out.String())
		}
	}
}

func TestALineWithoutAnEndIsPassedOnInBounds(t *testing.T) {
	var r redact.Redactor
	r.Add("PW", secret)
	var out strings.Builder
	w := r.Writer(&out)
	long := strings.Repeat("x", 200<<10)
	for chunk := range slices.Chunk([]byte(long+secret+long), 7) {
		if _, err := w.Write(chunk); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if want := long + redact.Mark + long; out.String() != want {
		t.Errorf("%d bytes came out, want %d", out.Len(), len(want))
	}
}

func FuzzNothingKnownComesThrough(f *testing.F) {
	f.Add("abcdefgh", "x", 3)
	f.Fuzz(func(t *testing.T, value, around string, cut int) {
		if len(value) < 6 || strings.Contains(redact.Mark, value) || strings.Contains(around, value) || strings.ContainsAny(value, "\n") {
			return
		}
		var r redact.Redactor
		r.Add("V", value)
		var out strings.Builder
		w := r.Writer(&out)
		text := around + value + around
		cut = min(max(cut, 0), len(text))
		_, _ = w.Write([]byte(text[:cut]))
		_, _ = w.Write([]byte(text[cut:]))
		_ = w.Close()
		// Marks may join with what is around them to something that reads like the value.
		if strings.Contains(strings.ReplaceAll(out.String(), redact.Mark, "\x00"), value) {
			t.Errorf("%q came through in %q", value, out.String())
		}
	})
}
