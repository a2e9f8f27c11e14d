//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"toad/tests/bench/load"
	"toad/tests/bench/table"
)

// toad is the system whose bench this is.
type toad struct {
	*lab
	digest string // offered last
}

func (t *toad) name() string           { return table.Toad }
func (t *toad) port() int              { return 8080 }
func (t *toad) good() string           { return t.lab.good }
func (t *toad) promote(version string) { t.lab.good = version }

func (t *toad) offer(b *bench, version, behaviour string) {
	t.digest = t.Push(b, version, behaviour, version).Digest
}

func (t *toad) update(b *bench) (string, int) {
	before := t.record(b).Operation.ID
	r := t.User(b, "toad", "deploy", "web", t.digest)
	op := t.record(b).Operation
	if op.ID == before {
		return "refused", r.Exit
	}
	return strings.ReplaceAll(op.Phase, "_", " "), r.Exit
}

// reset checks only: after a failure the release in force is back by itself.
func (t *toad) reset(b *bench) {
	t.settle(b)
	serves(b, t.Host, t.port(), t.lab.good)
}

// restorations are how long the service was away, in milliseconds.
type restorations struct {
	bare []float64            // the restart of a release that is well
	back map[string][]float64 // from the failure to the previous release's first answer
	told map[string][]float64 // from the failure to toad's word to restore
	done map[string][]float64 // from there to the first answer
}

const (
	restoreGoal  = 1000 // ms over a bare restart
	deadlineGoal = 2000 // ms after the deadline
)

// bareRestart is systemctl restart of the release that is in force: from the order to stop to its first answer.
func bareRestart(b *bench, l *lab) float64 {
	l.quiet(b)
	g := startLoad(b, l.Host, 8080)
	time.Sleep(500 * time.Millisecond)
	l.MustUser(b, "systemctl", "--user", "restart", "web.service")
	time.Sleep(time.Second)
	all := g.stop(b)
	at := l.stamps(b, "web.service")
	first, ok := load.Served(all, l.good, at["InactiveExit"])
	if !ok {
		b.Fatalf("web did not serve %s after a restart", l.good)
	}
	return ms(first.Sub(at["ActiveExit"]))
}

// note takes what one failure and its repair say.
func (r *restorations) note(b *bench, l *lab, sc scenario, o outcome) {
	if sc.behaviour == "good" {
		return
	}
	if r.back == nil {
		r.back, r.told, r.done = map[string][]float64{}, map[string][]float64{}, map[string][]float64{}
	}
	op := l.record(b).Operation
	log := l.moments(b, op.ID)
	failed := time.Time{}
	if sc.behaviour == "never" {
		failed = op.Deadline.At
	} else {
		failed = l.exited(b, log["switching"])
	}
	first, ok := load.Served(o.all, l.good, failed)
	if !ok || log["restoring"].IsZero() {
		b.Fatalf("%s: %s did not serve again within the load", op.ID, l.good)
	}
	r.back[sc.name] = append(r.back[sc.name], ms(first.Sub(failed)))
	r.told[sc.name] = append(r.told[sc.name], ms(log["restoring"].Sub(failed)))
	r.done[sc.name] = append(r.done[sc.name], ms(first.Sub(log["restoring"])))
}

// exited is when systemd first saw the main process of web fail, since an instant.
func (l *lab) exited(b *bench, since time.Time) time.Time {
	l.MustExec(b, "journalctl", "--sync")
	const processExit = "98e322203f7a4ed290d09fe03c09fe15"
	out := l.MustExec(b, "journalctl", "-b", "-o", "json", "--no-pager", "--since", "@"+strconv.FormatInt(since.Unix(), 10),
		"MESSAGE_ID="+processExit, "USER_UNIT=web.service")
	for line := range strings.Lines(out) {
		var entry struct {
			At string `json:"_SOURCE_REALTIME_TIMESTAMP"`
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			b.Fatal(err)
		}
		us, err := strconv.ParseInt(entry.At, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		if at := time.UnixMicro(us); at.After(since) {
			return at
		}
	}
	b.Fatalf("the journal shows no exit of web's main process since %v", since)
	return time.Time{}
}

func (r *restorations) section() table.Section {
	s := table.Section{Name: "failure", Systems: []string{table.Toad, "bare restart"}}
	bare := table.Measured(table.Milliseconds, r.bare)
	for _, sc := range scenarios[1:] {
		back := table.Measured(table.Milliseconds, r.back[sc.name])
		from := "its exit"
		if sc.behaviour == "never" {
			from = "the deadline"
		}
		row := s.Add(fmt.Sprintf("%s: %s → previous release answers", sc.name, from), back, bare)
		if sc.behaviour == "never" {
			row.Want(fmt.Sprintf("≤ %d s", deadlineGoal/1000), back.Median <= deadlineGoal)
		} else {
			row.Want(fmt.Sprintf("≤ bare + %d s", restoreGoal/1000), back.Median <= bare.Median+restoreGoal)
		}
		s.Add("  until toad has decided to restore", table.Measured(table.Milliseconds, r.told[sc.name]))
		s.Add("  from there to the first answer", table.Measured(table.Milliseconds, r.done[sc.name]))
	}
	s.Notes = []string{
		fmt.Sprintf("Under the load of %d requests/s, which finds the first answer to within 10 ms. The exit is what systemd wrote to the journal.", rate),
		"bare restart: systemctl --user restart of the same release that is put back, from the order to stop to its first answer.",
	}
	return s
}
