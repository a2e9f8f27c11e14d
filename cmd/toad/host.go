package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"toad/probation"
	"toad/quadlet"
	"toad/unitgen"
)

// What the rules must know of the host and cannot ask over D-Bus or Podman.

// now reads the host's clocks. The boot id comes from the kernel; without it no two instants are of one boot.
func now() probation.Instant {
	i := probation.Instant{Wall: time.Now()}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err == nil {
		i.Boot = time.Duration(ts.Nano())
	}
	i.BootID = bootID()
	return i
}

// bootID is as the kernel writes it. systemd tells a daemon in a container, without the dashes.
func bootID() string {
	if id := os.Getenv("TOAD_BOOT_ID"); len(id) == 32 {
		return id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]
	}
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// uptime is CLOCK_MONOTONIC, by which systemd says since when a unit is active. It stands still while the host sleeps.
func uptime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// notRoot keeps the host's root from writing files into a user's folders that the user's toad could then not change.
func notRoot() error {
	if os.Geteuid() != 0 || inUserNamespace() {
		return nil
	}
	return configError{errors.New("this is root, and toad belongs to the user whose containers it manages; run it as that user: scripts/toad-as USER …")}
}

// inUserNamespace reports whether uid 0 is some other user of the host.
func inUserNamespace() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(text))
	return err == nil && (len(fields) != 3 || fields[0] != "0" || fields[1] != "0" || fields[2] != "4294967295")
}

// managerID tells one run of the user manager from the next within a boot: the parent's pid and start time. It is for
// processes that the manager started.
func managerID() string {
	pid := os.Getppid()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ") // the command's name may hold blanks
	const started = 22 - 3                        // field 22, counted from the state, which is field 3
	if fields := strings.Fields(rest); len(fields) > started {
		return fmt.Sprintf("%d@%s", pid, fields[started])
	}
	return ""
}

// cgroupRoot is where the unified hierarchy is mounted.
func cgroupRoot() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		if _, err := os.Stat("/sys/fs/cgroup/unified/cgroup.controllers"); err == nil {
			return "/sys/fs/cgroup/unified"
		}
	}
	return "/sys/fs/cgroup"
}

// freeBytes is what an unprivileged writer may still use where a path lies.
func freeBytes(path string) (uint64, error) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(path, &st)
		if err == nil {
			return st.Bavail * uint64(st.Bsize), nil
		}
		if err != unix.ENOENT || path == "/" || path == "." {
			return 0, err
		}
		path = filepath.Dir(path)
	}
}

var payloadName = regexp.MustCompile(`^libpod-payload-([0-9a-f]{64})$`)

// payload finds the running container in a unit's cgroup: Podman gives each one a child named after its id. During a
// replacement the old one's may linger, so a populated one wins.
func payload(controlGroup string) string {
	if controlGroup == "" {
		return ""
	}
	dir := filepath.Join(cgroupRoot(), controlGroup)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		m := payloadName.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		events, err := os.ReadFile(filepath.Join(dir, e.Name(), "cgroup.events"))
		if err == nil && strings.Contains(string(events), "populated 1") {
			return m[1]
		}
	}
	return ""
}

// memoryLimit reports whether a unit, or the container it runs, has a limit of memory of its own.
func memoryLimit(s unitgen.State) bool {
	return (s.MemoryMax != 0 && s.MemoryMax != math.MaxUint64) || quadlet.MemoryLimited(quadlet.Generated{ExecStart: s.ExecStart})
}

// entry is what is read of a journal entry.
type entry struct {
	Message   any    `json:"MESSAGE"` // text, or an array of bytes where it is not UTF-8
	Container string `json:"CONTAINER_ID_FULL"`
	Event     string `json:"PODMAN_EVENT"`
	Command   string `json:"_COMM"`
}

// keptLines is how many of the last lines of an invocation are kept.
const keptLines = 20

// journalLines returns the last lines that an invocation of a user unit logged and that are wanted, oldest first.
func journalLines(ctx context.Context, invocation string, wanted func(entry, string) bool) []string {
	if invocation == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "journalctl", "--user", "_SYSTEMD_INVOCATION_ID="+invocation,
		"-n", "100", "-o", "json", "--output-fields=MESSAGE,CONTAINER_ID_FULL,PODMAN_EVENT,_COMM").Output()
	if err != nil {
		return nil
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		var e entry
		if json.Unmarshal([]byte(line), &e) != nil {
			continue
		}
		if text := e.text(); strings.TrimSpace(text) != "" && wanted(e, text) {
			lines = append(lines, fmt.Sprintf("%.500s", text))
		}
	}
	return lines[max(0, len(lines)-keptLines):]
}

func (e entry) text() string {
	switch m := e.Message.(type) {
	case string:
		return strings.TrimRight(m, "\n")
	case []any:
		b := make([]byte, 0, len(m))
		for _, v := range m {
			if f, ok := v.(float64); ok {
				b = append(b, byte(f))
			}
		}
		return strings.TrimRight(string(b), "\n")
	}
	return ""
}

// ofPodman tells Podman's own words from those of the container it ran.
func (e entry) ofPodman(string) bool {
	return e.Command == "podman" && e.Container == "" && e.Event == ""
}

// worthTelling leaves out what Podman and its helpers tell of themselves while all is well.
func (e entry) worthTelling(text string) bool {
	switch {
	case e.Container != "":
		return true
	case e.Event != "":
		return false
	case e.Command == "podman":
		return !payloadID.MatchString(text)
	case e.Command == "conmon", strings.HasPrefix(e.Command, "pasta"):
		return strings.Contains(text, "rror") || strings.HasPrefix(text, "Failed")
	}
	return true
}

var payloadID = regexp.MustCompile(`^[0-9a-f]{64}$`)
