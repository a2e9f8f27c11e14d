package podmanc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// say answers a pull with 200 and these chunks, each in a write of its own.
func say(chunks ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, c := range chunks {
			_, _ = w.Write([]byte(c))
			w.(http.Flusher).Flush()
		}
	}
}

func pullClass(t *testing.T, err error) error {
	t.Helper()
	var e *PullError
	if !errors.As(err, &e) {
		t.Fatalf("want a PullError, have %v", err)
	}
	return e.Class
}

func TestAPullIsProvedByTheDigest(t *testing.T) {
	img := newFakeImage("web", "layer")
	for _, digest := range img.digests { // manifest and index
		f, c := startPodman(t)
		f.pull = func(w http.ResponseWriter, r *http.Request) {
			if have := r.URL.Query().Get("reference"); have != repo+"@"+digest {
				t.Errorf("asked for %s", have)
			}
			f.add(img)
			say(`{"stream":"Trying to pull "}`, `{"stream":"it...\nGetting image source signatures\n"}`,
				`{"images":["`+img.id()+`"],"id":"`+img.id()+`"}`)(w, r)
		}
		var lines []string
		if err := c.Pull(t.Context(), repo+"@"+digest, func(l string) { lines = append(lines, l) }); err != nil {
			t.Fatal(err)
		}
		if want := []string{"Trying to pull it...", "Getting image source signatures"}; !slices.Equal(want, lines) {
			t.Errorf("want %q, have %q", want, lines)
		}
	}
}

// The four ways of case C11 to fail behind HTTP 200.
func TestAFailureBehind200IsAFailure(t *testing.T) {
	img, other := newFakeImage("web", "layer"), newFakeImage("other", "layer")
	id := `{"images":["` + img.id() + `"],"id":"` + img.id() + `"}`
	cases := map[string]struct {
		chunks []string
		class  error
		detail string
	}{
		"error at the end":           {[]string{`{"stream":"Trying\n"}`, `{"error":"reading manifest: manifest unknown"}`}, ErrNotFound, "manifest unknown"},
		"error before an id":         {[]string{`{"error":"connection refused"}`, id}, ErrUnavailable, "connection refused"},
		"error beside an id":         {[]string{`{"error":"boom","id":"` + img.id() + `"}`}, ErrPull, "boom"},
		"error beside a line":        {[]string{`{"error":"boom","stream":"x"}`, id}, ErrPull, "boom"},
		"no id":                      {[]string{`{"stream":"Trying\n"}`}, ErrUnavailable, "cut short"},
		"nothing":                    {nil, ErrUnavailable, "cut short"},
		"half an object":             {[]string{`{"stream":"Trying\n"}`, `{"stream":"Cop`}, ErrUnavailable, "cut short"},
		"half an object after an id": {[]string{id, `{"str`}, ErrUnavailable, "cut short"},
		"two objects in one chunk":   {[]string{`{"stream":"Trying\n"}` + "\n" + `{"error":"toomanyrequests: slow down"}`}, ErrUnavailable, "toomanyrequests"},
		"an id of nothing":           {[]string{id}, ErrPull, "no image of this digest"},
		"an id that is none":         {[]string{`{"id":"sha256:123"}`}, ErrUnavailable, "cut short"},
		"not JSON":                   {[]string{`<html>`}, ErrUnavailable, "cut short"},
	}
	for name, k := range cases {
		f, c := startPodman(t, other)
		f.pull = say(k.chunks...)
		err := c.Pull(t.Context(), img.ref(), nil)
		if have := pullClass(t, err); !errors.Is(err, k.class) {
			t.Errorf("%s: want %v, have %v", name, k.class, have)
		}
		if !strings.Contains(err.Error(), k.detail) {
			t.Errorf("%s: %q is not in %q", name, k.detail, err)
		}
	}
}

func TestAnImageOfAnotherDigestIsNotTaken(t *testing.T) {
	img, other := newFakeImage("web", "layer"), newFakeImage("other", "layer")
	f, c := startPodman(t, other)
	f.pull = say(`{"id":"` + other.id() + `"}`)
	// This Podman answers every lookup with the image it has.
	lookup := func(w http.ResponseWriter, _ *http.Request) bool { f.inspect(w, other.id()); return true }
	f.before = append(f.before, pass, pass, lookup)
	err := c.Pull(t.Context(), img.ref(), nil)
	if pullClass(t, err) != ErrPull || !strings.Contains(err.Error(), other.digests[0]) {
		t.Errorf("have %v", err)
	}
}

func TestTwoObjectsInOneChunkAreBothRead(t *testing.T) {
	img := newFakeImage("web", "layer")
	f, c := startPodman(t, img)
	f.pull = say(`{"stream":"Trying\n"}{"stream":"Done\n"}` + "\n" + `{"id":"` + img.id() + `"}`)
	if err := c.Pull(t.Context(), img.ref(), nil); err != nil {
		t.Error(err)
	}
}

