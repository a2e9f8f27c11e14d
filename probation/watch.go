package probation

import (
	"fmt"
	"time"
)

// Want is what a check expects of one unit.
type Want struct {
	Service string `json:"service"`
	// Replaces is the invocation that the restart job ends; nothing is judged while it still runs.
	Replaces  string `json:"replaces,omitempty"`
	ImageID   string `json:"image_id,omitempty"`
	Operation string `json:"operation,omitempty"` // the pin's label on the container
	Down      bool   `json:"down,omitempty"`      // the unit is to be stopped
}

// UnitSample is how the manager and Podman saw one unit at one instant.
type UnitSample struct {
	Service     string
	ActiveState string
	SubState    string
	Result      string
	Restart     string // the unit's Restart= setting
	Invocation  string
	Restarts    int    // NRestarts
	Job         string // type of the job queued for it; empty when there is none
	StopSeen    bool   // a stop job was queued since the last sample
	ExitStatus  int
	OwnReady    bool          // systemd waits for READY=1 of the application or its health check, not of Podman
	RestartIn   time.Duration // while it waits for an automatic restart: how long still, 0 if that is not known
	MemoryLimit bool          // the unit or its container has a limit of memory of its own
	Container   string        // id of the container in the unit's cgroup
	ImageID     string        // its image
	Operation   string        // its io.toad.operation label
}

// Sample is one look at a service.
type Sample struct {
	At       time.Duration // CLOCK_BOOTTIME
	Units    []UnitSample  // in the order of Watch.Want
	Ready    bool          // the probe passed
	Serving  bool          // it passed too, or did for the release that is about to be replaced
	Why      string        // what the probe found
	Stopping bool          // the user manager is going down
	Left     time.Duration // until the deadline
}

// Verdict is what a check came to; Kind is Stable, Unfit, Stopped or empty while undecided.
type Verdict struct {
	Kind     Kind      `json:"kind"`
	Code     Code      `json:"code,omitempty"`
	Reason   string    `json:"reason,omitempty"`
	Evidence *Evidence `json:"evidence,omitempty"`
}

// Seen is what a watch remembers of one unit; it outlives the check, so that the budget is of the whole attempt.
type Seen struct {
	Invocation  string `json:"invocation,omitempty"` // the expected one
	Container   string `json:"container,omitempty"`
	Restarts    int    `json:"n_restarts"`       // NRestarts at the last sample
	Automatic   int    `json:"automatic"`        // restarts that NRestarts told of
	Invocations int    `json:"invocations"`      // changes of the invocation
	Containers  int    `json:"containers"`       // changes of the container
	Foreign     int    `json:"foreign"`          // restarts that systemd did not make by itself
	Unheard     int    `json:"unheard"`          // starts of which Podman told systemd nothing
	Silent      string `json:"silent,omitempty"` // the last such invocation
	ExitStatus  int    `json:"exit_status,omitempty"`
	Result      string `json:"result,omitempty"`
}

// restarts leaves out those that follow a start nobody heard of: nothing of the release has run then.
func (s Seen) restarts() int { return max(s.Automatic, s.Invocations, s.Containers) - s.Unheard }

// Watch is the stable window and the restart budget of one attempt.
type Watch struct {
	Want     []Want
	Stable   time.Duration
	Interval time.Duration
	Timeout  time.Duration
	Budget   int
	// Files says that the units run files, not containers: no exit status is Podman's.
	Files bool
	// Queued says that all restart jobs are queued. Before that an invocation may be one that such a job still ends.
	Queued bool

	Seen       []Seen        // per unit of Want
	Last       time.Duration // of the last sample; 0 before the first
	ReadySince time.Duration // 0 while not ready
	Breaks     int           // how often readiness was lost by the release's own doing
	Why        string        // why it is not ready, or that it is
}

// NewWatch begins a watch; seen carries the counts of an earlier check of the same attempt, or is nil.
func NewWatch(e Enrollment, want []Want, seen []Seen) Watch {
	if len(seen) != len(want) {
		seen = make([]Seen, len(want))
	}
	return Watch{Want: want, Stable: e.Limit.Stable, Interval: e.Ready.Interval, Timeout: e.Ready.Timeout,
		Budget: e.Limit.Restarts, Files: e.Binary(), Seen: append([]Seen(nil), seen...)}
}

