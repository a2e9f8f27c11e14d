//go:build e2e

package scene

import (
	"bufio"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// entry is what is read of a journal entry.
type entry struct {
	Message    any    `json:"MESSAGE"`
	PID        string `json:"_PID"`
	Command    string `json:"_COMM"`
	UID        string `json:"_UID"`
	Identifier string `json:"SYSLOG_IDENTIFIER"`
	Event      string `json:"PODMAN_EVENT"`
	Labels     string `json:"PODMAN_LABELS"`
	Boot       string `json:"_BOOT_ID"`
}

var told = regexp.MustCompile(`msg=(admitted) .*operation=([a-z0-9-]+)|operation=([a-z0-9-]+) event=promoting`)

// Starts are the operations whose containers the journal says were started, in order, and those of them that ran neither
// admitted in that run of the user manager, nor promoted.
func (w *Web) Starts(t *testing.T) (all, unadmitted []string) {
	t.Helper()
	out := w.MustExec(t, "journalctl", "-o", "json", "--no-pager", "--output-fields=MESSAGE,_PID,_COMM,_UID,SYSLOG_IDENTIFIER,PODMAN_EVENT,PODMAN_LABELS,_BOOT_ID")
	manager, admitted, promoted := "", map[string]bool{}, map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(out))
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		var e entry
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.UID != "1000" {
			continue
		}
		if now := e.Boot + e.PID; e.Command == "systemd" && now != manager {
			manager, admitted = now, map[string]bool{}
		}
		text, _ := e.Message.(string)
		if m := told.FindStringSubmatch(text); m != nil && e.Event == "" {
			admitted[m[2]], promoted[m[3]] = true, true
		}
		var labels map[string]string
		if e.Event != "start" || json.Unmarshal([]byte(e.Labels), &labels) != nil {
			continue
		}
		op := labels["io.toad.operation"]
		if op == "" {
			continue
		}
		all = append(all, op)
		if !admitted[op] && !promoted[op] && !strings.HasSuffix(op, "-g0") {
			unadmitted = append(unadmitted, op)
		}
	}
	return all, unadmitted
}

// NoneUnadmitted asserts that no candidate has ever run that was not admitted, and that the operation's has run at all.
func (w *Web) NoneUnadmitted(t *testing.T, ran string) {
	t.Helper()
	all, bad := w.Starts(t)
	if len(bad) > 0 {
		t.Errorf("of the starts %v these were not admitted: %v", all, bad)
	}
	for _, op := range all {
		if op == ran {
			return
		}
	}
	t.Errorf("the journal does not tell that %s ever ran: %v", ran, all)
}