func TestAPullThatIsGivenUpIsTemporary(t *testing.T) {
	f, c := startPodman(t)
	release := make(chan struct{})
	defer close(release)
	f.pull = func(w http.ResponseWriter, r *http.Request) { say(`{"stream":"Trying\n"}`)(w, r); <-release }
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err := c.Pull(ctx, newFakeImage("web").ref(), nil)
	if pullClass(t, err) != ErrUnavailable || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("have %v", err)
	}
}

func TestOnlyFullReferencesByDigestArePulled(t *testing.T) {
	_, c := startPodman(t)
	d := "@sha256:" + strings.Repeat("a", 64)
	for _, ref := range []string{
		"", "web", repo, repo + ":v1", repo + ":v1" + d, "web" + d, "team/web" + d, repo + "@sha256:abc",
		"rob:pw@registry.example.org/web" + d, "docker://" + repo + d, "Registry.example.org/Web" + d, repo + d + " --tls-verify=false",
	} {
		if err := c.Pull(t.Context(), ref, nil); err == nil || strings.Contains(err.Error(), "podman.sock") {
			t.Errorf("%q: have %v", ref, err)
		}
	}
}

// Words of the registry client of Podman 5.4 and 5.8.
func TestWordsAreClassed(t *testing.T) {
	ref := "r.example/team/denied-timeout@sha256:" + strings.Repeat("5", 64)
	source := "initializing source docker://" + ref + ": "
	for words, want := range map[string]error{
		source + `pinging container registry r.example: Get "http://r.example/v2/": dial tcp 127.0.0.1:5000: connect: connection refused`: ErrUnavailable,
		source + `pinging container registry r.example: Get "https://r.example/v2/": dial tcp: lookup r.example: no such host`:            ErrUnavailable,
		source + `pinging container registry r.example: Get "https://r.example/v2/": net/http: TLS handshake timeout`:                     ErrUnavailable,
		source + "received unexpected HTTP status: 503 Service Unavailable":                                                               ErrUnavailable,
		source + "reading manifest in r.example: received unexpected HTTP status: 500 Internal Server Error":                              ErrUnavailable,
		source + "too many requests to registry": ErrUnavailable,
		"copying system image from manifest list: writing blob: storing blob to file: happened during read: unexpected EOF":                         ErrUnavailable,
		"reading blob sha256:abc: Digest did not match, expected sha256:abc, got sha256:def":                                                        ErrUnavailable,
		source + "(Mirrors also failed: [m/x: reading manifest: manifest unknown]): r.example: pinging: connection refused":                         ErrUnavailable,
		source + "reading manifest sha256:abc in r.example/team/denied-timeout: manifest unknown":                                                   ErrNotFound,
		source + "reading manifest sha256:abc in r.example/team/denied-timeout: name unknown: repository name not known to registry":                ErrNotFound,
		source + `reading manifest: error parsing HTTP 404 response body: invalid character '<' looking for beginning of value: "<html>"`:           ErrNotFound,
		source + "reading manifest: unauthorized: authentication required":                                                                          ErrDenied,
		source + "unable to retrieve auth token: invalid username/password: unauthorized: no":                                                       ErrDenied,
		source + "reading manifest: denied: requested access to the resource is denied":                                                             ErrDenied,
		source + "pinging container registry r.example: StatusCode: 403, \"Forbidden\"":                                                             ErrDenied,
		source + "pinging container registry r.example: StatusCode: 429, \"\"":                                                                      ErrUnavailable,
		`choosing an image from manifest list docker://r.example/x: no image found in image index for architecture "amd64", variant "", OS "linux"`: ErrPlatform,
		`no image found in manifest list for architecture "amd64", variant "", OS "linux"`:                                                          ErrPlatform,
		"writing blob: storing blob: write /var/tmp/x: no space left on device":                                                                     ErrPull,
		"writing blob: adding layer: open /home/toad/.local/share/containers: permission denied":                                                    ErrPull,
		source + "pinging container registry r.example: tls: failed to verify certificate: x509: certificate signed by unknown authority":           ErrPull,
		source + "nothing anybody knows": ErrPull,
	} {
		if have := classify(ref, words); want != have {
			t.Errorf("%s:\nwant %v, have %v", words, want, have)
		}
	}
}

