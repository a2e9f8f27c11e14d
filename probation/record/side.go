package record

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"toad/internal/atomicfile"
	"toad/probation"
)

// Watch is what a check leaves for the acts: what it has seen, and its verdict. Only checks write it.
type Watch struct {
	Schema   int                `json:"schema"`
	Check    int                `json:"check"`   // the check's number; any but the current one's verdict is ignored
	Phase    probation.Phase    `json:"phase"`   // probation or restoring
	Manager  string             `json:"manager"` // the run of the user manager in which it was seen
	Seen     []probation.Seen   `json:"seen"`
	Why      string             `json:"why"`      // of the last sample
	Ready    bool               `json:"ready"`    // at the last sample
	At       probation.Instant  `json:"at"`       // of the last save
	Deadline probation.Deadline `json:"deadline"` // with what was left then
	Verdict  probation.Verdict  `json:"verdict"`
	Outage   probation.Outage   `json:"outage"`
	// Unready is the evidence that stands if the deadline passes undecided.
	Unready *probation.Evidence `json:"unready,omitempty"`
}

// Watch reads an operation's watch file. One that is missing or damaged reads as an empty one: the window begins anew.
func (s *Store) Watch(id string) Watch {
	var w Watch
	data, err := os.ReadFile(s.operationPath(id, ".watch.json"))
	if err != nil || decode(data, &w, &w.Schema) != nil {
		return Watch{}
	}
	return w
}

// PutWatch saves an operation's watch file.
func (s *Store) PutWatch(id string, w Watch) error {
	w.Schema = Schema
	data, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("save watch of %s: %w", id, err)
	}
	if err := atomicfile.Write(s.operationPath(id, ".watch.json"), append(data, '\n'), 0o600); err != nil {
		return fmt.Errorf("save watch of %s: %w", id, err)
	}
	return nil
}

// Abort leaves word that an operation is to be given up; the next act finds it.
func (s *Store) Abort(id, by string) error {
	if err := atomicfile.Write(s.operationPath(id, ".abort"), []byte(by+"\n"), 0o600); err != nil {
		return fmt.Errorf("abort %s: %w", id, err)
	}
	return nil
}

// Aborted says who asked for an operation to be given up; ok is false if nobody did.
func (s *Store) Aborted(id string) (by string, ok bool) {
	data, err := os.ReadFile(s.operationPath(id, ".abort"))
	return string(bytes.TrimSpace(data)), err == nil
}

// Line is one entry of an operation's log.
type Line struct {
	At      time.Time         `json:"at"`
	Level   string            `json:"level"` // info, warn, error
	Event   string            `json:"event"` // a transition's phase, "ready", "unready", "pull", "step", "audit"
	Message string            `json:"message"`
	Fields  map[string]string `json:"fields,omitempty"`
}

// maxLine bounds one log line; what a registry or an application says can be of any length.
const maxLine = 4096

// Log appends a line to an operation's log.
func (s *Store) Log(id string, l Line) error {
	if len(l.Message) > maxLine/2 {
		l.Message = l.Message[:maxLine/2] + "…"
	}
	data, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("log of %s: %w", id, err)
	}
	// Progress is not worth an fsync; a transition is, and its record is synced anyway.
	return atomicfile.Append(s.operationPath(id, ".log"), append(data, '\n'), 0o600, false)
}

// LastPhase is the phase of which an operation's log tells last; empty before the first.
func (s *Store) LastPhase(id string) (probation.Phase, error) {
	lines, _, err := s.ReadLog(id, 0)
	if err != nil {
		return "", err
	}
	for _, line := range slices.Backward(lines) {
		var l Line
		if json.Unmarshal(line, &l) == nil && slices.Contains(probation.Phases, probation.Phase(l.Event)) {
			return probation.Phase(l.Event), nil
		}
	}
	return "", nil
}

// ReadLog returns the whole lines of an operation's log from a byte offset on, and the offset after the last of them.
// A torn last line is left for the next read.
func (s *Store) ReadLog(id string, offset int64) (lines [][]byte, next int64, err error) {
	f, err := os.Open(s.operationPath(id, ".log"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, offset, nil
	}
	if err != nil {
		return nil, offset, fmt.Errorf("log of %s: %w", id, err)
	}
	defer f.Close()
	if _, err := f.Seek(offset, 0); err != nil {
		return nil, offset, fmt.Errorf("log of %s: %w", id, err)
	}
	r := bufio.NewReader(f)
	for {
		line, err := r.ReadBytes('\n')
		if err != nil {
			return lines, offset, nil
		}
		offset += int64(len(line))
		if line = bytes.TrimSpace(line); json.Valid(line) {
			lines = append(lines, line)
		}
	}
}
