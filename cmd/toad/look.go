package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"toad/httpd"
	"toad/httpd/api"
	"toad/podmanc"
	"toad/probation"
)

// looks lends the host to the API, for what no record tells.
type looks struct{ h *host }

// Config tells how a release would run. One that came back from an archive is known by its image id alone.
func (l looks) Config(ctx context.Context, e probation.Enrollment, r probation.Release) (api.ImageConfig, error) {
	if e.Binary() {
		return l.file(ctx, e, r)
	}
	out := api.ImageConfig{Digest: r.Digest, Generation: r.Generation, OnHost: true}
	if out.Digest == "" {
		out.Digest = "image " + r.ImageID
	}
	img, err := podmanc.Image{}, podmanc.ErrNoImage
	if r.Digest != "" {
		img, err = l.h.podman.Image(ctx, e.Image+"@"+r.Digest)
	}
	if errors.Is(err, podmanc.ErrNoImage) && r.ImageID != "" {
		img, err = l.h.podman.Image(ctx, r.ImageID)
	}
	if errors.Is(err, podmanc.ErrNoImage) && r.Digest != "" {
		out.OnHost = false
		img, err = l.h.podman.Published(ctx, e.Image+"@"+r.Digest)
	}
	if errors.Is(err, podmanc.ErrNoImage) {
		return out, &httpd.TagError{Code: probation.CodePullFailed, Err: fmt.Errorf("the image of %s is not on this host any more", out.Digest)}
	}
	if err != nil {
		return out, fromRegistry(err)
	}
	out.Entrypoint, out.Command, out.User = img.Entrypoint, img.Cmd, img.User
	out.Ports, out.Env, out.Labels = img.ExposedPorts, img.EnvNames, img.Labels
	out.Healthcheck, out.Size, out.Platform = img.Healthcheck, img.Size, strings.Trim(img.OS+"/"+img.Architecture, "/")
	if !img.Created.IsZero() {
		created := img.Created.UTC()
		out.Created = &created
	}
	return out, nil
}

// file tells of a release of a binary service: which program it is, and how large. One that is not here is looked up in
// its registry, which cannot tell what program it is.
func (l looks) file(ctx context.Context, e probation.Enrollment, r probation.Release) (api.ImageConfig, error) {
	out := api.ImageConfig{Digest: r.Digest, Generation: r.Generation}
	f, staged := l.h.releases.Find(r.ImageID, r.Digest)
	if staged {
		out.OnHost, out.File, out.Size, out.Platform = true, "sha256:"+f.ID, f.Size, platform() // nothing else is staged
		if out.Digest == "" {
			out.Digest = out.File
		}
		program, err := programOf(f.Path)
		out.Program = program
		return out, err
	}
	if e.Image == "" || r.Digest == "" {
		return out, &httpd.TagError{Code: probation.CodePullFailed, Err: fmt.Errorf("no file of %s is staged here; hand it over: toad ship %s FILE --dry-run", out.Digest, e.Name)}
	}
	p, err := l.h.podman.PublishedFile(ctx, e.Image+"@"+r.Digest)
	out.File, out.Size = p.Digest, p.Size
	return out, fromRegistry(err)
}

// fromRegistry puts the trouble of a registry into the API's words.
func fromRegistry(err error) error {
	var pull *podmanc.PullError
	switch {
	case errors.As(err, &pull) && errors.Is(err, podmanc.ErrUnavailable):
		return &httpd.TagError{Code: probation.CodePullUnavailable, Err: err}
	case errors.As(err, &pull):
		return &httpd.TagError{Code: probation.CodePullFailed, Err: err}
	}
	return err
}

// LastAlerts are the newest alerts about each service.
func (l looks) LastAlerts() map[string]api.Alert {
	all := map[string]api.Alert{}
	for service, a := range l.h.alerts.Last() {
		all[service] = api.Alert{Kind: a.Kind, Severity: a.Severity, Operation: a.Operation, Reason: a.Reason, At: a.At}
	}
	return all
}
