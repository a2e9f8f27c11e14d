//go:build faults

package fault

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Point looks for <TOAD_STATE>/fault, whose lines are each "<point> <n> <action>", and of which the first counts: at the
// nth passing of that point (a * stands for any part of its name) the line is removed and the action is taken once: "kill"
// ends the process as SIGKILL does, "cut" asks for a power cut by a file fault.cut and waits for it, "hang" never returns,
// "error" fails the call. With a file fault.trace every point that is passed is written down there, with the process.
func Point(name string) error {
	file := filepath.Join(os.Getenv("TOAD_STATE"), "fault")
	if f, err := os.OpenFile(file+".trace", os.O_APPEND|os.O_WRONLY, 0); err == nil {
		fmt.Fprintf(f, "%s %d\n", name, os.Getpid())
		f.Close()
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	line, later, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return nil
	}
	if same, _ := path.Match(fields[0], name); !same {
		return nil
	}
	if n, err := strconv.Atoi(fields[1]); err == nil && n > 1 {
		return put(file, fmt.Sprintf("%s %d %s\n%s", fields[0], n-1, fields[2], later))
	}
	if err := put(file, later); err != nil {
		return nil
	}
	switch fields[2] {
	case "kill":
		fmt.Fprintf(os.Stderr, "<2>fault: killed at %s\n", name)
		if os.Getpid() == 1 {
			os.Exit(128 + int(syscall.SIGKILL)) // the first process of a container cannot kill itself
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "cut":
		_ = os.WriteFile(file+".cut", []byte(name+"\n"), 0o600)
		select {}
	case "hang":
		select {}
	}
	return errors.New("injected fault at " + name)
}

// put leaves what is still to come; it replaces the file in one step, since others read it at any time.
func put(file, text string) error {
	if text == "" {
		return os.Remove(file)
	}
	next := fmt.Sprintf("%s.%d", file, os.Getpid())
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}
