package releases

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// processPrefix begins the name of every process, which no container's id does.
const processPrefix = "pid-"

// IsProcess tells the name of a process from the id of a container.
func IsProcess(id string) bool { return strings.HasPrefix(id, processPrefix) }

// Process names a running process, and the file it executes, as no later one is named; "" for none, and for one that
// systemd has made and that does not execute its unit's file yet.
func Process(pid uint32) string {
	if pid == 0 {
		return ""
	}
	exe := exeOf(fmt.Sprint(pid))
	to, err := os.Readlink(exe)
	if name := filepath.Base(to); err != nil || name == "systemd-executor" || name == "systemd" {
		return ""
	}
	info, err := os.Stat(exe)
	if err != nil {
		return ""
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	return fmt.Sprintf("%s%d-%s-%d", processPrefix, pid, started(pid), st.Ino)
}

func exeOf(pid string) string { return filepath.Join("/proc", pid, "exe") }

// started is when a process was started, in ticks since the boot.
func started(pid uint32) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := bytes.Cut(stat, []byte(") ")) // the command's name may hold blanks
	const field = 22 - 3                         // field 22, counted from the state, which is field 3
	if fields := strings.Fields(string(rest)); err == nil && ok && len(fields) > field {
		return fields[field]
	}
	return ""
}

// Running is what a process is.
type Running struct {
	File      string // the sha256 of the bytes that it executes
	Operation string // that it was started for, as its pin told it; "" if it was not told
}

// Look reads what a process executes, through the kernel: the bytes are those that run, whatever lies under their name now.
func Look(process, operationVar string) (Running, error) {
	var r Running
	var pid uint32
	if _, err := fmt.Sscanf(process, processPrefix+"%d-", &pid); err != nil {
		return r, fmt.Errorf("%q is not a process", process)
	}
	f, err := os.Open(exeOf(fmt.Sprint(pid)))
	if err != nil {
		return r, err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return r, err
	}
	r.File = hex.EncodeToString(sum.Sum(nil))
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err == nil && len(environment) == 0 {
		err = fmt.Errorf("process %d is about to execute: the kernel has not laid its environment yet", pid)
	}
	if err != nil {
		return r, err
	}
	for entry := range strings.SplitSeq(string(environment), "\x00") {
		if value, ok := strings.CutPrefix(entry, operationVar+"="); ok {
			r.Operation = value
		}
	}
	if Process(pid) != process {
		return r, fmt.Errorf("process %d is another one by now", pid)
	}
	return r, nil
}

// Adopt stages the file that a process runs.
func (s Store) Adopt(process, service, id string) error {
	var pid uint32
	if _, err := fmt.Sscanf(process, processPrefix+"%d-", &pid); err != nil {
		return fmt.Errorf("%q is not a process", process)
	}
	f, err := os.Open(exeOf(fmt.Sprint(pid)))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return s.Stage(id, service, f)
}

// headBytes are enough of a file to tell what machine it is for.
const headBytes = 64

var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64, "386": elf.EM_386, "arm": elf.EM_ARM,
	"riscv64": elf.EM_RISCV, "ppc64le": elf.EM_PPC64, "s390x": elf.EM_S390}

// runsHere refuses what is not a program of this machine by its first bytes. A script would run as its interpreter, and
// nobody could tell which release that is.
func runsHere(head []byte) error {
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		return &NotAReleaseError{What: "is a script: what runs would be its interpreter, and toad could not tell which release that is; ship a compiled program"}
	case len(head) < 20 || !bytes.HasPrefix(head, []byte(elf.ELFMAG)):
		return &NotAReleaseError{What: "is not a program (ELF)"}
	}
	little := elf.Data(head[elf.EI_DATA]) == elf.ELFDATA2LSB
	machine := elf.Machine(head[18])<<8 | elf.Machine(head[19])
	if little {
		machine = elf.Machine(head[19])<<8 | elf.Machine(head[18])
	}
	if want, known := machines[runtime.GOARCH]; known && machine != want {
		return &NotAReleaseError{What: fmt.Sprintf("is a program for %v, this host is linux/%s", machine, runtime.GOARCH), Platform: true}
	}
	return nil
}