// Restarts is how many restarts the attempt has seen, over all its units.
func (w Watch) Restarts() int {
	n := 0
	for _, s := range w.Seen {
		n += s.restarts()
	}
	return n
}

// Attributed reports whether the watched invocation of every unit is known.
func (w Watch) Attributed() bool {
	for i, s := range w.Seen {
		if s.Invocation == "" && !w.Want[i].Down {
			return false
		}
	}
	return true
}

// Filled says how much of the stable window has passed.
func (w Watch) Filled() time.Duration {
	if w.ReadySince == 0 {
		return 0
	}
	return w.Last - w.ReadySince
}

// Next folds one sample into the window and the budget. The verdict's kind is empty while it is open.
func (w Watch) Next(s Sample) (Watch, Verdict) {
	w.Seen = append([]Seen(nil), w.Seen...)
	late := w.Last != 0 && s.At-w.Last > 2*w.Interval+w.Timeout
	w.Last = s.At
	if s.Stopping {
		return w.notReady("the user manager is going down"), Verdict{}
	}
	ready, why, restarts := true, s.Why, w.Restarts()
	for i := range w.Want {
		unitReady, unitWhy, verdict := w.judge(i, s.Units[i], s.Left)
		if verdict.Kind != "" {
			return w.broken(verdict.Reason), verdict
		}
		if !unitReady && ready {
			ready, why = false, unitWhy
		}
	}
	if w.Restarts() > restarts {
		w = w.broken("it restarted") // within the budget; the window begins anew
	}
	switch {
	case !ready:
		return w.broken(why), Verdict{}
	case !s.Ready && !w.allDown():
		return w.broken(s.Why), Verdict{}
	case late:
		return w.notReady(fmt.Sprintf("no sample for %v", 2*w.Interval+w.Timeout)), Verdict{}
	}
	if w.ReadySince == 0 {
		w.ReadySince = s.At
	}
	w.Why = why
	if w.allDown() || s.At-w.ReadySince >= w.Stable {
		return w, Verdict{Kind: Stable, Reason: fmt.Sprintf("ready for %v without a break", w.Filled().Round(time.Millisecond))}
	}
	return w, Verdict{}
}

func (w Watch) notReady(why string) Watch {
	w.ReadySince, w.Why = 0, why
	return w
}

// broken is notReady by what the release itself shows.
func (w Watch) broken(why string) Watch {
	if w.ReadySince != 0 {
		w.Breaks++
	}
	return w.notReady(why)
}

// Unready is the evidence that stands if the deadline passes now: an attributed invocation that is not ready, or that
// was and did not stay so. It is nil where nothing can be held against the release.
func (w Watch) Unready() *Evidence {
	if !w.Attributed() || w.unseen() || (w.ReadySince != 0 && w.Breaks == 0) || w.allDown() {
		return nil
	}
	return &Evidence{Unit: w.Want[0].Service, Invocation: w.Seen[0].Invocation, ExitStatus: w.Seen[0].ExitStatus}
}

// unseen reports whether a unit has never shown a container, by no doing of the release.
func (w Watch) unseen() bool {
	for _, s := range w.Seen {
		if s.Unheard > 0 && s.Container == "" {
			return true
		}
	}
	return false
}

func (w Watch) allDown() bool {
	for _, want := range w.Want {
		if !want.Down {
			return false
		}
	}
	return true
}

