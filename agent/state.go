package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"toad/agent/protocol"
	"toad/internal/atomicfile"
)

// State is what a box knows from one tick to the next. It holds names and versions, and no value.
type State struct {
	Schema int    `json:"schema"`
	EnvID  string `json:"env_id,omitempty"`

	InForce *Stand `json:"in_force,omitempty"`
	Before  *Stand `json:"before,omitempty"` // kept to go back to
	// Applying is an attempt that has begun to change the host; nil when none is under way.
	Applying *Attempt `json:"applying,omitempty"`
	Attempts int      `json:"attempts,omitempty"`
	// Failed is the last bundle that was refused or put back. The same is not tried again, and not told twice.
	Failed *Failure `json:"failed,omitempty"`
	// Untidy says that what neither of the two bundles needs may still be there.
	Untidy bool `json:"untidy,omitempty"`
	// Leased is the bundle that the token in use was given for.
	Leased string `json:"leased,omitempty"`
	// Report waits to be taken by the control plane.
	Report *protocol.Report `json:"report,omitempty"`
	// Gone says that the box was brought out of its environment.
	Gone bool `json:"gone,omitempty"`

	LastTick    time.Time `json:"last_tick,omitzero"`
	LastCheckIn time.Time `json:"last_check_in,omitzero"`
	LastError   string    `json:"last_error,omitempty"`
	Failures    int       `json:"failures,omitempty"` // temporary ones in a row
	NotBefore   time.Time `json:"not_before,omitzero"`
	// Stopped is the fingerprint of the configuration with which there is no use in trying again.
	Stopped string `json:"stopped,omitempty"`
}

// Stand is a bundle as it was filled in.
type Stand struct {
	Bundle  string    `json:"bundle"` // its sha
	Plan    string    `json:"plan"`   // sha of what it was filled in to; another secret version makes another
	Created time.Time `json:"created"`
}

// Attempt is an apply, or a way back, or a way out, that is under way.
type Attempt struct {
	ID      string             `json:"id"`
	To      *Stand             `json:"to,omitempty"` // nil: out
	Started time.Time          `json:"started"`
	Back    bool               `json:"back,omitempty"` // it failed, and what was before is being put back
	Code    string             `json:"code,omitempty"`
	Detail  string             `json:"detail,omitempty"`
	Later   bool               `json:"later,omitempty"` // it failed for a reason that may pass
	Tail    []string           `json:"tail,omitempty"`  // redacted
	Results []protocol.Service `json:"results,omitempty"`
	Purge   bool               `json:"purge,omitempty"`
}

// Failure is what is told of a bundle once.
type Failure struct {
	Bundle string    `json:"bundle"`
	Plan   string    `json:"plan,omitempty"` // of a bundle that was put back; another plan is worth another try
	Code   string    `json:"code"`
	Detail string    `json:"detail"`
	At     time.Time `json:"at"`
}

// Store keeps the state, the token and what was staged, in the agent folder of toad's state.
type Store struct{ Dir string }

func (s Store) path(name ...string) string { return filepath.Join(append([]string{s.Dir}, name...)...) }

// Lock makes this the one tick; ErrBusy if there is another.
func (s Store) Lock(_ context.Context) (unlock func(), err error) {
	if err := atomicfile.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, err
	}
	l := flock.New(s.path("tick.lock"), flock.SetPermissions(0o600))
	ok, err := l.TryLock()
	if err == nil && !ok {
		err = ErrBusy
	}
	if err != nil {
		return nil, err
	}
	return func() { _ = l.Close() }, nil
}

// ErrBusy says that another tick is under way.
var ErrBusy = errors.New("another tick is under way")

