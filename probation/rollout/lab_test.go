package rollout_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"toad/internal/atomicfile"
	"toad/probation"
	"toad/probation/record"
	"toad/probation/rollout"
	"toad/quadlet"
	"toad/unitgen"
)

// Three releases, by what each digest and image id repeats.
var v1, v2, v3 = release("1"), release("2"), release("3")

func release(n string) rollout.Image {
	digest := "sha256:" + strings.Repeat(n, 64)
	return rollout.Image{ID: strings.Repeat(n, 63) + "f", Digest: digest, Digests: []string{digest}, RepoDigests: []string{repository + "@" + digest},
		OS: "linux", Architecture: runtime.GOARCH}
}

const (
	repository = "localhost:5000/app"
	unit       = "web.container"
	service    = "web.service"
)

var enrollment = probation.Enrollment{Name: "web", Units: []string{unit}, Image: repository,
	Ready: probation.Ready{Interval: time.Second, Timeout: time.Second},
	Limit: probation.Limits{Deadline: time.Minute, Stable: 2 * time.Second, Pull: time.Minute, Keep: 2}}

// side is an enrolled unit as it is loaded and runs.
type side struct {
	unit, service string
	state         unitgen.State
	run           rollout.Container // zero if nothing runs
	starts        int
}

// lab is a host: the disk is real, the user manager and Podman are maps. v1 runs there as the operator's file has it.
type lab struct {
	*side      // the first unit, mostly the only one
	t          *testing.T
	enrollment probation.Enrollment
	units      map[string]*side // by service
	door       *door            // nil where there are no two sides
	records    *record.Store
	woken      int // how often Podman was
	dirs       quadlet.Dirs
	bootID     string
	born       time.Time
	wall       time.Duration // how far the wall clock is off
	zone       *time.Location
	stepped    bool // the wall clock was set, so timers are no longer for the instant on record
	calendar   map[string]time.Time
	bound      map[string]time.Duration // of checks, by the clock of the boot
	own        map[string]unitgen.State // toad's transient units
	admitted   map[string]bool
	registry   map[string]rollout.Image // by repo@digest
	images     map[string]rollout.Image // on the host, by every name
	kept       map[string]bool          // archives, by image id
	runs       int                      // how many runs there were of any unit
	unwell     map[string]bool          // image ids of releases that fail
	unproven   string
	programs   map[string]string // what images run, by image id
	override   string            // an image that another file's drop-in puts in the place of the pin's
	noRetain   error
	noReset    error          // of a decided operation
	forgotten  map[string]int // failures of units

	asked    []string // of the host, in order
	saved    string   // the record at the last call
	calls    int
	dieAt    int // the call at which the process dies; 0 for none
	dieAfter bool
	stopAt   probation.Phase // the process dies at the first call in this phase
	booting  bool            // reconcile runs: nothing is admitted yet, so nothing needs a bound, and nothing is behind the door
	deadline time.Time       // as first saved
}

// died is how a killed process ends here.
type died struct{ at string }

func newLab(t *testing.T) *lab {
	l := labOf(t, enrollment)
	l.start(l.side)
	return l
}