// judge looks at one unit: whether it may count as ready, why not, and the verdict if it is plain already. It counts
// restarts into w.Seen[i].
func (w *Watch) judge(i int, u UnitSample, left time.Duration) (ready bool, why string, v Verdict) {
	want, seen := w.Want[i], &w.Seen[i]
	if want.Down {
		down := u.Job == "" && (u.ActiveState == "inactive" || u.ActiveState == "failed")
		return down, u.Service + " is still " + u.ActiveState, Verdict{}
	}
	if u.StopSeen || u.Job == "stop" {
		return false, "", Verdict{Kind: Stopped, Code: CodeStopped, Reason: u.Service + " was stopped by somebody else"}
	}
	if seen.Invocation == "" {
		if !w.Queued || u.Invocation == want.Replaces {
			return false, u.Service + " is about to be restarted", Verdict{}
		}
		if u.Job != "" && !w.candidateStarts(u) { // the restart is under way: the baseline is the invocation it leaves
			return false, u.Service + " is starting", Verdict{}
		}
	}
	w.count(i, u)
	if v := w.unitVerdict(i, u, left); v.Kind != "" {
		return false, "", v
	}
	switch {
	case u.ActiveState != "active":
		return false, fmt.Sprintf("%s is %s (%s)", u.Service, u.ActiveState, u.SubState), Verdict{}
	case u.Container == "":
		return false, fmt.Sprintf("%s has no running %s", u.Service, w.runs()), Verdict{}
	case want.Operation != "" && u.Operation != want.Operation:
		return false, fmt.Sprintf("the %s of %s is not %s's", w.runs(), u.Service, want.Operation), Verdict{}
	}
	return true, "", Verdict{}
}

// runs is what a unit is looked for.
func (w *Watch) runs() string {
	if w.Files {
		return "main process"
	}
	return "container"
}

func (w *Watch) release() string {
	if w.Files {
		return "the file"
	}
	return "image"
}

// candidateStarts says that a start job which is not done is the candidate's own: a unit that tells when it is ready keeps
// its job until then. Of several units one may be started twice, by its own job and by another's.
func (w *Watch) candidateStarts(u UnitSample) bool {
	want := w.Want[0]
	return len(w.Want) == 1 && want.Operation != "" && u.Operation == want.Operation && u.ActiveState == "activating" && u.SubState == "start"
}

// count adds the restarts that this sample shows. NRestarts, invocations and containers each may miss some, or be
// reset by others; the most that one of them tells is what counts.
func (w *Watch) count(i int, u UnitSample) {
	seen := &w.Seen[i]
	first := seen.Invocation == ""
	rose := u.Restarts - seen.Restarts
	switch {
	case first && w.Want[i].Operation == "":
		rose = 0 // a restore: systemd's own restart of the candidate may have been what brought the release back
	case first:
		rose = u.Restarts // the restart job began the count anew
	}
	if rose > 0 {
		seen.Automatic += rose
	}
	if !first && u.Invocation != "" && u.Invocation != seen.Invocation {
		seen.Invocations++
		if seen.Invocations > seen.Automatic+seen.Foreign {
			seen.Foreign++
		}
	}
	if u.Container != "" {
		if seen.Container != "" && u.Container != seen.Container {
			seen.Containers++
		}
		seen.Container = u.Container
	}
	if u.Invocation != "" {
		seen.Invocation = u.Invocation
	}
	seen.Restarts = u.Restarts
	if w.unheard(*seen, u) && u.Invocation != seen.Silent {
		seen.Unheard++
		seen.Silent = u.Invocation
	}
	if u.ExitStatus != 0 {
		seen.ExitStatus = u.ExitStatus
	}
	if u.Result != "" && u.Result != "success" {
		seen.Result = u.Result
	}
}

// PodmanFailed reports whether an exit status is Podman's own: it could not run the container. A port that is taken gives
// 126, which an entrypoint that cannot be executed gives as well; only Podman's words tell them apart.
func PodmanFailed(exitStatus int) bool { return exitStatus == 125 || exitStatus == 126 }

// PodmanFailed reports whether Podman could not run the container of a unit.
func (w *Watch) PodmanFailed(s Seen) bool { return !w.Files && PodmanFailed(s.ExitStatus) }

// unheard reports whether systemd has heard nothing of a container although Podman was to say that it runs, or none was
// seen. On a loaded host Podman's word to systemd is now and then lost with the process that was to say it.
func (w *Watch) unheard(s Seen, u UnitSample) bool {
	return !w.Files && u.Result == "protocol" && u.ExitStatus == 0 && (!u.OwnReady || s.Container == "" && u.Container == "")
}

// killed is how a process ends that got SIGKILL. No program does that to itself: somebody did, or the kernel for want of
// memory, which is the release's doing only where the unit's own limit was met.
const killed = 128 + 9

