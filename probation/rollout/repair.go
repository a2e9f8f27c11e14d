package rollout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"toad/probation"
	"toad/probation/record"
	"toad/quadlet"
)

// ErrNotDamaged says that there is nothing to repair.
var ErrNotDamaged = errors.New("the record is not damaged")

// Repaired is what a repair made, and of what.
type Repaired struct {
	Service probation.Service `json:"service"`
	From    []string          `json:"from"`
	Kept    []string          `json:"kept"` // where the damaged files are now
}

// Repair rebuilds the record of a damaged service from what is left on the host, and starts an act for what it then owes.
// enrolled is the service as enrolled now; nil if it is not.
func (r *Rollout) Repair(ctx context.Context, service string, enrolled *probation.Enrollment) (Repaired, error) {
	unlock, err := r.Records.Lock(ctx, service)
	if err != nil {
		return Repaired{}, err
	}
	defer unlock()
	_, err = r.Records.Service(service)
	if !errors.Is(err, record.ErrDamaged) {
		if err == nil {
			err = fmt.Errorf("%s: %w", service, ErrNotDamaged)
		}
		return Repaired{}, err
	}
	done, err := r.repair(ctx, service, enrolled, err)
	if op := done.Service.Operation; err == nil && op != nil && done.Service.Due() != probation.Nothing {
		r.mustBegin(ctx, *op)
	}
	return done, err
}

// repair is Repair under the service's lock, without the act.
func (r *Rollout) repair(ctx context.Context, service string, enrolled *probation.Enrollment, damage error) (done Repaired, err error) {
	if errors.Is(damage, record.ErrNewer) {
		if err := r.Records.SetNewerAside(service); err != nil {
			return done, err
		}
	}
	m, from, err := r.remains(ctx, service, enrolled)
	if err != nil {
		return done, err
	}
	done.Service, done.From = rebuild(m)
	done.From = append(done.From, from...)
	if done.Kept, err = r.Records.PutRepaired(done.Service); err != nil {
		return done, err
	}
	if op := done.Service.Operation; op != nil {
		r.note(*op, "warn", "repaired", "the record was rebuilt from: "+strings.Join(done.From, "; "), nil)
	}
	return done, nil
}

// giveUpDamaged rebuilds a damaged record by itself where a release may be on trial: nobody may come before its deadline,
// and it must not stay in force unjudged. In all other cases nothing that runs depends on it, and it is left for a person.
func (r *Rollout) giveUpDamaged(ctx context.Context, service, id string, cause error) (rebuilt bool, err error) {
	op, undecided := r.Records.Undecided(service)
	if !undecided && errors.Is(cause, record.ErrNewer) {
		return false, cause // it is tried again, and goes on as soon as the newer toad is back
	}
	if !undecided || op.ID != id {
		r.Log.Error("left alone", "service", service, "err", cause)
		return false, nil
	}
	r.note(op, "error", "step", "the record was damaged during the deployment: "+cause.Error(), nil)
	_, err = r.repair(ctx, service, nil, cause)
	return err == nil, err
}

