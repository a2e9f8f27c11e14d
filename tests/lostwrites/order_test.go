//go:build e2e

package lostwrites

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// tracer takes the place of the binary that units run. It lies, with what it writes, beside the disk. The tracer is the
// grandchild, so that systemd sees the process that it expects.
const tracer = `#!/bin/sh
dir=$(dirname "$0")
exec strace -D -f --seccomp-bpf -yy -qq -s 0 -o "$dir/trace/$1.$$" \
	-e trace=openat,write,fsync,rename,renameat,renameat2,unlinkat,mkdirat,accept4,sendmsg,sendto,exit_group "$dir/toad.real" "$@"
`

// trace has every process that a unit starts traced from the next boot on.
func (b *bed) trace(t *testing.T) {
	t.Helper()
	dir := filepath.Join(b.home(), ".local/state/toad/libexec")
	must(t, "mv", filepath.Join(dir, "toad"), filepath.Join(dir, "toad.real"))
	must(t, "install", "-d", "-o", "1000", "-g", "1000", filepath.Join(dir, "trace"))
	if err := os.WriteFile(filepath.Join(dir, "toad"), []byte(tracer), 0o755); err != nil {
		t.Fatal(err)
	}
}

// ordered reads what was traced. It asserts of every process that what it replaced, made or removed was flushed, first the file and then its
// folder, before it said a word to anybody or ended. It returns how often each file was replaced.
func (b *bed) ordered(t *testing.T) map[string]int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(b.home(), ".local/state/toad/libexec/trace/*"))
	if err != nil {
		t.Fatal(err)
	}
	replaced := map[string]int{}
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		o := order{written: map[string]bool{}, changed: map[string]string{}, replaced: replaced, spoken: spoken}
		if strings.HasPrefix(filepath.Base(name), "serve.") {
			o.spoken = answered // its watchdog speaks to the bus whatever else goes on
		}
		begun := map[string]string{}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			pid, line, _ := strings.Cut(lines.Text(), " ")
			line = strings.TrimSpace(line)
			o.begins(line)
			if start, ok := strings.CutSuffix(line, "<unfinished ...>"); ok {
				begun[pid] = start
				continue
			}
			if resumed.MatchString(line) {
				line = begun[pid] + resumed.ReplaceAllString(line, "")
			}
			o.ends(line)
		}
		_ = f.Close()
		for _, fault := range o.faults {
			t.Errorf("%s: %s", filepath.Base(name), fault)
		}
	}
	return replaced
}

var (
	failed  = regexp.MustCompile(`\)\s+= -1 `)
	resumed = regexp.MustCompile(`^<\.\.\. \w+ resumed>`)
	onFile  = regexp.MustCompile(`^(write|fsync)\(\d+<(/[^>]*)>`)
	renamed = regexp.MustCompile(`^rename\w*\(.*"(/[^"]*)".*"(/[^"]*)"`)
	named   = regexp.MustCompile(`^(unlinkat|mkdirat)\(.*"(/[^"]*)"`)
	spoken  = regexp.MustCompile(`^(write|sendmsg|sendto)\(\d+<(UNIX-STREAM|TCP)`)

	answered = regexp.MustCompile(`^(write|sendmsg|sendto)\(\d+<UNIX-STREAM:[^>]*->[^>]*/toad\.sock"`)
)

// order is what one process owes to the disk.
type order struct {
	spoken   *regexp.Regexp
	written  map[string]bool   // files with bytes that are not flushed
	changed  map[string]string // folders with names that are not flushed, and what was done there
	replaced map[string]int
	faults   []string
}

// begins is told of a call when it begins: what is said then rests on what was flushed before.
func (o *order) begins(call string) {
	if !o.spoken.MatchString(call) && !strings.HasPrefix(call, "exit_group(") {
		return
	}
	for folder, what := range o.changed {
		if strings.Contains(what, "serve.alive") {
			continue // the watchdog's own, beside whatever is answered
		}
		o.faults = append(o.faults, fmt.Sprintf("%s, and its folder was not flushed before %.60s", what, call))
		delete(o.changed, folder)
	}
}

// ends is told of a call when it has ended.
func (o *order) ends(call string) {
	switch {
	case failed.MatchString(call):
	case onFile.MatchString(call):
		m := onFile.FindStringSubmatch(call)
		if m[1] == "write" {
			o.written[m[2]] = true
			return
		}
		delete(o.written, m[2])
		delete(o.changed, m[2])
	case renamed.MatchString(call):
		m := renamed.FindStringSubmatch(call)
		if o.written[m[1]] {
			o.faults = append(o.faults, fmt.Sprintf("%s replaced by a file that was not flushed", m[2]))
		}
		delete(o.written, m[1])
		o.replaced[filepath.Base(m[2])]++
		o.changed[filepath.Dir(m[2])] = m[2] + " was replaced"
		if filepath.Dir(m[1]) != filepath.Dir(m[2]) {
			o.changed[filepath.Dir(m[1])] = m[1] + " was moved away"
		}
	case named.MatchString(call):
		m := named.FindStringSubmatch(call)
		if strings.HasPrefix(filepath.Base(m[2]), ".toad-tmp-") {
			return // one that comes back is swept
		}
		o.changed[filepath.Dir(m[2])] = m[2] + ": " + m[1]
	}
}
