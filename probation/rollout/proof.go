package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	"toad/probation"
	"toad/quadlet"
	"toad/unitgen"
)

const (
	// proofLook is how often a waiting preparation looks for a proof on this host, proofAsk how often it may ask elsewhere.
	proofLook = time.Second
	proofAsk  = 30 * time.Second
)

// proven holds a release back until it has the proof that is required of it. What this host has itself seen run well
// needs none, nor does a way back. A request that waits does so here, the old release serving all the while.
func (r *Rollout) proven(ctx context.Context, svc probation.Service, op probation.Operation, rel probation.Release, wait bool) error {
	if op.Rollback || svc.HasRunWell(rel) {
		return nil
	}
	told, asked := "", time.Time{}
	for {
		ask := time.Since(asked) >= proofAsk
		if ask {
			asked = time.Now()
		}
		why := r.Unproven(ctx, op, rel, ask)
		if why == "" {
			return nil
		}
		if !wait {
			return fail(probation.CodeNotProven, "%s", why)
		}
		if why != told {
			told = why
			r.trouble(ctx, op, "waiting for a proof: "+why)
		}
		if pause(ctx, proofLook) != nil {
			return fail(probation.CodeNotProven, "no proof came in time: %s", why)
		}
	}
}

// RunsWell looks whether the release in force has run so long in one invocation of each of its units, and is ready now.
// since is the start of the youngest invocation, left how long it still has to run. The error says what keeps it from
// running well.
func (r *Rollout) RunsWell(ctx context.Context, svc probation.Service, after time.Duration) (since time.Time, left time.Duration, err error) {
	if svc.Promoted == nil || svc.Promoted.Generation == 0 || svc.Active() != nil || svc.Operation == nil {
		return since, 0, fmt.Errorf("%s has no release in force that nothing is under way for", svc.Name)
	}
	now, enrolled := r.Now(), svc.Operation.Enrollment
	if d := svc.Promoted.Definition; d != nil {
		enrolled.Ready = d.Ready
	}
	var first unitgen.State
	units := enrolled.Units
	if side := svc.Promoted.Side; side != "" {
		units = []string{side} // what the door leads to
	}
	for i, unit := range units {
		src, err := quadlet.Find(r.Quadlet, unit)
		if err != nil {
			return since, 0, err
		}
		st, err := r.Units.State(ctx, src.ServiceUnit)
		if err != nil {
			return since, 0, err
		}
		if err := r.runs(ctx, enrolled, st, *svc.Promoted); err != nil {
			return since, 0, err
		}
		if i == 0 {
			first = st
		}
		ran := r.Uptime() - time.Duration(st.ActiveEnterTimestampMonotonic)*time.Microsecond
		if began := now.Wall.Add(-ran); i == 0 || began.After(since) {
			since, left = began.UTC(), max(0, after-ran)
		}
	}
	if left > 0 {
		return since, left, nil
	}
	if ready, why := r.Ready(ctx, enrolled.Ready.Of(svc.Promoted.Side, r.Runtime), first); !ready {
		return since, 0, fmt.Errorf("%s is not ready: %s", first.Name, why)
	}
	return since, 0, nil
}

// ProveIn has the release in force looked at when it may have run for long enough.
func (r *Rollout) ProveIn(ctx context.Context, op string, left time.Duration) {
	// A second later than exactly then: a unit is active a little before the record says so.
	err := r.Units.Create(ctx, unitgen.ProveTimer(op, r.Now().Wall.Add(left+time.Second), r.Program))
	if err != nil && !errors.Is(err, unitgen.ErrExists) {
		r.Log.Warn("the proof is left to the hourly tick", "operation", op, "err", err)
	}
}

// runs says how a unit does not run a release.
func (r *Rollout) runs(ctx context.Context, e probation.Enrollment, st unitgen.State, rel probation.Release) error {
	id := r.Runs(st)
	if st.ActiveState != "active" || id == "" {
		return fmt.Errorf("%s is %s", st.Name, st.ActiveState)
	}
	c, err := r.images(e).Container(ctx, id)
	if err != nil {
		return fmt.Errorf("look at what runs as %s: %w", st.Name, err)
	}
	if c.ImageID != rel.ImageID {
		return fmt.Errorf("%s runs image %.12s, not %s", st.Name, c.ImageID, name(rel))
	}
	return nil
}

// KeepWell writes into the healthy history that the release of a generation runs well.
func (r *Rollout) KeepWell(ctx context.Context, service string, generation int) error {
	unlock, err := r.Records.Lock(ctx, service)
	if err != nil {
		return err
	}
	defer unlock()
	svc, err := r.Records.Service(service)
	if err != nil || svc.Promoted == nil || svc.Promoted.Generation != generation || svc.HasRunWell(*svc.Promoted) {
		return err
	}
	return r.Records.Put(svc.RunsWell())
}
