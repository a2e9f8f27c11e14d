//go:build e2e

// These tests speak to a real user manager. They run inside a test host, as its user:
//
//	CGO_ENABLED=0 go test -c -tags e2e -o "$(scripts/testhost root H)/home/toad/userbus.test" ./unitgen/userbus
//	scripts/testhost user H ./userbus.test -test.v
package userbus_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"toad/unitgen"
	"toad/unitgen/userbus"
)

func TestTimerIsListedFiresOnceAndLeavesNothing(t *testing.T) {
	b := dial(t)
	p := script(t, `echo $(date +%s%N) >>$DIR/log; sleep 0.3; test $(wc -l <$DIR/log) -ge 2`)
	at := time.Now().Add(1500 * time.Millisecond).Truncate(time.Microsecond)
	u := unitgen.Timer(unitgen.Probation, op(t), 1, at, p)
	must(t, b.Create(t.Context(), u))

	if s := state(t, b, u.Name); !s.Exists() || s.SubState != "waiting" && s.Job == 0 {
		t.Errorf("neither waiting nor about to: %+v", s)
	}
	eventually(t, "its job is done", func() bool { return state(t, b, u.Name).Job == 0 })
	if s := state(t, b, u.Name); s.SubState != "waiting" || !s.NextElapse.Equal(at) {
		t.Errorf("want %s to elapse at %v, have %+v", u.Name, at, s)
	}
	listed := run(t, "systemctl", "--user", "list-timers", "--no-pager", "--full")
	if !strings.Contains(listed, u.Name) {
		t.Errorf("not listed:\n%s", listed)
	}
	must(t, b.Reload(t.Context()))
	eventually(t, "it fires", func() bool { return log(t, p) != "" })
	// While its act runs, a timer that has fired is loaded and active as ever; these two tell it from one that holds.
	if s := state(t, b, u.Name); s.SubState != "running" || !s.NextElapse.IsZero() {
		t.Errorf("a fired timer looks like one that waits: %+v", s)
	}
	eventually(t, "timer and service vanish", func() bool { return gone(t, b, u.Name, u.Aux[0].Name) })
	runs := strings.Fields(log(t, p))
	if want, have := 2, len(runs); want != have {
		t.Fatalf("want %d runs, the first of which failed, have %d", want, have)
	}
	nanos, err := strconv.ParseInt(runs[0], 10, 64)
	must(t, err)
	if late := time.Unix(0, nanos).Sub(at); late < 0 || late > time.Second {
		t.Errorf("%v late", late)
	}
}

func TestTimerInThePastNeverFiresAndVanishes(t *testing.T) {
	b, p := dial(t), script(t, "echo fired >>$DIR/log")
	u := unitgen.Timer(unitgen.Prepare, op(t), 1, time.Now().Add(-time.Millisecond), p)
	must(t, b.Create(t.Context(), u))
	eventually(t, "it vanishes", func() bool { return gone(t, b, u.Name, u.Aux[0].Name) })
	if have := log(t, p); have != "" {
		t.Errorf("have %q", have)
	}
}

func TestStoppedTimerTakesItsServiceWithIt(t *testing.T) {
	b, p := dial(t), script(t, "true")
	u := unitgen.Timer(unitgen.Restore, op(t), 2, time.Now().Add(time.Hour), p)
	must(t, b.Create(t.Context(), u))
	listed, err := b.List(t.Context(), unitgen.Patterns(op(t))...)
	must(t, err)
	if want, have := 2, len(listed); want != have {
		t.Errorf("want %d units, have %+v", want, listed)
	}
	must(t, b.Stop(t.Context(), u.Name))
	eventually(t, "both vanish", func() bool { return gone(t, b, u.Name, u.Aux[0].Name) })
}

