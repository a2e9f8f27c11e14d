//go:build e2e

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"toad/tests/bench/load"
	"toad/tests/host"
)

// lab is a host with the service web enrolled, set up and deployed once.
type lab struct {
	*host.Host
	rounds int
	good   string // version that is in force as web
	cgroup string // of the host

	ahead        bool // of all else on the machine
	asked, noisy int  // how often the machine was waited for, and in vain
}

const webQuadlet = `[Container]
Image=127.0.0.1:5000/app:v1
PublishPort=127.0.0.1:8080:8080

[Service]
Restart=always
RestartSec=1
TimeoutStopSec=3

[Install]
WantedBy=default.target
`

func newLab(b *bench, rounds int) *lab {
	l := &lab{Host: host.Up(b, host.Options{}), rounds: rounds}
	cgroup, err := exec.Command("scripts/testhost", "cgroup", l.Name).Output()
	if err != nil {
		b.Fatalf("scripts/testhost cgroup: %v; run this from the project's folder", err)
	}
	l.cgroup = strings.TrimSpace(string(cgroup))
	installSelf(b, l.Host)
	l.WriteFile(b, "~/.config/containers/systemd/web.container", webQuadlet, 0o644)
	l.enroll(b, "60s", "1s")
	l.MustUser(b, "systemctl", "--user", "daemon-reload")
	l.MustUser(b, "systemctl", "--user", "start", "web.service")
	l.MustUser(b, "toad", "setup")
	l.deployGood(b, "first")
	return l
}

// installSelf puts this very program into a host, for what has to run there.
func installSelf(b *bench, h *host.Host) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		b.Fatal(err)
	}
	h.WriteFile(b, "/usr/local/bin/bench", string(program), 0o755)
}

// enroll sets the limits of the next deployments; the probe has its default interval and timeout.
func (l *lab) enroll(b *bench, deadline, stable string) {
	l.WriteFile(b, "~/.config/toad/enrollment.toml", fmt.Sprintf(`[service.web]
units = ["web.container"]
image = "%s"

[service.web.ready]
http = "http://127.0.0.1:8080/healthz"

[service.web.probation]
deadline = "%s"
stable = "%s"
`, host.Repository, deadline, stable), 0o644)
}

// deployGood brings a new good release into force and waits until nothing of it is under way.
func (l *lab) deployGood(b *bench, version string) {
	img := l.Push(b, version, "good", version)
	l.MustUser(b, "toad", "deploy", "web", img.Digest)
	l.settle(b)
	l.good = version
}

// record is the part of services/web.json that is looked at.
type record struct {
	Operation struct {
		ID, Phase          string
		AcceptedAt         time.Time `json:"accepted_at"`
		Released, Retained bool
		Deadline           *struct{ At time.Time }
	}
}

func (l *lab) record(b *bench) (r record) {
	text := l.ReadFile(b, "~/.local/state/toad/services/web.json")
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		b.Fatalf("%v in %s", err, text)
	}
	return r
}

// waitPhase waits until the latest operation is in one of the phases.
func (l *lab) waitPhase(b *bench, phases ...string) {
	host.Eventually(b, "the operation to be "+strings.Join(phases, " or "), time.Minute, func() bool {
		have := l.record(b).Operation.Phase
		for _, p := range phases {
			if p == have {
				return true
			}
		}
		return false
	})
}

// settle waits until the latest operation has ended and owes nothing, and the units that served it are gone.
func (l *lab) settle(b *bench) {
	l.waitPhase(b, "promoted", "rolled_back", "withdrawn", "failed", "rollback_failed")
	host.Eventually(b, "the operation to let go of everything", time.Minute, func() bool {
		op := l.record(b).Operation
		return op.Released && (op.Phase != "promoted" || op.Retained) && l.MustUser(b, "systemctl", "--user", "list-units", "--all",
			"--plain", "--no-legend", "toad-act-*", "toad-check-*", "toad-prepare-*", "toad-probation-*", "toad-restore-*") == ""
	})
}

// moments are when the operation's log says that each thing happened first.
func (l *lab) moments(b *bench, id string) map[string]time.Time {
	at := map[string]time.Time{}
	for line := range strings.Lines(l.ReadFile(b, "~/.local/state/toad/operations/"+id+".log")) {
		var one struct {
			At    time.Time
			Event string
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil {
			b.Fatal(err)
		}
		if _, there := at[one.Event]; !there {
			at[one.Event] = one.At
		}
	}
	return at
}

// stamps are a unit's timestamps as systemd keeps them.
func (l *lab) stamps(b *bench, unit string) map[string]time.Time {
	at := map[string]time.Time{}
	out := l.MustUser(b, "systemctl", "--user", "show", "--timestamp=us+utc", "-p",
		"ActiveExitTimestamp,InactiveExitTimestamp,ExecMainStartTimestamp", unit)
	for line := range strings.Lines(out) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		t, err := time.Parse("Mon 2006-01-02 15:04:05.000000 MST", value)
		if err != nil {
			b.Fatalf("%s of %s: %v", key, unit, err)
		}
		at[strings.TrimSuffix(key, "Timestamp")] = t
	}
	return at
}

