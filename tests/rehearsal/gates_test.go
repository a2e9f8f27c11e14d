//go:build e2e

package rehearsal

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"toad/probation/proof"
	"toad/tests/host"
)

func TestContainer(t *testing.T) { rehearse(t, false) }

func TestBinary(t *testing.T) {
	if os.Getenv("TOAD_ALL") == "" {
		t.Log("TestContainer rehearses the same, and tests/binary what is special to a binary service")
		return
	}
	rehearse(t, true)
}

func rehearse(t *testing.T, binary bool) {
	t.Parallel()
	dev, prod := pair(t, binary)

	wrongProgram(t, prod)
	failing(t, prod)
	dev.deploy(t, 0, "v2")
	dev.tick(t)
	prod.tick(t)
	if n := prod.asked(t); n != 0 {
		t.Errorf("%d requests for proofs without a policy", n)
	}

	key, require := policies(t, dev, prod)
	unproven(t, dev, prod)
	proofsThatAreNone(t, dev, prod, key)
	reusedTag(t, dev, prod)
	if !binary {
		roll(t, dev, prod, "v5")
	}
	brokenPolicy(t, prod, require)
}

// A release is shipped by hand, and it is the other program of the same repository.
func wrongProgram(t *testing.T, s stand) {
	// Before toad's first deployment already: it reads what runs.
	s.unmoved(t, func() {
		says(t, s.deploy(t, 5, "other"), "go:toad/tests/sample/other", "go:toad/tests/sample", "program_mismatch", "--program-change")
	})
	s.MustServe(t, "v1")
	if left := s.User(t, "podman", "ps", "-a", "--format", "{{.Names}}").Stdout; strings.Contains(left, "toad-copy") {
		t.Errorf("a container is left: %s", left)
	}
	s.alerted(t, "program")

	// It stays refused, a retry is not what was asked for, and the same holds once toad has promoted something.
	s.unmoved(t, func() {
		s.deploy(t, 5, "other")
		s.deploy(t, 5, "other", "--retry")
	})
	s.deploy(t, 0, "v2")
	s.unmoved(t, func() { s.deploy(t, 5, "other") })
	// Asked for by name it is tried like any release: it prints its usage and exits, and the old one is back.
	s.deploy(t, 3, "other", "--program-change")
	s.MustServe(t, "v2")
	if r := s.Status(t).Refusals; len(r) != 1 || !strings.Contains(r[0].Reason, "exited") {
		t.Errorf("refusals: %+v", r)
	}
	s.Quiet(t)
}

// Builds that fail: one that exits at once, and one that never answers.
func failing(t *testing.T, s stand) {
	const words = "sample: fatal: cannot read configuration"
	says(t, s.deploy(t, 3, "crash"), "status 2")
	s.MustServe(t, "v2")
	ran := s.runs(t, words)
	s.unmoved(t, func() {
		s.deploy(t, 5, "crash")
		s.MustUser(t, "systemctl", "--user", "restart", "toad.service")
		says(t, s.deploy(t, 5, "crash"), "--retry")
	})
	if n := s.runs(t, words); n != ran || ran != 1 {
		t.Errorf("what is refused ran %d times, and %d times after it was refused", ran, n-ran)
	}
	s.deploy(t, 3, "crash", "--retry")
	s.MustServe(t, "v2")
	if n := s.runs(t, words); n != ran+1 {
		t.Errorf("after a retry it ran %d times", n-ran)
	}

	s.Enroll(t, ready, "deadline = \"25s\"\nstable = \"1s\"")
	s.MustUser(t, "toad", "deploy", "web", s.digest(t, "never"), "--detach")
	s.WaitPhase(t, "probation")
	candidate, last := "", ""
	host.Eventually(t, "the candidate to run", time.Minute, func() bool {
		_, body := s.Get("http://127.0.0.1:8080/")
		return strings.Contains(body, "never")
	})
	candidate = s.Invocation(t)
	for {
		state, of := s.Show(t, "web.service", "ActiveState"), s.Invocation(t)
		if s.WaitPhase(t, "probation", "restoring", "rolled_back") != "probation" {
			break // what was seen may be the restore's doing
		}
		if of == candidate {
			last = state
		}
	}
	if phase := s.WaitPhase(t, "rolled_back", "rollback_failed", "withdrawn"); phase != "rolled_back" || last != "active" {
		t.Errorf("what never answers ended %s, and was %q when it was replaced\n%s", phase, last, s.Log(t))
	}
	s.MustServe(t, "v2")
	s.Enroll(t, ready, limits)
	s.Quiet(t)
}

