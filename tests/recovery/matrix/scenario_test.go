//go:build e2e

package matrix

import (
	"strings"
	"testing"

	"toad/tests/scene"
)

// scenario is a course of things whose points are tried.
type scenario struct {
	name string
	ends string // the phase it ends in when nothing is injected
	// few are the actions of which the default run has a cell each; with twice it has a second kill after the power cut.
	few   []string
	twice bool
	// least is how many points there are at least; fewer mean that the trace is broken.
	least int
	// prepare comes before anything is injected; it may begin the operation.
	prepare func(t *testing.T, w *scene.Web)
	// request is what begins the course, or goes on with it; nil for a boot.
	request func(t *testing.T, w *scene.Web) []string
	boot    bool
	not     []string // actions that are not tried
	// beside has two sides (docs/switch.md), on a host of its own; own is the part of its course that is tried.
	beside bool
	own    part
	// only keeps the lines of a trace that are this scenario's to try; nil keeps all.
	only func(trace []passed) []passed
}

var every = []string{Kill, Cut, Error}

var scenarios = []scenario{
	{
		name: "a good release", ends: "promoted", few: every, twice: true, least: 40,
		// Without its bytes on the host, so that they are pulled and kept as at a first time.
		prepare: func(t *testing.T, w *scene.Web) {
			img := w.Image(t, other(t, w))
			w.MustUser(t, "sh", "-c", "podman rmi -f "+img.ID+" >/dev/null 2>&1; rm -f .local/state/toad/images/"+strings.TrimPrefix(img.ID, "sha256:")+".json")
		},
		request: func(t *testing.T, w *scene.Web) []string { return deploy(w.Digest(t, other(t, w))) },
	},
	{
		name: "a bad release", ends: "rolled_back", few: every, twice: true, least: 50,
		prepare: func(t *testing.T, w *scene.Web) { // so that it is pulled each time
			w.MustUser(t, "sh", "-c", "podman rmi -f "+w.Image(t, "crash").ID+" >/dev/null 2>&1 || true")
		},
		request: func(t *testing.T, w *scene.Web) []string { return again(t, w, "crash") },
	},
	{
		name: "a rollback", ends: "promoted", few: []string{Kill}, least: 40,
		request: func(*testing.T, *scene.Web) []string { return []string{"timeout", "60", "toad", "rollback", "web"} },
	},
	{
		name: "a boot in probation", ends: "promoted", few: []string{Cut}, least: 6, boot: true,
		prepare: func(t *testing.T, w *scene.Web) { begin(t, w, other(t, w)) },
		only:    func(trace []passed) []passed { return ofProcess(trace, "bus.SetEnvironment.before") },
	},
	{
		name: "a release given up, its predecessor's image pruned", ends: "rolled_back", few: []string{Cut}, least: 4,
		prepare: func(t *testing.T, w *scene.Web) {
			previous := read(t, w).Promoted.ImageID
			begin(t, w, "never")
			for w.User(t, "podman", "rmi", previous).Exit != 0 && w.User(t, "podman", "image", "exists", previous).Exit == 0 {
				continue // its container is about to go
			}
		},
		request: func(*testing.T, *scene.Web) []string { return []string{"timeout", "60", "toad", "rollback", "web"} },
		only: func(trace []passed) (few []passed) {
			for _, p := range trace {
				if strings.HasPrefix(p.name, "podman.load.") || strings.HasSuffix(p.name, ".abort") {
					few = append(few, p)
				}
			}
			return few
		},
	},
	{
		name: "a good release beside", ends: "promoted", few: []string{Cut}, twice: true, least: 15, beside: true, own: twoSides("file.rename.web.sock"),
		request: func(t *testing.T, w *scene.Web) []string { return deploy(w.Digest(t, other(t, w))) },
	},
	{
		name: "a bad release beside", ends: "rolled_back", least: 15, beside: true, own: twoSides("record.put.restoring"), not: []string{Cut},
		request: func(t *testing.T, w *scene.Web) []string { return again(t, w, "crash") },
	},
}

// twoSides are the points at which the course of two sides is one of its own: the door, the record, what stops and fences the
// side that is not in force, what forgets its failure, and the timer of its drain. Several acts pass them with nothing left to do; two are tried.
func twoSides(from string) part {
	return part{from: from, times: 2, points: []string{
		"file.*.web.sock", "file.*.zz-toad.conf", "record.*", "bus.StopUnit.*", "bus.StartUnit.*", "bus.Reload.*", "bus.StartTransientUnit.*", "bus.ResetFailedUnit.*",
	}}
}

// bad tells that the release is one to be refused.
func (sc scenario) bad() bool { return strings.HasPrefix(sc.name, "a bad release") }

func scenarioOf(name string) scenario {
	for _, sc := range scenarios {
		if sc.name == name {
			return sc
		}
	}
	panic("no scenario " + name)
}

func deploy(digest string) []string {
	return []string{"toad", "deploy", "web", digest, "--detach"}
}

// again deploys what may have been refused before.
func again(t *testing.T, w *scene.Web, tag string) []string {
	t.Helper()
	argv := deploy(w.Digest(t, tag))
	for _, r := range read(t, w).Refusals {
		if r.Release.Digest == w.Digest(t, tag) {
			argv = append(argv, "--retry")
		}
	}
	return argv
}

// begin deploys and waits for the probation.
func begin(t *testing.T, w *scene.Web, tag string) {
	t.Helper()
	w.MustUser(t, again(t, w, tag)...)
	w.WaitPhase(t, "probation")
}

// other is the good release that is not in force.
func other(t *testing.T, w *scene.Web) string {
	if read(t, w).Promoted.Digest == w.Digest(t, "v2") {
		return "v3"
	}
	return "v2"
}

// ofProcess keeps what the process that passes a point has passed.
func ofProcess(trace []passed, point string) (own []passed) {
	process := ""
	for _, p := range trace {
		if p.name == point {
			process = p.process
		}
	}
	for _, p := range trace {
		if p.process == process {
			own = append(own, p)
		}
	}
	return own
}
