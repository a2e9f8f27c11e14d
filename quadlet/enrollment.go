// Package quadlet ties a unit to a release and proves it: it reads the operator's enrollment and Quadlet files without
// ever changing them, writes and removes toad's one drop-in per unit, and holds what systemd loaded against it.
package quadlet

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pelletier/go-toml/v2"

	"toad/probation"
)

// File is the operator's enrollment: the services, sorted by name, and where alerts go.
type File struct {
	Path     string
	Text     []byte // as it was read
	Services []probation.Enrollment
	Alerts   Alerts
}

// Alerts says where an alert is sent. Both, one or none may be set.
type Alerts struct {
	WebhookFile string   // absolute path of a 0600 file that holds the address
	Command     []string // argv; the alert comes as JSON on stdin
}

// Service returns the enrollment of one service.
func (f *File) Service(name string) (probation.Enrollment, bool) {
	i, ok := slices.BinarySearchFunc(f.Services, name, func(e probation.Enrollment, name string) int { return strings.Compare(e.Name, name) })
	if !ok {
		return probation.Enrollment{}, false
	}
	return f.Services[i], true
}

// maxFile bounds an enrollment file, in bytes; a thousand services fit into a tenth of it.
const maxFile = 1 << 20

// Load reads the enrollment file at path. A file that others could write is refused: it decides what runs. A missing
// file is fs.ErrNotExist; what the text says wrong comes all at once, as Problems.
func Load(path string) (*File, error) { return load(path, false) }

func load(path string, brought bool) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe must not hold the reader up
	switch {
	case errors.Is(err, fs.ErrPermission):
		return nil, Problems{{File: path, What: "cannot be read: permission denied", Fix: "make it readable for the user toad runs as"}}
	case err != nil:
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat() // of the open file: the name may have been given to another since
	if err != nil {
		return nil, err
	}
	if err := checkOwner(path, info); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	return parse(path, data, brought)
}

func checkOwner(path string, info os.FileInfo) error {
	var found Problems
	if !info.Mode().IsRegular() {
		return Problems{{File: path, What: "is not a regular file", Fix: "put the enrollment into a file"}}
	}
	if mode := info.Mode().Perm(); mode&0o022 != 0 {
		found = append(found, Problem{File: path, What: fmt.Sprintf("others may write it (mode %04o), and it decides what runs", mode),
			Fix: "chmod go-w " + path})
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if ok && stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		found = append(found, Problem{File: path, What: fmt.Sprintf("belongs to user %d", stat.Uid),
			Fix: "chown it to root or to the user toad runs as"})
	}
	return found.err()
}

// Parse reads an enrollment from its text. path is used in messages, and a relative webhook_file is taken from its
// folder. All that can be judged from the text alone is judged; the error is Problems.
func Parse(path string, data []byte) (*File, error) { return parse(path, data, false) }

func parse(path string, data []byte, brought bool) (*File, error) {
	if len(data) > maxFile {
		return nil, Problems{{File: path, What: fmt.Sprintf("is larger than %d bytes", maxFile), Fix: "is it the right file?"}}
	}
	var root map[string]any
	if err := toml.Unmarshal(data, &root); err != nil {
		return nil, Problems{syntaxProblem(path, err)}
	}
	r := &reader{file: path, lines: keyLines(data), brought: brought}
	out := &File{Path: path, Text: data}
	top := r.table("", root)
	for name, service := range top.tables("service") {
		out.Services = append(out.Services, readService(name, service))
	}
	if alerts, ok := top.table("alerts"); ok {
		out.Alerts = readAlerts(filepath.Dir(path), alerts)
	}
	top.refuseTheRest()
	slices.SortFunc(out.Services, func(a, b probation.Enrollment) int { return strings.Compare(a.Name, b.Name) })
	checkClaims(r, out.Services)
	if err := r.err(); err != nil {
		return nil, err
	}
	return out, nil
}

func syntaxProblem(path string, err error) Problem {
	p := Problem{File: path, What: strings.TrimPrefix(err.Error(), "toml: "), Fix: "see toml.io for the syntax"}
	var decode *toml.DecodeError
	if errors.As(err, &decode) {
		p.Line, _ = decode.Position()
	}
	return p
}

func readService(name string, t *table) probation.Enrollment {
	defer t.refuseTheRest()
	checkName(t, name)
	e := probation.Enrollment{Name: name}
	if kind, ok := t.text("kind"); ok {
		if e.Kind = kind; kind != probation.KindBinary {
			t.refuse("kind", fmt.Sprintf("%q is not a kind of service", kind), `leave it out for a container, or write "binary"`)
		}
	}
	if e.Binary() {
		e.Units = readPlainUnits(t)
		if t.has("image") {
			e.Image = readImage(t)
		}
		if t.part("switch").has("beside") {
			t.refuse("switch.beside", "is for containers: a binary service has one unit", "take it out; hold keeps the port while it is replaced")
		}
	} else {
		e.Units = readUnits(t)
		e.Image = readImage(t)
	}
	readSwitch(t.part("switch"), &e)
	e.Ready = readReady(t.part("ready"), e.Door != nil)
	e.Limit = readLimits(t.part("probation"))
	if e.Binary() && e.Ready.Health {
		t.refuse("ready.health", "is Podman's health check, and no container runs", "use http, tcp, unix or notify")
	}
	checkTimes(t, e)
	readTexts(t, &e)
	return e
}

// readReady fills the defaults too, so that an operation's copy of an enrollment says all there is.
func readReady(t *table, sided bool) probation.Ready {
	defer t.refuseTheRest()
	address := func(check func(string) (what, fix string)) func(string) (what, fix string) { return check }
	if sided {
		address = ofSide
	}
	var r probation.Ready
	r.HTTP = t.checked("http", address(checkHTTP))
	r.TCP = t.checked("tcp", address(checkTCP))
	r.Unix = t.checked("unix", address(checkSocketPath))
	r.Health = t.boolean("health")
	r.Notify = t.boolean("notify")
	r.Status = t.number("status", 0, 100, 599)
	r.Interval = t.duration("interval", probation.DefaultInterval)
	r.Timeout = t.duration("timeout", probation.DefaultTimeout)
	checkKinds(t, r)
	return r
}

func readLimits(t *table) probation.Limits {
	defer t.refuseTheRest()
	return probation.Limits{
		Deadline: t.duration("deadline", probation.DefaultDeadline),
		Stable:   t.duration("stable", probation.DefaultStable),
		Restarts: t.number("restarts", 0, 0, 1000),
		Pull:     t.duration("pull", probation.DefaultPull),
		Keep:     t.number("keep", probation.DefaultKeep, 1, 100),
	}
}

func readAlerts(dir string, t *table) Alerts {
	defer t.refuseTheRest()
	var a Alerts
	if a.WebhookFile = t.checked("webhook_file", checkFileName); a.WebhookFile != "" && !filepath.IsAbs(a.WebhookFile) {
		a.WebhookFile = filepath.Join(dir, a.WebhookFile)
	}
	a.Command = t.texts("command")
	if t.has("command") && (len(a.Command) == 0 || !filepath.IsAbs(a.Command[0])) {
		t.refuse("command", "does not start with the absolute path of a program", `write e.g. ["/usr/local/bin/notify"]`)
	}
	return a
}

// maxSpan is the longest any duration of an enrollment may be: what takes longer is a typing error.
const maxSpan = 24 * time.Hour