func TestActStartsHoweverTheCheckEnds(t *testing.T) {
	for name, c := range map[string]struct {
		check   string
		timeout time.Duration
		end     func(t *testing.T, b *userbus.Bus, check string)
	}{
		"stable":  {check: "exit 0"},
		"failed":  {check: "exit 1"},
		"killed":  {check: "kill -9 $$"},
		"timeout": {check: "sleep 60", timeout: 4 * time.Second},
		"deaf":    {check: "trap '' TERM; while :; do sleep 1; done", timeout: 4 * time.Second},
		"missing": {check: "-"},
		"stopped": {check: "sleep 60", end: func(t *testing.T, b *userbus.Bus, check string) {
			must(t, b.Stop(t.Context(), check))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := dial(t)
			p := script(t, `echo "$@" >>$DIR/log; case $1 in check) `+c.check+`;; esac`)
			if c.timeout == 0 {
				c.timeout = time.Minute
			}
			u := unitgen.Check(op(t), 3, c.timeout, p)
			want := "check --number 3 " + op(t) + "\nact " + op(t) + "\n"
			if c.check == "-" { // its program is not there, though the act's is
				missing := p
				missing.Exe += ".missing"
				u.Properties = unitgen.Check(op(t), 3, c.timeout, missing).Properties
				want = "act " + op(t) + "\n"
			}
			must(t, b.Create(t.Context(), u))
			if c.end != nil {
				eventually(t, "it runs", func() bool { return log(t, p) != "" })
				c.end(t, b, u.Name)
			}
			eventually(t, "the act has run", func() bool { return strings.Contains(log(t, p), "act") })
			eventually(t, "check and act vanish", func() bool { return gone(t, b, u.Name, u.Aux[0].Name) })
			if have := log(t, p); want != have {
				t.Errorf("want %q have %q", want, have)
			}
		})
	}
}

func TestActComesAgainUntilItEndsWell(t *testing.T) {
	b, p := dial(t), script(t, `echo run >>$DIR/log; test $(wc -l <$DIR/log) -ge 3`)
	u := unitgen.Act(op(t), time.Now().UnixNano(), 0, p)
	must(t, b.Create(t.Context(), u))
	eventually(t, "the third run", func() bool { return log(t, p) == "run\nrun\nrun\n" })
	eventually(t, "it vanishes", func() bool { return gone(t, b, u.Name) })
}

func TestHungActIsKilledAndComesAgain(t *testing.T) {
	b, p := dial(t), script(t, `echo run >>$DIR/log; test $(wc -l <$DIR/log) -ge 2 || kill -STOP $$`)
	u := unitgen.Act(op(t), time.Now().UnixNano(), time.Second, p)
	must(t, b.Create(t.Context(), u))
	eventually(t, "the second run", func() bool { return log(t, p) == "run\nrun\n" })
	eventually(t, "it vanishes", func() bool { return gone(t, b, u.Name) })
}

