//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"toad/tests/bench/table"
	"toad/tests/host"
)

const reconcileGoal = 1000 // ms for 100 services

// reconcile measures what every start of the user manager waits for: toad reconcile, by how many services there are.
func reconcile(b *bench, l *lab) table.Section {
	s := table.Section{Name: "reconcile", Systems: []string{table.Toad}}
	for _, c := range []struct {
		name         string
		n, probation int
	}{
		{"1 service, promoted", 1, 0},
		{"100 services, promoted", 100, 0},
		{"1,000 services, promoted", 1000, 0},
		{"1 service, on probation", 1, 1},
		{"100 services, 1 of them on probation", 100, 1},
		{"1,000 services, 1 of them on probation", 1000, 1},
	} {
		var took []float64
		for i := range l.rounds + 1 {
			state := l.records(b, c.n, c.probation)
			one := l.times(b, 1, "env", "TOAD_STATE="+state, "toad", "reconcile").Median
			if i > 0 { // the first finds no pins of those on probation, and writes them
				took = append(took, one)
			}
			l.forget(b, state)
		}
		row := s.Add(c.name, table.Measured(table.Milliseconds, took))
		if c.n == 100 {
			row.Want(fmt.Sprintf("≤ %d s", reconcileGoal/1000), row.Cells[table.Toad].Median <= reconcileGoal)
		}
	}
	s.Notes = []string{"From fork to exit, within the host. On probation: its limit is armed, the candidate admitted, a check and an act are started."}
	return s
}

// records makes a state folder with so many services out of the record of web, some of them on probation, and returns its
// path within the host.
func (l *lab) records(b *bench, n, probation int) string {
	state := fmt.Sprintf("%s/.cache/bench/%d-%d", host.Home, n, probation)
	text := l.ReadFile(b, "~/.local/state/toad/services/web.json")
	// Each has its pin, as in promoted services; those on probation are put right by the first reconcile.
	l.MustUser(b, "sh", "-ec", `
		umask 077
		rm -rf "$1"
		mkdir -p "$1/services" "$1/operations" "$1/libexec"
		ln -s ~/.local/state/toad/libexec/toad "$1/libexec/toad"
		cd ~/.config/containers/systemd
		for i in $(seq 0 "$2"); do
			n=$(printf svc-%04d "$i")
			sed "s/web/$n/g" ~/.local/state/toad/services/web.json >"$1/services/$n.json"
			[ -d "$n.container.d" ] || mkdir "$n.container.d"
			sed "s/web/$n/g" web.container.d/zz-toad.conf >"$n.container.d/zz-toad.conf"
		done`, "sh", state, fmt.Sprint(n-1))
	for i := range probation {
		name := fmt.Sprintf("svc-%04d", i)
		l.WriteFile(b, filepath.Join(state, "services", name+".json"), l.recordOf(b, strings.ReplaceAll(text, "web", name)), 0o600)
	}
	return state
}

// recordOf is a record as it is found after a boot.
func (l *lab) recordOf(b *bench, text string) string {
	var r map[string]any
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		b.Fatal(err)
	}
	op := r["operation"].(map[string]any)
	op["phase"] = "probation"
	for _, key := range []string{"ended_at", "released", "retained"} {
		delete(op, key)
	}
	now := time.Now().UTC()
	op["deadline"] = map[string]any{"at": now.Add(time.Hour), "boot": 0, "boot_id": "", "left": time.Hour, "newest": now}
	changed, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		b.Fatal(err)
	}
	return string(changed)
}

// forget ends what a reconcile has started.
func (l *lab) forget(b *bench, state string) {
	host.Eventually(b, "what was started to be gone", 2*time.Minute, func() bool {
		// A check that is stopped still starts its act; that one finds no record and ends.
		return l.MustUser(b, "sh", "-c", `
			rm -rf "$1"
			systemctl --user stop 'toad-*-svc-*'
			systemctl --user reset-failed
			systemctl --user show-environment | sed -n 's/^\(TOAD_ADMITTED_svc[^=]*\)=.*/\1/p' | xargs -r systemctl --user unset-environment
			systemctl --user list-units --all --plain --no-legend 'toad-*-svc-*'`, "sh", state) == ""
	})
}
