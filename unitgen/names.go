// Package unitgen holds the names, properties and texts of every unit that toad makes, and does nothing with them.
package unitgen

import (
	"regexp"
	"strconv"
	"strings"
)

// Kind is what a timer bounds. It is part of the timer's name.
type Kind string

// The three limits of an operation, and the next look at a side that is to be stopped.
const (
	Prepare   Kind = "prepare"
	Probation Kind = "probation"
	Restore   Kind = "restore"
	Drain     Kind = "drain"
)

// TimerName names the nth timer of a kind: toad-probation-web-g7.timer, later toad-probation-web-g7-2.timer.
// It takes a number because an act that a timer started cannot create that name again.
func TimerName(kind Kind, op string, n int) string {
	return "toad-" + string(kind) + "-" + op + number(n) + ".timer"
}

// CheckName names the nth check of an operation: toad-check-web-g7.service, later toad-check-web-g7-2.service.
func CheckName(op string, n int) string {
	return "toad-check-" + op + number(n) + ".service"
}

// CheckActName names the act that systemd starts when the nth check has ended: toad-act-web-g7-c1.service.
func CheckActName(op string, n int) string {
	return "toad-act-" + op + "-c" + strconv.Itoa(max(n, 1)) + ".service"
}

// ActName names an act started for what is owed: toad-act-web-g7-1795982400000000000.service. The wall clock
// in nanoseconds makes it new each time; a name that is still loaded is refused by systemd.
func ActName(op string, nanos int64) string {
	return "toad-act-" + op + "-" + strconv.FormatInt(nanos, 10) + ".service"
}

// number is empty for the first unit of its kind.
func number(n int) string {
	if n <= 1 {
		return ""
	}
	return "-" + strconv.Itoa(n)
}

// OperationVar is the variable by which the pin of a plain unit tells its processes the operation they belong to, as a
// container has a label.
const OperationVar = "TOAD_OPERATION"

// AdmissionVar names the variable of the user manager that admits an operation's candidate: TOAD_ADMITTED_web_g7.
func AdmissionVar(op string) string {
	return "TOAD_ADMITTED_" + strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
			return r
		}
		return '_'
	}, op)
}

// IdleVar names the variable of the user manager that would admit a service's idle side; nobody ever sets it.
func IdleVar(service string) string { return AdmissionVar(service) + "_idle" }

// The service name is greedy, so the generation is the last one that leaves a valid ending.
var transientName = regexp.MustCompile(
	`^toad-(prepare|probation|restore|drain|check|act)-([a-z][a-z0-9-]*-g[0-9]+)(?:-(c?)([0-9]+))?\.(timer|service)$`)

// OperationOf returns the operation that a transient unit belongs to. It knows the names of this package and
// no others: any name it accepts is one that toad gives.
func OperationOf(unit string) (op string, ok bool) {
	m := transientName.FindStringSubmatch(unit)
	if m == nil {
		return "", false
	}
	kind, op, c, digits, ext := m[1], m[2], m[3], m[4], m[5]
	n, err := strconv.ParseInt(digits, 10, 64)
	if digits != "" && err != nil {
		return "", false
	}
	var name string
	switch {
	case kind == "check":
		name = CheckName(op, int(n))
	case kind == "act" && c != "":
		name = CheckActName(op, int(n))
	case kind == "act":
		name = ActName(op, n)
	case ext == "timer":
		name = TimerName(Kind(kind), op, int(n))
	default:
		name = serviceOf(TimerName(Kind(kind), op, int(n)))
	}
	return op, name == unit
}

// serviceOf names the service that a transient timer starts; systemd allows it no other.
func serviceOf(timer string) string {
	return strings.TrimSuffix(timer, ".timer") + ".service"
}

// Patterns are globs that match every transient unit of an operation. They match some of others as well
// (web-g7's also those of web-g7-2-g1), so the caller keeps only names whose OperationOf is op.
func Patterns(op string) []string {
	var globs []string
	for _, kind := range []string{"prepare", "probation", "restore", "drain", "check"} {
		globs = append(globs, "toad-"+kind+"-"+op+".*", "toad-"+kind+"-"+op+"-[0-9]*")
	}
	return append(globs, "toad-act-"+op+"-[0-9c]*")
}
