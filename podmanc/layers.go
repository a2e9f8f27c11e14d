package podmanc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containers/podman/v5/libpod/define"
	"golang.org/x/sys/unix"
)

// ErrNoLayers is an image whose files cannot be read where its layers lie: by another driver than overlay, out of sight, or
// owned by a user of the container. CopyOut shows them all the same.
var ErrNoLayers = errors.New("its layers cannot be read as they lie")

// layerDirs are the folders of an image as overlay keeps them, the uppermost first. A folder of the image is a list of them
// too: what several layers have at its path.
type layerDirs []string

func layersOf(d *define.DriverData) layerDirs {
	if d == nil || d.Name != "overlay" || d.Data["UpperDir"] == "" {
		return nil
	}
	all := layerDirs{d.Data["UpperDir"]}
	for dir := range strings.SplitSeq(d.Data["LowerDir"], ":") {
		if dir != "" {
			all = append(all, dir)
		}
	}
	for _, dir := range all {
		if !filepath.IsAbs(dir) {
			return nil
		}
	}
	return all
}

// Open opens a file of an image where its layers lie: the first of paths, absolute ones, that is a regular file or a link
// that ends at one. The file is nil when the image has none of them. One of more than limit bytes is ErrTooLarge; where
// layers cannot be read, it is ErrNoLayers.
func (img Image) Open(paths []string, limit int64) (*os.File, error) {
	for _, p := range paths {
		f, err := img.layers.open(p)
		if err != nil {
			return nil, fmt.Errorf("read %s of image %.12s: %w", p, img.ID, err)
		}
		if f == nil {
			continue
		}
		fi, err := f.Stat()
		if err == nil && fi.Size() > limit {
			err = tooLarge(p, fi.Size(), limit)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	return nil, nil
}

// open opens the file of the image at a path, following its links within the image; nil if there is no regular file.
func (l layerDirs) open(name string) (*os.File, error) {
	if len(l) == 0 {
		return nil, ErrNoLayers
	}
	for _, dir := range l { // one that cannot be looked into would count as empty
		if _, err := os.Lstat(dir); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNoLayers, err)
		}
	}
	at := []layerDirs{l} // the folders from the root to where it stands
	todo := strings.Split(name, "/")
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch {
		case part == "" || part == ".":
			continue
		case part == "..":
			at = at[:max(1, len(at)-1)]
			continue
		}
		mode, found, err := at[len(at)-1].look(part)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: %w", ErrNoLayers, err)
		case mode.IsDir():
			at = append(at, found)
		case mode&fs.ModeSymlink != 0:
			target, err := os.Readlink(found[0])
			if err != nil {
				return nil, fmt.Errorf("%w: %w", ErrNoLayers, err)
			}
			if links++; links > maxLinks {
				return nil, nil
			}
			if strings.HasPrefix(target, "/") {
				at = at[:1]
			}
			todo = append(strings.Split(target, "/"), todo...)
		case len(found) > 0 && mode.IsRegular() && len(todo) == 0:
			return openPlain(found[0])
		default:
			return nil, nil
		}
	}
	return nil, nil // a folder
}

// look finds an entry of a folder as overlay shows it. For a folder, found is what the layers have of it; else it is the
// path of the one that counts, or nothing.
func (l layerDirs) look(name string) (mode fs.FileMode, found layerDirs, err error) {
	for _, dir := range l {
		p := filepath.Join(dir, name)
		fi, err := os.Lstat(p)
		if errors.Is(err, fs.ErrNotExist) {
			// fuse-overlayfs can hide by a name where overlay hides by a device.
			if _, err := os.Lstat(filepath.Join(dir, ".wh."+name)); err == nil {
				break
			}
			continue
		}
		if err != nil {
			return 0, nil, err
		}
		if !fi.IsDir() {
			if len(found) == 0 { // also a device, which hides what is below it
				return fi.Mode(), layerDirs{p}, nil
			}
			break
		}
		mode, found = fi.Mode(), append(found, p)
		over, err := hidesBelow(p)
		if err != nil {
			return 0, nil, err
		}
		if over {
			break
		}
	}
	return mode, found, nil
}

// hidesBelow tells that a folder of a layer is not merged with those below it.
func hidesBelow(dir string) (bool, error) {
	if _, err := os.Lstat(filepath.Join(dir, ".wh..wh..opq")); err == nil {
		return true, nil
	}
	var names [4 << 10]byte
	n, err := unix.Llistxattr(dir, names[:])
	if errors.Is(err, unix.ENOTSUP) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "llistxattr", Path: dir, Err: err}
	}
	hides := false
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		switch {
		case !strings.Contains(name, "overlay"):
		case strings.HasSuffix(name, ".opaque"):
			hides = true
		case strings.HasSuffix(name, ".origin"), strings.HasSuffix(name, ".impure"), strings.HasSuffix(name, ".uuid"): // they change nothing that is shown
		default:
			return false, fmt.Errorf("%s has the attribute %s", dir, name)
		}
	}
	return hides, nil
}

// openPlain opens a file of which Lstat said that it is a regular one.
func openPlain(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLayers, err)
	}
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(ErrNoLayers, err, f.Close())
	}
	return f, nil
}
