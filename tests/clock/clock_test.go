//go:build e2e

package clock

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
)

// quadlet is a service on a port of its own. An emulated machine has taken more than systemd's 90 s for a start.
const quadlet = `[Container]
Image=%s:v1
PublishPort=127.0.0.1:%d:8080

[Service]
Restart=always
RestartSec=2
TimeoutStartSec=600
TimeoutStopSec=5

[Install]
WantedBy=default.target
`

// enrollment has times that an emulated machine can keep.
const enrollment = `[service.%[1]s]
units = ["%[1]s.container"]
image = "%[2]s"
[service.%[1]s.ready]
http = "http://127.0.0.1:%[3]d/healthz"
interval = "1s"
timeout = "5s"
[service.%[1]s.probation]
deadline = "%[4]s"
stable = "%[5]s"

`

// The healthy candidate is ready long before its deadline and has to be so for a while; the other one never is. Both are to be
// on probation at once, which takes such a machine its time.
const (
	deadline = 20 * time.Minute
	stable   = 2 * time.Minute
	gives    = 3 * time.Minute
)

// service is what is read of a record.
type service struct {
	Operation struct {
		ID, Phase, Code, Reason string
		EndedAt                 time.Time `json:"ended_at"`
		Released                bool
		Deadline                *struct {
			At   time.Time
			Boot time.Duration
		}
		Candidate, Previous struct{ Digest string }
	}
	Refusals []struct{ Operation string }
}

var terminal = []string{"promoted", "rolled_back", "withdrawn", "rollback_failed", "failed"}

func (v *vm) record(t *testing.T, name string, phases ...string) (s service) {
	t.Helper()
	v.until(t, name+" to be "+strings.Join(phases, " or "), "cat .local/state/toad/services/"+name+".json", func(out string) bool {
		s = service{}
		return json.Unmarshal([]byte(out), &s) == nil && slices.Contains(phases, s.Operation.Phase)
	})
	return s
}

// clocks are the wall clock and the time since boot, read at once; their difference changes with a step only.
func (v *vm) clocks(t *testing.T) (wall time.Time, boot time.Duration) {
	t.Helper()
	f := strings.Fields(v.root(t, "echo $(date +%s.%N) $(cut -d' ' -f1 /proc/uptime)"))
	at, err := strconv.ParseFloat(f[0], 64)
	up, err2 := strconv.ParseFloat(f[1], 64)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	return time.UnixMicro(int64(at * 1e6)), time.Duration(up * 1e9)
}

// since turns what the wall clock said into time since boot.
func (v *vm) since(t *testing.T, wall time.Time) time.Duration {
	t.Helper()
	now, boot := v.clocks(t)
	return boot - now.Sub(wall)
}

func (v *vm) deploy(t *testing.T, name, tag string) {
	t.Helper()
	images := host.Images(t)
	v.until(t, name+" to be deployed", fmt.Sprintf("toad deploy %s %s --retry --detach || toad deploy %[1]s %[2]s --detach", name, images[tag].Digest),
		func(out string) bool { return strings.Contains(out, name+"-g") })
}

// began is when the operation's log told of a phase.
func (v *vm) began(t *testing.T, id, phase string) time.Time {
	t.Helper()
	for line := range strings.Lines(v.user(t, "cat .local/state/toad/operations/"+id+".log")) {
		var l struct {
			At    time.Time
			Event string
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.Event == phase {
			return l.At
		}
	}
	t.Fatalf("%s never came to %s", id, phase)
	return time.Time{}
}

// TestTheWallClockIsStepped steps the wall clock by an hour and a day, there and back, while one candidate waits to be stable
// and another one for its deadline; then boots with a clock behind all that is recorded. Within a boot neither is decided
// before its time nor after it; a boot that cannot know the time puts the previous release back.
func TestTheWallClockIsStepped(t *testing.T) {
	if os.Getenv("TOAD_ALL") == "" {
		t.Log("the short form, with a clock that is only said to be stepped, is in probation/rollout")
		return
	}
	v := newVM(t)
	v.boot(t, time.Time{})
	v.write(t, ".config/containers/systemd/web.container", fmt.Sprintf(quadlet, host.Repository, 8080))
	v.write(t, ".config/containers/systemd/late.container", fmt.Sprintf(quadlet, host.Repository, 8081))
	v.write(t, ".config/toad/enrollment.toml", fmt.Sprintf(enrollment, "web", host.Repository, 8080, deadline, stable)+
		fmt.Sprintf(enrollment, "late", host.Repository, 8081, gives, time.Second))
	v.user(t, "systemctl --user daemon-reload; systemctl --user start --no-block web.service late.service")
	v.serves(t, 8080, "v1")
	v.serves(t, 8081, "v1")
	v.user(t, "toad setup")

	for i, step := range []time.Duration{-time.Hour, -24 * time.Hour, time.Hour, 24 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) { v.stepped(t, []string{"v2", "v3"}[i%2], step) })
	}
	t.Run("a boot with the clock behind", v.bootBehind)
}

