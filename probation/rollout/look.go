package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toad/probation"
	"toad/probation/record"
	"toad/quadlet"
)

// bindingEvent is the log's word for what others did to a pin.
const bindingEvent = "binding"

// looks is how often Look begins anew because something changed meanwhile.
const looks = 5

// Look compares the pins with the records. What others changed or took away is put right and told; what wins over a pin
// is told; an operation under way gets an act. It is silent when all is as recorded.
func (r *Rollout) Look(ctx context.Context) error {
	for n := 1; ; n++ {
		before := r.seen()
		err := r.lookOnce(ctx)
		if err != nil || n == looks || r.seen() == before {
			return err
		}
		// Whoever changes them may not be done, and systemd does not tell of what changes while this runs.
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// seen tells one state of the pins from another.
func (r *Rollout) seen() string {
	pins := r.Quadlet.Pins()
	units, _ := pins.Units()
	var b strings.Builder
	for _, u := range units {
		text, _, _ := pins.Read(u)
		fmt.Fprintln(&b, u, pins.Written(u).UnixNano(), text)
	}
	links, _ := os.ReadDir(r.DoorLinks())
	for _, l := range links {
		to, _ := os.Readlink(filepath.Join(r.DoorLinks(), l.Name()))
		fmt.Fprintln(&b, l.Name(), to)
	}
	return b.String()
}

func (r *Rollout) lookOnce(ctx context.Context) error {
	names, err := r.Records.Names()
	if err != nil {
		return err
	}
	for _, n := range names {
		if bad := r.lookAt(ctx, n); bad != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", n, bad))
		}
	}
	strays, bad := r.Strays(ctx)
	for _, s := range strays {
		r.Log.Warn(s)
	}
	return errors.Join(err, bad, r.clear(ctx))
}

// lookAt looks at one service, under its lock.
func (r *Rollout) lookAt(ctx context.Context, name string) error {
	unlock, err := r.lockSoon(ctx, name)
	if errors.Is(err, record.ErrLocked) || errors.Is(err, context.DeadlineExceeded) {
		return nil // an act is at it, and writes the pins itself; the tick looks again
	}
	if err != nil {
		return err
	}
	defer unlock()
	svc, err := r.Records.Service(name)
	if errors.Is(err, record.ErrDamaged) {
		return nil // told by the tick, and left alone
	}
	if err != nil {
		return err
	}
	if err := r.keepDoor(ctx, svc); err != nil {
		return err
	}
	if op := svc.Active(); op != nil {
		return r.lookAtActive(ctx, *op)
	}
	want, err := r.keepPins(ctx, svc)
	if err != nil || want == nil {
		return err
	}
	return r.tellBinding(ctx, *svc.Operation, want)
}

// changedPins are the pins that a service with nothing under way is to have, and the units of which they are others. want is
// nil where the record does not tell.
func (r *Rollout) changedPins(svc probation.Service) (want map[string]string, wrong []string, err error) {
	want, known := r.wantedPins(svc)
	if !known || svc.Operation == nil {
		return nil, nil, nil
	}
	wrong, err = r.differing(want)
	return want, wrong, err
}

// keepPins puts such pins right, and tells.
func (r *Rollout) keepPins(ctx context.Context, svc probation.Service) (want map[string]string, err error) {
	want, wrong, err := r.changedPins(svc)
	if err == nil && len(wrong) > 0 {
		err = r.putRight(ctx, *svc.Operation, want, wrong)
	}
	return want, err
}

// lookAtActive holds the pins against the operation's phase. On probation they are put right, and what wins over them is
// told; in all other phases a pin may be about to change, so an act looks.
func (r *Rollout) lookAtActive(ctx context.Context, op probation.Operation) error {
	want := map[string]string{}
	for _, b := range op.Before {
		want[b.Unit] = r.pinOf(op, b)
	}
	wrong, err := r.differing(want)
	if err != nil {
		return err
	}
	if op.Phase != probation.Probation {
		if len(wrong) == 0 {
			return nil
		}
		return r.Begin(ctx, op)
	}
	// A restore that is due and cannot be saved, on a full disk, has changed them already.
	if _, due := r.find(op); due {
		return r.Again(ctx, op)
	}
	if len(wrong) > 0 {
		for _, unit := range wrong {
			r.note(op, "warn", bindingEvent, fmt.Sprintf("the pin of %s was changed by others during the deployment; it is put right", unit), nil)
		}
		for _, b := range op.Before {
			if !op.Moves(b) { // binding leaves the other side alone
				if err := r.Quadlet.Pins().Restore(b.Unit, want[b.Unit]); err != nil {
					return err
				}
			}
		}
		var broken *quadlet.BindingError
		if err := r.bind(ctx, op, r.candidatePin); err != nil && !errors.As(err, &broken) {
			return err
		}
	}
	return r.tellBinding(ctx, op, want)
}

// differing lists the units whose pin is not the wanted one.
func (r *Rollout) differing(want map[string]string) ([]string, error) {
	var wrong []string
	for _, unit := range slices.Sorted(maps.Keys(want)) {
		have, ok, err := r.Quadlet.Pins().Read(unit)
		if err != nil {
			return nil, err
		}
		if have != want[unit] || ok != (want[unit] != "") {
			wrong = append(wrong, unit)
		}
	}
	return wrong, nil
}

func (r *Rollout) putRight(ctx context.Context, op probation.Operation, want map[string]string, wrong []string) error {
	unlock, err := r.Records.LockReload(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := r.layAgain(op, want, wrong); err != nil {
		return err
	}
	return r.Manager.Reload(ctx)
}

// layAgain writes the wanted pins of these units, and tells; the manager has to read them.
func (r *Rollout) layAgain(op probation.Operation, want map[string]string, wrong []string) error {
	for _, unit := range wrong {
		_, had, err := r.Quadlet.Pins().Read(unit)
		if err != nil {
			return err
		}
		if err := r.Quadlet.Pins().Restore(unit, want[unit]); err != nil {
			return err
		}
		what := "was taken away by others; it is back"
		switch {
		case want[unit] == "":
			what = "is left over; it is taken away"
		case had:
			what = "was changed by others; it is as recorded again"
		}
		r.note(op, "warn", bindingEvent, fmt.Sprintf("the pin of %s %s", unit, what), nil)
	}
	return nil
}

// tellBinding tells what wins over a pin, once, and when it does not any more. Nothing is done about it: what runs is
// the operator's decision, and a deployment would refuse to switch. What is only not loaded yet, since somebody died
// between a write and its reload, is loaded.
func (r *Rollout) tellBinding(ctx context.Context, op probation.Operation, want map[string]string) error {
	reloaded := false
	for _, unit := range slices.Sorted(maps.Keys(want)) {
		told, level := r.lastBinding(op.ID, unit)
		err := r.verifyText(ctx, unit, want[unit])
		var broken *quadlet.BindingError
		unloaded := err == nil && r.unloaded(ctx, unit, want[unit])
		if (unloaded || errors.As(err, &broken) && broken.Error() != told) && !reloaded {
			if err := r.Reload(ctx); err != nil {
				return err
			}
			reloaded, broken = true, nil
			err = r.verifyText(ctx, unit, want[unit])
		}
		if err != nil && !errors.As(err, &broken) {
			return err
		}
		switch {
		case broken != nil && told != broken.Error():
			r.note(op, "error", bindingEvent, broken.Error(), map[string]string{"unit": unit})
		case broken == nil && level == "error":
			r.note(op, "info", bindingEvent, "the pin of "+unit+" counts again", map[string]string{"unit": unit})
		}
	}
	return nil
}

// unloaded reports whether a file that would undo a pin lies there, and nobody has had it loaded.
func (r *Rollout) unloaded(ctx context.Context, unit, text string) bool {
	p, err := quadlet.ParsePin(text)
	if err != nil {
		return false
	}
	p.Unit = unit
	if quadlet.Overridden(r.Quadlet, p) {
		return true
	}
	service, err := r.serviceUnit(unit)
	if err != nil {
		return false
	}
	s, err := r.Units.State(ctx, service)
	return err == nil && s.NeedDaemonReload
}

// verifyText holds a unit as loaded against a pin's text, or against having none.
func (r *Rollout) verifyText(ctx context.Context, unit, text string) error {
	service, err := r.serviceUnit(unit)
	switch {
	case err != nil && text == "":
		return nil // the unit is gone, and so is its pin
	case err != nil:
		return &quadlet.BindingError{Unit: unit, What: "the Quadlet file", Want: "there", Have: "gone: " + err.Error()}
	case text == "":
		s, err := r.Units.State(ctx, service)
		if err == nil {
			_, err = quadlet.VerifyUnpinned(generated(s))
		}
		return err
	}
	p, err := quadlet.ParsePin(text)
	if err != nil {
		return err
	}
	p.Unit = unit
	return r.verify(ctx, p, service)
}

// lastBinding is what an operation's log said last of the binding of a unit.
func (r *Rollout) lastBinding(id, unit string) (message, level string) {
	lines, _, _ := r.Records.ReadLog(id, 0)
	for _, line := range slices.Backward(lines) {
		var l record.Line
		if json.Unmarshal(line, &l) == nil && l.Event == bindingEvent && l.Fields["unit"] == unit {
			return l.Message, l.Level
		}
	}
	return "", ""
}

// CheckPins says in what a service's pins are not as recorded, or do not count. It changes nothing.
func (r *Rollout) CheckPins(ctx context.Context, svc probation.Service) []error {
	want, known := r.wantedPins(svc)
	if op := svc.Active(); op != nil {
		want, known = map[string]string{}, true
		for _, b := range op.Before {
			want[b.Unit] = r.pinOf(*op, b)
		}
	}
	if !known {
		return nil
	}
	wrong, err := r.differing(want)
	if err != nil {
		return []error{err}
	}
	var all []error
	for _, unit := range slices.Sorted(maps.Keys(want)) {
		if slices.Contains(wrong, unit) {
			all = append(all, fmt.Errorf("the pin of %s is not as recorded", unit))
		} else if err := r.verifyText(ctx, unit, want[unit]); err != nil {
			all = append(all, err)
		}
	}
	return all
}
