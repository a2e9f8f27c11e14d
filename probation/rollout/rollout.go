// Package rollout is the one place that acts on a host: it finds out what happened to an operation, saves what that
// makes of it, and does what is owed.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"toad/probation"
	"toad/probation/record"
	"toad/quadlet"
	"toad/unitgen"
)

// Units makes and looks at units of the user manager. Nothing here waits for a job.
type Units interface {
	State(ctx context.Context, name string) (unitgen.State, error)
	List(ctx context.Context, patterns ...string) ([]unitgen.State, error)
	Create(ctx context.Context, u unitgen.Unit) error
	Stopping(ctx context.Context) (bool, error)
}

// Jobs queues what a switch and a restore need.
type Jobs interface {
	Restart(ctx context.Context, unit string) error
	Start(ctx context.Context, unit string) error
	Stop(ctx context.Context, unit string) error
	ResetFailed(ctx context.Context, unit string) error
}

// Manager is the user manager as a whole.
type Manager interface {
	Reload(ctx context.Context) error
	Environment(ctx context.Context) (map[string]string, error)
	SetEnvironment(ctx context.Context, assignments ...string) error
	UnsetEnvironment(ctx context.Context, names ...string) error
}

// Images moves and looks at image bytes.
type Images interface {
	Pull(ctx context.Context, ref string, progress func(string)) error
	Image(ctx context.Context, ref string) (Image, error)
	Container(ctx context.Context, id string) (Container, error)
	// Containers lists those that carry a label.
	Containers(ctx context.Context, label string) ([]Container, error)
	Archive
}

// Archive keeps images where Podman's prune cannot take them, and brings them back.
type Archive interface {
	Retain(ctx context.Context, imageID string) error
	Retained(imageID string) (bool, error)
	LoadBack(ctx context.Context, imageID string) error
	DropRetained(keep []string) error
}

// Image is what Podman knows of an image.
type Image struct {
	ID           string   // 64 hex digits
	Digest       string   // of this platform's manifest; empty after the image came back from an archive
	Digests      []string // every digest it is known by
	RepoDigests  []string // repo@sha256:…
	OS           string
	Architecture string
	Healthcheck  bool
}

// Container is what Podman knows of a container.
type Container struct {
	ID, ImageID string
	Name, Unit  string // Unit is the systemd unit that made it
	Operation   string // the io.toad.operation label
	Running     bool
}

// PullError says by its code why an image cannot be had. It ends a preparation.
type PullError struct {
	Code probation.Code
	Err  error
}

func (e *PullError) Error() string { return e.Err.Error() }
func (e *PullError) Unwrap() error { return e.Err }

// ErrNoImage is returned by Images for an image that is not on the host.
var ErrNoImage = errors.New("no such image")

// Rollout carries operations on. Every field is set by the caller.
type Rollout struct {
	Records *record.Store
	Units   Units
	Jobs    Jobs
	Manager Manager
	Images  Images
	// Files are the releases of a binary service.
	Files   func(e probation.Enrollment) Files
	Quadlet quadlet.Dirs
	Program unitgen.Program
	Now     func() probation.Instant
	// Wake lets Podman's service start while an act does, which is the first to ask it. It does not wait.
	Wake func()
	// Free says how many bytes are free where a path lies.
	Free func(path string) (uint64, error)
	// Identify reads what an image's program is, e.g. "go:example.org/shop/cmd/web"; empty when that cannot be told. The
	// error is of the host, and worth another try.
	Identify func(ctx context.Context, op probation.Operation, imageID string) (string, error)
	// Unproven says what keeps a release from being switched to until it is proven elsewhere; empty when nothing does. With
	// ask it may look for a proof outside of this host.
	Unproven func(ctx context.Context, op probation.Operation, rel probation.Release, ask bool) (why string)
	// Ready probes a unit once. Uptime is CLOCK_MONOTONIC, by which systemd says since when a unit is active.
	Ready  func(ctx context.Context, r probation.Ready, st unitgen.State) (ready bool, why string)
	Uptime func() time.Duration
	// Promoted is told of each promotion, perhaps more than once.
	Promoted func(ctx context.Context, op probation.Operation)
	// Alert tells of how a decided operation ended; the same end is told once, however often it is asked to.
	Alert func(ctx context.Context, op probation.Operation, inForce *probation.Release) error
	// Lines returns the last lines that an invocation of a unit of this operation logged, redacted.
	Lines func(ctx context.Context, op probation.Operation, invocation string) []string
	// Runtime is the runtime folder, %t in a side's address.
	Runtime string
	// Connections counts who is connected to the Unix socket at a path.
	Connections func(path string) (int, error)
	// Runs names what runs as a unit: a container by its id, or the main process of a plain unit; empty when nothing does.
	Runs func(st unitgen.State) string
	Log  *slog.Logger

	say func(level, event, message string) // of a plan: what would be noted is told instead
}

