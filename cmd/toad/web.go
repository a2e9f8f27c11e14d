package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"toad/httpd"
	"toad/podmanc"
	"toad/probation"
	"toad/probation/record"
	"toad/probation/watch"
	"toad/releases"
	"toad/unitgen"
	"toad/webui"
)

// pageUnits and pageContainers are what the page asks of the host.
type pageUnits interface {
	State(ctx context.Context, name string) (unitgen.State, error)
	List(ctx context.Context, patterns ...string) ([]unitgen.State, error)
}

type pageContainers interface {
	Container(ctx context.Context, nameOrID string) (podmanc.Container, error)
}

// pageSource makes the views of the page out of the records and of what the host says now.
type pageSource struct {
	records    *record.Reader
	enrolled   httpd.Enrolled
	units      pageUnits
	containers pageContainers
	sight      pageSight
	follow     func(service string) (<-chan struct{}, func()) // changes of the records
	now        func() probation.Instant
	runtimeDir string
	glances    *glances
	began      sync.Map // since, by unit
}

func (h *host) page(records *record.Reader, sight pageSight, follow func(string) (<-chan struct{}, func())) *webui.Site {
	return webui.New(&pageSource{records: records, enrolled: h.enrolled, units: h.bus, containers: h.podman, sight: sight,
		follow: follow, now: now, runtimeDir: h.rollout.Runtime, glances: newGlances()}, h.log)
}

const (
	// The first page is there at once; what the host says of many services comes after.
	overviewPatience = 5 * time.Millisecond
	detailPatience   = 200 * time.Millisecond
	// unitsFresh and enrolledFresh are how long the states of units, and their names, are good for.
	unitsFresh    = time.Second
	enrolledFresh = 30 * time.Second
	// pastShown is how many operations of a service are looked up.
	pastShown = 30
)

// Follow wakes when a record has changed, or something new was seen of the host.
func (p *pageSource) Follow(name string) (<-chan struct{}, func()) {
	changed, stop := p.follow(name)
	both, leave := p.glances.join(changed)
	return both, func() { leave(); stop() }
}

