package quadlet

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"toad/probation"
)

var (
	serviceName   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,59}$`)
	operationName = regexp.MustCompile(`-g[0-9]+$`)
	unitName      = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*(@[A-Za-z0-9_.-]*)?$`)
)

const (
	// maxUnit leaves room in systemd's 255 bytes for toad-alert@<unit>.service and for <unit>.container.d.
	maxUnit = 200
	// maxSocketPath is what fits into a Unix socket's address, in bytes.
	maxSocketPath = 107
	// minInterval keeps a check from becoming the load it measures.
	minInterval = 100 * time.Millisecond
)

func checkName(t *table, name string) {
	if !serviceName.MatchString(name) {
		t.reader.refuse(t.path, fmt.Sprintf("%q is not a name for a service", name),
			"use a lower-case letter, then at most 59 lower-case letters, digits and -")
		return
	}
	if operationName.MatchString(name) {
		t.reader.refuse(t.path, "a name that ends in -g and a number reads like an operation", "give it another name")
	}
}

func readUnits(t *table) []string {
	before := len(t.found)
	units := t.texts("units")
	beside := t.part("switch").has("beside")
	if beside && t.has("units") {
		t.refuse("units", "does not go with switch.beside, which names the two units there are", "keep one of the two")
	}
	if len(units) == 0 && len(t.found) == before && !beside {
		t.refuse("units", "names no Quadlet file", `write e.g. units = ["web.container"]`)
	}
	for _, unit := range units {
		if what, fix := checkUnit(unit); what != "" {
			t.refuse("units", what, fix)
		}
	}
	return units
}

func checkUnit(unit string) (what, fix string) {
	name, ok := strings.CutSuffix(unit, ".container")
	switch {
	case !ok:
		return fmt.Sprintf("%q does not end in .container", unit), `name the Quadlet file, e.g. "web.container"`
	case strings.Contains(name, "/"):
		return fmt.Sprintf("%q holds a folder", unit), "name the file alone; toad finds it where Podman's generator does"
	case !unitName.MatchString(name):
		return fmt.Sprintf("%q is not a unit name toad takes", unit), "use letters, digits, _ . - and at most one @, and start with a letter, a digit or _"
	case len(unit) > maxUnit:
		return fmt.Sprintf("is longer than %d bytes", maxUnit), "give the file a shorter name"
	case strings.HasSuffix(name, "@"):
		return fmt.Sprintf("%q is a template, which cannot run by itself", unit),
			fmt.Sprintf("link an instance (ln -s %s %sa.container) and name that", unit, name)
	}
	return "", ""
}

func readImage(t *table) string {
	ref, ok := t.text("image")
	if !ok {
		if !t.has("image") {
			t.refuse("image", "is missing", `write the repository, e.g. image = "registry.example.org/team/web"`)
		}
		return ""
	}
	repo, tag, digest, err := Repository(ref)
	switch {
	case err != nil:
		t.refuse("image", err.Error(), "write the repository alone, in full")
	case tag != "" || digest != "":
		t.refuse("image", "has a tag or a digest", fmt.Sprintf("write %q; each deployment names its digest", repo))
	}
	return repo
}

func checkHTTP(address string) (what, fix string) {
	const form = "write http://host:port/path or http+unix:///run/x.sock:/path"
	if rest, ok := strings.CutPrefix(address, "http+unix://"); ok {
		socket, path, ok := strings.Cut(rest, ":")
		if !ok || !strings.HasPrefix(path, "/") {
			return "names no path behind the socket", form
		}
		return checkSocketPath(socket)
	}
	u, err := url.Parse(address)
	switch {
	case err != nil: // its text repeats the address
		return "is not an address", form
	case u.User != nil:
		return "holds a user name or password", "take it out: readiness is asked without credentials"
	case u.Scheme == "https":
		return "is an https address", "name the plain http port: readiness is asked on this host"
	case u.Scheme != "http" || u.Opaque != "":
		return "is not an http address", form
	case u.Hostname() == "":
		return "names no host", form
	case strings.HasSuffix(u.Host, ":") || u.Port() != "" && !validPort(u.Port()):
		return "has no valid port", form
	case u.Fragment != "":
		return "has a part behind #, which is never sent", "take it out"
	}
	return "", ""
}