// serves waits until a service answers as a version.
func (v *vm) serves(t *testing.T, port int, version string) {
	t.Helper()
	v.until(t, version+" to be served", fmt.Sprintf("curl -s --max-time 5 http://127.0.0.1:%d/", port), func(out string) bool { return strings.Contains(out, version) })
}

func (v *vm) stepped(t *testing.T, tag string, step time.Duration) {
	v.deploy(t, "web", tag)
	v.deploy(t, "late", "never")
	late, web := v.record(t, "late", "probation"), v.record(t, "web", "probation")
	probation := v.since(t, v.began(t, web.Operation.ID, "probation"))

	v.root(t, fmt.Sprintf("date -s @$(($(date +%%s) + %d))", int(step.Seconds())))

	if name := v.user(t, "cd .local/state/toad/services && jq -r 'select(.operation.phase != \"probation\").operation.id' late.json web.json"); name != "" {
		t.Fatalf("the machine is too slow for this test: %s was decided when the clock was stepped", name)
	}
	end := v.record(t, "web", terminal...)
	if end.Operation.Phase != "promoted" || len(end.Refusals) != 0 {
		t.Errorf("the healthy candidate is %s: %s; refused: %v", end.Operation.Phase, end.Operation.Reason, end.Refusals)
	}
	if took := v.since(t, end.Operation.EndedAt) - probation; took < stable {
		t.Errorf("promoted after %v, want no sooner than after %v", took, stable)
	} else {
		t.Logf("%v: promoted after %v of probation", step, took.Round(time.Second))
	}
	end = v.record(t, "late", terminal...)
	if end.Operation.Phase != "rolled_back" || !end.Operation.Deadline.At.Equal(late.Operation.Deadline.At) {
		t.Errorf("the candidate that is never ready is %s, its deadline %v, which was %v", end.Operation.Phase, end.Operation.Deadline.At, late.Operation.Deadline.At)
	}
	v.serves(t, 8081, "v1")
	over := v.since(t, v.began(t, late.Operation.ID, "restoring")) - late.Operation.Deadline.Boot
	if over < 0 || over > 10*time.Minute { // the step is an hour at least
		t.Errorf("given up %v after its deadline", over)
	} else {
		t.Logf("%v: given up %v after its deadline", step, over.Round(100*time.Millisecond))
	}
}

// bootBehind cuts the power in a probation, and boots as a machine does that has no battery for its clock.
func (v *vm) bootBehind(t *testing.T) {
	before := v.record(t, "web", "promoted")
	v.user(t, "sed -i '0,/stable = .*/s//stable = \"5m\"/' .config/toad/enrollment.toml")
	v.deploy(t, "web", "v2")
	if web := v.record(t, "web", "probation"); web.Operation.Candidate.Digest == before.Operation.Candidate.Digest {
		t.Fatal("that is in force already")
	}
	v.serves(t, 8080, "v2")
	now, _ := v.clocks(t)
	v.cut()
	v.boot(t, now.Add(-30*24*time.Hour))
	web := v.record(t, "web", terminal...)
	if wall, _ := v.clocks(t); !wall.Before(now) {
		t.Fatalf("the machine's clock is not behind: %v", wall)
	}
	if web.Operation.Phase != "rolled_back" || len(web.Refusals) != 0 {
		t.Errorf("it is %s: %s (%s); refused: %v", web.Operation.Phase, web.Operation.Reason, web.Operation.Code, web.Refusals)
	}
	v.serves(t, 8080, "v3")
	if ran := v.root(t, "journalctl -b -o cat --no-pager | grep -c 'container start .*io.toad.operation="+web.Operation.ID+"\\b' || true"); ran != "0" {
		t.Errorf("the candidate was started %s times after the boot", ran)
	}
	t.Logf("after the boot: %s (%s)", web.Operation.Phase, web.Operation.Reason)
}