// Load reads the state; a missing one is empty.
func (s Store) Load() (State, error) {
	st := State{Schema: 1}
	data, err := os.ReadFile(s.path("state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return st, err
	}
	if err := json.Unmarshal(data, &st); err != nil || st.Schema != 1 {
		return st, fmt.Errorf("%s cannot be read (%v, schema %d); move it away, and the next tick begins anew: what is in force goes on", s.path("state.json"), err, st.Schema)
	}
	return st, nil
}

// Put saves the state.
func (s Store) Put(st State) error {
	data, err := json.MarshalIndent(st, "", " ")
	if err != nil {
		return err
	}
	return atomicfile.Write(s.path("state.json"), append(data, '\n'), 0o600)
}

// Bearer is the token of the last login; "" if there is none.
func (s Store) Bearer() (string, error) {
	data, err := os.ReadFile(s.path("bearer"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(data)), err
}

// PutBearer keeps a token; "" takes it away.
func (s Store) PutBearer(token string) error {
	if token == "" {
		return atomicfile.Remove(s.path("bearer"))
	}
	return atomicfile.Write(s.path("bearer"), []byte(token+"\n"), 0o600)
}

// stage lays a bundle's files under releases/<sha>; the manifest comes last, so that a folder that has one is whole.
func (s Store) stage(b *Bundle) error {
	dir := s.path("releases", b.SHA)
	if err := atomicfile.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, data := range b.Files {
		if name == ManifestName {
			continue
		}
		if err := atomicfile.Write(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return atomicfile.Write(filepath.Join(dir, ManifestName), b.Files[ManifestName], 0o600)
}

// staged reads a bundle that was staged; fs.ErrNotExist if it is not, or not whole.
func (s Store) staged(sha string) (*Bundle, error) {
	dir := s.path("releases", sha)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for _, e := range entries {
		if e.Name() != ManifestName && !fileName.MatchString(e.Name()) {
			continue // a write that was cut short
		}
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	if SHA(files) != sha {
		return nil, fs.ErrNotExist
	}
	return open(sha, files)
}

// turn makes current lead to a bundle; "" takes it away.
func (s Store) turn(sha string) error {
	if sha == "" {
		return atomicfile.Remove(s.path("current"))
	}
	return atomicfile.Link(filepath.Join("releases", sha), s.path("current"))
}

// putPlan keeps what a bundle was filled in to.
func (s Store) putPlan(p *Plan) error {
	if err := atomicfile.MkdirAll(s.path("plans"), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(s.path("plans", p.SHA()+".json"), p.bytes(), 0o600)
}

func (s Store) plan(stand *Stand) (*Plan, error) {
	if stand == nil {
		return &Plan{}, nil
	}
	data, err := os.ReadFile(s.path("plans", stand.Plan+".json"))
	if err != nil {
		return nil, err
	}
	p := &Plan{}
	if err := json.Unmarshal(data, p); err != nil {
		return nil, fmt.Errorf("plan %.12s: %w", stand.Plan, err)
	}
	return p, nil
}

// sweepTorn takes away what writes that were cut short have left: it may be a token.
func (s Store) sweepTorn() error {
	dirs, _ := filepath.Glob(s.path("releases", "*"))
	var all error
	for _, dir := range append(dirs, s.Dir, s.path("plans")) {
		_, err := atomicfile.Sweep(dir)
		all = errors.Join(all, err)
	}
	return all
}

// sweep takes away what none of these needs.
func (s Store) sweep(keep ...*Stand) error {
	bundles, plans := []string{}, []string{}
	for _, k := range keep {
		if k != nil {
			bundles, plans = append(bundles, k.Bundle), append(plans, k.Plan+".json")
		}
	}
	var all error
	releases, _ := os.ReadDir(s.path("releases"))
	for _, e := range releases {
		if slices.Contains(bundles, e.Name()) {
			continue
		}
		dir := s.path("releases", e.Name())
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			all = errors.Join(all, atomicfile.Remove(filepath.Join(dir, f.Name())))
		}
		all = errors.Join(all, atomicfile.Remove(dir))
	}
	had, _ := os.ReadDir(s.path("plans"))
	for _, e := range had {
		if !slices.Contains(plans, e.Name()) {
			all = errors.Join(all, atomicfile.Remove(s.path("plans", e.Name())))
		}
	}
	return all
}
