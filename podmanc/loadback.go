package podmanc

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// LoadBack gives a retained image back to Podman if Podman has lost it, and proves that it is there under the same id.
// From then on only that bare id resolves: an archive does not bring the manifest digest back. The error is
// ErrNotRetained if the store has no archive that can be used.
//
// Podman writes the whole archive to its own TMPDIR (/var/tmp) before it loads it.
func (c *Client) LoadBack(ctx context.Context, storeDir, imageID string) error {
	return between("load", func() error { return c.loadBack(ctx, storeDir, imageID) })
}

func (c *Client) loadBack(ctx context.Context, storeDir, imageID string) error {
	if _, err := c.Image(ctx, imageID); !errors.Is(err, ErrNoImage) {
		return err
	}
	s := store(storeDir)
	idx, err := s.index(imageID)
	if err != nil {
		return err
	}
	unlock, err := s.share(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	loaded, err := c.load(ctx, s, idx)
	if dropped(err) && ctx.Err() == nil {
		loaded, err = c.load(ctx, s, idx)
	}
	if err != nil {
		return fmt.Errorf("load image %s back: %w", imageID, err)
	}
	_, err = c.Image(ctx, imageID)
	if errors.Is(err, ErrNoImage) {
		return fmt.Errorf("load image %s back: it came back as %s: %w", imageID, strings.Join(loaded, ", "), ErrNotRetained)
	}
	return err
}

// load streams an archive to Podman and returns what Podman calls the images that came of it.
//
// Not the bindings' Load: it would send a body a second time from wherever the first try stopped.
func (c *Client) load(ctx context.Context, s store, idx index) ([]string, error) {
	r, w := io.Pipe()
	written := make(chan error, 1)
	go func() {
		err := s.putTogether(w, idx)
		// An error breaks the request off, so that Podman does not take half an archive for a whole one.
		_ = w.CloseWithError(err)
		written <- err
	}()
	header := http.Header{"Content-Type": {"application/x-tar"}}
	resp, err := c.do(ctx, http.MethodPost, "/images/load", nil, header, r)
	_ = r.Close() // Podman may have answered before it read everything
	if local := <-written; local != nil && !errors.Is(local, io.ErrClosedPipe) {
		err = local // the cause; what HTTP says is its consequence
	}
	if err != nil {
		if resp != nil {
			_ = resp.Body.Close()
		}
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var report struct{ Names []string }
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxJSON)).Decode(&report); err != nil {
		return nil, fmt.Errorf("read podman's answer: %w", err)
	}
	return report.Names, nil
}

// putTogether writes the archive anew. Times and owners are not kept; Podman does not look at them.
func (s store) putTogether(w io.Writer, idx index) error {
	archive := tar.NewWriter(w)
	for _, e := range idx.Entries {
		h := &tar.Header{Name: e.Name, Mode: e.Mode, Size: e.Size, Linkname: e.Target}
		switch e.Kind {
		case kindFile:
			h.Typeflag = tar.TypeReg
		case kindDir:
			h.Typeflag = tar.TypeDir
		case kindSymlink:
			h.Typeflag = tar.TypeSymlink
		case kindLink:
			h.Typeflag = tar.TypeLink
		}
		if err := archive.WriteHeader(h); err != nil {
			return err
		}
		if e.Kind != kindFile {
			continue
		}
		if err := s.copyBlob(archive, e); err != nil {
			return err
		}
	}
	return archive.Close()
}
