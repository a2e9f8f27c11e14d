package podmanc

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// ErrTooLarge is a file of an image that is larger than the caller takes.
var ErrTooLarge = errors.New("file is too large")

func tooLarge(name string, size, limit int64) error {
	return fmt.Errorf("%q has %d MiB, at most %d are read: %w", name, size>>20, limit>>20, ErrTooLarge)
}

// maxLinks is how many links are followed to one file of an image.
const maxLinks = 16

// copyLabel marks the containers that CopyOut makes; they are never started.
const copyLabel = "io.toad.copy"

// CopyOut writes a file of an image to w, as Image.Open does that needs no container: the first of paths, absolute ones, that is a regular file or a link that ends
// at one. Nothing of the image is run: the file is taken out of a container that is made, never started and removed
// again. name tells the container from those of other callers; one that a killed caller left is replaced. found is empty
// when the image has none of them. A file of more than limit bytes is ErrTooLarge.
func (c *Client) CopyOut(ctx context.Context, imageID, name string, paths []string, limit int64, w io.Writer) (found string, err error) {
	if !hexID.MatchString(imageID) {
		return "", fmt.Errorf("%q is not an image id", imageID)
	}
	name = "toad-copy-" + name
	err = between("copy", func() error {
		if err := c.removeContainer(ctx, name); err != nil {
			return err
		}
		if err := c.createStopped(ctx, name, imageID); err != nil {
			return err
		}
		defer func() {
			// Also when the caller's time is up: what is left here would keep the image.
			after, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			err = errors.Join(err, c.removeContainer(after, name))
		}()
		for _, p := range paths {
			found, err = c.copyFile(ctx, name, p, limit, w)
			if found != "" || err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("read the program of image %s: %w", imageID[:12], err)
	}
	return found, nil
}

func (c *Client) createStopped(ctx context.Context, name, imageID string) error {
	spec, err := json.Marshal(map[string]any{
		"name": name, "image": imageID, "labels": map[string]string{copyLabel: "1"},
		"netns": map[string]string{"nsmode": "none"}, "image_volume_mode": "ignore", "log_configuration": map[string]string{"driver": "none"},
		"command": []string{"true"}, // an image may have none; this one is never run either
	})
	if err != nil {
		return err
	}
	resp, err := c.do(ctx, http.MethodPost, "/containers/create", nil, http.Header{"Content-Type": {"application/json"}}, bytes.NewReader(spec))
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (c *Client) removeContainer(ctx context.Context, name string) error {
	resp, err := c.do(ctx, http.MethodDelete, "/containers/"+url.PathEscape(name), url.Values{"v": {"true"}, "ignore": {"true"}, "force": {"true"}, "timeout": {"0"}}, nil, nil)
	if status(err) == http.StatusNotFound {
		return nil
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// copyFile follows links itself: Podman answers for a link with the link.
func (c *Client) copyFile(ctx context.Context, container, name string, limit int64, w io.Writer) (string, error) {
	for range maxLinks + 1 {
		target, err := c.copyOne(ctx, container, name, limit, w)
		if err != nil || target == "" {
			return "", err
		}
		if target == name {
			return name, nil
		}
		if !strings.HasPrefix(target, "/") {
			target = path.Join(path.Dir(name), target)
		}
		name = path.Clean(target)
	}
	return "", nil // a ring of links
}

// copyOne copies name if it is a regular file, and returns it; for a link it returns its target, for all else nothing.
func (c *Client) copyOne(ctx context.Context, container, name string, limit int64, w io.Writer) (string, error) {
	resp, err := c.do(ctx, http.MethodGet, "/containers/"+url.PathEscape(container)+"/archive", url.Values{"path": {name}}, nil, nil)
	if status(err) == http.StatusNotFound || err != nil && strings.Contains(err.Error(), "too many levels of symbolic links") {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	if target := linkTarget(resp.Header); target != "" && target != name {
		return target, nil
	}
	tr := tar.NewReader(resp.Body)
	head, err := tr.Next()
	switch {
	case err != nil:
		return "", fmt.Errorf("copy %q: %w", name, err)
	case head.Typeflag == tar.TypeSymlink:
		return head.Linkname, nil
	case head.Typeflag != tar.TypeReg:
		return "", nil
	case head.Size > limit:
		return "", tooLarge(name, head.Size, limit)
	}
	if _, err := io.Copy(w, tr); err != nil {
		return "", fmt.Errorf("copy %q: %w", name, err)
	}
	return name, nil
}

// linkTarget reads where Podman says a path leads.
func linkTarget(h http.Header) string {
	text, err := base64.StdEncoding.DecodeString(h.Get("X-Docker-Container-Path-Stat"))
	if err != nil {
		return ""
	}
	var stat struct {
		LinkTarget string `json:"linkTarget"`
	}
	if json.Unmarshal(text, &stat) != nil {
		return ""
	}
	return stat.LinkTarget
}
