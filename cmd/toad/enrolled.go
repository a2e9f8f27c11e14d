package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"toad/httpd"
	"toad/internal/atomicfile"
	"toad/probation"
	"toad/quadlet"
)

// enrolled is the enrollment, the operator's file and what bundles have brought, read again when it has changed. An edit
// that is not valid keeps the last good one in force and is told; so does a file that is missing: an editor may be at it.
type enrolled struct {
	path string
	// last is the copy of the last good one, which the daemon keeps: it may end and come back while the file is not valid.
	last  string
	keeps bool
	// folder holds what bundles have brought, beside the operator's own.
	folder string
	log    *slog.Logger

	mu      sync.Mutex
	own     *quadlet.File // the operator's last good one
	file    *quadlet.File // with what bundles have brought
	invalid error
	stamp   string // of the file as it was read last
	text    string // that was read then, kept while the stamp alone does not tell
}

// Enrollment returns what the operator says of a service.
func (e *enrolled) Enrollment(name string) (probation.Enrollment, error) {
	if file := e.current(); file != nil {
		if s, ok := file.Service(name); ok {
			return s, nil
		}
	}
	return probation.Enrollment{}, fmt.Errorf("%w: %.80q is not enrolled", httpd.ErrUnknownService, name)
}

// All are the enrolled services, sorted by name.
func (e *enrolled) All() []probation.Enrollment {
	if file := e.current(); file != nil {
		return file.Services
	}
	return nil
}

// Names lists them.
func (e *enrolled) Names() (names []string) {
	for _, s := range e.All() {
		names = append(names, s.Name)
	}
	return names
}

// Alerts says where alerts go.
func (e *enrolled) Alerts() (quadlet.Alerts, error) {
	file := e.current()
	if file == nil {
		return quadlet.Alerts{}, e.Invalid()
	}
	return file.Alerts, nil
}

// Invalid says why the file as it is now is not in force, and what is; nil if it is.
func (e *enrolled) Invalid() error {
	file := e.current()
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.invalid == nil:
		return nil
	case file == nil:
		return fmt.Errorf("%w\nno enrollment is in force", e.invalid)
	}
	return fmt.Errorf("%w\nthe last good enrollment stays in force", e.invalid)
}

// current is the enrollment in force; nil if none ever was.
func (e *enrolled) current() *quadlet.File {
	e.mu.Lock()
	defer e.mu.Unlock()
	stamp, settled := e.look()
	text := e.text
	if !settled || stamp != e.stamp {
		text = e.readAll()
	}
	if stamp == e.stamp && text == e.text {
		return e.file
	}
	e.stamp, e.text = stamp, text
	own, err := quadlet.Load(e.path)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing {
		err = quadlet.Problem{File: e.path, What: "there is no such file", Fix: "write it: it says which services toad may deploy"}
	}
	switch {
	case err == nil:
		e.own = own
		e.keep()
	case e.own == nil:
		e.own = e.kept()
	}
	brought, bad := quadlet.Brought(e.folder, e.own)
	if missing && e.own == nil && len(brought) > 0 {
		err = nil // all there is has been brought
	}
	e.file = e.with(brought)
	err = errors.Join(err, bad)
	if err != nil && (e.invalid == nil || err.Error() != e.invalid.Error()) {
		e.log.Error("the enrollment is not in force as it is now", "err", err)
	}
	e.invalid = err
	return e.file
}

// with is the operator's enrollment with what bundles have brought; nil if there is neither.
func (e *enrolled) with(brought []probation.Enrollment) *quadlet.File {
	if len(brought) == 0 {
		return e.own
	}
	file := quadlet.File{Path: e.path}
	if e.own != nil {
		file = *e.own
	}
	file.Services = append(slices.Clone(file.Services), brought...)
	slices.SortFunc(file.Services, func(a, b probation.Enrollment) int { return strings.Compare(a.Name, b.Name) })
	return &file
}

// paths are all files that tell of services.
func (e *enrolled) paths() []string {
	if e.folder == "" {
		return []string{e.path}
	}
	brought, _ := filepath.Glob(filepath.Join(e.folder, "*.toml"))
	return append([]string{e.path}, brought...)
}

// look tells one state of all files from another. One that is not settled may change within the clock's grain, and then
// only the text tells.
func (e *enrolled) look() (stamp string, settled bool) {
	settled = true
	for _, path := range e.paths() {
		one, ok := lookAt(path)
		stamp, settled = stamp+one+"\n", settled && ok
	}
	return stamp, settled
}

func lookAt(path string) (stamp string, settled bool) {
	info, err := os.Stat(path)
	if err != nil {
		return err.Error(), true
	}
	stamp, settled = fmt.Sprint(info.ModTime().UnixNano(), info.Size(), info.Mode()), true
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		stamp += fmt.Sprint(" ", st.Ino, st.Uid, st.Ctim)
		settled = time.Since(time.Unix(st.Ctim.Unix())) >= 2*time.Second
	}
	return stamp, settled
}

func (e *enrolled) readAll() string {
	var all []string
	for _, path := range e.paths() {
		all = append(all, readText(path))
	}
	return strings.Join(all, "\x00")
}

// readText is the file's text as far as it is compared; what keeps it from being read is told by who parses it. A pipe
// would not end.
func readText(path string) string {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > 1<<20 {
		return ""
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (e *enrolled) keep() {
	if !e.keeps {
		return
	}
	if had, err := os.ReadFile(e.last); err == nil && string(had) == string(e.own.Text) {
		return
	}
	if err := atomicfile.Write(e.last, e.own.Text, 0o600); err != nil {
		e.log.Warn("the enrollment could not be kept", "err", err)
	}
}

func (e *enrolled) kept() *quadlet.File {
	text, err := os.ReadFile(e.last)
	if err != nil {
		return nil
	}
	file, err := quadlet.Parse(e.path, text)
	if err != nil {
		e.log.Warn("the last good enrollment is not valid any more", "err", err)
		return nil
	}
	return file
}
