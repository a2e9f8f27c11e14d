package podmanc

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	"toad/internal/atomicfile"
	"toad/internal/fault"
)

// errUnfit is an archive from which the image would not come back as the one that was asked for.
var errUnfit = errors.New("archive does not bring the image back")

// Retain keeps the image (64 hex digits) in the store, so that it can be loaded back after `podman system prune -af`. It
// is proved before it counts: the archive carries a config whose sha256 is the image id, and the layers that this config
// names. An image that is retained already costs nothing. The error is ErrNoImage if Podman does not have the image.
//
// Podman writes the whole archive to its own TMPDIR (/var/tmp) before it sends the first byte.
func (c *Client) Retain(ctx context.Context, storeDir, imageID string) error {
	s := store(storeDir)
	if ok, err := c.Retained(storeDir, imageID); ok || err != nil {
		return err
	}
	unlock, err := s.share(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	return between("retain", func() error { return c.retain(ctx, s, imageID) })
}

func (c *Client) retain(ctx context.Context, s store, imageID string) error {
	// docker-archive first: it keeps the image id of images of both schemas, oci-archive of its own only.
	err := c.retainAs(ctx, s, imageID, dockerArchive)
	if errors.Is(err, errUnfit) {
		if second := c.retainAs(ctx, s, imageID, ociArchive); second != nil {
			return fmt.Errorf("retain image %s: %w; %w", imageID, err, second)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("retain image %s: %w", imageID, err)
	}
	return nil
}

func (c *Client) retainAs(ctx context.Context, s store, imageID, format string) error {
	resp, err := c.do(ctx, http.MethodGet, "/images/"+imageID+"/get", url.Values{"format": {format}}, nil, nil)
	switch status(err) {
	case 0:
	case http.StatusNotFound:
		return ErrNoImage
	default:
		return fmt.Errorf("%w: %s: %w", errUnfit, format, err) // this image cannot be put in this format
	}
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	idx := index{Schema: indexSchema, Image: imageID, Format: format}
	if idx.Entries, err = s.takeApart(resp.Body); err != nil {
		return fmt.Errorf("read %s: %w", format, err)
	}
	if err := s.prove(idx); err != nil {
		return fmt.Errorf("%w: %s: %w", errUnfit, format, err)
	}
	data, err := json.MarshalIndent(idx, "", " ")
	if err != nil {
		return err
	}
	if _, err := parseIndex(data); err != nil {
		return fmt.Errorf("%w: %s: %w", errUnfit, format, err)
	}
	return atomicfile.Write(s.indexPath(imageID), append(data, '\n'), 0o600)
}

// takeApart puts the files of an archive into the store as they arrive, and lists the archive's entries.
func (s store) takeApart(r io.Reader) ([]entry, error) {
	var entries []entry
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		e := entry{Name: h.Name, Mode: h.Mode}
		switch h.Typeflag {
		case tar.TypeReg:
			e.Kind, e.Size = kindFile, h.Size
			if e.SHA256, err = s.put(archive, h.Name, h.Size); err != nil {
				return nil, fmt.Errorf("%s: %w", h.Name, err)
			}
		case tar.TypeDir:
			e.Kind = kindDir
		case tar.TypeSymlink:
			e.Kind, e.Target = kindSymlink, h.Linkname
		case tar.TypeLink:
			e.Kind, e.Target = kindLink, h.Linkname
		default:
			return nil, fmt.Errorf("%s: unknown type %q in archive", h.Name, h.Typeflag)
		}
		entries = append(entries, e)
	}
	// The end mark of a tar file is optional, so only the end of the answer tells that it was whole.
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, err
	}
	return entries, nil
}

// put writes one blob, durably, and returns its sha256. A layer that the store has under the sum in its name is read
// and proved but not written: it may be most of the image.
func (s store) put(r io.Reader, name string, size int64) (string, error) {
	hash := sha256.New()
	r = io.TeeReader(r, hash)
	sum := func() string { return hex.EncodeToString(hash.Sum(nil)) }
	known, _, _ := strings.Cut(path.Base(name), ".")
	if hexID.MatchString(known) {
		if ok, err := s.has(known, size); err != nil {
			return "", err
		} else if ok {
			if _, err := io.Copy(io.Discard, r); err != nil {
				return "", err
			}
			if sum() != known {
				return "", fmt.Errorf("its bytes have the sha256 %s", sum())
			}
			return known, nil
		}
	}
	// The name is one that atomicfile.Sweep knows, should the process be killed here.
	f, err := os.CreateTemp(s.blobs(), ".toad-tmp-")
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = fault.Point("retain.blob")
	}
	if err == nil {
		err = f.Sync() // before the rename: else a power cut leaves a blob without bytes
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = atomicfile.Rename(f.Name(), s.blob(sum()))
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return sum(), nil
}
