//go:build e2e

// Package recovery kills toad, cuts the power, or fails a call at every point at which it changes the host, and asserts
// that the host ends on one of two releases.
package recovery

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"toad/internal/fault"
	"toad/tests/host"
	"toad/tests/scene"
)

const (
	ready = `http = "http://127.0.0.1:8080/healthz"
interval = "100ms"
timeout = "1s"`
	limits = "deadline = \"15s\"\nstable = \"1s\""

	seed = 20261129
	// sampled is how many points of each scenario and action the default run takes; --all takes every one.
	sampled = 4
)

// scenario is an operation whose every point is tried.
type scenario struct {
	name string
	ends string // the phase it ends in when nothing is injected
	// start begins the operation and does not wait for it; round tells one from the next.
	start func(t *testing.T, w *scene.Web, round int) host.Result
}

var scenarios = []scenario{
	{"a good release", "promoted", func(t *testing.T, w *scene.Web, round int) host.Result {
		return w.Deploy(t, []string{"v2", "v3"}[round%2], "--detach")
	}},
	{"a bad release", "rolled_back", func(t *testing.T, w *scene.Web, _ int) host.Result {
		flags := []string{"--detach"}
		if len(w.Record(t).Refusals) > 0 {
			flags = append(flags, "--retry")
		}
		return w.Deploy(t, "crash", flags...)
	}},
	{"a rollback", "promoted", func(t *testing.T, w *scene.Web, _ int) host.Result {
		return w.User(t, "timeout", "1", "toad", "rollback", "web")
	}},
}

var actions = []string{"kill", "cut", "error"}

// occurrence is one passing of a point: its name and which of its passings it is.
type occurrence struct {
	name string
	n    int
}

func (o occurrence) String() string { return fmt.Sprintf("%s %d", o.name, o.n) }

func TestEveryPointEndsOnOneOfTwoReleases(t *testing.T) {
	for i, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, uint64(i)))
			w := scene.New(t, scene.Options{Faults: true, Ready: ready, Limits: limits})
			w.MustDeploy(t, 0, "v2")
			w.MustDeploy(t, 0, "v3")
			w.Quiet(t)
			points := trace(t, w, sc)
			t.Logf("%d points", len(points))
			round := 1
			for _, action := range actions {
				for _, p := range choose(rnd, points) {
					t.Run(action+" at "+p.String(), func(t *testing.T) {
						inject(t, w, sc, p, action, round)
					})
					round++
				}
			}
		})
	}
}

// choose takes all points for --all, else a seeded few.
func choose(rnd *rand.Rand, points []occurrence) []occurrence {
	if os.Getenv("TOAD_ALL") != "" {
		return points
	}
	var some []occurrence
	for _, i := range rnd.Perm(len(points))[:min(sampled, len(points))] {
		some = append(some, points[i])
	}
	return some
}

// trace runs a scenario once and lists the points that it passes. A point that the table in the code does not have is a
// failure: it would be tried by nobody.
func trace(t *testing.T, w *scene.Web, sc scenario) []occurrence {
	t.Helper()
	w.WriteFile(t, "~/.local/state/toad/fault.trace", "", 0o600)
	sc.start(t, w, 0)
	settle(t, w)
	w.Quiet(t)
	names := strings.Fields(w.MustUser(t, "cat", ".local/state/toad/fault.trace"))
	w.MustUser(t, "rm", ".local/state/toad/fault.trace")
	var all []occurrence
	passed := map[string]int{}
	for _, name := range names {
		if !listed(name) {
			if !strings.HasPrefix(name, "file.") && name != "serve.heartbeat" && name != "retain.blob" {
				t.Errorf("the point %s is not in the table", name)
			}
			continue // a step of a write that another point stands for
		}
		passed[name]++
		all = append(all, occurrence{name, passed[name]})
	}
	if len(all) < 20 {
		t.Fatalf("only %d points were passed: %v", len(all), names)
	}
	return all
}

func listed(name string) bool {
	return slices.ContainsFunc(fault.Points, func(p struct{ Name, What string }) bool {
		ok, _ := path.Match(p.Name, name)
		return ok
	})
}

// settle waits until no operation is under way.
func settle(t *testing.T, w *scene.Web) string {
	t.Helper()
	return w.WaitPhase(t, "promoted", "rolled_back", "withdrawn", "rollback_failed", "failed")
}

// inject runs a scenario with one fault, lets it recover, and asserts what must hold whatever the fault was.
func inject(t *testing.T, w *scene.Web, sc scenario, p occurrence, action string, round int) {
	t.Helper()
	before := w.Record(t)
	w.WriteFile(t, "~/.local/state/toad/fault", fmt.Sprintf("%s %d %s\n", p.name, p.n, action), 0o600)
	r := sc.start(t, w, round)
	if action == "cut" {
		cutPower(t, w)
	}
	host.Eventually(t, "an answer that is not lost", 30*time.Second, func() bool {
		if w.Record(t).Generation > before.Generation {
			return true
		}
		// A fault before the acceptance was saved: nothing is owed, and the same request is taken now.
		r = sc.start(t, w, round)
		return false
	})
	phase := settle(t, w)
	w.User(t, "rm", "-f", ".local/state/toad/fault", ".local/state/toad/fault.cut")
	if phase != sc.ends && !(action == "error" && (phase == "failed" || phase == "rolled_back")) {
		t.Fatalf("it ended %s\n%s%s\n%s", phase, r.Stdout, r.Stderr, w.Log(t))
	}
	holds(t, w, phase)
}

// cutPower waits for the fault to ask for it; a fault that is not met in this run is none.
func cutPower(t *testing.T, w *scene.Web) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(w.Root + host.Home + "/.local/state/toad/fault.cut"); err == nil {
			w.Crash(t)
			return
		}
		if terminal(w.Record(t).Operation.Phase) && w.User(t, "test", "-e", ".local/state/toad/fault").Exit == 0 && time.Until(end) < 10*time.Second {
			return
		}
	}
}

func terminal(phase string) bool {
	switch phase {
	case "promoted", "rolled_back", "withdrawn", "rollback_failed", "failed":
		return true
	}
	return false
}

// holds asserts that the running image is the one that the record names, that it answers, that the operator's file is
// what it was, and that nothing is left.
func holds(t *testing.T, w *scene.Web, phase string) {
	t.Helper()
	rec := w.Record(t)
	want := rec.Operation.Previous.ImageID
	if phase == "promoted" {
		want = rec.Operation.Candidate.ImageID
	}
	var have string
	host.Eventually(t, "the release that the record names to run", 30*time.Second, func() bool {
		have = w.User(t, "podman", "inspect", "--format", "{{.Image}}", "systemd-web").Stdout
		return strings.TrimSpace(have) == want
	})
	host.Eventually(t, "it to answer", 30*time.Second, func() bool {
		status, _ := w.Get("http://127.0.0.1:8080/healthz")
		return status == 200
	})
	pin := w.ReadFile(t, "~/.config/containers/systemd/web.container.d/zz-toad.conf")
	if strings.Contains(pin, "TOAD_ADMITTED") {
		t.Errorf("a decided pin is fenced:\n%s", pin)
	}
	w.Untouched(t)
	// A write that was cut short leaves a hidden temporary file, which nobody reads; toad sweeps it when it is a minute old.
	w.MustUser(t, "find", ".config/containers/systemd", "-name", ".toad-tmp-*", "-delete")
	w.Quiet(t)
}
