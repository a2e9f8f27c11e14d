//go:build e2e

// Package upgrade puts another toad in the place of the one that has a release on probation: an earlier commit's, and one
// that stands for a later version, whose records have another schema.
package upgrade

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

// toads are the programs by name: "this" is the one under test, "earlier" that of the commit before the last change of
// code, "later" this one with a newer schema.
var toads = sync.OnceValues(func() (map[string]string, error) {
	dir, err := os.MkdirTemp("", "toads-")
	if err != nil {
		return nil, err
	}
	this, err := filepath.Abs(os.Getenv("TOAD_BIN"))
	if err != nil {
		return nil, err
	}
	paths := map[string]string{"this": this, "earlier": filepath.Join(dir, "earlier"), "later": filepath.Join(dir, "later")}
	script := `cd ../..
		build() { CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags "-s -w -X main.version=$1" -o "$2" "${@:3}" ./cmd/toad; }
		build v-later "$1/later" -tags newerschema
		changed=$(git rev-list -1 HEAD -- '*.go' ':!tests' ':!*_test.go')
		[ -n "$changed" ] && git rev-parse -q --verify "$changed^" >/dev/null || { echo "the commit before the last change of code is not there: this needs a whole clone"; exit 1; }
		mkdir "$1/tree" && git archive "$changed^" | tar -x -C "$1/tree"
		cd "$1/tree" && build v-earlier "$1/earlier"`
	cmd := exec.Command("bash", "-euc", script, "bash", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return paths, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if paths, err := toads(); err == nil {
		os.RemoveAll(filepath.Dir(paths["later"]))
	}
	os.Exit(code)
}

// box is a host with the service web, on which one of the toads is set up.
type box struct{ *scene.Web }

func setUp(t *testing.T, name string) box {
	t.Helper()
	b := box{&scene.Web{Host: host.Up(t, host.Options{NoToad: true})}}
	b.install(t, name)
	b.Up(t, scene.Options{Limits: "deadline = \"45s\"\nstable = \"15s\""})
	return b
}

// install puts another toad where the command is; what systemd starts stays what it was, until toad setup.
func (b box) install(t *testing.T, name string) {
	t.Helper()
	b.WriteFile(t, "/usr/local/bin/toad", program(t, name), 0o755)
}

func program(t *testing.T, name string) string {
	t.Helper()
	paths, err := toads()
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.ReadFile(paths[name])
	if err != nil {
		t.Fatal(err)
	}
	return string(binary)
}

const (
	libexec = "~/.local/state/toad/libexec/toad"
	records = "~/.local/state/toad/services/web.json"
)

// onTrial deploys a release and returns when it is on probation, with the deadline and the timer that holds it.
func (b box) onTrial(t *testing.T, tag string) (id, deadline, timer string) {
	t.Helper()
	b.MustDeploy(t, 0, tag, "--detach")
	b.WaitPhase(t, "probation")
	r := b.Record(t)
	return r.Operation.ID, r.Operation.Deadline.At.Format(time.RFC3339Nano), b.timer(t, r.Operation.ID)
}

func (b box) timer(t *testing.T, id string) string {
	t.Helper()
	return b.Show(t, "toad-probation-"+id+".timer", "TimersCalendar")
}

// still asserts that the release is on probation, and its deadline what it was.
func (b box) still(t *testing.T, what, id, deadline, timer string) {
	t.Helper()
	r := b.Record(t)
	if r.Operation.ID != id || r.Operation.Phase != "probation" {
		t.Fatalf("%s: %s is %s\n%s", what, r.Operation.ID, r.Operation.Phase, b.Log(t))
	}
	if have := r.Operation.Deadline.At.Format(time.RFC3339Nano); have != deadline {
		t.Errorf("%s: the deadline was %s, is %s", what, deadline, have)
	}
	if have := b.timer(t, id); have != timer {
		t.Errorf("%s: the timer was %q, is %q", what, timer, have)
	}
}

// ends waits for the end, and asserts that it came at the deadline or after, where it came by the deadline.
func (b box) ends(t *testing.T, what, phase, version, deadline string) {
	t.Helper()
	if have := b.WaitPhase(t, "promoted", "rolled_back", "rollback_failed", "withdrawn", "failed"); have != phase {
		t.Fatalf("%s: want %s, have %s\n%s", what, phase, have, b.Log(t))
	}
	b.MustServe(t, version)
	if phase == "rolled_back" {
		at := b.MustUser(t, "sh", "-c", `sed -n 's/^{"at":"\([^"]*\)".*"event":"restoring".*/\1/p;' .local/state/toad/operations/*.log | tail -n 1`)
		began, err := time.Parse(time.RFC3339Nano, at)
		limit, err2 := time.Parse(time.RFC3339Nano, deadline)
		if err != nil || err2 != nil || began.Before(limit.Add(-time.Second)) {
			t.Errorf("%s: given up at %s, and the deadline was %s", what, at, deadline)
		}
		if code := b.Status(t).Operation.Code; code != "deadline_exceeded" {
			t.Errorf("%s: it ended by %q", what, code)
		}
	}
}

// One toad begins, another takes over in the middle, and ends what the first has begun. Whichever is the newer one.
func TestOneToadEndsWhatAnotherBegan(t *testing.T) {
	for _, c := range []struct{ from, to string }{{"earlier", "this"}, {"this", "earlier"}, {"this", "later"}} {
		t.Run(c.from+" to "+c.to, func(t *testing.T) {
			t.Parallel()
			b := setUp(t, c.from)
			for _, trial := range []struct{ tag, phase, version string }{{"v2", "promoted", "v2"}, {"never", "rolled_back", "v2"}} {
				if trial.tag == "never" { // back to where it began, with nothing under way
					if c.to == "later" {
						break // it has written what this one does not read
					}
					b.install(t, c.from)
					b.MustUser(t, "toad", "setup")
				}
				what := trial.tag
				id, deadline, timer := b.onTrial(t, trial.tag)
				host.Eventually(t, "the candidate to run", time.Minute, func() bool {
					return b.MustUser(t, "podman", "ps", "-q", "--filter", "label=io.toad.operation="+id) != "" && b.Show(t, "web.service", "ActiveState") == "active"
				})
				invocation := b.Invocation(t)
				b.install(t, c.to)
				b.MustUser(t, "toad", "setup")
				b.still(t, what, id, deadline, timer)
				if have := b.ReadFile(t, libexec); have != program(t, c.to) {
					t.Errorf("%s: the units run another toad", what)
				}
				if have := b.Invocation(t); have != invocation {
					t.Errorf("%s: the candidate was started again", what)
				}
				b.ends(t, what, trial.phase, trial.version, deadline)
			}
			b.MustDeploy(t, 0, "v3")
			if out := b.MustUser(t, "toad", "status", "web", "--json"); !strings.Contains(out, b.Digest(t, "v3")) {
				t.Errorf("status: %s", out)
			}
			b.Untouched(t)
			b.Quiet(t)
		})
	}
}

// A toad that cannot read what a later one has written says so, and leaves everything to that one.
func TestALaterToadsRecordsAreRefusedByName(t *testing.T) {
	t.Parallel()
	b := setUp(t, "later")
	b.MustDeploy(t, 0, "v2")
	id, deadline, timer := b.onTrial(t, "never")
	units := "cat ~/.local/share/systemd/user/toad* | sha256sum"
	before := b.MustUser(t, "sh", "-c", units)
	b.install(t, "this")
	for _, args := range [][]string{{"setup"}, {"setup", "--dry-run"}, {"setup", "--uninstall"}} {
		r := b.User(t, append([]string{"toad"}, args...)...)
		if r.Exit != 5 || !strings.Contains(r.Stderr, "web: ") || !strings.Contains(r.Stderr, "a newer toad has written it (schema 2, this one reads 1)") {
			t.Errorf("toad %v: exit %d\n%s%s", args, r.Exit, r.Stdout, r.Stderr)
		}
	}
	if r := b.User(t, "toad", "doctor"); !strings.Contains(r.Stdout, "newer toad") {
		t.Errorf("the doctor does not name it: %s%s", r.Stdout, r.Stderr)
	}
	if have := b.MustUser(t, "sh", "-c", units); have != before {
		t.Error("a unit was changed")
	}
	if have := b.ReadFile(t, libexec); have != program(t, "later") {
		t.Error("the units run another toad")
	}
	b.still(t, "refused", id, deadline, timer)
	b.ends(t, "refused", "rolled_back", "v2", deadline)
}

// Forced upon the host all the same, it touches nothing that it cannot read, says so, and the later one, when it is back,
// goes on where it was: what is past its deadline then goes at once.
func TestAToadThatIsForcedUponALaterOnesRecordsWaits(t *testing.T) {
	t.Parallel()
	b := setUp(t, "later")
	b.MustDeploy(t, 0, "v2")
	id, deadline, _ := b.onTrial(t, "never")
	force := func(name string) {
		b.install(t, name)
		b.MustUser(t, "sh", "-c", "install -m 700 /usr/local/bin/toad "+libexec+".new && mv "+libexec+".new "+libexec+" && systemctl --user stop toad.service")
	}
	force("this")
	record := b.ReadFile(t, records)
	if r := b.Deploy(t, "v3"); r.Exit != 5 || !strings.Contains(r.Stderr, "newer toad") {
		t.Errorf("deploy: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	if out := b.MustUser(t, "toad", "status", "web"); !strings.Contains(out, "newer toad") {
		t.Errorf("status:\n%s", out)
	}
	host.Eventually(t, "the act that the deadline starts to say why it does nothing", time.Minute, func() bool {
		return strings.Contains(b.Journal(t, "toad-probation-"+id+".service"), "newer toad")
	})
	if have := b.ReadFile(t, records); have != record {
		t.Errorf("the record was changed:\n%s", have)
	}
	force("later")
	b.ends(t, "forced", "rolled_back", "v2", deadline)
	b.MustDeploy(t, 0, "v3")
	b.Quiet(t) // what the later one still owed is written
	// Whoever does not want the later one back has the record rebuilt.
	force("this")
	b.MustUser(t, "toad", "doctor", "--repair", "web")
	b.MustUser(t, "toad", "setup")
	if s := b.Status(t); s.Promoted == nil || s.Promoted.Digest != b.Digest(t, "v3") {
		t.Errorf("repaired it is %+v", s)
	}
	b.MustDeploy(t, 0, "v4")
}
