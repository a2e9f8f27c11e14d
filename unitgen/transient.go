package unitgen

import (
	"maps"
	"slices"
	"strconv"
	"syscall"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
)

// Unit is a transient unit to create, with the units that must exist with it.
type Unit struct {
	Name       string
	Properties []sd.Property
	Aux        []Unit
}

// Program says how a unit runs toad. All of it ends up in properties of the user manager, which an overlong one
// would kill: keep it short.
type Program struct {
	Exe        string            // absolute; <state>/libexec/toad; systemd allows no quotes or backslashes in it
	State      string            // TOAD_STATE; "" leaves it to the default
	Enrollment string            // TOAD_ENROLLMENT; "" leaves it to the default
	Env        map[string]string // more variables
	Listen     []string          // addresses for the API over TCP; none leaves it to the Unix socket
	Hosts      []string          // names by which it is asked there
	Agent      bool              // the box belongs to an environment, and checks in
	Container  *Container        // the daemon runs in one of its own; nil: as a plain unit
}

// Container is what the daemon's own container is made of: a root with nothing but the binary, and four folders, which lie
// at the same place inside and out. The runtime folder is the fourth.
type Container struct {
	Rootfs     string // holds the binary as /toad
	Quadlets   string // ~/.config/containers
	Config     string // ~/.config/toad
	Home       string
	User       string
	ConfigHome string // XDG_CONFIG_HOME; "" where it is not set
}

const (
	// ActSilence is how long an act may go without a sign of life before systemd kills it and starts it again. A stopped
	// one holds its service's lock that long, also against a deadline.
	ActSilence = 20 * time.Second
	// stopTimeout is how long a check or an act may take to stop; systemd's own default is 90 s.
	stopTimeout = 5 * time.Second
	// accuracy of the timers; systemd's own default is a minute.
	accuracy = 100 * time.Millisecond
)

// Timer is the nth timer of a kind, which starts an act at an instant. An instant that is past when the unit is
// created never comes, so the caller acts on that itself. It is on the calendar: a monotonic timer would start
// anew at every daemon-reload.
func Timer(kind Kind, op string, n int, at time.Time, p Program) Unit {
	return timer(kind, op, n, property("TimersCalendar", []calendar{{"OnCalendar", instant(at)}}), p)
}

func timer(kind Kind, op string, n int, when sd.Property, p Program) Unit {
	name := TimerName(kind, op, n)
	says := bounds(kind, op)
	return Unit{
		Name: name,
		Properties: []sd.Property{
			sd.PropDescription(says),
			when,
			property("AccuracyUSec", usec(accuracy)),
			property("RandomizedDelayUSec", usec(0)),
			// Once it has fired nothing of it is left, not even an elapsed timer.
			property("RemainAfterElapse", false),
			collect,
		},
		Aux: []Unit{act(serviceOf(name), says, op, 0, p)},
	}
}

// Pause is a timer that starts an act after a while. It is for a look that may come late: anybody's daemon-reload has it
// begin anew. In return it cannot be lost to a busy manager, to which a short while on the calendar may be past.
func Pause(kind Kind, op string, n int, after time.Duration, p Program) Unit {
	return timer(kind, op, n, property("TimersMonotonic", []monotonic{{"OnActiveSec", usec(after)}}), p)
}

// ProveTimer looks, once a promoted release has run for long enough, whether it is proven. It bounds nothing: the hourly
// tick does the same.
func ProveTimer(op string, at time.Time, p Program) Unit {
	name := "toad-prove-" + op + ".timer"
	says := "toad: " + op + " may have run long enough here to be proven"
	return Unit{
		Name: name,
		Properties: []sd.Property{
			sd.PropDescription(says),
			property("TimersCalendar", []calendar{{"OnCalendar", instant(at)}}),
			property("AccuracyUSec", usec(time.Second)),
			property("RemainAfterElapse", false),
			collect,
		},
		Aux: []Unit{{Name: serviceOf(name), Properties: append([]sd.Property{
			sd.PropDescription(says), sd.PropType("oneshot"), property("TimeoutStartUSec", usec(10*time.Minute)),
			property("TimeoutStopUSec", usec(stopTimeout)), afterBus, collect,
		}, p.runs("tick")...)}},
	}
}

func bounds(kind Kind, op string) string {
	switch kind {
	case Prepare:
		return "toad: " + op + " fails here if it is not prepared"
	case Probation:
		return "toad: " + op + " is rolled back here if it is undecided"
	case Restore:
		return "toad: rollback of " + op + " is called failed here if it has not settled"
	}
	return "toad: the side that " + op + " replaced is stopped when its connections have ended"
}

