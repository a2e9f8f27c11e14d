package agent

import (
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"toad/agent/bao"
	"toad/agent/protocol"
	"toad/agent/transport"
	"toad/internal/redact"
	"toad/tests/control"
)

// The fleet's clock is simulated, and everything else is real: ticks, state files, HTTPS on the loopback, and the figures
// of the timer that toad installs.
const (
	fleetSize = 500
	atOnce    = 8 // ticks that run at the same real time
)

type fleet struct {
	t      *testing.T
	world  *control.World
	boxes  []*lab
	client *http.Client
	every  time.Duration // of the timer
	jitter time.Duration

	mu  sync.Mutex
	now time.Time
}

// timerFigures reads them from the unit that toad setup writes.
func timerFigures(t *testing.T) (every, jitter time.Duration) {
	t.Helper()
	text, err := os.ReadFile("../unitgen/testdata/installed/toad-agent.timer")
	if err != nil {
		t.Fatal(err)
	}
	minutes := regexp.MustCompile(`(?m)^OnCalendar=\*:0/(\d+)$`).FindStringSubmatch(string(text))
	delay := regexp.MustCompile(`(?m)^RandomizedDelaySec=(\S+)$`).FindStringSubmatch(string(text))
	if minutes == nil || delay == nil {
		t.Fatalf("the timer has other settings than this test knows:\n%s", text)
	}
	if every, err = time.ParseDuration(minutes[1] + "m"); err != nil {
		t.Fatal(err)
	}
	if jitter, err = time.ParseDuration(delay[1]); err != nil || jitter < every/2 {
		t.Fatalf("the timer's delay is %s (%v): boxes that come up together would come together", delay[1], err)
	}
	return every, jitter
}

func newFleet(t *testing.T, size int) *fleet {
	t.Helper()
	f := &fleet{t: t, world: control.New(), now: time.Now().Truncate(time.Hour)}
	f.every, f.jitter = timerFigures(t)
	f.world.SetClock(f.clock)
	f.world.Set(env, func(*control.Env) {})
	c, b := f.world.Loopback(t)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(f.world.CA())
	f.client = transport.Client(transport.Direct, roots)
	f.client.Transport.(*http.Transport).MaxIdleConnsPerHost = atOnce
	t.Cleanup(f.client.CloseIdleConnections)
	dir := t.TempDir()
	for i := range size {
		l := bare(t, f.world, env, fmt.Sprintf("box-%d", i), fmt.Sprintf("%s/%d", dir, i))
		l.cfg = Config{Control: c, Bao: b, EnvID: env, Box: l.box, Role: control.Role}
		if err := l.conf.Save(l.cfg); err != nil {
			t.Fatal(err)
		}
		l.grant()
		f.boxes = append(f.boxes, l)
	}
	return f
}

func (f *fleet) clock() time.Time { f.mu.Lock(); defer f.mu.Unlock(); return f.now }

