package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// stateDir is the folder with toad's records.
func (g *globals) stateDir() (string, error) {
	if g.State != "" {
		return absolute("--state", g.State)
	}
	return xdg("XDG_STATE_HOME", ".local/state", "--state")
}

// enrollmentPath is the enrollment file: the user's own, else the host's.
func (g *globals) enrollmentPath() (string, error) {
	if g.Enrollment != "" {
		return absolute("--enrollment", g.Enrollment)
	}
	dir, err := xdg("XDG_CONFIG_HOME", ".config", "--enrollment")
	if err != nil {
		return "", err
	}
	own := filepath.Join(dir, "enrollment.toml")
	const hosts = "/etc/toad/enrollment.toml"
	if _, err := os.Stat(own); errors.Is(err, os.ErrNotExist) {
		if _, err := os.Stat(hosts); err == nil {
			return hosts, nil
		}
	}
	return own, nil
}

// absolute makes a path the same for the units that are given it.
func absolute(flag, path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", configError{fmt.Errorf("%s %s: %w", flag, path, err)}
	}
	return abs, nil
}

// xdg is toad's folder below one of the user's base folders.
func xdg(variable, fallback, flag string) (string, error) {
	if dir := os.Getenv(variable); filepath.IsAbs(dir) {
		return filepath.Join(dir, "toad"), nil
	}
	if home := os.Getenv("HOME"); filepath.IsAbs(home) {
		return filepath.Join(home, fallback, "toad"), nil
	}
	return "", hint(configError{fmt.Errorf("neither HOME nor %s is set", variable)}, "set HOME, or give %s", flag)
}

// runtimeDir is the user's runtime folder. A login over ssh sets its variable; su, cron and CI runners do not.
func (g *globals) runtimeDir() (string, error) {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return dir, nil
	}
	uid := os.Getuid()
	dir := "/run/user/" + strconv.Itoa(uid)
	info, err := os.Stat(dir)
	if err == nil && info.IsDir() {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == uid {
			return dir, nil
		}
	}
	missing := configError{fmt.Errorf("XDG_RUNTIME_DIR is not set and there is no %s", dir)}
	if notRoot() != nil {
		return "", hint(missing, "this is root: %s; or give --endpoint", asUser)
	}
	return "", hint(missing,
		"loginctl enable-linger %d, then log in as that user; for another toad give --endpoint", uid)
}