// policies has dev prove, and prod require it.
func policies(t *testing.T, dev, prod stand) (key proof.PrivateKey, require string) {
	t.Helper()
	public := dev.MustUser(t, "toad", "proof", "keygen", ".config/toad/proof.key")
	if mode := dev.MustUser(t, "stat", "-c", "%a", ".config/toad/proof.key"); mode != "600" {
		t.Errorf("the private key has mode %s", mode)
	}
	if r := dev.User(t, "toad", "proof", "keygen", ".config/toad/proof.key"); r.Exit != 1 {
		t.Errorf("a key was replaced: exit %d", r.Exit)
	}
	key, err := proof.ParsePrivate([]byte(dev.ReadFile(t, "~/.config/toad/proof.key")))
	if err != nil {
		t.Fatal(err)
	}
	dev.WriteFile(t, "~/.config/toad/proof-policy.toml", "[prove]\nprover = \"dev\"\nkey = \"proof.key\"\nafter = \"6s\"\ncarry = \"registry\"\n", 0o600)
	require = fmt.Sprintf("[[require]]\nservices = [\"web\"]\nprover = \"dev\"\nkey = %q\ncarry = \"registry\"\n", public)
	prod.WriteFile(t, policy, require, 0o644)
	return key, require
}

// What never ran anywhere else is not taken; a deployment that waits goes on when the proof is there.
func unproven(t *testing.T, dev, prod stand) {
	prod.unmoved(t, func() { says(t, prod.deploy(t, 5, "v3"), "not_proven", "not proven by dev yet") })
	if prod.asked(t) == 0 {
		t.Error("the registry was not asked")
	}

	prod.MustUser(t, "toad", "deploy", "web", prod.digest(t, "v3"), "--wait-proof", "5m", "--detach")
	prod.unmoved(t, func() {
		host.Eventually(t, "status to say what is waited for", time.Minute, func() bool {
			s := prod.Status(t)
			return s.Operation != nil && s.Phase() == "preparing" && strings.Contains(s.Operation.Reason, "waiting for a proof")
		})
	})
	dev.deploy(t, 0, "v3")
	if r := dev.User(t, "toad", "proof", "get", "web", dev.digest(t, "v3")); r.Exit == 5 && !strings.Contains(r.Stderr, "not proven yet: on dev since") {
		t.Errorf("it is not said since when it runs: %s", r.Stderr)
	}
	if phase := prod.WaitPhase(t, "promoted", "failed", "rolled_back"); phase != "promoted" {
		t.Fatalf("production ended %s\n%s", phase, prod.Log(t))
	}
	prod.MustServe(t, "v3")
	var s struct {
		Promoted struct {
			At time.Time `json:"promoted_at"`
		}
	}
	if err := json.Unmarshal([]byte(prod.MustUser(t, "toad", "status", "web", "--json")), &s); err != nil {
		t.Fatal(err)
	}
	proven := statement(t, dev, "v3").Predicate.ProvenAt
	if took := s.Promoted.At.Sub(proven); took > time.Minute {
		t.Errorf("production deployed %s after the proof", took)
	} else {
		t.Logf("production deployed %s after the proof", took)
	}
}