// tick is one start of toad-agent.service on a box.
func (f *fleet) tick(l *lab) {
	secrets := &redact.Redactor{}
	vault, err := bao.New(bao.Config{Address: l.cfg.Bao, HTTP: f.client, EnvID: env, Redactor: secrets})
	if err != nil {
		f.t.Error(err)
		return
	}
	plane, err := protocol.New(protocol.Config{Address: l.cfg.Control, HTTP: f.client, EnvID: env, Box: l.box, Token: vault.Token, Redactor: secrets})
	if err != nil {
		f.t.Error(err)
		return
	}
	a := &Agent{Config: l.cfg, Folder: l.conf, Store: Store{l.state}, Control: plane, Vault: vault, Services: l, Ground: l, Podman: l, Redactor: secrets,
		Version: "test", Now: f.clock, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if outcome, err := a.Tick(f.t.Context()); outcome != Converged && outcome != Later {
		f.t.Errorf("%s ended %d: %v", l.box, outcome, err)
	}
}

// run lets simulated time pass. All boxes' timers elapse at the same minutes; systemd delays each by its own chance.
func (f *fleet) run(d time.Duration, jitter time.Duration) {
	type start struct {
		at  time.Time
		box *lab
	}
	var starts []start
	for _, l := range f.boxes {
		for at := f.now; at.Before(f.now.Add(d)); at = at.Add(f.every) {
			starts = append(starts, start{at.Add(rand.N(jitter + 1)), l})
		}
	}
	slices.SortFunc(starts, func(a, b start) int { return a.at.Compare(b.at) })
	end := f.now.Add(d)
	for len(starts) > 0 {
		// What starts in the same second is at work at the same time.
		f.mu.Lock()
		f.now = starts[0].at
		f.mu.Unlock()
		n := 1
		for n < len(starts) && n < atOnce && starts[n].at.Sub(starts[0].at) < time.Second && starts[n].box != starts[0].box {
			n++
		}
		var group sync.WaitGroup
		for _, s := range starts[:n] {
			group.Go(func() { f.tick(s.box) })
		}
		group.Wait()
		starts = starts[n:]
	}
	f.mu.Lock()
	f.now = end
	f.mu.Unlock()
}

// load is what the servers have seen since a time: requests in all, most boxes that came within one second, and most
// requests of one box.
func (f *fleet) load(since time.Time) (all, second, box int) {
	boxes := map[string]int{}
	came := map[int64]map[string]bool{}
	for _, r := range f.world.Requests("") {
		if r.At.Before(since) {
			continue
		}
		all++
		if r.Box == "" {
			continue // a login
		}
		boxes[r.Box]++
		if came[r.At.Unix()] == nil {
			came[r.At.Unix()] = map[string]bool{}
		}
		came[r.At.Unix()][r.Box] = true
	}
	for _, who := range came {
		second = max(second, len(who))
	}
	for _, n := range boxes {
		box = max(box, n)
	}
	return all, second, box
}

func (f *fleet) converged(sha string) (n int) {
	for _, l := range f.boxes {
		if in := l.saved().InForce; in != nil && in.Bundle == sha {
			n++
		}
	}
	return n
}

func TestAFleetIsNoHerdAndNoBusyLoop(t *testing.T) {
	size := fleetSize
	if os.Getenv("TOAD_ALL") == "" {
		size /= 10 // the herd is as clear in a smaller fleet
	}
	f := newFleet(t, size)
	for _, l := range f.boxes {
		l.at = f.now
	}
	publish := func(s source) string {
		b, data := s.make(t)
		f.world.Publish(env, b.SHA, data)
		return b.SHA
	}
	// 500 boxes within the jitter are so many a second on average; chance makes it more, the absence of jitter all.
	average := float64(size) / f.jitter.Seconds()
	crowd := int(4*average) + 10

	first := publish(source{ManifestName: manifest(env, day, "web="+digestA), "web.container": unit("")})
	since := f.now
	f.run(f.every, f.jitter)
	all, second, box := f.load(since)
	t.Logf("coming up together: %d requests, at most %d boxes in a second, %d requests of a box", all, second, box)
	if n := f.converged(first); n != size || second > crowd || box > 12 {
		t.Errorf("%d of %d converged, %d boxes in a second (want at most %d), %d requests of one box", n, size, second, crowd, box)
	}

	since = f.now
	f.run(2*f.every, f.jitter)
	all, second, box = f.load(since)
	t.Logf("at rest: %d requests in %s", all, 2*f.every)
	if all > 2*size*3 || box > 2*3 || second > crowd {
		t.Errorf("at rest: %d requests, %d of one box, %d boxes in a second", all, box, second)
	}

	// The control plane is out of order, and a new bundle waits behind it.
	second2 := publish(source{ManifestName: manifest(env, day.Add(time.Hour), "web="+digestB), "web.container": unit("")})
	f.world.Fault(control.Fault{Match: "/v1/agent/", Kind: control.Status, Status: 503})
	since = f.now
	outage := 6 * f.every
	f.run(outage, f.jitter)
	all, second, box = f.load(since)
	ticks := int(outage / f.every)
	t.Logf("out of order for %s: %d requests, at most %d boxes in a second, %d requests of a box in %d ticks", outage, all, second, box, ticks)
	if box > ticks*2*2/3 || second > crowd {
		t.Errorf("out of order: %d requests of one box in %d ticks, %d boxes in a second", box, ticks, second)
	}
	var waits []time.Duration
	for _, l := range f.boxes {
		waits = append(waits, l.saved().NotBefore.Sub(f.now))
	}
	slices.Sort(waits)
	spread := waits[len(waits)*9/10] - waits[len(waits)/10]
	t.Logf("they come back within %s, nine tenths of the middle spread over %s", waits[len(waits)-1], spread)
	if spread < f.every {
		t.Errorf("all come back within %s of each other", spread)
	}

	f.world.ClearFaults()
	since = f.now
	f.run(waits[len(waits)-1]+2*f.every, f.jitter)
	all, second, _ = f.load(since)
	t.Logf("in order again: %d requests, at most %d boxes in a second", all, second)
	if n := f.converged(second2); n != size || second > crowd {
		t.Errorf("%d of %d converged, %d boxes in a second", n, size, second)
	}
	for _, r := range f.world.Reports(env, "") {
		if r.Result != protocol.ResultApplied {
			t.Errorf("reported: %+v", r.Report)
		}
	}
	if n := len(f.world.Leases(env, "")); n != 2*size {
		t.Errorf("%d leases for two bundles on %d boxes", n, size)
	}
	if n := len(f.world.Reports(env, "")); n != 2*size {
		t.Errorf("%d reports", n)
	}

	// The measure would see a herd: without jitter all come in one second.
	since = f.now
	f.run(f.every, 0)
	if _, second, _ = f.load(since); second != size {
		t.Errorf("without jitter %d of %d boxes came in one second", second, size)
	}
}

// A spent budget, or a limit, is waited for; each box by itself.
func TestAFleetWaitsAsLongAsItIsTold(t *testing.T) {
	f := newFleet(t, 20)
	f.run(f.every, f.jitter)
	f.world.Fault(control.Fault{Match: "check-in", Kind: control.Status, Status: 429, RetryAfter: "1800"})
	since := f.now
	f.run(30*time.Minute, f.jitter)
	if _, _, box := f.load(since); box > 2*2 {
		t.Errorf("%d requests of one box within a Retry-After of half an hour", box)
	}
	if n := len(f.world.Requests("POST /v1/agent/check-in")); n > 20*3 {
		t.Errorf("%d check-ins", n)
	}
}
