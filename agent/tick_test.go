package agent

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toad/agent/protocol"
	"toad/probation"
	"toad/tests/control"
)

func TestABoxConvergesToWhatIsPublished(t *testing.T) {
	l := ready(t)
	svc := l.services["web"]
	text := svc.Promoted.Definition.Text("web.container")
	for _, want := range []string{"Secret=key-v1,type=env,target=KEY\n", "Environment=NAME=box\n", "Volume=data-"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if l.secrets["key-v1"] != "first-secret-value" {
		t.Errorf("secrets: %v", slices.Collect(maps.Keys(l.secrets)))
	}
	if r := l.reported(); r.Result != protocol.ResultApplied || r.BundleSHA != l.saved().InForce.Bundle || r.Services[0].Digest != digestA {
		t.Errorf("reported: %+v", r)
	}
	if _, err := os.Stat(l.conf.GrantFile()); !os.IsNotExist(err) {
		t.Errorf("the grant is still there: %v", err)
	}
	if info, err := os.Stat(filepath.Join(l.state, "bearer")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("bearer: %v %v", info, err)
	}
	if to, _ := os.Readlink(filepath.Join(l.state, "current")); to != "releases/"+l.saved().InForce.Bundle {
		t.Errorf("current leads to %s", to)
	}
	// The next tick finds nothing to do: no lease, no deployment, no report.
	l.must(Converged)
	if n := len(l.world.Leases(env, "")); n != 1 || len(l.deploys) != 1 || len(l.world.Reports(env, "")) != 1 {
		t.Errorf("%d leases, deployed %v, %d reports", n, l.deploys, len(l.world.Reports(env, "")))
	}
	l.noSecret()
}

func TestABadBundleIsPutBackWholeAndReported(t *testing.T) {
	l := newLab(t)
	pair := source{ManifestName: manifest(env, day, "web="+digestA, "shop="+digestA), "web.container": unit(""), "shop.container": unit("")}
	first := l.publish(pair)
	l.must(Converged)
	// The first of two goes well, the second fails, and one is new and one gone.
	bad := source{ManifestName: manifest(env, day.Add(time.Hour), "web="+digestB, "extra="+digestB, "last="+digestC), "web.container": unit(""),
		"extra.container": unit(""), "last.container": unit("")}
	l.bad[digestC] = true
	sha := l.publish(bad)
	err := l.must(Refused)
	if err == nil || !strings.Contains(err.Error(), "candidate_exited") {
		t.Errorf("it says %v", err)
	}
	if web := l.services["web"]; web.Promoted.Digest != digestA || web.Generation != 3 {
		t.Errorf("web: %+v at generation %d", web.Promoted, web.Generation)
	}
	if shop := l.services["shop"]; shop.Promoted.Digest != digestA || shop.Generation != 1 {
		t.Errorf("shop was touched: %+v", shop.Promoted)
	}
	if l.running["extra.container"] || l.services["extra"].Promoted != nil || l.files["extra.container"] != "" || l.files["last.container"] != "" {
		t.Errorf("what was new is left: %v %v", l.running, slices.Collect(maps.Keys(l.files)))
	}
	r := l.reported()
	if r.Result != protocol.ResultFailed || r.Code != "candidate_exited" || r.BundleSHA != sha || r.InForce != first || !slices.Equal(r.LogTail, []string{"fatal: no such thing"}) {
		t.Errorf("reported: %+v", r.Report)
	}
	if to, _ := os.Readlink(filepath.Join(l.state, "current")); to != "releases/"+first {
		t.Errorf("current leads to %s", to)
	}
	// It is not tried again, and not reported again, and costs no lease.
	reports, leases, deploys := len(l.world.Reports(env, "")), len(l.world.Leases(env, "")), len(l.deploys)
	l.must(Refused)
	if len(l.world.Reports(env, "")) != reports || len(l.world.Leases(env, "")) != leases || len(l.deploys) != deploys {
		t.Errorf("it was tried again: %v", l.deploys[deploys:])
	}
	// A named retry does.
	delete(l.bad, digestC)
	l.retry = true
	l.must(Converged)
	if l.services["last"].Promoted == nil || l.services["shop"].Promoted != nil || l.running["shop.container"] {
		t.Errorf("after the retry: %v", l.running)
	}
}

func TestAChangedSecretIsAChangedRelease(t *testing.T) {
	l := ready(t)
	l.world.PutSecret(env, "key", "second-secret-value")
	l.must(Converged)
	if text := l.services["web"].Promoted.Definition.Text("web.container"); !strings.Contains(text, "Secret=key-v2,") {
		t.Errorf("in force:\n%s", text)
	}
	// The version before stays, for a way back without a network.
	if l.secrets["key-v1"] == "" || l.secrets["key-v2"] != "second-secret-value" {
		t.Errorf("secrets: %v", slices.Collect(maps.Keys(l.secrets)))
	}
	if n := len(l.world.Leases(env, "")); n != 1 {
		t.Errorf("%d leases: a changed secret costs none", n)
	}
	l.world.PutSecret(env, "key", "third-secret-value")
	l.must(Converged)
	if l.secrets["key-v1"] != "" || l.secrets["key-v2"] == "" {
		t.Errorf("secrets: %v", slices.Collect(maps.Keys(l.secrets)))
	}
	// One that the application does not take is put back with the release, and not tried at each tick.
	l.bad[digestA] = true
	l.world.PutSecret(env, "key", "fourth-secret-value")
	l.must(Refused)
	if text := l.services["web"].Promoted.Definition.Text("web.container"); !strings.Contains(text, "Secret=key-v3,") {
		t.Errorf("in force:\n%s", text)
	}
	deploys := len(l.deploys)
	l.must(Refused)
	if len(l.deploys) != deploys {
		t.Errorf("it was tried again")
	}
	l.noSecret()
}

func TestDownStopsAndPurgesOnlyWhereItMay(t *testing.T) {
	for _, c := range []struct {
		env   string
		purge bool
		kept  bool
	}{{env, false, true}, {env, true, false}, {"env-prod-01", true, true}} {
		t.Run(fmt.Sprint(c.env, c.purge), func(t *testing.T) {
			l := labIn(t, control.New(), c.env, "box-1")
			l.publish(source{ManifestName: manifest(c.env, day, "web="+digestA), "web.container": unit("Volume=data.volume:/data\n"), "data.volume": "[Volume]\n"})
			l.must(Converged)
			l.volumes["systemd-data"] = true
			l.world.Set(c.env, func(e *control.Env) { e.Action, e.Purge = protocol.ActionDown, c.purge })
			l.must(Converged)
			if l.volumes["systemd-data"] != c.kept {
				t.Errorf("the volume is there: %v, want %v", l.volumes["systemd-data"], c.kept)
			}
			if len(l.running) != 0 || len(l.files) != 0 || len(l.enrolled) != 0 || len(l.secrets) != 0 {
				t.Errorf("left: %v %v %v", l.running, l.files, l.enrolled)
			}
			if r := l.reported(); r.Result != protocol.ResultDown || c.purge && c.kept && !strings.Contains(r.Detail, "refused") {
				t.Errorf("reported: %+v", r.Report)
			}
			if n := l.world.Live(c.env, "box-1"); n != 0 {
				t.Errorf("%d tokens are still accepted", n)
			}
			requests := len(l.world.Requests(""))
			l.must(Converged)
			if len(l.world.Requests("")) != requests {
				t.Error("a box that is out asks still")
			}
			// A new grant brings it back.
			l.world.Set(c.env, func(e *control.Env) { e.Action = "" })
			l.grant()
			l.must(Converged)
			if l.services["web"].Promoted == nil {
				t.Error("it did not come back")
			}
			l.noSecret()
		})
	}
}

func TestASpentLeaseBudgetIsLater(t *testing.T) {
	l := ready(t)
	l.world.Set(env, func(e *control.Env) { e.Leases = 1 })
	l.publish(two)
	l.must(Later)
	if st := l.saved(); st.NotBefore.Sub(l.at) < 10*time.Minute || st.InForce == nil || st.Applying != nil {
		t.Errorf("state: %+v", st)
	}
	if l.services["web"].Promoted.Digest != digestA || !l.running["web.container"] {
		t.Error("what was in force is not")
	}
	// Until then nobody is asked.
	requests := len(l.world.Requests(""))
	l.must(Later)
	if len(l.world.Requests("")) != requests {
		t.Error("it asks before it may")
	}
	l.at = l.at.Add(2 * time.Hour)
	l.world.Set(env, func(e *control.Env) { e.Leases = 5 })
	l.must(Converged)
	if l.services["web"].Promoted.Digest != digestB {
		t.Error("it did not converge")
	}
}

func TestThePauseGrows(t *testing.T) {
	l := ready(t)
	l.world.Fault(control.Fault{Match: "/check-in", Kind: control.Status, Status: 503})
	last := time.Duration(0)
	for n := range 8 {
		l.must(Later)
		wait := l.saved().NotBefore.Sub(l.at)
		if low, high := (firstPause<<n)/2, firstPause<<n; wait < min(low, maxPause/2) || wait > min(high, maxPause) {
			t.Errorf("after %d failures %s", n+1, wait)
		}
		last = max(last, wait)
		l.at = l.at.Add(wait)
	}
	l.world.ClearFaults()
	l.must(Converged)
	if st := l.saved(); st.Failures != 0 || !st.NotBefore.IsZero() || last < maxPause/2 {
		t.Errorf("state: %+v", st)
	}
}

func TestATokenThatEndedCostsOneLease(t *testing.T) {
	l := ready(t)
	l.world.Expire(env, "box-1")
	l.must(Converged)
	if n := l.world.Leases(env, ""); len(n) != 2 || n[1].Reason != protocol.ReasonUnauthenticated {
		t.Errorf("leases: %+v", n)
	}
	// A box that was removed stops, and asks nobody until its configuration changes.
	l.world.Remove(env, "box-1")
	l.must(Stopped)
	requests := len(l.world.Requests(""))
	l.must(Stopped)
	if len(l.world.Requests("")) != requests {
		t.Error("it asks again")
	}
	if !l.running["web.container"] {
		t.Error("what runs was stopped")
	}
	l.grant()
	l.must(Converged)
	l.noSecret()
}

func TestAnotherEnvironmentIsNeverTriedAgain(t *testing.T) {
	l := ready(t)
	other := l.cfg
	other.EnvID = "env-dev-02"
	if err := l.conf.Save(other); err != nil {
		t.Fatal(err)
	}
	if err := l.must(Stopped); !strings.Contains(err.Error(), "still of env-dev-01") {
		t.Errorf("it says %v", err)
	}
	// A fresh box with a grant of another environment.
	w := control.New()
	w.Set("env-dev-02", func(*control.Env) {})
	f := labIn(t, w, env, "box-1")
	if err := os.WriteFile(f.conf.GrantFile(), []byte(w.Grant("env-dev-02", "box-1")), 0o600); err != nil {
		t.Fatal(err)
	}
	f.must(Stopped)
	requests := len(w.Requests(""))
	f.must(Stopped)
	if len(w.Requests("")) != requests {
		t.Error("it asks again")
	}
}

func TestOneTickAtATime(t *testing.T) {
	l := ready(t)
	unlock, err := Store{l.state}.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.must(Later); err == nil || !strings.Contains(err.Error(), "another tick") {
		t.Errorf("it says %v", err)
	}
	unlock()
	l.must(Converged)
}

func TestARegistryOutOfReachIsLater(t *testing.T) {
	l := ready(t)
	l.bad[digestB], l.code = true, probation.CodePullUnavailable
	l.publish(two)
	l.must(Later)
	if l.services["web"].Promoted.Digest != digestA {
		t.Error("what was in force is not")
	}
	delete(l.bad, digestB)
	l.at = l.at.Add(2 * time.Hour)
	l.must(Converged)
	if l.services["web"].Promoted.Digest != digestB {
		t.Error("it did not converge")
	}
}

// The state is ahead of everything that follows from it, so it does not matter where a tick dies.
func TestATickThatDiesAnywhereIsCarriedOn(t *testing.T) {
	for _, bad := range []bool{false, true} {
		for n := 1; ; n++ {
			l := ready(t)
			l.world.PutSecret(env, "key", "second-secret-value")
			if bad {
				l.bad[digestB] = true
			}
			sha := l.publish(two)
			l.dieAt = l.calls + n
			_, dead, _ := l.tick()
			_, _, _ = l.tick() // one is enough
			left, _ := os.ReadDir(filepath.Join(l.state, "releases"))
			if len(left) > 2 || l.saved().Untidy {
				t.Errorf("dead %s: %d bundles are left", dead, len(left))
			}
			want, bundle, result := digestB, sha, protocol.ResultApplied
			if bad {
				want, bundle, result = digestA, l.saved().InForce.Bundle, protocol.ResultFailed
			}
			st, r := l.saved(), l.reported()
			if l.services["web"].Promoted.Digest != want || st.InForce.Bundle != bundle || st.Applying != nil || st.Report != nil || r.Result != result {
				t.Errorf("dead %s: %s in force, state %+v, reported %+v", dead, l.services["web"].Promoted.Digest, st, r.Report)
			}
			if n := len(l.world.Reports(env, "")); n != 2 {
				t.Errorf("dead %s: %d reports", dead, n)
			}
			if n := len(l.world.Leases(env, "")); n != 2 {
				t.Errorf("dead %s: %d leases", dead, n)
			}
			l.noSecret()
			if dead == "" {
				if n < 6 {
					t.Errorf("only %d calls were found", n)
				}
				break
			}
		}
	}
}

func TestKeepsTwo(t *testing.T) {
	l := ready(t)
	for i := range 4 {
		l.publish(one.with(ManifestName, manifest(env, day.Add(time.Duration(i+1)*time.Hour), "web="+digestB)).with("web.container", unit(fmt.Sprintf("Environment=N=%d\n", i))))
		l.world.Advance(time.Hour)
		l.must(Converged)
	}
	for _, dir := range []string{"releases", "plans"} {
		entries, _ := os.ReadDir(filepath.Join(l.state, dir))
		if len(entries) != 2 {
			t.Errorf("%s has %d entries", dir, len(entries))
		}
	}
	if len(l.secrets) != 0 {
		t.Errorf("secrets that nobody needs: %d", len(l.secrets))
	}
}
