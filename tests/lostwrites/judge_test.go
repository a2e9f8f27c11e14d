//go:build e2e

package lostwrites

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"toad/probation"
	"toad/probation/record"
	"toad/quadlet"
)

// rank orders what is told of an operation; a disk may know more than was told, never less.
var rank = map[string]int{"accepted": 1, "preparing": 2, "switching": 3, "probation": 4, "promoting": 5, "promoted": 7,
	"restoring": 6, "rolled_back": 7, "withdrawn": 7, "rollback_failed": 7, "failed": 7}

// found is what a disk knows.
type found struct {
	svc      probation.Service
	op       probation.Operation // the latest
	pin      string
	pinned   bool
	previous string // what lies beside the pin
	laid     bool
	aborted  bool
	archived map[int]probation.Phase
}

func (f found) reached(generation, rank int) bool {
	return f.svc.Generation > generation || f.svc.Generation == generation && f.rank() >= rank
}

func (f found) rank() int { return rank[string(f.op.Phase)] }

// read reads a disk as toad does, and fails where toad would call something damaged.
func read(home string) (f found, err error) {
	state := filepath.Join(home, ".local/state/toad")
	for _, dir := range []string{".", "services", "operations"} { // toad reads only what is its user's
		if err := os.Chown(filepath.Join(state, dir), os.Getuid(), os.Getgid()); err != nil {
			return f, err
		}
	}
	records, err := record.Open(state)
	if err != nil {
		return f, err
	}
	if f.svc, err = records.Service("web"); err != nil {
		return f, err
	}
	if f.svc.Operation != nil {
		f.op = *f.svc.Operation
		_, f.aborted = records.Aborted(f.op.ID)
	}
	files, err := filepath.Glob(filepath.Join(state, "*", "*.json"))
	if err != nil {
		return f, err
	}
	for _, name := range files {
		if data, err := os.ReadFile(name); err != nil || !json.Valid(data) {
			return f, fmt.Errorf("%s is damaged: %q %w", name, data, err)
		}
	}
	f.archived = map[int]probation.Phase{}
	for g := 1; g < f.svc.Generation; g++ {
		op, err := records.Operation(probation.OperationID("web", g))
		if err != nil {
			return f, err
		}
		f.archived[g] = op.Phase
	}
	pins := quadlet.Pins{Dir: filepath.Join(home, ".config/containers/systemd")}
	if f.pin, f.pinned, err = pins.Read("web.container"); err != nil {
		return f, err
	}
	f.previous, f.laid, err = pins.Previous("web.container")
	return f, err
}

// judge is what all disks of one log must agree on.
type judge struct {
	promises []promise
	durable  int               // what the last flushed disk had reached: generation*10 + rank
	deadline map[int]time.Time // by generation
	states   map[string]int    // how often each was found
}

func (j *judge) judge(c Crash, f found) error {
	reached := f.svc.Generation*10 + f.rank()
	if c.Kept < 0 {
		j.durable = max(j.durable, reached)
	}
	if reached < j.durable {
		return fmt.Errorf("%s is %s, and %d had been flushed", f.op.ID, f.op.Phase, j.durable)
	}
	for _, p := range j.promises {
		if p.at <= c.At && !p.holds(f) {
			return fmt.Errorf("forgotten: %s, at %d", p.what, p.at)
		}
	}
	if err := j.limits(f); err != nil {
		return err
	}
	j.states[f.state()]++
	return f.bound()
}

// state tells apart what a recovery has to deal with.
func (f found) state() string {
	return fmt.Sprint(f.op.ID, f.op.Phase, f.op.Checks, f.op.Timers, f.op.Replaced, f.op.Released, f.aborted, f.laid, f.pin)
}

// limits: what has begun is bounded, by a deadline that is always the same.
func (j *judge) limits(f found) error {
	d := f.op.Deadline
	if f.rank() >= rank["switching"] && f.op.Phase != probation.Failed {
		switch set, known := j.deadline[f.op.Generation]; {
		case d == nil:
			return fmt.Errorf("%s is %s without a deadline", f.op.ID, f.op.Phase)
		case known && !set.Equal(d.At):
			return fmt.Errorf("the deadline of %s moved from %v to %v", f.op.ID, set, d.At)
		}
		j.deadline[f.op.Generation] = d.At
	}
	return nil
}

// bound: a pin is whole, and one that the phase allows; whoever is on trial is fenced, and has the way back beside it.
func (f found) bound() error {
	var pin quadlet.Pin
	if f.pinned {
		var err error
		if pin, err = quadlet.ParsePin(f.pin); err != nil {
			return fmt.Errorf("the pin %q: %w", f.pin, err)
		}
	}
	before := !f.pinned // of the first operation
	if in := f.inForce(); in > 0 {
		before = pin.Operation == probation.OperationID("web", in) && !pin.Fenced
	}
	fenced, promoted := pin.Operation == f.op.ID && pin.Fenced, pin.Operation == f.op.ID && !pin.Fenced
	allowed := map[probation.Phase]bool{
		"": before, probation.Accepted: before, probation.Preparing: before, probation.Switching: before || fenced, probation.Probation: fenced,
		probation.Promoting: fenced || promoted, probation.Promoted: promoted,
		probation.Restoring: fenced || before, probation.RolledBack: before,
	}[f.op.Phase]
	if !allowed {
		return fmt.Errorf("%s is %s, and the pin is\n%s", f.op.ID, f.op.Phase, f.pin)
	}
	if (fenced || promoted && f.op.Phase == probation.Promoting) && !f.wayBack() {
		return fmt.Errorf("%s is %s, and the way back is not beside the pin, but\n%s", f.op.ID, f.op.Phase, f.previous)
	}
	if f.op.Phase == probation.RolledBack && len(f.svc.Refusals) != 1 {
		return fmt.Errorf("%s was rolled back, and refused is %+v", f.op.ID, f.svc.Refusals)
	}
	return nil
}

// inForce is the generation that was in force when the operation began.
func (f found) inForce() int {
	switch {
	case f.op.Previous != nil:
		return f.op.Previous.Generation
	case f.svc.Promoted != nil:
		return f.svc.Promoted.Generation
	}
	return 0
}

// wayBack reports whether what lies beside the pin is what a restore wants: the pin that was there, or one by the id of
// the image that ran without.
func (f found) wayBack() bool {
	before := f.op.Before[0]
	if before.Pin != "" {
		return f.previous == before.Pin
	}
	p, err := quadlet.ParsePin(f.previous)
	return err == nil && p.Reference == before.ImageID && !p.Fenced
}