// labOf is a lab on which nothing runs yet.
func labOf(t *testing.T, e probation.Enrollment) *lab {
	disk := inMemory(t)
	config := filepath.Join(disk, "systemd")
	if err := atomicfile.MkdirAll(config, 0o755); err != nil {
		t.Fatal(err)
	}
	config, err := filepath.EvalSymlinks(config)
	if err != nil {
		t.Fatal(err)
	}
	records, err := record.Open(filepath.Join(disk, "state"))
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, enrollment: e, units: map[string]*side{}, records: records, dirs: quadlet.Dirs{Config: config, Roots: []string{config}}, bootID: "one", born: time.Now(), zone: time.UTC,
		calendar: map[string]time.Time{}, bound: map[string]time.Duration{},
		own: map[string]unitgen.State{}, admitted: map[string]bool{}, kept: map[string]bool{}, unwell: map[string]bool{}, forgotten: map[string]int{},
		registry: map[string]rollout.Image{}, images: map[string]rollout.Image{}}
	for _, img := range []rollout.Image{v1, v2, v3} {
		l.registry[img.RepoDigests[0]] = img
	}
	for _, unit := range e.Units {
		if err := os.WriteFile(filepath.Join(config, unit), []byte("[Container]\nImage="+repository+":v1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(unit, ".container") + ".service"
		l.units[name] = &side{unit: unit, service: name}
	}
	l.side = l.units[strings.TrimSuffix(e.Units[0], ".container")+".service"]
	l.have(v1)
	l.images[repository+":v1"] = v1
	l.load()
	return l
}

// inMemory is a temporary folder in which an fsync costs nothing, if this host has such.
func inMemory(t *testing.T) string {
	dir, err := os.MkdirTemp("/dev/shm", "toad-lab-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// toad is a process of its own: it knows nothing but the host and the disk.
func (l *lab) toad() *rollout.Rollout {
	return &rollout.Rollout{Records: l.records, Units: l, Jobs: l, Manager: l, Images: l, Wake: func() { l.woken++ }, Quadlet: l.dirs,
		Program: unitgen.Program{Exe: "/toad"}, Runtime: "/run", Now: l.now, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Free:        func(string) (uint64, error) { return 1 << 40, nil },
		Runs:        func(s unitgen.State) string { return strings.TrimPrefix(s.ControlGroup, "/") },
		Lines:       func(context.Context, probation.Operation, string) []string { return []string{"last words"} },
		Unproven:    func(context.Context, probation.Operation, probation.Release, bool) string { return l.unproven },
		Promoted:    func(context.Context, probation.Operation) {},
		Ready:       func(context.Context, probation.Ready, unitgen.State) (bool, string) { return true, "" },
		Uptime:      func() time.Duration { return time.Since(l.born) },
		Connections: func(string) (int, error) { return l.door.open, nil },
		Identify: func(_ context.Context, _ probation.Operation, id string) (string, error) {
			return l.programs[id], nil
		},
		Alert: func(context.Context, probation.Operation, *probation.Release) error {
			defer l.pass("alert")()
			return nil
		}}
}

func (l *lab) now() probation.Instant {
	return probation.Instant{Wall: time.Now().Add(l.wall).In(l.zone), Boot: time.Since(l.born) + time.Hour, BootID: l.bootID}
}

// pass notes a call, and is where the process may die: before the call has done its work, or when it has.
func (l *lab) pass(what string) (done func()) {
	l.calls++
	here := l.calls == l.dieAt
	if l.stopAt != "" && l.operation().Phase == l.stopAt {
		panic(died{"in " + string(l.stopAt)})
	}
	if here && !l.dieAfter {
		panic(died{"before " + what})
	}
	l.asked = append(l.asked, what)
	l.saved = l.record()
	l.deadlineStands()
	return func() {
		if here {
			panic(died{"after " + what})
		}
	}
}

// look notes a call that changes nothing. A death there tells more than one at the next call only if something was
// saved since the last one.
func (l *lab) look() {
	if l.stopAt != "" && l.operation().Phase == l.stopAt {
		panic(died{"in " + string(l.stopAt)})
	}
	saved := l.record()
	if saved == l.saved {
		return
	}
	l.saved = saved
	if l.calls++; l.calls == l.dieAt {
		panic(died{"after a save"})
	}
}

func (l *lab) record() string {
	text, _ := os.ReadFile(filepath.Join(l.records.Dir(), "services/web.json"))
	return string(text)
}

func (l *lab) operation() probation.Operation {
	l.t.Helper()
	svc, err := l.records.Service("web")
	if err != nil && !errors.Is(err, record.ErrDamaged) {
		l.t.Fatal(err)
	}
	if svc.Operation == nil {
		return probation.Operation{}
	}
	return *svc.Operation
}

func (l *lab) service() probation.Service {
	l.t.Helper()
	svc, err := l.records.Service("web")
	if err != nil {
		l.t.Fatal(err)
	}
	return svc
}

// deadlineStands asserts that a deadline, once it is saved, is never another one.
func (l *lab) deadlineStands() {
	l.t.Helper()
	switch d := l.operation().Deadline; {
	case d == nil:
		l.deadline = time.Time{}
	case l.deadline.IsZero():
		l.deadline = d.At
	case !d.At.Equal(l.deadline):
		l.t.Errorf("the deadline moved from %v to %v", l.deadline, d.At)
	}
}

// held asserts that what touches a unit is bounded: the limit of the phase is on disk, and a timer waits for it.
func (l *lab) held(what string) {
	l.t.Helper()
	kind := map[probation.Phase]unitgen.Kind{probation.Switching: unitgen.Probation, probation.Restoring: unitgen.Restore}[l.operation().Phase]
	for name := range l.own {
		if kind != "" && strings.HasPrefix(name, "toad-"+string(kind)+"-") && strings.HasSuffix(name, ".timer") {
			return
		}
	}
	if kind != "" {
		l.t.Errorf("%s in %s, and no timer bounds it", what, l.operation().Phase)
	}
}

// ---- the user manager ----

func (l *lab) State(_ context.Context, name string) (unitgen.State, error) {
	l.doorServes("a look at " + name)
	l.look()
	if s, ok := l.units[name]; ok {
		return s.state, nil
	}
	if l.door != nil && name == l.enrollment.Door.Socket {
		return unitgen.State{Name: name, LoadState: "loaded", ActiveState: "active"}, nil
	}
	if s, ok := l.own[name]; ok {
		return s, nil
	}
	return unitgen.State{Name: name, LoadState: "not-found", ActiveState: "inactive", Result: "success"}, nil
}

func (l *lab) List(_ context.Context, patterns ...string) (all []unitgen.State, err error) {
	l.look()
	for name, s := range l.own {
		if slices.ContainsFunc(patterns, func(p string) bool { ok, _ := filepath.Match(p, name); return ok }) {
			all = append(all, s)
		}
	}
	return all, nil
}

var (
	numbered = regexp.MustCompile(`^toad-(check|probation|restore)-web-g[0-9]+(?:-([0-9]+))?\.(service|timer)$`)
	spec     = regexp.MustCompile(`"OnCalendar", "([^"]+) UTC"`)
)

// Create asserts that a unit's number is saved before the unit is there, and that a timer stands for the saved limit.
func (l *lab) Create(_ context.Context, u unitgen.Unit) error {
	defer l.pass("create " + u.Name)()
	if _, ok := l.own[u.Name]; ok {
		return unitgen.ErrExists
	}
	s := unitgen.State{Name: u.Name, LoadState: "loaded", ActiveState: "active", SubState: "waiting"}
	op := l.operation()
	if m := numbered.FindStringSubmatch(u.Name); m != nil {
		saved, deadline := op.Timers, op.Deadline
		switch m[1] {
		case "check":
			saved, s.ActiveState, s.SubState = op.Checks, "activating", "start"
			l.bound[u.Name] = l.now().Boot + timeout(u)
		case "restore":
			deadline = op.RestoreBy
		}
		if n, _ := strconv.Atoi(m[2]); saved != max(n, 1) {
			l.t.Errorf("%s is made when the record says number %d", u.Name, saved)
		}
		if m[3] == "timer" {
			l.firesAt(u, *deadline)
		}
	}
	if !strings.HasPrefix(u.Name, "toad-act-") { // an act runs when the test lets it
		l.own[u.Name] = s
	}
	return nil
}

func (l *lab) firesAt(u unitgen.Unit, d probation.Deadline) {
	for _, p := range u.Properties {
		if m := spec.FindStringSubmatch(p.Value.String()); m != nil {
			at, err := time.Parse("2006-01-02 15:04:05.000000", m[1])
			if l.calendar[u.Name] = at; !l.stepped && at.Sub(d.At).Abs() > time.Millisecond || err != nil {
				l.t.Errorf("%s fires at %v, the limit is %v (%v)", u.Name, at, d.At, err)
			}
			return
		}
	}
	l.t.Errorf("%s is on no calendar", u.Name)
}

func timeout(u unitgen.Unit) time.Duration {
	for _, p := range u.Properties {
		if us, ok := p.Value.Value().(uint64); ok && p.Name == "TimeoutStartUSec" {
			return time.Duration(us) * time.Microsecond
		}
	}
	return 0
}

func (l *lab) Stopping(context.Context) (bool, error) { return false, nil }

func (l *lab) Restart(_ context.Context, name string) error {
	defer l.pass("restart " + name)()
	l.held("a restart")
	l.start(l.units[name])
	return nil
}

func (l *lab) Start(_ context.Context, name string) error {
	defer l.pass("start " + name)()
	if s, ok := l.units[name]; ok && s.run.ID == "" {
		l.start(s)
	}
	return nil
}

func (l *lab) Stop(_ context.Context, name string) error {
	defer l.pass("stop " + name)()
	if s, ok := l.units[name]; ok {
		s.down()
		return nil
	}
	if _, ok := l.own[name]; !ok {
		return unitgen.ErrNoUnit
	}
	delete(l.own, name)
	return nil
}

func (l *lab) ResetFailed(_ context.Context, name string) error {
	if l.noReset != nil && l.operation().Phase.Terminal() {
		return l.noReset
	}
	l.forgotten[name]++
	return nil
}

func (l *lab) Reload(context.Context) error {
	defer l.pass("reload")()
	if l.operation().Phase == probation.Switching && !l.booting {
		l.held("a reload")
	}
	l.load()
	return nil
}

// load is what the generator and the manager make of the files.
func (l *lab) load() {
	for _, s := range l.units {
		l.loadUnit(s)
	}
}

func (l *lab) loadUnit(s *side) {
	image, pull, label := repository+":v1", "missing", ""
	text, pinned, err := l.dirs.Pins().Read(s.unit)
	if err != nil {
		l.t.Fatal(err)
	}
	st := &s.state
	st.Name, st.LoadState, st.SourcePath, st.DefaultDependencies = s.service, "loaded", filepath.Join(l.dirs.Config, s.unit), true
	st.After, st.OnFailure, st.Conditions, st.ExecCondition = nil, nil, nil, nil
	if l.door != nil {
		st.TriggeredBy = []string{strings.Replace(s.service, ".service", ".socket", 1)}
	}
	if pinned {
		p, err := quadlet.ParsePin(text)
		if err != nil {
			l.t.Fatal(err)
		}
		image, pull, label = p.Reference, "never", p.Operation
		st.After, st.OnFailure = []string{quadlet.ReconcileUnit}, []string{"toad-alert@" + s.service}
		if p.Fenced {
			st.Conditions = []unitgen.Condition{{Type: "ConditionEnvironment", Param: p.AdmissionVar + "=1"}}
			st.ExecCondition = [][]string{{"/usr/bin/test", "-n", "${" + p.AdmissionVar + "}"}}
		}
	}
	if l.override != "" {
		image = l.override
	}
	st.ExecStart = [][]string{{"/usr/bin/podman", "run", "--name", "systemd-web", "--label", "io.toad.operation=" + label, "--pull", pull, image}}
}

// start runs what is loaded, if the fence lets it and its image is here.
func (l *lab) start(s *side) {
	s.down()
	for _, c := range s.state.Conditions {
		if !l.admitted[c.Param] {
			return
		}
	}
	l.runs++
	s.starts++
	argv := s.state.ExecStart[0]
	img, ok := l.images[argv[len(argv)-1]]
	s.state.InvocationID = fmt.Sprintf("%032d", l.runs)
	if !ok {
		s.state.ActiveState, s.state.SubState, s.state.ExecMainStatus = "failed", "failed", 125
		return
	}
	_, label, _ := strings.Cut(argv[5], "=")
	s.run = rollout.Container{ID: fmt.Sprintf("%064d", l.runs), ImageID: img.ID, Operation: label, Running: true}
	s.state.ActiveState, s.state.SubState, s.state.ControlGroup = "active", "running", "/"+s.run.ID
}

func (s *side) down() {
	s.run = rollout.Container{}
	s.state.ActiveState, s.state.SubState, s.state.ControlGroup = "inactive", "dead", ""
}

func (l *lab) Environment(context.Context) (map[string]string, error) {
	l.look()
	all := map[string]string{}
	for a := range l.admitted {
		name, value, _ := strings.Cut(a, "=")
		all[name] = value
	}
	return all, nil
}

func (l *lab) SetEnvironment(_ context.Context, assignments ...string) error {
	defer l.pass("admit " + strings.Join(assignments, " "))()
	for _, a := range assignments {
		l.admitted[a] = true
	}
	return nil
}

func (l *lab) UnsetEnvironment(_ context.Context, names ...string) error {
	defer l.pass("unset " + strings.Join(names, " "))()
	for _, n := range names {
		delete(l.admitted, n+"=1")
	}
	return nil
}

// reset is a power cut, and a boot up to where reconcile would run.
func (l *lab) reset(off time.Duration) {
	time.Sleep(off)
	l.bootID, l.born = l.bootID+"+", time.Now()
	l.own, l.admitted = map[string]unitgen.State{}, map[string]bool{}
	for _, s := range l.units {
		s.down()
		s.state.InvocationID = ""
	}
	l.load()
}

// boot is a power cut: what is on disk stays. The enrolled unit starts as its files have it, once reconcile is done.
func (l *lab) boot(off time.Duration) {
	l.t.Helper()
	l.reset(off)
	if err := l.toad().Reconcile(l.t.Context()); err != nil {
		l.t.Fatal(err)
	}
	l.start(l.side)
}

// ---- Podman ----

func (l *lab) have(img rollout.Image) {
	l.images[img.ID] = img
	for _, ref := range img.RepoDigests {
		l.images[ref] = img
	}
}

// prune takes every image away that is not kept in an archive.
func (l *lab) prune() { l.images = map[string]rollout.Image{} }

func (l *lab) Pull(_ context.Context, ref string, _ func(string)) error {
	defer l.pass("pull " + ref)()
	img, ok := l.registry[ref]
	if !ok {
		return &rollout.PullError{Code: probation.CodePullFailed, Err: fmt.Errorf("the registry does not have %s", ref)}
	}
	l.have(img)
	return nil
}

func (l *lab) Image(_ context.Context, ref string) (rollout.Image, error) {
	l.look()
	img, ok := l.images[ref]
	if !ok {
		return img, rollout.ErrNoImage
	}
	return img, nil
}

func (l *lab) Container(_ context.Context, id string) (rollout.Container, error) {
	l.look()
	for _, s := range l.units {
		if s.run.ID == id {
			return s.run, nil
		}
	}
	return rollout.Container{}, fmt.Errorf("no container %s", id)
}

func (l *lab) Containers(context.Context, string) ([]rollout.Container, error) {
	return []rollout.Container{l.run}, nil
}

func (l *lab) Retain(_ context.Context, id string) error {
	defer l.pass("retain " + id[:1])()
	if _, ok := l.images[id]; !ok {
		return rollout.ErrNoImage
	}
	l.kept[id] = l.noRetain == nil
	return l.noRetain
}

func (l *lab) Retained(id string) (bool, error) { return l.kept[id], nil }

// LoadBack brings an image back without its digests, as an archive does.
func (l *lab) LoadBack(_ context.Context, id string) error {
	defer l.pass("load back " + id[:1])()
	if !l.kept[id] {
		return rollout.ErrNoImage
	}
	l.images[id] = rollout.Image{ID: id, OS: "linux", Architecture: runtime.GOARCH}
	return nil
}

func (l *lab) DropRetained(keep []string) error {
	defer l.pass("drop what is not kept")()
	for id := range l.kept {
		if !slices.Contains(keep, id) {
			delete(l.kept, id)
		}
	}
	return nil
}

// ---- a deployment ----

func (l *lab) accept(img rollout.Image, change ...func(*probation.Request)) string {
	l.t.Helper()
	req := probation.Request{Digest: img.Digest, Key: fmt.Sprint(l.calls), Body: img.Digest, By: "uid 1000"}
	for _, c := range change {
		c(&req)
	}
	op, _, err := l.toad().Accept(l.t.Context(), l.enrollment, req)
	if err != nil {
		l.t.Fatal(err)
	}
	return op.ID
}

// act is one run of toad act. It reports whether the process died on the way.
func (l *lab) act(id string) (where string) {
	l.t.Helper()
	defer func() {
		if r := recover(); r != nil {
			d, ok := r.(died)
			if !ok {
				panic(r)
			}
			where = d.at
		}
	}()
	if err := l.toad().Act(l.t.Context(), id); err != nil && !errors.Is(err, record.ErrNewer) {
		l.t.Errorf("toad act: %v", err)
	}
	return ""
}

// until acts, lets checks come to their verdict and timers fire, until the operation is in a phase or nothing is owed.
func (l *lab) until(id string, phases ...probation.Phase) (where string) {
	l.t.Helper()
	for range 40 {
		if died := l.act(id); died != "" {
			where = died // systemd starts it again
			continue
		}
		svc := l.service()
		if slices.Contains(phases, svc.Operation.Phase) || svc.Due() == probation.Nothing {
			return where
		}
		if !l.check() && !l.fire() {
			break
		}
	}
	l.t.Fatalf("it stays %s with %v loaded\n%s", l.operation().Phase, l.own, strings.Join(l.asked, "\n"))
	return where
}

// check lets the current check end with what it sees. It reports whether there was one.
func (l *lab) check() bool {
	l.t.Helper()
	op := l.operation()
	name := unitgen.CheckName(op.ID, op.Checks)
	if _, ok := l.own[name]; !ok {
		return false
	}
	delete(l.own, name)
	w := record.Watch{Check: op.Checks, Phase: probation.Probation, At: l.now()}
	w.Verdict = probation.Verdict{Kind: probation.Stable, Reason: "ready"}
	if op.Phase == probation.Restoring {
		w.Phase = probation.Restoring
	}
	for _, want := range probation.Wants(op) {
		s := l.units[want.Service]
		asWanted := s.run.ImageID == want.ImageID && (s.run.Operation == op.ID) == (want.Operation == op.ID)
		switch {
		case want.Down && s.run.ID == "", !want.Down && asWanted && !l.unwell[s.run.ImageID]:
		case op.Phase == probation.Restoring:
			w.Verdict = probation.Verdict{Kind: probation.Unfit, Code: probation.CodeWrongImage, Reason: "something else runs as " + want.Service}
		case !asWanted:
			w.Verdict = probation.Verdict{}
		default:
			w.Verdict = probation.Verdict{Kind: probation.Unfit, Code: probation.CodeCandidateExited, Reason: "it exited",
				Evidence: &probation.Evidence{Unit: want.Service, Invocation: s.state.InvocationID, ExitStatus: 2}}
		}
	}
	if err := l.records.PutWatch(op.ID, w); err != nil {
		l.t.Fatal(err)
	}
	return true
}

// fire lets the timer of a drain fire.
func (l *lab) fire() bool {
	for name := range l.own {
		if strings.HasPrefix(name, "toad-drain-") {
			delete(l.own, name)
			time.Sleep(time.Second)
			return true
		}
	}
	return false
}

// ended asserts how the latest operation ended, what runs, and that nothing is left behind.
func (l *lab) ended(phase probation.Phase, code probation.Code, runs rollout.Image) {
	l.t.Helper()
	op := l.operation()
	if op.Phase != phase || op.Code != code {
		l.t.Errorf("want %s %s, have %s %s: %s", phase, code, op.Phase, op.Code, op.Reason)
	}
	if l.run.ImageID != runs.ID {
		l.t.Errorf("want %.1s to run, have %.1s", runs.ID, l.run.ImageID)
	}
	if len(l.own) != 0 || len(l.admitted) != 0 {
		l.t.Errorf("left behind: %v %v", l.own, l.admitted)
	}
	if left, _ := filepath.Glob(filepath.Join(l.dirs.Config, unit+".d", "*.previous")); len(left) != 0 {
		l.t.Errorf("left behind: %v", left)
	}
	if text, _, _ := l.dirs.Pins().Read(unit); strings.Contains(text, "TOAD_ADMITTED") {
		l.t.Errorf("the pin still holds a fence:\n%s", text)
	}
}
