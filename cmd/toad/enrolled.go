package main

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"toad/httpd"
	"toad/probation"
	"toad/quadlet"
)

// enrolled is the enrollment file, read again when it has changed. An edit that is not valid keeps the last good one in
// force and is told.
type enrolled struct {
	path string

	mu      sync.Mutex
	file    *quadlet.File
	invalid error
	stamp   string
}

// Enrollment returns what the operator says of a service.
func (e *enrolled) Enrollment(name string) (probation.Enrollment, error) {
	file, err := e.current()
	if err != nil {
		return probation.Enrollment{}, err
	}
	if s, ok := file.Service(name); ok {
		return s, nil
	}
	return probation.Enrollment{}, fmt.Errorf("%w %q: it is not in %s", httpd.ErrUnknownService, name, "the enrollment file")
}

// Names lists the enrolled services, sorted.
func (e *enrolled) Names() []string {
	file, err := e.current()
	if err != nil {
		return nil
	}
	var names []string
	for _, s := range file.Services {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}

// Alerts says where alerts go.
func (e *enrolled) Alerts() (quadlet.Alerts, error) {
	file, err := e.current()
	if err != nil {
		return quadlet.Alerts{}, err
	}
	return file.Alerts, nil
}

// Invalid says why the file as it is now is not in force; nil if it is.
func (e *enrolled) Invalid() error {
	_, err := e.current()
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		err = e.invalid
	}
	return err
}

func (e *enrolled) current() (*quadlet.File, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	stamp := "missing"
	if info, err := os.Stat(e.path); err == nil {
		stamp = fmt.Sprint(info.ModTime().UnixNano(), info.Size(), info.Mode())
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			stamp += fmt.Sprint(" ", st.Ino, st.Uid, st.Ctim)
		}
		if time.Since(info.ModTime()) < 2*time.Second {
			stamp = "" // it may change again within the clock's grain
		}
	}
	if stamp == "" || stamp != e.stamp {
		file, err := quadlet.Load(e.path)
		e.stamp, e.invalid = stamp, err
		if err == nil {
			e.file = file
		}
	}
	if e.file == nil {
		return nil, fmt.Errorf("no enrollment is in force: %w", e.invalid)
	}
	return e.file, nil
}