// TestMain can be an act that takes longer than it may be silent: this program is what such a unit runs.
func TestMain(m *testing.M) {
	if dir := os.Getenv("USERBUS_E2E_LONG"); dir != "" {
		for i := range 8 {
			_, _ = daemon.SdNotify(false, daemon.SdNotifyWatchdog)
			time.Sleep(500 * time.Millisecond)
			_ = os.WriteFile(filepath.Join(dir, "log"), fmt.Appendf(nil, "step %d\n", i+1), 0o600)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLongActLivesOnSignsOfLifeAcrossReloads(t *testing.T) {
	b := dial(t)
	exe, err := os.Executable()
	must(t, err)
	p := script(t, "")
	p.Exe, p.Env["USERBUS_E2E_LONG"] = exe, p.Env["DIR"]
	u := unitgen.Act(op(t), time.Now().UnixNano(), 2*time.Second, p)
	must(t, b.Create(t.Context(), u))
	eventually(t, "it has run for longer than its limit", func() bool { return log(t, p) == "step 5\n" })
	must(t, b.Reload(t.Context()))
	run(t, "systemctl", "--user", "daemon-reexec")
	eventually(t, "it is back", func() bool { return b.Ping(t.Context()) == nil })
	if s := state(t, b, u.Name); s.NRestarts != 0 {
		t.Errorf("it was killed: %+v", s)
	}
	eventually(t, "it ends well", func() bool { return gone(t, b, u.Name) })
	if want, have := "step 8\n", log(t, p); want != have {
		t.Errorf("want %q have %q", want, have)
	}
}

func TestArgumentsAndVariablesArriveAsTheyAre(t *testing.T) {
	b, p := dial(t), script(t, `printf '%s|' "$@" "$ODD" "$TOAD_STATE" >>$DIR/log`)
	p.State = `/a b/%i "q" $HOME \n`
	p.Env["ODD"] = `%n ${HOME} '`
	u := unitgen.Act(op(t), time.Now().UnixNano(), 0, p)
	must(t, b.Create(t.Context(), u))
	want := "act|" + op(t) + "|" + p.Env["ODD"] + "|" + p.State + "|"
	eventually(t, want, func() bool { return log(t, p) == want })
}

func TestTakenNameIsErrExists(t *testing.T) {
	b, p := dial(t), script(t, "sleep 60")
	u := unitgen.Act(op(t), 17, 0, p)
	must(t, b.Create(t.Context(), u))
	if err := b.Create(t.Context(), u); !errors.Is(err, userbus.ErrExists) {
		t.Error(err)
	}
	must(t, b.Stop(t.Context(), u.Name))
	eventually(t, "the name is free again", func() bool { return b.Create(t.Context(), u) == nil })
	must(t, b.Stop(t.Context(), u.Name))
}

func TestStateShowsWhatAPinMustProve(t *testing.T) {
	b := dial(t)
	file := filepath.Join(os.Getenv("HOME"), ".config/systemd/user/pinned-e2e.service")
	dropIn := file + ".d/zz-toad.conf"
	must(t, os.MkdirAll(filepath.Dir(dropIn), 0o700))
	t.Cleanup(func() { os.Remove(file); os.RemoveAll(filepath.Dir(dropIn)) })
	must(t, os.WriteFile(file, []byte(`[Unit]
SourcePath=/home/toad/web.container
Requires=app.slice
[Service]
Type=oneshot
ExecStart=/bin/sh -c "sleep 1" repo@sha256:0
TimeoutStopSec=7s
`), 0o600))
	must(t, os.WriteFile(dropIn, []byte(`[Unit]
After=toad-reconcile.service
OnFailure=toad-alert@%N.service
ConditionEnvironment=TOAD_ADMITTED_e2e=1
[Service]
ExecCondition=/usr/bin/test -n ${TOAD_ADMITTED_e2e}
`), 0o600))
	must(t, b.Reload(t.Context()))
	must(t, b.Start(t.Context(), "pinned-e2e.service"))
	// Nothing refers to this unit, so it is dropped once the start was skipped, and its conditions read untested.
	eventually(t, "the start is skipped", func() bool { return gone(t, b, "pinned-e2e.service") })
	must(t, b.SetEnvironment(t.Context(), "TOAD_ADMITTED_e2e=1"))
	t.Cleanup(func() { _ = b.UnsetEnvironment(context.Background(), "TOAD_ADMITTED_e2e") })
	must(t, b.Start(t.Context(), "pinned-e2e.service"))
	eventually(t, "it starts", func() bool { return state(t, b, "pinned-e2e.service").SubState == "start" })

	have := state(t, b, "pinned-e2e.service")
	if have.Job == 0 || have.MainPID == 0 || len(have.InvocationID) != 32 || !slices.Contains(have.After, "toad-reconcile.service") {
		t.Errorf("%+v", have)
	}
	if !have.Running() || have.Up() || !slices.Contains(have.Requires, "app.slice") || !have.DefaultDependencies {
		t.Errorf("%+v", have)
	}
	for _, c := range []struct{ want, have any }{
		{"/home/toad/web.container", have.SourcePath},
		{file, have.FragmentPath},
		{[]string{dropIn}, have.DropInPaths},
		{[][]string{{"/bin/sh", "-c", "sleep 1", "repo@sha256:0"}}, have.ExecStart},
		{[][]string{{"/usr/bin/test", "-n", "${TOAD_ADMITTED_e2e}"}}, have.ExecCondition},
		{[]unitgen.Condition{{Type: "ConditionEnvironment", Param: "TOAD_ADMITTED_e2e=1", State: 1}}, have.Conditions},
		{[]string{"toad-alert@pinned-e2e.service"}, have.OnFailure},
		{uint64(7_000_000), have.TimeoutStopUSec},
		{"static", have.UnitFileState},
	} {
		if !reflect.DeepEqual(c.want, c.have) {
			t.Errorf("want %v have %v", c.want, c.have)
		}
	}
	eventually(t, "it is done", func() bool { return gone(t, b, "pinned-e2e.service") })
}

func TestMissingUnitsAreNotFound(t *testing.T) {
	b := dial(t)
	s := state(t, b, "no-such.service")
	if s.LoadState != "not-found" || s.Exists() || s.Running() || s.Name != "no-such.service" {
		t.Errorf("%+v", s)
	}
	for _, err := range []error{
		b.Start(t.Context(), "no-such.service"), b.Restart(t.Context(), "no-such.service"),
		b.Stop(t.Context(), "no-such.service"), b.ResetFailed(t.Context(), "no-such.service"),
	} {
		if !errors.Is(err, userbus.ErrNoUnit) {
			t.Error(err)
		}
	}
	if id, err := b.Invocation(t.Context(), "no-such.service"); id != "" || err != nil {
		t.Errorf("invocation %q, %v", id, err)
	}
	if _, err := b.State(t.Context(), "nonsense"); err == nil {
		t.Error("no error for a name that is none")
	}
}

func TestWhatRunsAsAUnitIsReadWithoutTheRest(t *testing.T) {
	b := dial(t)
	name := service(t, b, "no", "exec sleep 60")
	want := state(t, b, name)
	have, err := b.Running(t.Context(), name)
	must(t, err)
	want = unitgen.State{Name: want.Name, ActiveState: want.ActiveState, SubState: want.SubState, SourcePath: want.SourcePath,
		FragmentPath: want.FragmentPath, MainPID: want.MainPID, ControlGroup: want.ControlGroup}
	if !reflect.DeepEqual(want, have) || have.MainPID == 0 || have.ControlGroup == "" {
		t.Errorf("want %+v\nhave %+v", want, have)
	}
	for name, want := range map[string]bool{name: true, "absent-e2e.service": false} {
		if have, err := b.Loaded(t.Context(), name); err != nil || have != want {
			t.Errorf("%s: have %v, %v", name, have, err)
		}
	}
}

func TestIrreversibleJobMeansLater(t *testing.T) {
	b, p := dial(t), script(t, "trap '' TERM; while :; do sleep 1; done")
	u := unitgen.Act(op(t), 17, 0, p)
	must(t, b.Create(t.Context(), u))
	eventually(t, "it runs", func() bool { return state(t, b, u.Name).Up() })
	if id, err := b.Invocation(t.Context(), u.Name); err != nil || id == "" || id != state(t, b, u.Name).InvocationID {
		t.Errorf("invocation %q, %v", id, err)
	}
	run(t, "systemctl", "--user", "stop", "--no-block", "--job-mode=replace-irreversibly", u.Name)
	for _, err := range []error{b.Start(t.Context(), u.Name), b.Restart(t.Context(), u.Name)} {
		if !errors.Is(err, userbus.ErrDestructive) {
			t.Error(err)
		}
	}
	eventually(t, "it has stopped", func() bool { return gone(t, b, u.Name) })
}

func TestVariablesAreSetAndUnset(t *testing.T) {
	b := dial(t)
	name := unitgen.AdmissionVar(op(t))
	must(t, b.SetEnvironment(t.Context(), name+"=1", "OTHER=a=b"))
	env, err := b.Environment(t.Context())
	must(t, err)
	if env[name] != "1" || env["OTHER"] != "a=b" {
		t.Errorf("%q %q", env[name], env["OTHER"])
	}
	must(t, b.UnsetEnvironment(t.Context(), name, "OTHER", "NEVER_SET"))
	env, err = b.Environment(t.Context())
	must(t, err)
	if _, set := env[name]; set {
		t.Error("still set")
	}
}

func TestManagerThatRunsIsNotStopping(t *testing.T) {
	b := dial(t)
	must(t, b.Ping(t.Context()))
	state, err := b.SystemState(t.Context())
	must(t, err)
	if !slices.Contains([]string{"starting", "running", "degraded"}, state) {
		t.Error(state)
	}
	if stopping, err := b.Stopping(t.Context()); stopping || err != nil {
		t.Error(stopping, err)
	}
}
