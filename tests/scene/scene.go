//go:build e2e

package scene

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
)

// Web is a host with the service web.
type Web struct {
	*host.Host
	source, quadlet string // the operator's file, and what stands in it
	is              string // the first lines of the enrollment; those of a container if empty
}

// record is what toad keeps of the service.
const record = "~/.local/state/toad/services/web.json"

// Options are what differs; the zero value is a running v1 with a short window, and a deadline that a busy machine keeps.
type Options struct {
	Host    host.Options
	Tag     string // the image that runs before; v1
	Stopped bool   // nothing runs before
	Quadlet string // text of web.container; {image} stands for the image
	Limits  string // lines of [service.web.probation]
	Ready   string // lines of [service.web.ready]
	Files   map[string]string
	Faults  bool // the binary with fault points
}

// Quadlet is the usual web.container.
const Quadlet = `# the operator's file
[Unit]
Description=web

[Container]
Image={image}
PublishPort=127.0.0.1:8080:8080

[Service]
Restart=always
RestartSec=1
TimeoutStopSec=3

[Install]
WantedBy=default.target
`

// New boots a host and brings the scene up.
func New(t *testing.T, o Options) *Web {
	t.Helper()
	w := &Web{Host: host.Up(t, o.Host)}
	w.Up(t, o)
	return w
}

// Up brings the scene up on a host that is there.
func (w *Web) Up(t *testing.T, o Options) {
	t.Helper()
	or := func(s, usual string) string {
		if s == "" {
			return usual
		}
		return s
	}
	if o.Faults {
		w.Faults(t)
	}
	w.source = "~/.config/containers/systemd/web.container"
	w.quadlet = strings.ReplaceAll(or(o.Quadlet, Quadlet), "{image}", host.Repository+":"+or(o.Tag, "v1"))
	w.WriteFile(t, w.source, w.quadlet, 0o644)
	for name, text := range o.Files {
		w.WriteFile(t, name, text, 0o644)
	}
	w.Enroll(t, or(o.Ready, `http = "http://127.0.0.1:8080/healthz"`+"\ninterval = \"200ms\"\ntimeout = \"1s\""),
		or(o.Limits, "deadline = \"60s\"\nstable = \"1s\""))
	w.MustUser(t, "systemctl", "--user", "daemon-reload")
	if !o.Stopped {
		// On a busy machine the very first start of a container has lost its word to systemd (Result=protocol); like its
		// operator, the scene leaves that to Restart=always.
		w.MustUser(t, "systemctl", "--user", "start", "--no-block", "web.service")
		w.Serves(t, or(o.Tag, "v1"))
	}
	setup := []string{"toad", "setup"}
	if shape := os.Getenv("TOAD_SHAPE"); shape != "" { // container: the same suites with the daemon in one of its own
		setup = append(setup, "--shape", shape)
	}
	w.MustUser(t, setup...)
}

// Faults installs the binary with fault points.
func (w *Web) Faults(t *testing.T) {
	t.Helper()
	binary, err := os.ReadFile(filepath.Join(filepath.Dir(os.Getenv("TOAD_BIN")), "toad-faults"))
	if err != nil {
		t.Fatalf("make faults: %v", err)
	}
	w.WriteFile(t, "/usr/local/bin/toad", string(binary), 0o755)
}

// Enroll writes the enrollment of the service web.
func (w *Web) Enroll(t *testing.T, ready, limits string) {
	t.Helper()
	is := w.is
	if is == "" {
		is = "units = [\"web.container\"]\nimage = \"" + host.Repository + "\""
	}
	w.WriteFile(t, "~/.config/toad/enrollment.toml", fmt.Sprintf(`[service.web]
%s

[service.web.ready]
%s

[service.web.probation]
%s
`, is, ready, limits), 0o644)
}

// Deploy runs toad deploy web with the digest of a tag, to its end.
func (w *Web) Deploy(t *testing.T, tag string, flags ...string) host.Result {
	t.Helper()
	return w.User(t, append([]string{"toad", "deploy", "web", w.Digest(t, tag)}, flags...)...)
}

// MustDeploy is Deploy with the exit status that is expected.
func (w *Web) MustDeploy(t *testing.T, exit int, tag string, flags ...string) host.Result {
	t.Helper()
	r := w.Deploy(t, tag, flags...)
	if r.Exit != exit {
		t.Fatalf("toad deploy web %s %v: want exit %d, have %d\n%s%s\n%s", tag, flags, exit, r.Exit, r.Stdout, r.Stderr, w.Log(t))
	}
	return r
}

// Status is what toad status web --json says, as far as the suites look at it.
type Status struct {
	Generation int
	Promoted   *struct {
		Digest     string
		Generation int
	}
	Operation *struct {
		ID, Phase, Code, Reason, Digest string
		Deadline                        *time.Time
	}
	Refusals []struct{ Digest, Reason string }
}