// Accept takes a request for a service: one lock, one decision, one save. The timer of the preparation is armed before
// the save; one whose operation was never saved finds nothing to do. replay is true when the answer is an earlier
// operation.
func (r *Rollout) Accept(ctx context.Context, e probation.Enrollment, req probation.Request) (op probation.Operation, replay bool, err error) {
	unlock, err := r.Records.Lock(ctx, e.Name)
	if err != nil {
		return op, false, err
	}
	defer unlock()
	if op, found, err := r.replay(e.Name, req); found || err != nil {
		if found && err == nil && !op.Phase.Terminal() {
			if err := r.Again(ctx, op); err != nil { // an earlier answer may have been lost before an act was started
				r.Log.Warn("no act for a repeated request", "service", op.Service, "operation", op.ID, "err", err)
			}
		}
		return op, found, err
	}
	svc, err := r.Records.Service(e.Name)
	if err != nil {
		return op, false, err
	}
	next, changed, err := svc.Accept(e, req, r.Now())
	if err != nil {
		return op, false, err
	}
	if !changed {
		op, err := r.Records.Operation(probation.OperationID(svc.Name, svc.Promoted.Generation))
		if err != nil {
			op = svc.Promotion() // older than those that are kept, or not readable any more
		}
		return op, true, nil
	}
	if svc.Operation != nil {
		if err := r.Records.Archive(*svc.Operation); err != nil {
			return op, false, err
		}
	}
	op = *next.Operation
	if !op.Enrollment.Binary() {
		r.Wake()
	}
	for op.Timers = 1; ; op.Timers++ {
		err := r.arm(ctx, op)
		if err == nil {
			break
		}
		if op.Timers == names || !errors.Is(err, unitgen.ErrExists) {
			return op, false, fmt.Errorf("arm the limit of the preparation: %w", err)
		}
	}
	next.Operation = &op
	if err := r.Records.Put(next); err != nil {
		switch now, readErr := r.Records.Service(svc.Name); {
		case readErr != nil:
		case now.Generation == op.Generation:
			r.mustBegin(ctx, op) // the save failed late, and is found all the same: the repetition of the request finds it too
		default:
			r.dropLimit(ctx, op, unitgen.Prepare)
		}
		return op, false, err
	}
	r.note(op, "info", string(op.Phase), fmt.Sprintf("%s accepted from %s", what(op), op.By), map[string]string{"from": req.From})
	r.mustBegin(ctx, op)
	return op, false, nil
}

func what(op probation.Operation) string {
	switch {
	case op.Rollback:
		return "rollback to " + name(op.Candidate)
	case op.Retry:
		return "retry of " + name(op.Candidate)
	}
	return "deployment of " + name(op.Candidate)
}

// name is how a release is spoken of.
func name(r probation.Release) string {
	said := r.Digest
	if said == "" {
		said = "image " + r.ImageID
	}
	if r.Definition != nil {
		said += " with text " + r.Definition.SHA[:min(12, len(r.Definition.SHA))]
	}
	return said
}

// replay answers a request whose key has been seen: the same request has its operation, another one is refused.
func (r *Rollout) replay(service string, req probation.Request) (probation.Operation, bool, error) {
	op, found, err := r.Records.ByKey(service, req.Key)
	if err != nil || !found {
		return op, false, err
	}
	if op.Body != req.Body {
		return op, false, &probation.Rejection{Code: probation.CodeIdempotency, Operation: op.ID, Generation: op.Generation,
			Detail: fmt.Sprintf("this Idempotency-Key was used for %s with another request; use a new key", op.ID)}
	}
	return op, true, nil
}

// Begin starts an act for an operation.
func (r *Rollout) Begin(ctx context.Context, op probation.Operation) error {
	return r.Units.Create(ctx, unitgen.Act(op.ID, r.Now().Wall.UnixNano(), 0, r.Program))
}

