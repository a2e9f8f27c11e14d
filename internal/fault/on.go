//go:build faults

package fault

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Point looks for <TOAD_STATE>/fault, which holds "<point> <n> <action>": at the n-th passing of that point the file is
// removed and the action is taken once: "kill" ends the process as SIGKILL does, "cut" asks for a power cut by a file
// fault.cut and waits for it, "hang" never returns, "error" fails the call. With a file fault.trace every point that is
// passed is written down there.
func Point(name string) error {
	path := filepath.Join(os.Getenv("TOAD_STATE"), "fault")
	if f, err := os.OpenFile(path+".trace", os.O_APPEND|os.O_WRONLY, 0); err == nil {
		fmt.Fprintln(f, name)
		f.Close()
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	fields := strings.Fields(string(text))
	if len(fields) != 3 || (fields[0] != name && !(strings.HasSuffix(fields[0], "*") && strings.HasPrefix(name, strings.TrimSuffix(fields[0], "*")))) {
		return nil
	}
	if n, err := strconv.Atoi(fields[1]); err == nil && n > 1 {
		return os.WriteFile(path, []byte(fmt.Sprintf("%s %d %s\n", fields[0], n-1, fields[2])), 0o600)
	}
	if err := os.Remove(path); err != nil {
		return nil
	}
	if fields[2] == "kill" {
		fmt.Fprintf(os.Stderr, "<2>fault: killed at %s\n", name)
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
	if fields[2] == "cut" {
		_ = os.WriteFile(path+".cut", []byte(name+"\n"), 0o600)
	}
	if fields[2] == "cut" || fields[2] == "hang" {
		select {}
	}
	return errors.New("injected fault at " + name)
}
