//go:build e2e

package rehearsal

import (
	"os"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	// web is good whatever its image is; worker is what the image is, and has no port.
	webUnit = `[Container]
Image={image}
Exec=good
PublishPort=127.0.0.1:8080:8080

[Service]
Restart=always
RestartSec=15
TimeoutStopSec=3

[Install]
WantedBy=default.target
`
	workerUnit = `[Unit]
After=web.service

[Container]
Image={image}

[Service]
Restart=always
RestartSec=15
TimeoutStopSec=3

[Install]
WantedBy=default.target
`
	containers = "~/.config/containers/systemd/"
)

// duo is a host on which the service web has two units; a third has the same image and is nobody's.
type duo struct{ *scene.Web }

func newDuo(t *testing.T) duo {
	t.Helper()
	image := func(unit string) string { return strings.ReplaceAll(unit, "{image}", host.Repository+":v1") }
	d := duo{scene.New(t, scene.Options{Faults: true, Quadlet: webUnit, Ready: ready, Limits: limits, Files: map[string]string{
		containers + "worker.container":    image(workerUnit),
		containers + "neighbour.container": image(workerUnit)}})}
	d.WriteFile(t, "~/.config/toad/enrollment.toml", strings.Replace(d.ReadFile(t, "~/.config/toad/enrollment.toml"),
		`["web.container"]`, `["web.container", "worker.container"]`, 1), 0o644)
	d.MustUser(t, "systemctl", "--user", "start", "--no-block", "worker.service", "neighbour.service")
	host.Eventually(t, "all units to run", time.Minute, func() bool {
		return d.image(t, "web") != "" && d.image(t, "worker") != "" && d.image(t, "neighbour") != ""
	})
	return d
}

// image is the id of the image that a container of a unit runs now; empty when there is none.
func (d duo) image(t *testing.T, unit string) string {
	t.Helper()
	return strings.TrimSpace(d.User(t, "podman", "ps", "--filter", "name=^systemd-"+unit+"$", "--format", "{{.ImageID}}").Stdout)
}

// both asserts that the two units run a release, and that its pins are theirs.
func (d duo) both(t *testing.T, tag string) {
	t.Helper()
	want := strings.TrimPrefix(d.Image(t, tag).ID, "sha256:")
	host.Eventually(t, "both units to run "+tag, time.Minute, func() bool {
		web, worker := d.image(t, "web"), d.image(t, "worker")
		return web != "" && worker != "" && strings.HasPrefix(want, web) && strings.HasPrefix(want, worker)
	})
	pins := d.MustUser(t, "sh", "-c", "cat .config/containers/systemd/*.container.d/zz-toad.conf | sed -n 's/^Image=//p' | sort -u")
	if strings.Contains(pins, "\n") || !strings.Contains(pins, d.Digest(t, tag)) && !strings.Contains(pins, want) {
		t.Errorf("the pins name %s, want %s of both units", pins, tag)
	}
}

// Two units are switched, judged and put back as one, and a third that shares their image is left alone.
func TestTwoUnitsAreOneService(t *testing.T) {
	t.Parallel()
	d := newDuo(t)
	alone := d.Show(t, "neighbour.service", "InvocationID")
	invocations := func() string { return d.Invocation(t) + " " + d.Show(t, "worker.service", "InvocationID") }

	was := invocations()
	d.MustDeploy(t, 0, "v2")
	d.both(t, "v2")
	for _, id := range strings.Fields(was) {
		if strings.Contains(invocations(), id) {
			t.Error("a unit was not switched")
		}
	}

	// The second fails where the first, which is asked, is ready: a failure of any is one of all.
	r := d.MustDeploy(t, 3, "crash")
	if !strings.Contains(r.Stdout+r.Stderr, "worker.service") {
		t.Errorf("it is not said which unit failed:\n%s%s", r.Stdout, r.Stderr)
	}
	d.both(t, "v2")
	was = invocations()
	d.MustDeploy(t, 5, "crash")
	if now := invocations(); now != was {
		t.Errorf("a refused release restarted something: %s, then %s", was, now)
	}
	d.Quiet(t)

	if now := d.Show(t, "neighbour.service", "InvocationID"); now != alone {
		t.Errorf("a unit that is not enrolled was restarted: %s, then %s", alone, now)
	}

	// Cut short when one of the two was moved, there or back: both end on the same release.
	for _, tt := range []struct {
		fault, release, want, phase string
		long                        bool
	}{
		{"bus.RestartUnit.after 1 kill", "v3", "v3", "promoted", false},
		{"bus.RestartUnit.after 1 cut", "crash --retry", "v3", "rolled_back", true},
		{"bus.RestartUnit.after 3 kill", "crash --retry", "v3", "rolled_back", true}, // the first of the restore
		{"bus.RestartUnit.after 3 cut", "crash --retry", "v3", "rolled_back", false},
	} {
		if tt.long && os.Getenv("TOAD_ALL") == "" {
			continue
		}
		t.Run(tt.release+" at "+tt.fault, func(t *testing.T) { d.interrupted(t, tt.fault, tt.release, tt.want, tt.phase) })
	}
	if left := d.MustUser(t, "sh", "-c", "ls -A .config/containers/systemd/neighbour.container.d 2>/dev/null || true"); left != "" {
		t.Errorf("a unit that is not enrolled has %s", left)
	}
	if image := d.image(t, "neighbour"); !strings.HasPrefix(strings.TrimPrefix(d.Image(t, "v1").ID, "sha256:"), image) || image == "" {
		t.Errorf("a unit that is not enrolled runs %q", image)
	}
}

// interrupted deploys a release during which something happens once the first unit is moved.
func (d duo) interrupted(t *testing.T, fault, release, want, phase string) {
	t.Helper()
	const file = "~/.local/state/toad/fault"
	tag, flags, _ := strings.Cut(release, " ")
	d.WriteFile(t, file, fault+"\n", 0o600)
	argv := append([]string{"toad", "deploy", "web", d.Digest(t, tag), "--detach"}, strings.Fields(flags)...)
	d.MustUser(t, argv...)
	host.Eventually(t, fault+" to be met", time.Minute, func() bool { return d.User(t, "sh", "-c", "test ! -e "+file).Exit == 0 })
	if strings.HasSuffix(fault, "cut") {
		host.Eventually(t, "the power to be cut", time.Minute, func() bool { return d.User(t, "sh", "-c", "test -e "+file+".cut").Exit == 0 })
		d.MustUser(t, "sh", "-c", "rm "+file+".cut")
		d.Crash(t)
	}
	if now := d.WaitPhase(t, "promoted", "rolled_back", "failed", "withdrawn", "rollback_failed"); now != phase {
		t.Fatalf("it ended %s, want %s\n%s", now, phase, d.Log(t))
	}
	d.both(t, want)
	d.Quiet(t)
}
