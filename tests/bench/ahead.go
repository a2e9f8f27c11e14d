//go:build e2e

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// shares is what the kernel gives this bench and its hosts beside anything else, for which 1024 is usual.
const shares = 10240

// runAhead puts this process, and with it every host it boots, ahead of all else on the machine, so that neighbours
// change little of what is measured. It needs the cpu controller of cgroup v1: with v2 each host enters a cgroup of its own.
func runAhead(b *bench) error {
	mount, before, err := cpuController()
	if err != nil {
		return err
	}
	dir := filepath.Join(mount, fmt.Sprintf("toad-bench-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	enter := func(dir string) error {
		return os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Append(nil, os.Getpid()), 0o644)
	}
	b.Cleanup(func() {
		if err := errors.Join(enter(filepath.Join(mount, before)), os.Remove(dir)); err != nil {
			b.say("%v", err)
		}
	})
	return errors.Join(os.WriteFile(filepath.Join(dir, "cpu.shares"), fmt.Append(nil, shares), 0o644), enter(dir))
}

// cpuController is where the cpu controller of cgroup v1 is mounted, and where in it this process is.
func cpuController() (mount, own string, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return "", "", err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", "", err
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if f[2] == "cgroup" && slices.Contains(strings.Split(f[3], ","), "cpu") {
			mount = f[1]
		}
	}
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if slices.Contains(strings.Split(f[1], ","), "cpu") {
			own = f[2]
		}
	}
	if mount == "" || own == "" {
		return "", "", errors.New("--ahead needs the cpu controller of cgroup v1, which this machine does not have")
	}
	return mount, own, nil
}