// statement is what dev has proven of a release.
func statement(t *testing.T, dev stand, name string) proof.Statement {
	t.Helper()
	s, err := proof.Read([]byte(envelope(t, dev, name)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func envelope(t *testing.T, dev stand, name string) string {
	t.Helper()
	return dev.MustUser(t, "toad", "proof", "get", "web", dev.digest(t, name))
}

// Proofs that are none, each for a fault of its own, by hand and beside the release in the registry.
func proofsThatAreNone(t *testing.T, dev, prod stand, key proof.PrivateKey) {
	text, _, err := proof.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	other, err := proof.ParsePrivate(text)
	if err != nil {
		t.Fatal(err)
	}
	good := statement(t, dev, "v3")
	faults := []struct {
		name, says string // the release that it is beside
		key        proof.PrivateKey
		of         string // the release that it is about
		change     func(*proof.Predicate)
		tamper     [2]string
	}{
		{"v4", "changed since the key", key, "v4", nil, [2]string{`"restarts":0`, `"restarts":9`}},
		{"v5", "it is about the service shop", key, "v5", func(p *proof.Predicate) { p.Service = "shop" }, [2]string{}},
		{"v6", "it was proven on linux/sparc", key, "v6", func(p *proof.Predicate) { p.Platform = "linux/sparc" }, [2]string{}},
		{"v7", "it is of the prover lab", key, "v7", func(p *proof.Predicate) { p.Prover = "lab" }, [2]string{}},
		{"v8", "it is not signed by the key", other, "v8", nil, [2]string{}},
		{"v9", "it is about " + prod.digest(t, "v3"), key, "v3", nil, [2]string{}},
	}
	prod.unmoved(t, func() {
		for _, f := range faults {
			p := good.Predicate
			if f.change != nil {
				f.change(&p)
			}
			e, err := proof.Sign(t.Context(), proof.NewStatement(prod.repository, []string{prod.digest(t, f.of)}, p), f.key)
			if err != nil {
				t.Fatal(err)
			}
			if f.tamper[0] != "" {
				e = []byte(forged(t, string(e), f.tamper[0], f.tamper[1]))
			}
			dev.registry.Attach(t, prod.repository, prod.digest(t, f.name), proof.ArtifactType, e)
			says(t, prod.deploy(t, 5, f.name), "not_proven", "the proof that is here does not count for dev", f.says)

			if f.of != f.name {
				continue // by hand it would be about the other one, which is proven
			}
			prod.WriteFile(t, "~/forged", string(e), 0o600)
			if r := prod.User(t, "toad", "proof", "put", "web", "forged"); r.Exit != 64 || !strings.Contains(r.Stderr, f.says) {
				t.Errorf("%s: exit %d, %s", f.says, r.Exit, r.Stderr)
			}
		}
		prod.WriteFile(t, "~/forged", "{}", 0o600)
		if r := prod.User(t, "toad", "proof", "put", "web", "forged"); r.Exit != 64 || !strings.Contains(r.Stderr, "is not a proof") {
			t.Errorf("what is no proof: exit %d, %s", r.Exit, r.Stderr)
		}
	})
	prod.WriteFile(t, "~/good", envelope(t, dev, "v3"), 0o600)
	prod.MustUser(t, "toad", "proof", "put", "web", "good") // it may be carried by hand as well
	if show := prod.MustUser(t, "toad", "proof", "show", "good"); !strings.Contains(show, prod.digest(t, "v3")) || !strings.Contains(show, "on dev") {
		t.Errorf("show: %s", show)
	}
}

// A tag that was proven, and is given to other bytes.
func reusedTag(t *testing.T, dev, prod stand) {
	push := func(program string) string {
		if prod.binary {
			return dev.registry.PushFile(t, program, "stable")
		}
		return dev.registry.Push(t, "stable", "good", program).Digest
	}
	first := push("v11")
	says(t, dev.deployAs(t, 0, "stable"), first)
	host.Eventually(t, "the proof", time.Minute, func() bool {
		return dev.User(t, "toad", "proof", "get", "web", first).Exit == 0
	})
	says(t, prod.deployAs(t, 0, "stable"), first)
	prod.MustServe(t, "v11")
	second := push("v12")
	prod.unmoved(t, func() { says(t, prod.deployAs(t, 5, "stable"), second, "not_proven", "not proven by dev yet") })
	prod.MustServe(t, "v11")
}

// roll runs the script of the recipe, with the way into a test host in the place of ssh.
func roll(t *testing.T, dev, prod stand, name string) {
	t.Helper()
	cmd := exec.Command("../../scripts/roll", "--wait", "5m", "web", dev.digest(t, name), dev.Name, prod.Name)
	cmd.Env = append(os.Environ(), "TOAD_SSH=../../scripts/testhost user")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, s := range []string{"not proven yet: on dev since", "== " + prod.Name} {
		if !strings.Contains(string(out), s) {
			t.Errorf("%q is not said:\n%s", s, out)
		}
	}
	prod.MustServe(t, name)
}

// brokenPolicy closes the gate for new releases, and for nothing else.
func brokenPolicy(t *testing.T, prod stand, require string) {
	t.Helper()
	// While a release that was proven is on trial: it goes on.
	was := prod.Status(t).Promoted.Digest
	prod.Enroll(t, ready, "deadline = \"90s\"\nstable = \"5s\"")
	prod.MustUser(t, "toad", "rollback", "web") // no proof is asked of a way back
	before := prod.Status(t).Promoted.Digest
	prod.MustUser(t, "toad", "deploy", "web", was, "--detach")
	prod.WaitPhase(t, "probation")
	prod.WriteFile(t, policy, "[[require]\n", 0o644)
	if phase := prod.WaitPhase(t, "promoted", "failed", "rolled_back"); phase != "promoted" {
		t.Fatalf("a policy that broke during the probation ended it %s\n%s", phase, prod.Log(t))
	}
	prod.unmoved(t, func() { says(t, prod.deploy(t, 5, "v4"), "not_proven", "the proof policy cannot be read") })
	prod.MustUser(t, "toad", "rollback", "web")
	if now := prod.Status(t).Promoted.Digest; now != before {
		t.Errorf("%s is in force after a rollback, want %s", now, before)
	}
	// Without the requirement it is taken, and the tick says every hour that it was taken away.
	prod.MustExec(t, "rm", policy)
	prod.tick(t)
	prod.WriteFile(t, policy, require, 0o644)
	prod.tick(t)
	prod.MustExec(t, "rm", policy)
	prod.tick(t)
	// Of a line whose process has ended journald may not know the unit any more.
	if j := prod.MustExec(t, "journalctl", "-o", "cat", "--no-pager"); strings.Count(j, "no proof is required any more of web") != 1 {
		t.Error("the tick does not tell of a requirement that was taken away")
	}
	prod.deploy(t, 0, "v4")
	prod.Quiet(t)
}
