package main

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"toad/httpd/api"
	"toad/probation"
)

var (
	meantAsDigest = regexp.MustCompile(`(?i)^(sha(256|384|512):|[0-9a-f]{64}$)`)
	tagForm       = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
)

// image is what a person names a release by: a digest or a tag, perhaps with the repository.
type image struct{ repository, digest, tag string }

func (i image) rest() string { return i.digest + i.tag }

// parseImage takes a digest, REPOSITORY@DIGEST, a tag, or REPOSITORY:TAG.
func parseImage(arg string) (image, error) {
	name, digest, found := strings.Cut(arg, "@")
	if !found && meantAsDigest.MatchString(arg) {
		name, digest, found = "", arg, true
	}
	if found {
		if err := probation.CheckDigest(digest); err != nil {
			return image{}, hint(usagef("%s", err), "a digest is sha256: and 64 hex digits; a tag will do as well: toad deploy web v2")
		}
		return image{repository: repositoryOf(name), digest: digest}, nil
	}
	img := image{tag: arg}
	if strings.Contains(arg, "/") {
		img.repository = repositoryOf(arg)
		img.tag = strings.TrimPrefix(arg[len(img.repository):], ":")
	}
	if !tagForm.MatchString(img.tag) {
		return image{}, hint(usagef("%q is neither a digest nor a tag", arg), "toad deploy web sha256:<64 hex digits>, or toad deploy web v2")
	}
	return img, nil
}

// repositoryOf drops a tag: only a colon behind the last slash starts one, before it stands a port.
func repositoryOf(repository string) string {
	if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
		return repository[:i]
	}
	return repository
}

// resolve makes a digest of what a person gives for one: a digest, REPOSITORY@DIGEST, a tag, or REPOSITORY:TAG. What a tag
// stands for is told, because it is another thing tomorrow.
func (g *globals) resolve(ctx context.Context, c *api.Client, service, arg string) (string, error) {
	img, err := parseImage(arg)
	if err != nil {
		return "", err
	}
	if img.repository != "" {
		svc, err := c.Service(ctx, service)
		if err != nil {
			return "", reached(c, err)
		}
		if svc.Image != "" && img.repository != svc.Image {
			return "", hint(usagef("%s is enrolled with the image %s, not %s", service, svc.Image, img.repository), "toad deploy %s %s", service, img.rest())
		}
	}
	if img.digest != "" {
		return img.digest, nil
	}
	t, err := c.Tag(ctx, service, img.tag)
	var p *api.Problem
	switch {
	case errors.As(err, &p) && p.Code == "unknown_tag":
		return "", exitError{exitFailed, err}
	case errors.As(err, &p) && p.Code == string(probation.CodePullFailed):
		return "", exitError{exitFailed, err}
	case err != nil:
		return "", reached(c, err)
	}
	if g.JSON {
		return t.Digest, nil
	}
	g.say("%s:%s is %s", t.Image, t.Tag, t.Digest)
	return t.Digest, nil
}