// generator is a load that runs until it is stopped.
type generator struct {
	cmd    *exec.Cmd
	cancel context.CancelFunc
	stdin  io.Closer
	out    bytes.Buffer
}

const rate = 100 // requests per second

func startLoad(b *bench, h *host.Host, port int) *generator { return startLoadAt(b, h, port, rate) }

func startLoadAt(b *bench, h *host.Host, port, rate int) *generator {
	ctx, cancel := context.WithTimeout(context.Background(), load.MaxTime+time.Minute)
	g := &generator{cancel: cancel}
	g.cmd = h.Command(ctx, b, "bench", "inside", "load", fmt.Sprintf("http://127.0.0.1:%d/healthz", port), fmt.Sprint(rate))
	g.cmd.Stdout, g.cmd.Stderr = &g.out, &g.out
	stdin, err := g.cmd.StdinPipe()
	if err == nil {
		g.stdin = stdin
		err = g.cmd.Start()
	}
	if err != nil {
		b.Fatalf("load: %v", err)
	}
	return g
}

// stop ends the load and returns what came of it.
func (g *generator) stop(b *bench) []load.Answer {
	defer g.cancel()
	_ = g.stdin.Close()
	if err := g.cmd.Wait(); err != nil {
		b.Fatalf("load: %v\n%s", err, &g.out)
	}
	var all []load.Answer
	if err := json.Unmarshal(g.out.Bytes(), &all); err != nil {
		b.Fatalf("load: %v\n%s", err, &g.out)
	}
	return all
}

// machine names what the figures were measured on.
func (l *lab) machine(b *bench) []string {
	first := func(s string) string { s, _, _ = strings.Cut(s, "\n"); return s }
	cpu := "?"
	for line := range strings.Lines(l.ReadFile(b, "/proc/cpuinfo")) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			cpu = strings.TrimSpace(strings.TrimLeft(name, "\t :"))
			break
		}
	}
	commit, _ := exec.Command("git", "log", "-1", "--format=%h", "--", "tests/bench").Output()
	return []string{
		fmt.Sprintf("Machine: %d cores (%s), %s, Linux %s", runtime.NumCPU(), cpu, memory(), first(l.MustExec(b, "uname", "-r"))),
		fmt.Sprintf("Host: %s, %s, %s; the harness at %s", first(l.MustExec(b, "systemctl", "--version")),
			first(l.MustExec(b, "podman", "--version")), first(l.MustUser(b, "toad", "version")), strings.TrimSpace(string(commit))),
	}
}

func memory() string {
	text, _ := os.ReadFile("/proc/meminfo")
	var kb int
	_, _ = fmt.Sscanf(string(text), "MemTotal: %d kB", &kb)
	return fmt.Sprintf("%.0f GB", float64(kb)/1e6)
}

func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	f := strings.Fields(string(text))
	return strings.Join(f[:min(3, len(f))], " ")
}

// cpu is how much CPU a cgroup of the user manager has used; 0 when it is gone.
func (l *lab) cpu(under string) time.Duration {
	text, _ := os.ReadFile(filepath.Join(l.cgroup, "user.slice/user-1000.slice/user@1000.service", under, "cpu.stat"))
	var us int64
	_, _ = fmt.Sscanf(string(text), "usage_usec %d", &us)
	return time.Duration(us) * time.Microsecond
}

// patience is how many half seconds a measurement waits for a quieter machine.
const patience = 10

// noise tells what else the machine had to do.
func (l *lab) noise(atStart string) string {
	s := fmt.Sprintf("Noise: load average %s before anything of ours ran, %s at the end; %d of %d measurements began while others kept the "+
		"machine more than half busy", atStart, loadAverage(), l.noisy, l.asked)
	if l.ahead {
		s += fmt.Sprintf("; the hosts had %d times the CPU share of anything else", shares/1024)
	}
	return s
}

// quiet waits a while for others to leave the machine alone, and counts where they do not.
func (l *lab) quiet(b *bench) {
	l.asked++
	for range patience {
		if busy() < 50 {
			return
		}
		if l.ahead {
			break // it need not wait, only tell
		}
	}
	l.noisy++
}

// busy is how much of the machine's time was used in the next half second, in percent.
func busy() float64 {
	before, idle := ticks()
	time.Sleep(500 * time.Millisecond)
	after, idleAfter := ticks()
	return 100 - 100*float64(idleAfter-idle)/float64(max(after-before, 1))
}

func ticks() (all, idle uint64) {
	text, _ := os.ReadFile("/proc/stat")
	first, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(first)[1:] {
		var n uint64
		_, _ = fmt.Sscan(f, &n)
		all += n
		if i == 3 || i == 4 {
			idle += n
		}
	}
	return all, idle
}