// remains gathers what is left of a service.
func (r *Rollout) remains(ctx context.Context, service string, enrolled *probation.Enrollment) (remains, []string, error) {
	m := remains{Name: service, Now: r.Now(), Unpinned: map[int]bool{}, Images: map[string]probation.Release{}}
	var unreadable []string
	var err error
	if m.Archived, unreadable, err = r.Records.Archived(service); err != nil {
		return m, nil, err
	}
	m.Archived = slices.DeleteFunc(m.Archived, func(op probation.Operation) bool { return !op.Phase.Terminal() })
	if op, ok := r.Records.Undecided(service); ok {
		m.Undecided = &op
	}
	aside, err := r.Records.SetAside(service)
	if err != nil {
		return m, nil, err
	}
	for _, path := range aside {
		text, err := os.ReadFile(path)
		if err != nil {
			return m, nil, err
		}
		m.Salvaged = record.Salvage(service, text)
	}
	if m.Latest, err = r.Records.Highest(service); err != nil {
		return m, nil, err
	}
	m.Latest = max(m.Latest, m.Salvaged.Generation)
	m.Enrollment = probation.Enrollment{Name: service, Limit: probation.Limits{Deadline: probation.DefaultDeadline,
		Stable: probation.DefaultStable, Pull: probation.DefaultPull, Keep: probation.DefaultKeep},
		Ready: probation.Ready{Interval: probation.DefaultInterval, Timeout: probation.DefaultTimeout}}
	if n := len(m.Archived); n > 0 {
		m.Enrollment = m.Archived[n-1].Enrollment
	}
	if m.Undecided != nil {
		m.Enrollment = m.Undecided.Enrollment
	}
	if enrolled != nil {
		m.Enrollment = *enrolled
	}
	if err := r.remainingUnits(ctx, &m); err != nil {
		return m, nil, err
	}
	for g := 0; g <= m.Latest; g++ {
		lines := r.Records.Lines(probation.OperationID(service, g))
		m.Unpinned[g] = slices.ContainsFunc(lines, func(l record.Line) bool { return l.Event == unpinnedEvent })
		if g == m.Latest {
			m.Lines = lines
		}
	}
	m.Watch = r.Records.Watch(probation.OperationID(service, m.Latest))
	for _, ref := range m.references() {
		look, cancel := context.WithTimeout(ctx, 10*time.Second)
		if img, err := r.images(m.Enrollment).Image(look, ref); err == nil { // without Podman the pins and the operations must do
			m.Images[ref] = probation.Release{ImageID: img.ID, Digests: img.Digests}
		}
		cancel()
	}
	var from []string
	for _, f := range unreadable {
		from = append(from, f+" cannot be read, and was left out")
	}
	for _, path := range aside {
		from = append(from, "the damaged record was "+filepath.Base(path))
	}
	return m, from, nil
}

// remainingUnits looks at the service's units as they stand.
func (r *Rollout) remainingUnits(ctx context.Context, m *remains) error {
	units := slices.Clone(m.Enrollment.Units)
	pinned, err := r.pinnedUnits(probation.Service{Name: m.Name}, units)
	if err != nil {
		return err
	}
	for _, u := range pinned {
		if !slices.Contains(units, u) {
			units = append(units, u)
		}
	}
	m.Enrollment.Units = units
	for _, unit := range units {
		u := remainingUnit{}
		u.Unit, u.Service = unit, strings.TrimSuffix(unit, filepath.Ext(unit))+".service"
		if service, err := r.serviceUnit(unit); err == nil {
			u.Service = service
		}
		s, err := r.Units.State(ctx, u.Service)
		if err != nil {
			return err
		}
		u.StopTimeout = microseconds(s.TimeoutStopUSec)
		if u.HaveText, _, err = r.Quadlet.Pins().Read(unit); err != nil {
			return err
		}
		if p, err := quadlet.ParsePin(u.HaveText); err == nil {
			u.Have = p
		}
		if u.Pin, u.Laid, err = r.Quadlet.Pins().Previous(unit); err != nil {
			return err
		}
		if _, g, ok := probation.ParseOperationID(u.Have.Operation); ok {
			m.Latest = max(m.Latest, g)
		}
		m.Units = append(m.Units, u)
	}
	return nil
}

// references are all that the units' pins, and the log, name.
func (m remains) references() []string {
	var refs []string
	for _, u := range m.Units {
		for _, text := range []string{u.HaveText, u.Pin} {
			if p, err := quadlet.ParsePin(text); err == nil {
				refs = append(refs, p.Reference)
			}
		}
	}
	if rel := m.toldCandidate(); rel.Digest != "" {
		refs = append(refs, m.Enrollment.Image+"@"+rel.Digest)
	}
	slices.Sort(refs)
	return slices.Compact(refs)
}