// Overview is every service that is enrolled or has a record.
func (p *pageSource) Overview(ctx context.Context) (webui.Overview, error) {
	ctx, cancel := context.WithTimeout(ctx, overviewPatience)
	defer cancel()
	recorded, err := p.records.Names()
	if err != nil {
		return webui.Overview{}, err
	}
	names := recorded
	for _, e := range p.enrolled.All() {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	o := webui.Overview{Invalid: p.invalid()}
	for _, name := range slices.Compact(names) {
		s, ok := p.subject(name)
		if !ok {
			continue
		}
		c := s.card()
		c.Ready = p.readiness(s, ctx.Done())
		o.Services = append(o.Services, c)
	}
	return o, nil
}

// Service is one service with one of its operations.
func (p *pageSource) Service(ctx context.Context, name, operation string) (webui.Detail, error) {
	ctx, cancel := context.WithTimeout(ctx, detailPatience)
	defer cancel()
	if probation.CheckServiceName(name) != nil {
		return webui.Detail{}, webui.ErrUnknown
	}
	s, ok := p.subject(name)
	if !ok {
		return webui.Detail{}, webui.ErrUnknown
	}
	shown := s.record.Operation
	if operation != "" && (shown == nil || shown.ID != operation) {
		of, _, ok := probation.ParseOperationID(operation)
		op, err := p.records.Operation(operation)
		if !ok || of != name || err != nil {
			return webui.Detail{}, webui.ErrUnknown
		}
		shown = &op
	}
	d := webui.Detail{Card: s.card(), Invalid: p.invalid(), Latest: shown == s.record.Operation}
	d.Ready = p.readiness(s, ctx.Done())
	if shown != nil {
		op := viewOperation(*shown)
		d.Operation, d.Log = &op, viewLog(s.lines(shown.ID))
	}
	if s.enrolled {
		c := viewConfig(s.enrollment)
		d.Config = &c
	}
	for _, r := range s.record.Refusals {
		d.Refusals = append(d.Refusals, viewRefusal(r))
	}
	past, err := p.records.Operations(name, 0, pastShown)
	if err != nil && !errors.Is(err, record.ErrDamaged) {
		return d, err
	}
	for _, op := range past {
		d.History = append(d.History, viewOperation(op))
	}
	d.Units, d.Containers = p.running(s, ctx.Done())
	return d, nil
}

func (p *pageSource) invalid() []webui.Text {
	var all []webui.Text
	if err := p.enrolled.Invalid(); err != nil {
		for _, l := range lines(err.Error()) {
			all = append(all, tellable(l))
		}
	}
	return all
}

// subject is a service as it is on record and enrolled.
type subject struct {
	source     *pageSource
	name       string
	record     probation.Service
	damaged    error
	enrollment probation.Enrollment
	enrolled   bool
}

// subject reads a service; ok is false where it is neither enrolled nor known.
func (p *pageSource) subject(name string) (s subject, ok bool) {
	s = subject{source: p, name: name}
	s.record, s.damaged = p.records.Service(name)
	if e, err := p.enrolled.Enrollment(name); err == nil {
		s.enrollment, s.enrolled = e, true
	} else if op := s.record.Operation; op != nil {
		s.enrollment = op.Enrollment
	}
	return s, s.enrolled || s.damaged != nil || s.record.Generation > 0
}

// unitNames are the systemd units of a service, in the enrollment's order; empty where one is not known.
func (s subject) unitNames(until <-chan struct{}) []string {
	var names []string
	for i, unit := range s.enrollment.Units {
		// A switch has found it out, and it costs nothing to read.
		if op := s.record.Operation; op != nil && i < len(op.Before) && op.Before[i].Unit == unit {
			names = append(names, op.Before[i].Service)
			continue
		}
		name, _ := s.source.glances.get("name "+unit, enrolledFresh, until, func(ctx context.Context) any {
			service, err := s.source.sight.ServiceOf(ctx, unit)
			if err != nil {
				return ""
			}
			return service
		}).(string)
		names = append(names, name)
	}
	return names
}

// side is the unit that runs the release in force, where a door leads to one of two.
func (s subject) side() string {
	if s.record.Promoted == nil || s.enrollment.Door == nil {
		return ""
	}
	return s.record.Promoted.Side
}

// readiness is what the check of an operation saw last, and between operations what a probe finds now.
func (p *pageSource) readiness(s subject, until <-chan struct{}) webui.Readiness {
	if s.damaged != nil {
		return webui.Readiness{}
	}
	if op := s.record.Active(); op != nil && op.Deadline != nil {
		w := p.records.Watch(op.ID)
		if w.Check == 0 {
			return webui.Readiness{}
		}
		return webui.Readiness{Known: true, OK: w.Ready, Why: tellable(w.Why)}
	}
	names, asked := s.unitNames(until), 0
	ready := s.enrollment.Ready
	if side := s.side(); side != "" { // of two sides the one in force counts
		asked = slices.Index(s.enrollment.Units, side)
		ready = ready.Of(side, p.runtimeDir)
	}
	if asked < 0 || asked >= len(names) {
		return webui.Readiness{}
	}
	r, _ := p.glances.get(fmt.Sprint("ready ", names[asked], " ", ready), max(ready.Interval, unitsFresh), until, func(ctx context.Context) any {
		found := p.sight.Probe(ctx, ready, names[asked])
		return webui.Readiness{Known: found.Known, OK: found.OK, Why: tellable(found.Why)}
	}).(webui.Readiness)
	return r
}

// probe asks the application only while its unit is up: else another might answer for it.
func probe(ctx context.Context, units pageUnits, podman pageContainers, ready probation.Ready, unit string) probed {
	container := ""
	if ready.Health {
		st, err := units.State(ctx, unit)
		if err != nil {
			return probed{}
		}
		container = runsAs(st)
	}
	listed, err := units.List(ctx, unit)
	switch {
	case err != nil || unit == "":
		return probed{}
	case len(listed) == 0:
		return probed{Known: true, Why: unit + " is not loaded"}
	case listed[0].ActiveState != "active":
		return probed{Known: true, Why: fmt.Sprintf("%s is %s (%s)", unit, listed[0].ActiveState, listed[0].SubState)}
	}
	ok, why := watch.Ask(ctx, ready, containers{podman}, container)
	return probed{true, ok, why}
}

// running are the units of a service and what runs as them.
func (p *pageSource) running(s subject, until <-chan struct{}) (units []webui.Unit, running []webui.Container) {
	for _, name := range s.unitNames(until) {
		if name == "" {
			continue
		}
		u, _ := p.glances.get("unit "+name, unitsFresh, until, func(ctx context.Context) any {
			st, err := p.units.State(ctx, name)
			if err != nil {
				return unitSeen{view: webui.Unit{Name: webui.TermOf(name)}}
			}
			return unitSeen{viewUnit(st, p.since(st)), p.sight.Runs(ctx, st)}
		}).(unitSeen)
		if u.view.Name.String() == "" {
			u.view.Name = webui.TermOf(name)
		}
		units = append(units, u.view)
		if u.container == "" {
			continue
		}
		if releases.IsProcess(u.container) {
			// What a process executes does not change, and reading all of it costs something.
			file, _ := p.glances.get("process "+u.container, time.Hour, until, func(ctx context.Context) any {
				file, err := p.sight.FileOf(ctx, u.container)
				if err != nil {
					return ""
				}
				return file
			}).(string)
			running = append(running, webui.Container{Unit: u.view.Name, File: true, Image: webui.IDOf(file), Started: u.view.Since})
			continue
		}
		c, _ := p.glances.get("container "+u.container, 5*time.Second, until, func(ctx context.Context) any {
			c, err := p.containers.Container(ctx, u.container)
			if err != nil {
				return webui.Container{}
			}
			return viewContainer(c)
		}).(webui.Container)
		c.Unit, c.ID = u.view.Name, webui.IDOf(u.container)
		running = append(running, c)
	}
	return units, running
}

type unitSeen struct {
	view      webui.Unit
	container string
}

// since is when a unit became active. It is told by a clock that does not tell the date; what is made of that once holds
// for as long as the invocation does, or the page would change with every look.
func (p *pageSource) since(st unitgen.State) time.Time {
	if st.ActiveEnterTimestampMonotonic == 0 || !st.Up() {
		return time.Time{}
	}
	passed := uptime() - time.Duration(st.ActiveEnterTimestampMonotonic)*time.Microsecond
	at, _ := p.began.LoadOrStore(st.Name, since{st.InvocationID, p.now().Wall.Add(-passed).UTC().Round(time.Second)})
	if s := at.(since); s.invocation == st.InvocationID {
		return s.at
	}
	p.began.Delete(st.Name)
	return p.since(st)
}

type since struct {
	invocation string
	at         time.Time
}
