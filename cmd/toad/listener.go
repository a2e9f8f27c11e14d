package main

import (
	"bufio"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"toad/probation"
	"toad/quadlet"
	"toad/unitgen"
)

// foreign reports whether the port that the readiness probe asks is held by a process outside of the unit. That can only
// be where the container shares the host's network: a port that is published cannot be had twice. What cannot be told is
// not foreign.
func foreign(s unitgen.State, ready probation.Ready) bool {
	host, port, ok := quadlet.HostPort(ready, quadlet.Generated{ExecStart: s.ExecStart, ExecPaths: s.ExecPaths, SourcePath: s.SourcePath})
	if !ok {
		return false
	}
	held := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		for _, inode := range socketsAt(file, host, port) {
			held["socket:["+inode+"]"] = true
		}
	}
	if len(held) == 0 {
		return false
	}
	for _, pid := range processes(s.ControlGroup) {
		dir := filepath.Join("/proc", pid, "fd")
		fds, err := os.ReadDir(dir)
		if err != nil && !os.IsNotExist(err) {
			return false
		}
		if slices.ContainsFunc(fds, func(fd os.DirEntry) bool {
			link, err := os.Readlink(filepath.Join(dir, fd.Name()))
			return err == nil && held[link]
		}) {
			return false
		}
	}
	return true
}

// socketsAt are the inodes of the sockets that listen on a port, at the address of a host or at all.
func socketsAt(file, host string, port int) []string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	var inodes []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		const local, state, inode, listen = 1, 3, 9, "0A"
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode || fields[state] != listen {
			continue
		}
		address, text, _ := strings.Cut(fields[local], ":")
		if n, err := strconv.ParseUint(text, 16, 16); err == nil && int(n) == port && answers(address, host) {
			inodes = append(inodes, fields[inode])
		}
	}
	return inodes
}

// answers says whether a socket at this address, as the kernel writes it, is met by who asks the host.
func answers(address, host string) bool {
	raw, err := hex.DecodeString(address)
	if err != nil || len(raw)%4 != 0 {
		return false
	}
	for word := range slices.Chunk(raw, 4) { // in the machine's own order
		slices.Reverse(word)
	}
	at, ok := netip.AddrFromSlice(raw)
	if !ok {
		return false
	}
	at = at.Unmap()
	asked, err := netip.ParseAddr(host)
	if err != nil { // a name: localhost, or one of this host's
		return at.IsUnspecified() || host != "localhost" || at.IsLoopback()
	}
	return at.IsUnspecified() || at == asked.Unmap()
}

// processes are those of a unit's cgroup and all below it.
func processes(controlGroup string) []string {
	if controlGroup == "" {
		return nil // it does not run
	}
	var pids []string
	_ = filepath.WalkDir(filepath.Join(cgroupRoot(), controlGroup), func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Name() == "cgroup.procs" {
			data, _ := os.ReadFile(path)
			pids = append(pids, strings.Fields(string(data))...)
		}
		return nil
	})
	return pids
}