func checkTCP(address string) (what, fix string) {
	const form = `write "host:port", e.g. "127.0.0.1:5432"`
	if strings.ContainsAny(address, "@/") {
		return "is more than a host and a port", form
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || !validPort(port) {
		return "is not a host and a port", form
	}
	return "", ""
}

func checkSocketPath(path string) (what, fix string) {
	switch {
	case strings.Contains(path, "://") || !filepath.IsAbs(path) || strings.ContainsAny(path, "\x00\r\n"):
		return "is not the absolute path of a socket", `write e.g. "/run/user/1000/web.sock"`
	case len(path) > maxSocketPath:
		return fmt.Sprintf("is longer than the %d bytes a socket's path may have", maxSocketPath), "move the socket to a shorter path"
	}
	return "", ""
}

func checkSocketUnit(unit string) (what, fix string) {
	name, ok := strings.CutSuffix(unit, ".socket")
	if !ok || !unitName.MatchString(name) || strings.HasSuffix(name, "@") || len(unit) > maxUnit {
		return fmt.Sprintf("%q is not a socket unit", unit), `write e.g. hold = "web.socket"`
	}
	return "", ""
}

func checkFileName(path string) (what, fix string) {
	switch {
	case strings.Contains(path, "://"): // an address is a secret: it is not repeated
		return "is an address", "put the address into a file of mode 0600 and name the file"
	case path == "" || strings.ContainsAny(path, "\x00\r\n"):
		return "is not a file", "name a file of mode 0600 that holds the address"
	}
	return "", ""
}

func checkKinds(t *table, r probation.Ready) {
	var kinds []string
	for _, kind := range []string{"http", "tcp", "unix"} {
		if t.has(kind) {
			kinds = append(kinds, kind)
		}
	}
	if r.Health {
		kinds = append(kinds, "health")
	}
	if r.Notify {
		kinds = append(kinds, "notify")
	}
	if len(kinds) > 1 {
		t.refuse(kinds[1], "is a second kind of readiness beside "+kinds[0], "keep one of "+strings.Join(kinds, ", "))
	}
	if t.has("status") && !t.has("http") {
		t.refuse("status", "has a meaning with http only", "take it out")
	}
}

// checkTimes judges the durations against each other: a window that cannot be reached before the deadline would roll
// back every release.
func checkTimes(t *table, e probation.Enrollment) {
	r, l := e.Ready, e.Limit
	if r.Interval < minInterval {
		t.refuse("ready.interval", fmt.Sprintf("%s is shorter than %s", r.Interval, minInterval), "ask less often")
	}
	if l.Stable < r.Interval {
		t.refuse("probation.stable", fmt.Sprintf("%s is shorter than the interval of %s", l.Stable, r.Interval),
			"make it several intervals long, so that more than one sample counts")
	}
	if least := l.Stable + r.Interval + r.Timeout; l.Deadline < least {
		t.refuse("probation.deadline", fmt.Sprintf("%s is shorter than stable + interval + timeout, %s: no release could pass", l.Deadline, least),
			"make it several times as long")
	}
	if e.Door != nil && l.Pull <= e.Door.Drain {
		t.refuse("switch.drain", fmt.Sprintf("%s is not shorter than probation.pull, %s, and the preparation waits for it", e.Door.Drain, l.Pull),
			"make pull longer, or drain shorter")
	}
	if l.Pull < time.Second {
		t.refuse("probation.pull", fmt.Sprintf("%s is too short to pull anything", l.Pull), `write e.g. "10m"`)
	}
}

// checkClaims refuses what two services cannot share: each would undo the other's pin.
func checkClaims(r *reader, services []probation.Enrollment) {
	units, sockets := map[string]string{}, map[string]string{}
	for _, e := range services {
		key := ".units"
		if e.Door != nil {
			key = ".switch.beside"
			claim(r, sockets, e.Door.Socket, e.Name, "service."+e.Name+".switch.door")
		}
		for _, unit := range e.Units {
			claim(r, units, unit, e.Name, "service."+e.Name+key)
		}
		if e.Hold != "" {
			claim(r, sockets, e.Hold, e.Name, "service."+e.Name+".switch.hold")
		}
	}
}

func claim(r *reader, owners map[string]string, unit, service, key string) {
	owner, taken := owners[unit]
	if !taken {
		owners[unit] = service
		return
	}
	by := "service " + owner
	if owner == service {
		by = "this service"
	}
	r.refuse(key, fmt.Sprintf("%s is claimed by %s already", unit, by), "let one service name it, once")
}
