package podmanc

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// What callers branch on.
var (
	ErrNoPodman    = errors.New("no podman answers")
	ErrTooOld      = errors.New("podman is too old")
	ErrNoImage     = errors.New("no such image")
	ErrNoContainer = errors.New("no such container")
	ErrNotRetained = errors.New("image is not retained") // or its archive is damaged: there is no way back from it
)

// The classes of a PullError. None of them says anything against the release itself.
var (
	ErrUnavailable = errors.New("registry is unavailable")                  // temporary: down, overloaded, slow, or cut short
	ErrNotFound    = errors.New("registry does not have it")                // the repository or the digest
	ErrDenied      = errors.New("registry denies access")                   // 401, 403; see podman login
	ErrPlatform    = errors.New("index has no image for this architecture") // an index only; a single manifest is pulled
	ErrPull        = errors.New("podman cannot pull it")                    // the host's own trouble: disk, storage, certificates
)

// PullError is a pull that did not end with the image on this host. Unwrapped it gives Class, and the context's error
// where that ended it.
type PullError struct {
	Ref    string // as asked for, repo@sha256:…
	Class  error
	Detail string // one line for people, redacted, at most 1000 bytes
	cause  error
}

func (e *PullError) Error() string {
	text := fmt.Sprintf("pull %s: %v: %s", e.Ref, e.Class, e.Detail)
	switch repo, _, _ := strings.Cut(e.Ref, "@"); e.Class {
	case ErrDenied:
		registry, _, _ := strings.Cut(repo, "/")
		text += "; to log in: podman login " + registry
	case ErrNotFound:
		text += "; is it pushed to " + repo + "?"
	case ErrPlatform:
		text += "; push an image for this host's architecture too"
	}
	return text
}

// Unwrap is for errors.Is and errors.As.
func (e *PullError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Class}
	}
	return []error{e.Class, e.cause}
}

// Podman hands on the words of the registry client as text, and nothing else. Temporary trouble comes before denial and
// absence: when a mirror does not have it and the registry is down, a later try may succeed.
var classes = []struct {
	class   error
	pattern *regexp.Regexp
}{
	{ErrPlatform, regexp.MustCompile(`no image found in (image index|manifest list) for architecture`)},
	{ErrUnavailable, regexp.MustCompile(`connection (refused|reset)|no such host|no route to host|network is unreachable` +
		`|timeout|timed out|deadline exceeded|context canceled|\beof\b|broken pipe|use of closed network connection` +
		`|too ?many ?requests|temporary failure|server misbehaving` + // then what was changed on the way
		`|digest did not match|does not match (expected|provided manifest digest)` +
		`|(status|code|http)\W{0,3}(429|5\d\d)\b|service unavailable|bad gateway|internal server error`)},
	{ErrDenied, regexp.MustCompile(`unauthorized|authentication required|invalid username/password|no basic auth` +
		`|\bdenied\b|forbidden|(status|code|http)\W{0,3}40[13]\b`)},
	{ErrNotFound, regexp.MustCompile(`(manifest|name|blob) unknown|repository name not known` +
		`|(manifest|repository|blob|artifact|tag)\b.*\bnot found|(status|code|http)\W{0,3}404\b`)},
}

var addresses = regexp.MustCompile(`[a-z]+://[^\s"']+`)

// classify finds the class of the words with which a pull of ref failed.
func classify(ref, words string) error {
	words = strings.ToLower(words)
	// A repository may be called anything, such as team/denied.
	repo, _, _ := strings.Cut(ref, "@")
	words = addresses.ReplaceAllString(words, "")
	words = strings.ReplaceAll(words, repo, "")
	words = strings.ReplaceAll(words, "permission denied", "") // a file of this host; registries say "denied:"
	for _, c := range classes {
		if c.pattern.MatchString(words) {
			return c.class
		}
	}
	return ErrPull
}
