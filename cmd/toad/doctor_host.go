package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// What a deployment needs of the host.
const (
	oldestSystemd = 254 // RestartSteps=, with which an act comes again ever more slowly
	needFree      = 64 << 20
)

func (h *host) examineHost(ctx context.Context, f *findings) {
	checkLinger(f)
	if err := h.bus.Ping(ctx); err != nil {
		f.add(levelFail, "user manager", err.Error(), "loginctl enable-linger "+userName())
	} else {
		f.ok("user manager", "it answers on the bus")
	}
	checkSystemd(ctx, f)
	h.checkPodman(ctx, f)
	checkGenerator(f)
	if root := cgroupRoot(); exists(filepath.Join(root, "cgroup.controllers")) {
		f.ok("cgroups", "version 2 at %s", root)
	} else {
		f.add(levelFail, "cgroups", "there is no version 2 hierarchy, so what runs in a unit cannot be found out", "boot with systemd.unified_cgroup_hierarchy=1")
	}
	checkSubordinate(f)
	h.checkClock(f)
	h.checkFolders(f)
	h.checkTimers(ctx, f)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

func checkLinger(f *findings) {
	name := userName()
	if exists("/var/lib/systemd/linger/" + name) {
		f.ok("linger", "the user manager of %s runs without a login", name)
		return
	}
	f.add(levelFail, "linger", "the user manager of "+name+" ends with the last login, and every service and deadline with it", "loginctl enable-linger "+name)
}

var number = regexp.MustCompile(`\d+`)

func checkSystemd(ctx context.Context, f *findings) {
	out, err := output(ctx, "systemctl", "--version")
	version, _ := strconv.Atoi(number.FindString(out))
	switch {
	case err != nil || version == 0:
		f.add(levelFail, "systemd", fmt.Sprintf("systemctl does not tell its version: %v", err), "install systemd")
	case version < oldestSystemd:
		f.add(levelWarn, "systemd", fmt.Sprintf("version %d; toad was measured on %d and newer", version, oldestSystemd), "upgrade the distribution")
	default:
		f.ok("systemd", "version %d", version)
	}
}

func (h *host) checkPodman(ctx context.Context, f *findings) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	version, err := h.podman.Ping(ctx)
	if err != nil {
		f.add(levelFail, "podman", err.Error(), "systemctl --user enable --now podman.socket")
		return
	}
	s, err := h.bus.State(ctx, "podman.socket")
	if err == nil && s.UnitFileState != "enabled" {
		f.add(levelWarn, "podman", fmt.Sprintf("%s answers, but podman.socket is not enabled: it does not after a boot", version), "systemctl --user enable --now podman.socket")
		return
	}
	f.ok("podman", "%s answers on its socket", version)
}

func checkGenerator(f *findings) {
	const name = "podman-user-generator"
	// The first folder wins; a link to /dev/null masks.
	for _, dir := range []string{"/run/systemd/user-generators", "/etc/systemd/user-generators", "/usr/local/lib/systemd/user-generators", "/usr/lib/systemd/user-generators"} {
		path := filepath.Join(dir, name)
		if target, err := os.Readlink(path); err == nil && target == "/dev/null" {
			f.add(levelFail, "generator", path+" masks Podman's generator", "rm "+path)
			return
		}
		if unix.Access(path, unix.X_OK) == nil {
			f.ok("generator", "%s", path)
			return
		}
	}
	f.add(levelFail, "generator", "Podman's generator of user units is not installed: no Quadlet becomes a unit", "install podman, with "+name)
}

func checkSubordinate(f *findings) {
	if _, err := exec.LookPath("newuidmap"); err != nil {
		f.add(levelFail, "subordinate ids", "newuidmap is not installed: no image with files of more than one user can be unpacked", "apt install uidmap")
		return
	}
	name, uid := userName(), strconv.Itoa(os.Getuid())
	for _, file := range []string{"/etc/subuid", "/etc/subgid"} {
		text, _ := os.ReadFile(file)
		found := false
		for line := range strings.Lines(string(text)) {
			owner, _, _ := strings.Cut(line, ":")
			found = found || owner == name || owner == uid
		}
		if !found {
			f.add(levelWarn, "subordinate ids", file+" has no line for "+name+"; unless they come from elsewhere, images cannot be unpacked",
				"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 "+name)
			return
		}
	}
	f.ok("subordinate ids", "newuidmap is there, and %s has some", name)
}

// checkClock holds the wall clock against the newest time that the records tell of.
func (h *host) checkClock(f *findings) {
	names, _ := h.records.Names()
	var newest time.Time
	for _, n := range names {
		svc, err := h.records.Service(n)
		if err != nil || svc.Operation == nil {
			continue
		}
		op := *svc.Operation
		times := []time.Time{op.AcceptedAt, h.records.Watch(op.ID).At.Wall}
		if op.EndedAt != nil {
			times = append(times, *op.EndedAt)
		}
		for _, at := range times {
			if at.After(newest) {
				newest = at
			}
		}
	}
	if behind := time.Until(newest); behind > time.Second {
		f.add(levelWarn, "clock", fmt.Sprintf("it is %s behind the newest time on record: after a boot every deadline would count as past", behind.Round(time.Second)), "timedatectl set-ntp true")
		return
	}
	f.ok("clock", "not behind what is on record")
}

func (h *host) checkFolders(f *findings) {
	for _, dir := range []struct{ what, path string }{
		{"state folder", h.records.Dir()}, {"pin folder", h.rollout.Quadlet.Config}, {"podman's /var/tmp", "/var/tmp"},
	} {
		free, err := freeBytes(dir.path)
		switch {
		case err != nil:
			f.add(levelFail, dir.what, err.Error(), "")
		case !writable(dir.path):
			f.add(levelFail, dir.what, dir.path+" cannot be written by "+userName(), "chown it to "+userName()+", or mount it read-write")
		case free < needFree:
			f.add(levelFail, dir.what, fmt.Sprintf("only %d MiB are free at %s, a switch wants %d", free>>20, dir.path, needFree>>20), "free some space there")
		default:
			f.ok(dir.what, "%s, %d MiB free", dir.path, free>>20)
		}
	}
}

// writable reports whether a folder, or the nearest one above it that exists, takes a file.
func writable(dir string) bool {
	for !exists(dir) && dir != "/" {
		dir = filepath.Dir(dir)
	}
	return unix.Access(dir, unix.W_OK|unix.X_OK) == nil
}

// properties are the NAME=value lines that systemctl show prints.
func properties(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			all[name] = value
		}
	}
	return all
}

func output(ctx context.Context, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, argv[0], argv[1:]...).Output()
	return string(bytes.TrimSpace(out)), err
}