func (w *Watch) unitVerdict(i int, u UnitSample, left time.Duration) Verdict {
	want, seen := w.Want[i], w.Seen[i]
	waiting := u.SubState == "auto-restart" || u.SubState == "auto-restart-queued" || u.SubState == "failed-before-auto-restart"
	unfit := func(format string, args ...any) Verdict {
		v := Verdict{Kind: Unfit, Code: CodeCandidateExited, Reason: fmt.Sprintf(format, args...)}
		switch {
		case seen.ExitStatus == killed && !u.MemoryLimit:
			v.Code, v.Reason = CodeInterrupted, v.Reason+": it was killed from outside, or the host was out of memory"
		case w.unheard(seen, u):
			v.Code, v.Reason = CodeInterrupted, v.Reason+": Podman did not say that the container runs"
		case w.PodmanFailed(seen):
			v.Code, v.Reason = CodeInterrupted, v.Reason+": Podman could not run the container"
		case seen.Foreign > 0 && seen.restarts()-seen.Foreign <= w.Budget:
			v.Code = CodeInterrupted // somebody else restarted it; that tells nothing of the release
		default:
			v.Evidence = &Evidence{Unit: u.Service, Invocation: seen.Invocation, ExitStatus: seen.ExitStatus}
		}
		// What is put back is given up early for its own doing only: while systemd goes on starting it, the restore has its limit.
		goesOn := waiting || u.ActiveState != "failed" && u.ActiveState != "inactive"
		if want.Operation == "" && v.Code == CodeInterrupted && goesOn && u.RestartIn <= left {
			return Verdict{}
		}
		return v
	}
	ended := fmt.Sprintf("exited with status %d (%s)", seen.ExitStatus, orSuccess(seen.Result))
	if seen.Result == "timeout" {
		ended = fmt.Sprintf("was ended by systemd at a time limit of the unit's own, e.g. TimeoutStartSec= (timeout, exit status %d)", seen.ExitStatus)
	}
	switch {
	case u.Container != "" && want.ImageID != "" && u.ImageID != "" && u.ImageID != want.ImageID:
		return Verdict{Kind: Unfit, Code: CodeWrongImage,
			Reason: fmt.Sprintf("%s runs %s %.12s, not %.12s", u.Service, w.release(), u.ImageID, want.ImageID)}
	case w.Restarts() > w.Budget:
		return unfit("%s restarted %d times (budget %d), last exit status %d (%s)",
			u.Service, w.Restarts(), w.Budget, seen.ExitStatus, orSuccess(seen.Result))
	case waiting && w.Restarts()+1 > w.Budget:
		return unfit("%s %s and its restart is over the budget of %d", u.Service, ended, w.Budget)
	case waiting && u.RestartIn > left:
		return unfit("%s %s and its restart would come after the deadline", u.Service, ended)
	case u.ActiveState == "failed" && u.Job == "" && !waiting:
		return unfit("%s failed with exit status %d (%s)", u.Service, seen.ExitStatus, orSuccess(seen.Result))
	case u.ActiveState == "inactive" && u.Job == "" && !waiting && u.Restart == "always":
		return Verdict{Kind: Stopped, Code: CodeStopped, Reason: u.Service + " was stopped by somebody else"}
	case u.ActiveState == "inactive" && u.Job == "" && !waiting:
		return unfit("%s ended with exit status %d", u.Service, seen.ExitStatus)
	}
	return Verdict{}
}

func orSuccess(result string) string {
	if result == "" {
		return "success"
	}
	return result
}

// Wants is what the check of an operation expects, by its phase: the candidate, or what is put back.
func Wants(op Operation) []Want {
	var all, last []Want
	for _, b := range op.Before {
		switch w := (Want{Service: b.Service}); {
		case op.Phase != Restoring && op.Moves(b):
			w.Replaces, w.ImageID, w.Operation = b.Invocation, op.Candidate.ImageID, op.ID
			all = append(all, w)
		case op.Phase != Restoring: // the side in force, which goes on as it is
		case op.Sided() && op.Moves(b):
			w.Down = true
			last = append(last, w) // the readiness of the other one counts
		default:
			w.Replaces, w.ImageID, w.Down = b.Candidate, b.ImageID, b.Down
			all = append(all, w)
		}
	}
	return append(all, last...)
}

// Queued reports whether all restart jobs of an operation's phase are queued.
func Queued(op Operation) bool {
	return op.Phase == Probation || op.Phase == Promoting || (op.Phase == Restoring && op.Replaced)
}
