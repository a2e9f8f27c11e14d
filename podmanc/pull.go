package podmanc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// maxStream bounds what Podman may say during one pull; beyond it the stream counts as cut.
const maxStream = 64 << 20

// Pull brings the image ref, "repo@sha256:…", to this host and proves it: afterwards Podman finds it by that digest. An
// image that is here already needs no registry. The digest may be a manifest's or an index's. progress, if not nil, is
// given Podman's words line by line, redacted. Credentials are those of podman login; $REGISTRY_AUTH_FILE names another
// file. The error is a *PullError, or ErrNoPodman, ErrTooOld.
//
// Not the bindings' Pull: it calls a stream that ends without an image a success, and hands the credentials of every
// registry over.
func (c *Client) Pull(ctx context.Context, ref string, progress func(line string)) error {
	return between("pull", func() error { return c.pull(ctx, ref, progress) })
}

func (c *Client) pull(ctx context.Context, ref string, progress func(line string)) error {
	repo, _, err := splitRef(ref)
	if err != nil {
		return err
	}
	header, secrets, err := credentials(repo)
	if err != nil {
		return c.pullError(ctx, ref, err, secrets)
	}
	query := url.Values{"reference": {ref}, "policy": {"missing"}}
	resp, err := c.do(ctx, http.MethodPost, "/images/pull", query, header, nil)
	if err != nil {
		return c.pullError(ctx, ref, err, secrets)
	}
	defer func() { _ = resp.Body.Close() }()
	say := func(line string) {
		if progress != nil {
			progress(short(clean(line, secrets...), 1000))
		}
	}
	if err := readPull(io.LimitReader(resp.Body, maxStream), say); err != nil {
		return c.pullError(ctx, ref, err, secrets)
	}
	if err := c.proveDigest(ctx, ref); err != nil {
		return c.pullError(ctx, ref, err, secrets)
	}
	return nil
}

// proveDigest does not believe the image id of the stream: what counts is what Podman finds under the digest.
func (c *Client) proveDigest(ctx context.Context, ref string) error {
	_, digest, err := splitRef(ref)
	if err != nil {
		return err
	}
	img, err := c.Image(ctx, ref)
	if errors.Is(err, ErrNoImage) {
		return errors.New("podman reports success, but has no image of this digest")
	}
	if err == nil && !slices.Contains(img.Digests, digest) {
		return fmt.Errorf("podman reports success, but image %s has the digests %s", img.ID, strings.Join(img.Digests, ", "))
	}
	return err
}

// errCut is a stream that ended before Podman said how the pull went.
var errCut = errors.New("podman's answer was cut short")

// readPull reads Podman's answer to its end: HTTP 200 only means that the pull began. The objects may come several in
// one chunk or one in several; any with an error makes the pull a failure, as does an end without an image id.
func readPull(r io.Reader, say func(line string)) error {
	var lines lineWriter
	defer func() { lines.flush(say) }()
	var failures []string
	id := ""
	for dec := json.NewDecoder(r); ; {
		var report struct {
			Stream string   `json:"stream"`
			Error  string   `json:"error"`
			Images []string `json:"images"`
			ID     string   `json:"id"`
		}
		err := dec.Decode(&report)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errCut, err)
		}
		lines.write(report.Stream, say)
		if report.Error != "" {
			failures = append(failures, report.Error)
		}
		if n := len(report.Images); report.ID == "" && n > 0 {
			report.ID = report.Images[n-1]
		}
		if hexID.MatchString(report.ID) {
			id = report.ID
		}
	}
	switch {
	case len(failures) > 0:
		return errors.New(strings.Join(failures, "; "))
	case id == "":
		return errCut
	}
	return nil
}

// lineWriter puts lines together again: a secret that is cut in two by the end of a chunk would not be recognised.
type lineWriter struct{ rest string }

func (w *lineWriter) write(text string, say func(string)) {
	w.rest += text
	for {
		line, rest, ok := strings.Cut(w.rest, "\n")
		if !ok {
			return
		}
		w.rest = rest
		if line != "" {
			say(line)
		}
	}
}

func (w *lineWriter) flush(say func(string)) {
	if w.rest != "" {
		say(w.rest)
	}
	w.rest = ""
}

// pullError classes what went wrong. A Podman that is missing is not a matter of the registry.
func (c *Client) pullError(ctx context.Context, ref string, err error, secrets []string) error {
	if errors.Is(err, ErrNoPodman) || errors.Is(err, ErrTooOld) {
		return err
	}
	e := &PullError{Ref: ref, Class: classify(ref, err.Error()), Detail: short(clean(err.Error(), secrets...), 1000)}
	if errors.Is(err, errCut) || dropped(err) {
		e.Class = ErrUnavailable
	}
	if ended := ctx.Err(); ended != nil {
		e.Class, e.cause = ErrUnavailable, ended
		if errors.Is(ended, context.DeadlineExceeded) {
			e.Detail = "it did not end within the time it may take"
		}
	}
	return e
}