func TestNoCredentialIsInAnErrorOrALine(t *testing.T) {
	img := newFakeImage("web")
	f, c := startPodman(t)
	const password = "S3NT1NEL/pw+1"
	basic := base64.StdEncoding.EncodeToString([]byte("rob:" + password))
	file := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(file, []byte(`{"auths":{"registry.example.org":{"auth":"`+basic+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REGISTRY_AUTH_FILE", file)
	answers := []string{
		`unauthorized: you said ` + basic,
		`Get "https://rob:` + password + `@registry.example.org/": no`,
		`{"detail":"Authorization: Basic ` + basic + `"}`,
		`bad password S3NT1NEL%2Fpw%2B1`,
		`Authorization: Bearer t1.S3NT1NEL-tok`,
		`realm "https://auth.example.org/token?account=rob&x=S3NT1NEL-q"`,
		`error parsing HTTP 401 response body: no: "{\"token\":\"S3NT1NEL-j\"}"`,
	}
	for _, a := range answers {
		a := a
		f.pull = func(w http.ResponseWriter, r *http.Request) {
			sent, _ := base64.URLEncoding.DecodeString(r.Header.Get("X-Registry-Auth"))
			if !strings.Contains(string(sent), password) {
				t.Errorf("credentials did not reach podman: %s", sent)
			}
			text, _ := json.Marshal(a)
			half := len(a) / 2
			first, _ := json.Marshal(a[:half])
			second, _ := json.Marshal(a[half:] + "\n")
			say(`{"stream":`+string(first)+`}`, `{"stream":`+string(second)+`}`, `{"error":`+string(text)+`}`)(w, r)
		}
		var lines []string
		err := c.Pull(t.Context(), img.ref(), func(l string) { lines = append(lines, l) })
		for _, text := range append(lines, err.Error()) {
			if strings.Contains(text, "S3NT1NEL") || strings.Contains(text, basic[:12]) {
				t.Errorf("%s\nleaks as %s", a, text)
			}
		}
		if len(lines) != 1 {
			t.Errorf("want one line, have %q", lines)
		}
	}
}

func TestWithoutAnAuthFileOfItsOwnPodmanUsesTheLoginsItKnows(t *testing.T) {
	img := newFakeImage("web")
	f, c := startPodman(t, img)
	f.pull = func(w http.ResponseWriter, r *http.Request) {
		if h := r.Header.Get("X-Registry-Auth"); h != "" {
			t.Errorf("sent %q, which makes podman forget its own", h)
		}
		say(`{"id":"`+img.id()+`"}`)(w, r)
	}
	if err := c.Pull(t.Context(), img.ref(), nil); err != nil {
		t.Error(err)
	}
}

func TestABrokenAuthFileIsNamedWithoutItsContent(t *testing.T) {
	_, c := startPodman(t)
	file := filepath.Join(t.TempDir(), "auth.json")
	if err := os.WriteFile(file, []byte(`{"auths":{"registry.example.org":{"auth":"S3NT1NEL`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("REGISTRY_AUTH_FILE", file)
	err := c.Pull(t.Context(), newFakeImage("web").ref(), nil)
	if pullClass(t, err) != ErrPull || !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "S3NT1NEL") {
		t.Errorf("have %v", err)
	}
}

func TestOrdinaryWordsAreNotRedacted(t *testing.T) {
	for _, text := range []string{
		"initializing source docker://127.0.0.1:5000/app@sha256:abc: manifest unknown",
		`Get "http://127.0.0.1:5000/v2/": dial tcp 127.0.0.1:5000: connect: connection refused`,
		"Trying to pull 127.0.0.1:5000/app@sha256:abc...",
	} {
		if have := clean(text); have != text {
			t.Errorf("want %q, have %q", text, have)
		}
	}
	if want, have := `a\nb\x1b[31mé`, clean("a\nb\x1b[31mé"); want != have {
		t.Errorf("want %q, have %q", want, have)
	}
}

// A pull is a success only if the last thing said is whole, nothing said is an error, and an id was said.
func FuzzReadPull(f *testing.F) {
	id := strings.Repeat("a", 64)
	for _, s := range []string{`{"stream":"x\n"}{"id":"` + id + `"}`, `{"images":["` + id + `"]}`, `{"error":"x"}`, `{"id":"`, "", "null", "[]", `{"id":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var lines []string
		err := readPull(strings.NewReader(string(data)), func(l string) { lines = append(lines, l) })
		for _, l := range lines {
			if l == "" || strings.Contains(l, "\n") {
				t.Errorf("not a line: %q", l)
			}
		}
		if err != nil {
			_ = short(clean(err.Error()), 1000)
			return
		}
		found := false
		for dec := json.NewDecoder(strings.NewReader(string(data))); ; {
			var m map[string]any
			if err := dec.Decode(&m); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("accepted %q", data)
			}
			for k, v := range m {
				if s, _ := v.(string); strings.EqualFold(k, "error") && s != "" && len(m) == 1 {
					t.Fatalf("accepted the error %q", s)
				}
				found = found || strings.EqualFold(k, "id") || strings.EqualFold(k, "images")
			}
		}
		if !found {
			t.Fatalf("accepted %q without an id", data)
		}
	})
}
