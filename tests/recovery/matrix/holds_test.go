//go:build e2e

package matrix

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
)

// allowed asserts that the operation ended as its release deserves. After a kill or a power cut a good release is promoted,
// unless the time ran out meanwhile; after a call that failed the previous release may be in force instead. Never is a
// good one refused.
func (x *course) allowed(t *testing.T, r record) {
	t.Helper()
	op := r.Operation
	inTime := op.Deadline == nil || op.EndedAt == nil || op.EndedAt.Before(op.Deadline.At)
	switch {
	case op.Phase == x.sc.ends:
	case x.c.Action == Error && (op.Phase == "failed" || op.Phase == "rolled_back"):
	case op.Phase == "rolled_back" && (!inTime || op.Code == "interrupted" && strings.Contains(op.Reason, "(protocol)")):
		// The machine's doing: too slow for the deadline, or for systemd to hear Podman. What is asserted is that it counts as that.
		t.Logf("rolled back: %s (%s)", op.Reason, op.Code)
	default:
		t.Errorf("it ended %s: %s (%s)\n%s", op.Phase, op.Reason, op.Code, x.w.Log(t))
	}
	for _, f := range r.Refusals {
		if !x.sc.bad() && f.Operation == op.ID {
			t.Errorf("a good release is refused: %s (%s)", f.Reason, f.Code)
		}
	}
}

// holds asserts what must hold whatever happened: the running image is the one that the record names, and answers; the
// deadline has not moved; no candidate ran unadmitted; the operator's file is what it was.
func (x *course) holds(t *testing.T, r record) {
	t.Helper()
	want := r.Operation.Previous.ImageID
	if r.Operation.Phase == "promoted" {
		want = r.Operation.Candidate.ImageID
	}
	// Asked first: the door starts the side that it leads to.
	host.Eventually(t, "it to answer", time.Minute, func() bool {
		status, _ := x.w.Get("http://127.0.0.1:8080/healthz")
		return status == 200
	})
	unit := "web.service"
	if x.sc.beside {
		unit = x.sides(t, r) + ".service"
	}
	host.Eventually(t, "the release that the record names to run", time.Minute, func() bool {
		runs := x.w.User(t, "podman", "ps", "--no-trunc", "--filter", "label=PODMAN_SYSTEMD_UNIT="+unit, "--format", "{{.ImageID}}").Stdout
		return strings.TrimSpace(runs) == want
	})
	if r.Promoted.ImageID != want {
		t.Errorf("the record says that %s is in force, and %s runs", r.Promoted.ImageID, want)
	}
	if !x.sc.beside {
		pin := x.w.ReadFile(t, "~/.config/containers/systemd/web.container.d/zz-toad.conf")
		if strings.Contains(pin, "TOAD_ADMITTED") {
			t.Errorf("a decided pin is fenced:\n%s", pin)
		}
	}
	if len(x.deadlines) > 1 {
		t.Errorf("the deadline was moved: %v", x.deadlines)
	}
	x.w.Untouched(t)
	x.admitted(t)
	x.w.MustUser(t, "find", ".config/containers/systemd", ".local/state/toad", "-name", ".toad-tmp-*", "-exec", "touch", "-d", "3 days ago", "{}", "+")
}

// sides asserts that the door leads to the side that the record names, and that the other one is down and may not be started
// by anybody. It returns the side in force.
func (x *course) sides(t *testing.T, r record) string {
	t.Helper()
	inForce := strings.TrimSuffix(r.Promoted.Side, ".container")
	idle := map[string]string{"web@a": "web@b", "web@b": "web@a"}[inForce]
	want := "/run/user/1000/" + strings.Replace(inForce, "@", "-", 1) + ".sock"
	if have := x.w.MustUser(t, "readlink", ".local/state/toad/live/web.sock"); have != want {
		t.Errorf("the door leads to %s, and %s is in force", have, inForce)
	}
	if have := x.w.Show(t, idle+".service", "ActiveState"); have != "inactive" {
		t.Errorf("%s, which is idle, is %s\n%s", idle, have, x.w.Log(t))
	}
	x.w.Fenced(t, inForce, idle)
	return inForce
}

// left lists what an operation that has ended must not leave. A write that was cut short leaves a hidden temporary file,
// which nobody reads, and which an operation that ends takes away when it is a minute old; those of the cell before have been made so old.
func (x *course) left(t *testing.T) string {
	t.Helper()
	return x.w.MustUser(t, "sh", "-c", `
		systemctl --user list-units --all --plain --no-legend 'toad-act-*' 'toad-check-*' 'toad-prepare-*' 'toad-probation-*' 'toad-restore-*' 'toad-drain-*'
		systemctl --user list-units --state=failed --plain --no-legend | grep -v '^toad-reconcile.service\|^toad-held.service' || true
		systemctl --user list-jobs --plain --no-legend | grep -v '^No jobs' || true
		systemctl --user show-environment | grep TOAD_ADMITTED || true
		cd .config/containers/systemd && find . -type f ! -name 'web*.container' ! -name zz-toad.conf ! -name .toad-made ! -name '.toad-tmp-*'
		cd "$HOME" && ls .local/share/systemd/timers 2>/dev/null | grep 'stamp-toad-p' || true
		find .config/containers/systemd .local/state/toad/services .local/state/toad/operations .local/state/toad/alerts \
			-name '.toad-tmp-*' -mtime +1 2>/dev/null || true`)
}

// started finds the container of an operation in what Podman says of its starts.
var started = regexp.MustCompile(`^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+0000) UTC .*container start `)

// admitted asserts, from the journal of this run of the user manager, that no container of the candidate started before
// toad had said that it admits it, unless it was decided by then; and none at all after a boot that found it given up.
func (x *course) admitted(t *testing.T) {
	t.Helper()
	id := fmt.Sprintf("web-g%d", x.generation)
	since := "-b"
	if x.cursor != "" {
		since = "--after-cursor=" + x.cursor
	}
	x.w.MustExec(t, "journalctl", "--sync")
	lines := x.w.MustExec(t, "sh", "-c", `journalctl "$1" -o cat --no-pager | grep -E "container start .*io.toad.operation=$2\b|msg=admitted .*operation=$2\b" || true`, "sh", since, id)
	promoting, restoring := x.told(id, "promoting"), x.told(id, "restoring")
	said := false
	for line := range strings.Lines(lines) {
		m := started.FindStringSubmatch(line)
		if m == nil {
			said = said || strings.Contains(line, "msg=admitted")
			continue
		}
		at, err := time.Parse("2006-01-02 15:04:05.999999999 -0700", m[1])
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case !promoting.IsZero() && at.After(promoting):
		case !said:
			t.Errorf("the candidate started at %s, and nobody had admitted it:\n%s", at, lines)
		case !x.bootedAt.IsZero() && !restoring.IsZero() && restoring.Before(x.bootedAt):
			t.Errorf("the candidate started at %s, after a start of the user manager at %s that found it given up at %s", at, x.bootedAt, restoring)
		}
	}
}

// told is when the operation's log told of a phase; zero if it did not.
func (x *course) told(id, phase string) time.Time {
	text, _ := os.ReadFile(state(x.w, "operations/"+id+".log"))
	for line := range strings.Lines(string(text)) {
		var l struct {
			At    time.Time
			Event string
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Event == phase {
			return l.At
		}
	}
	return time.Time{}
}