// Check is the nth observer of an operation, with the act that systemd starts when it has ended, however it ended.
// The timeout is the monotonic bound of the deadline. It is ordered to no enrolled unit: after the candidate, it would
// wait for the candidate's start job and see nothing of it.
func Check(op string, n int, timeout time.Duration, p Program) Unit {
	next := CheckActName(op, n)
	return Unit{
		Name: CheckName(op, n),
		Properties: append([]sd.Property{
			sd.PropDescription("toad: watches " + op),
			sd.PropType("oneshot"),
			property("NotifyAccess", "main"),                                   // else a oneshot's STATUS= is dropped
			property("TimeoutStartUSec", usec(max(timeout, time.Millisecond))), // 0 would mean for ever
			property("TimeoutStopUSec", usec(stopTimeout)),
			property("OnSuccess", []string{next}),
			property("OnFailure", []string{next}),
			afterBus, collect,
		}, p.runs("check", "--number", strconv.Itoa(max(n, 1)), op)...),
		Aux: []Unit{act(next, "toad: takes the verdict on "+op, op, 0, p)},
	}
}

// Act is a run of toad act for what an operation owes. One that gives no sign of life for longer than silence (ActSilence
// if 0) is killed and made again; it sends WATCHDOG=1 as long as it runs.
//
// The bound is a watchdog because a RuntimeMaxUSec that was extended by EXTEND_TIMEOUT_USEC is back to what it was
// after anybody's daemon-reload, which then kills the act on the spot; and a pull may take its time.
func Act(op string, nanos int64, silence time.Duration, p Program) Unit {
	return act(ActName(op, nanos), "toad: does what "+op+" owes", op, silence, p)
}

// act is the same service whoever starts it: a request, a timer or the end of a check.
func act(name, says, op string, silence time.Duration, p Program) Unit {
	if silence <= 0 {
		silence = ActSilence
	}
	return Unit{
		Name: name,
		Properties: append([]sd.Property{
			sd.PropDescription(says),
			sd.PropType("exec"),
			property("NotifyAccess", "main"),
			property("Restart", "on-failure"),
			property("RestartUSec", usec(time.Second)),
			property("RestartSteps", uint32(5)), // 1 s, 2, 4, 8, 15, 30 s
			property("RestartMaxDelayUSec", usec(30*time.Second)),
			property("StartLimitIntervalUSec", usec(0)),
			property("TimeoutStartUSec", usec(silence)), // the watchdog begins when it has been executed
			property("WatchdogUSec", usec(silence)),
			property("WatchdogSignal", int32(syscall.SIGKILL)), // its SIGABRT would make core dumps
			property("TimeoutStopUSec", usec(stopTimeout)),
			afterBus, collect,
		}, p.runs("act", op)...),
	}
}

// afterBus makes a unit stop before the bus does. When the user manager goes down, all else stops at once, and without
// the bus a unit cannot find out why.
var afterBus = sd.PropAfter("dbus.service")

// collect makes a unit vanish when it is done, also when it failed; a name that stays loaded cannot be used again.
var collect = property("CollectMode", "inactive-or-failed")

// runs are the properties that run toad with these arguments, which the manager leaves as they are.
func (p Program) runs(args ...string) []sd.Property {
	argv := append([]string{p.Exe}, args...)
	return append([]sd.Property{
		property("ExecStartEx", []execEx{{p.Exe, argv, []string{"no-env-expand"}}}),
		property("Environment", p.environment()),
	}, confinement...)
}

// environment is what the program needs to find its files, as NAME=value, in a fixed order.
func (p Program) environment() []string {
	all := map[string]string{}
	maps.Copy(all, p.Env)
	if p.State != "" {
		all["TOAD_STATE"] = p.State
	}
	if p.Enrollment != "" {
		all["TOAD_ENROLLMENT"] = p.Enrollment
	}
	list := []string{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return list
}

// calendar is one element of TimersCalendar, a(ss).
type calendar struct{ Base, Spec string }

// monotonic is one element of TimersMonotonic, a(st).
type monotonic struct {
	Base string
	USec uint64
}

// execEx is one element of ExecStartEx, a(sasas).
type execEx struct {
	Path  string
	Argv  []string
	Flags []string
}

// instant is a calendar spec for one instant, never before it: systemd knows microseconds only.
func instant(t time.Time) string {
	return t.Add(time.Microsecond - 1).UTC().Format("2006-01-02 15:04:05.000000 UTC")
}

func usec(d time.Duration) uint64 { return uint64(d.Microseconds()) }

func property(name string, value any) sd.Property {
	return sd.Property{Name: name, Value: dbus.MakeVariant(value)}
}