// Phase is the phase of the latest operation; empty before the first.
func (s Status) Phase() string {
	if s.Operation == nil {
		return ""
	}
	return s.Operation.Phase
}

func (w *Web) Status(t *testing.T) Status {
	t.Helper()
	var s Status
	if err := json.Unmarshal([]byte(w.MustUser(t, "toad", "status", "web", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// Record is the operation's record as it lies on disk. Reading it asks nobody.
func (w *Web) Record(t *testing.T) (r struct {
	Generation int
	Operation  struct {
		ID, Phase, Code, Reason string
		Released, Retained      bool
		Candidate, Previous     struct {
			Digest  string
			Digests []string
			ImageID string `json:"image_id"`
		}
		Checks, Timers int
		Deadline       *struct{ At time.Time }
	}
	Refusals []struct{ Operation, Reason, Code string }
}) {
	t.Helper()
	text := w.Look(t, record)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return r
}

// WaitPhase waits until the latest operation is in one of the phases, by its record on disk.
func (w *Web) WaitPhase(t *testing.T, phases ...string) string {
	t.Helper()
	var phase string
	if !host.Within(90*time.Second, func() bool {
		var rec struct{ Operation struct{ Phase string } }
		_ = json.Unmarshal([]byte(w.Look(t, record)), &rec)
		phase = rec.Operation.Phase
		return slices.Contains(phases, phase)
	}) {
		t.Fatalf("the operation is in %q, not in %s\n%s", phase, strings.Join(phases, " or "), w.Log(t))
	}
	return phase
}

// Serves waits until the service answers with a version.
func (w *Web) Serves(t *testing.T, version string) {
	t.Helper()
	var body string
	host.Eventually(t, "web to serve "+version, time.Minute, func() bool {
		var status int
		status, body = w.Get("http://127.0.0.1:8080/")
		return status == 200 && strings.Contains(body, version)
	})
}

// MustServe asserts that the service answers with a version now.
func (w *Web) MustServe(t *testing.T, version string) {
	t.Helper()
	if status, body := w.Get("http://127.0.0.1:8080/"); status != 200 || !strings.Contains(body, version) {
		t.Fatalf("want %s served, have %d %q\n%s", version, status, body, w.Log(t))
	}
}

// Invocation of the unit web.service.
func (w *Web) Invocation(t *testing.T) string { return w.Show(t, "web.service", "InvocationID") }

// ImageID of the running container, as the fixtures spell it.
func (w *Web) ImageID(t *testing.T) string {
	return "sha256:" + w.MustUser(t, "podman", "inspect", "--format", "{{.Image}}", "systemd-web")
}

// Log is the operation's log, for messages.
func (w *Web) Log(t *testing.T) string {
	return w.User(t, "sh", "-c", "toad log web; systemctl --user list-units --all 'toad-*' 'web*' --no-pager; journalctl --user -n 60 -o cat --no-pager").Stdout
}

// Quadlet says what the operator's file is from now on.
func (w *Web) Quadlet(text string) { w.quadlet = text }

// Untouched asserts that the operator's file is byte for byte what it was.
func (w *Web) Untouched(t *testing.T) {
	t.Helper()
	if have := w.ReadFile(t, w.source); have != w.quadlet {
		t.Errorf("the operator's file has changed:\n%s", have)
	}
}

// Folder lists every file under the Quadlet folder with its checksum.
func (w *Web) Folder(t *testing.T) string {
	t.Helper()
	return w.MustUser(t, "sh", "-c", "cd .config/containers/systemd && find . -type f | sort | xargs -r sha256sum")
}

// Quiet waits until the operation has let go of everything, and asserts that nothing of it is left: no transient unit,
// no failed unit, no queued job, no admission, no previous pin.
func (w *Web) Quiet(t *testing.T) {
	t.Helper()
	var left string
	if !host.Within(45*time.Second, func() bool {
		left = w.MustUser(t, "sh", "-c", `
			systemctl --user list-units --all --plain --no-legend 'toad-act-*' 'toad-check-*' 'toad-prepare-*' 'toad-probation-*' 'toad-restore-*' 'toad-drain-*'
			systemctl --user list-units --state=failed --plain --no-legend
			systemctl --user list-jobs --plain --no-legend | grep -v '^No jobs' || true
			systemctl --user show-environment | grep TOAD_ || true
			find .config/containers/systemd -name 'zz-toad.previous' -o -name '.toad-tmp*'
			ls .local/share/systemd/timers 2>/dev/null | grep 'stamp-toad-p' || true`)
		return left == ""
	}) {
		t.Fatalf("left behind:\n%s\n%s", left, w.Log(t))
	}
}
