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

// runtimeDir is the user's runtime folder. A login over ssh sets its variable; su, cron and CI runners do not, and sudo
// may leave another user's.
func (g *globals) runtimeDir() (string, error) {
	if err := notRoot(); err != nil {
		return "", err
	}
	uid := os.Getuid()
	usual := "/run/user/" + strconv.Itoa(uid)
	dir := os.Getenv("XDG_RUNTIME_DIR")
	given := filepath.IsAbs(dir)
	if !given {
		dir = usual
	}
	info, err := os.Stat(dir)
	if err == nil {
		if st, ok := info.Sys().(*syscall.Stat_t); ok && info.IsDir() && int(st.Uid) == uid {
			return dir, nil
		}
	}
	switch {
	case given && err == nil:
		return "", configError{fmt.Errorf("XDG_RUNTIME_DIR is %s, which is another user's; log in as %s, or: XDG_RUNTIME_DIR=%s toad …", dir, userName(), usual)}
	case given:
		return "", configError{fmt.Errorf("XDG_RUNTIME_DIR is %s, which is not there; log in as %s, or: XDG_RUNTIME_DIR=%s toad …", dir, userName(), usual)}
	}
	return "", configError{fmt.Errorf("there is no %s, for the user manager of %s does not run; as root: loginctl enable-linger %s", usual, userName(), userName())}
}