// Again starts an act for a request that is repeated, unless one is at it: fifty clients that repeat a request at the
// same instant are no reason for fifty acts.
func (r *Rollout) Again(ctx context.Context, op probation.Operation) error {
	units, err := r.Units.List(ctx, unitgen.Patterns(op.ID)...)
	atIt := func(s unitgen.State) bool {
		id, _ := unitgen.OperationOf(s.Name)
		return id == op.ID && strings.HasPrefix(s.Name, "toad-act-") && s.Running()
	}
	if err == nil && slices.ContainsFunc(units, atIt) {
		return nil
	}
	return r.Begin(ctx, op)
}

// mustBegin starts an act for what is saved already, so that the answer is the same whatever comes of it: the repetition
// of the request, the tick and the next start of toad start an act as well, and the limit stands.
func (r *Rollout) mustBegin(ctx context.Context, op probation.Operation) {
	for try := 1; ; try++ {
		err := r.Begin(ctx, op)
		if err == nil {
			return
		}
		if try == 3 || pause(ctx, 200*time.Millisecond) != nil {
			r.note(op, "error", "step", "saved, but nothing could be started that carries it on; the hourly tick or the next start of toad will: "+err.Error(), nil)
			return
		}
	}
}

// Abort leaves word that the operation is to be given up and starts the act that does so. Promotion is not given up, and
// an operation that has ended is returned as it ended.
func (r *Rollout) Abort(ctx context.Context, id, by string) (probation.Operation, error) {
	service, _, ok := probation.ParseOperationID(id)
	if !ok {
		return probation.Operation{}, fmt.Errorf("%q: %w", id, record.ErrUnknown)
	}
	unlock, err := r.Records.Lock(ctx, service)
	if err != nil {
		return probation.Operation{}, err
	}
	defer unlock()
	op, err := r.Records.Operation(id)
	switch {
	case err != nil || op.Phase.Terminal():
		return op, err
	case op.Phase == probation.Promoting:
		return op, &probation.Rejection{Code: probation.CodeOperationActive, Operation: op.ID, Generation: op.Generation,
			Detail: op.ID + " is being promoted; ask again in a moment"}
	}
	if had, ok := r.Records.Aborted(op.ID); ok {
		by = had + ", " + by // each request must be known again when it is repeated
	}
	if err := r.Records.Abort(op.ID, by); err != nil {
		return op, err
	}
	r.note(op, "warn", "audit", "abort asked for by "+by, nil)
	r.mustBegin(ctx, op)
	return op, nil
}

// note writes one line to the operation's log and to the journal. A log that cannot be written stops nothing.
func (r *Rollout) note(op probation.Operation, level, event, message string, fields map[string]string) {
	if r.say != nil {
		r.say(level, event, message)
		return
	}
	err := r.Records.Log(op.ID, record.Line{At: r.Now().Wall.UTC(), Level: level, Event: event, Message: message, Fields: fields})
	attrs := []any{"service", op.Service, "operation", op.ID, "event", event}
	if err != nil {
		attrs = append(attrs, "err", err)
	}
	switch level {
	case "error":
		r.Log.Error(message, attrs...)
	case "warn":
		r.Log.Warn(message, attrs...)
	default:
		r.Log.Info(message, attrs...)
	}
}

// serviceUnit is the systemd unit that Podman's generator makes of a Quadlet file, as the manager has it loaded.
func (r *Rollout) serviceUnit(unit string) (string, error) {
	src, err := quadlet.Find(r.Quadlet, unit)
	if err != nil {
		return "", err
	}
	return src.ServiceUnit, nil
}

func generated(s unitgen.State) quadlet.Generated {
	g := quadlet.Generated{Unit: s.Name, LoadState: s.LoadState, SourcePath: s.SourcePath, FragmentPath: s.FragmentPath,
		DropInPaths: s.DropInPaths, ExecStart: s.ExecStart, ExecPaths: s.ExecPaths, ExecCondition: s.ExecCondition, EnvNames: s.EnvNames,
		Type: s.Type, Operation: s.Operation, After: s.After,
		OnFailure: s.OnFailure, DefaultDependencies: s.DefaultDependencies, NeedDaemonReload: s.NeedDaemonReload,
		UnitFileState: s.UnitFileState}
	for _, c := range s.Conditions {
		g.Conditions = append(g.Conditions, quadlet.Condition{Type: c.Type, Parameter: c.Param, Negate: c.Negate, Trigger: c.Trigger})
	}
	return g
}

func microseconds(us uint64) time.Duration {
	const most = uint64(24 * time.Hour / time.Microsecond)
	return time.Duration(min(us, most)) * time.Microsecond // infinity is a very large number
}
