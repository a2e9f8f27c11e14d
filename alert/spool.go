// Package alert tells of what went wrong: each incident once, at least once to each place that the operator named, however
// often toad or the host goes down in between.
package alert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toad/internal/atomicfile"
)

// Alert is one incident.
type Alert struct {
	ID        string    `json:"id"`   // of the incident; the same one is told once
	Kind      string    `json:"kind"` // rolled_back, withdrawn, rollback_failed, failed_after_promotion, damaged_record, held_at_boot
	Severity  string    `json:"severity"`
	Service   string    `json:"service"`
	Operation string    `json:"operation,omitempty"`
	Unit      string    `json:"unit,omitempty"`
	Candidate string    `json:"candidate,omitempty"` // digest that was on trial
	InForce   string    `json:"in_force,omitempty"`  // digest that is to run now
	Reason    string    `json:"reason"`
	At        time.Time `json:"at"`
	Host      string    `json:"host"`
	Text      string    `json:"text"` // all of it in a sentence
}

// The two severities. Critical means that nobody but a person can put it right.
const (
	Warning  = "warning"
	Critical = "critical"
)

// Spool is the folder in which alerts wait until they are delivered.
type Spool struct{ dir string }

// New is the spool in a folder, which is made when it is needed.
func New(dir string) *Spool { return &Spool{dir} }

type entry struct {
	Schema int `json:"schema"`
	Alert
	Webhook bool `json:"webhook_done,omitempty"`
	Command bool `json:"command_done,omitempty"`
	Told    bool `json:"told,omitempty"` // all have it; kept so that the incident is not told again
}

// Last is the newest alert about each service, delivered or not.
func (s *Spool) Last() map[string]Alert {
	last := map[string]Alert{}
	all, _ := s.entries()
	for _, e := range all {
		last[e.Service] = e.Alert
	}
	return last
}

// keptTold is how many delivered alerts are kept.
const keptTold = 200

// Raise puts an alert into the spool. It is false for an incident that is there already.
func (s *Spool) Raise(a Alert) (bool, error) {
	if err := atomicfile.MkdirAll(s.dir, 0o700); err != nil {
		return false, fmt.Errorf("alert spool: %w", err)
	}
	if _, err := os.Stat(s.path(a.ID)); err == nil {
		return false, nil
	}
	return true, s.put(entry{Schema: 1, Alert: a})
}

func (s *Spool) path(id string) string { return filepath.Join(s.dir, id+".json") }

func (s *Spool) put(e entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("spool alert %s: %w", e.ID, err)
	}
	if err := atomicfile.Write(s.path(e.ID), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("spool alert %s: %w", e.ID, err)
	}
	return nil
}

// Waiting counts the alerts that are not delivered yet.
func (s *Spool) Waiting() (int, error) {
	entries, err := s.entries()
	n := 0
	for _, e := range entries {
		if !e.Told {
			n++
		}
	}
	return n, err
}

// entries are all alerts of the spool, the oldest first. A file that cannot be read is left out: an alert that was torn
// by a power cut was never raised.
func (s *Spool) entries() ([]entry, error) {
	files, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("alert spool: %w", err)
	}
	var all []entry
	for _, f := range files {
		if strings.HasPrefix(f.Name(), ".") || !strings.HasSuffix(f.Name(), ".json") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(s.dir, f.Name()))
		var e entry
		if err == nil && json.Unmarshal(data, &e) == nil && e.ID+".json" == f.Name() {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return a.At.Compare(b.At) })
	return all, nil
}

// sweep drops the oldest of those that were told.
func (s *Spool) sweep(all []entry) error {
	told := slices.DeleteFunc(slices.Clone(all), func(e entry) bool { return !e.Told })
	for len(told) > keptTold {
		if err := atomicfile.Remove(s.path(told[0].ID)); err != nil {
			return fmt.Errorf("alert spool: %w", err)
		}
		told = told[1:]
	}
	return nil
}

// incidentEnds is how long nothing may fail before the next failure is another incident.
const incidentEnds = 10 * time.Minute

// Incident numbers the failures of a unit: a crash loop is one incident, whatever it takes. It returns the time at which
// the incident began, and notes that it goes on.
func (s *Spool) Incident(unit string, now time.Time) (began time.Time, err error) {
	if err := atomicfile.MkdirAll(s.dir, 0o700); err != nil {
		return now, fmt.Errorf("alert spool: %w", err)
	}
	path := filepath.Join(s.dir, unit+".incident")
	var state struct{ Began, Last time.Time }
	if data, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(data, &state) // a torn one begins anew
	}
	if gap := now.Sub(state.Last); gap < 0 || gap > incidentEnds {
		state.Began = now
	}
	state.Last = now
	data, err := json.Marshal(state)
	if err == nil {
		err = atomicfile.Write(path, data, 0o600)
	}
	if err != nil {
		return state.Began, fmt.Errorf("note incident of %s: %w", unit, err)
	}
	return state.Began, nil
}
