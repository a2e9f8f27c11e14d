package proof

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
)

const repository = "registry.example.org/team/web"

var (
	manifest = "sha256:" + strings.Repeat("a", 64)
	index    = "sha256:" + strings.Repeat("b", 64)
	wanted   = Wanted{Service: "web", Repository: repository, Platform: "linux/amd64", Digests: []string{manifest}}
)

func newKey(t *testing.T) (PrivateKey, PublicKey) {
	t.Helper()
	text, public, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	private, err := ParsePrivate(text)
	if err != nil {
		t.Fatal(err)
	}
	if private.Public().Line() != public.Line() {
		t.Fatal("the halves do not fit")
	}
	return private, public
}

func predicate() Predicate {
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	return Predicate{Service: "web", Platform: "linux/amd64", Prover: "dev", Since: now.Add(-15 * time.Minute), ProvenAt: now,
		StableFor: "15m0s", Version: "1"}
}

func sign(t *testing.T, key PrivateKey, s Statement) []byte {
	t.Helper()
	e, err := Sign(t.Context(), s, key)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAProofMeetsARequirementOnlyWhole(t *testing.T) {
	key, public := newKey(t)
	other, _ := newKey(t)
	good := NewStatement(repository, []string{manifest, index}, predicate())
	change := func(f func(*Statement)) Statement {
		s := NewStatement(repository, []string{manifest, index}, predicate())
		f(&s)
		return s
	}
	tampered := func() []byte {
		var env dsse.Envelope
		if err := json.Unmarshal(sign(t, key, change(func(s *Statement) { s.Predicate.Service = "shop" })), &env); err != nil {
			t.Fatal(err)
		}
		payload, _ := base64.StdEncoding.DecodeString(env.Payload)
		env.Payload = base64.StdEncoding.EncodeToString(bytes.Replace(payload, []byte(`"shop"`), []byte(`"web"`), 1))
		text, _ := json.Marshal(env)
		return text
	}
	r := Requirement{Prover: "dev", Key: public}
	tests := []struct {
		name     string
		envelope []byte
		want     string
	}{
		{"good", sign(t, key, good), ""},
		{"none", nil, "not proven by dev yet"},
		{"another key", sign(t, other, good), "not signed by the key"},
		{"tampered", tampered(), "changed since the key"},
		{"another service", sign(t, key, change(func(s *Statement) { s.Predicate.Service = "shop" })), "service shop"},
		{"another platform", sign(t, key, change(func(s *Statement) { s.Predicate.Platform = "linux/arm64" })), "linux/arm64"},
		{"another prover", sign(t, key, change(func(s *Statement) { s.Predicate.Prover = "lab" })), "prover lab"},
		{"another image", sign(t, key, NewStatement(repository, []string{index}, predicate())), index},
		{"another repository", sign(t, key, NewStatement("registry.example.org/other", []string{manifest}, predicate())), "registry.example.org/other"},
		{"garbage", []byte("{}"), "not a proof"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var all [][]byte
			if tt.envelope != nil {
				all = [][]byte{tt.envelope}
			}
			err := r.Missing(t.Context(), wanted, all)
			switch {
			case tt.want == "" && err != nil, tt.want != "" && err == nil:
				t.Errorf("have %v", err)
			case err != nil && tt.name != "garbage" && !strings.Contains(err.Error(), tt.want):
				t.Errorf("%q is not in %v", tt.want, err)
			}
		})
	}
	if err := r.Missing(t.Context(), wanted, [][]byte{sign(t, other, good), sign(t, key, good)}); err != nil {
		t.Errorf("one of two counts: %v", err)
	}
}

// A second implementation, which shares nothing with ours, verifies the signature over the pre-authentication encoding.
func TestOpenSSLVerifiesAProof(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	if err != nil {
		t.Fatal("this test needs openssl")
	}
	key, public := newKey(t)
	var env struct {
		PayloadType, Payload string
		Signatures           []struct{ Sig string }
	}
	if err := json.Unmarshal(sign(t, key, NewStatement(repository, []string{manifest}, predicate())), &env); err != nil {
		t.Fatal(err)
	}
	payload, err := base64.StdEncoding.DecodeString(env.Payload)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := base64.StdEncoding.DecodeString(env.Signatures[0].Sig)
	if err != nil {
		t.Fatal(err)
	}
	// DSSEv1 <length of type> <type> <length of payload> <payload>
	pae := []byte("DSSEv1 28 application/vnd.in-toto+json " + itoa(len(payload)) + " " + string(payload))
	verify := func(pae []byte) error {
		dir := t.TempDir()
		for name, data := range map[string][]byte{"key.pem": []byte(public.PEM()), "sig": sig, "pae": pae} {
			if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command(openssl, "pkeyutl", "-verify", "-pubin", "-inkey", "key.pem", "-rawin", "-in", "pae", "-sigfile", "sig")
		cmd.Dir = dir
		return cmd.Run()
	}
	if err := verify(pae); err != nil {
		t.Errorf("openssl: %v", err)
	}
	if verify(append(pae, '!')) == nil {
		t.Error("openssl takes anything")
	}
}

func itoa(n int) string {
	text, _ := json.Marshal(n)
	return string(text)
}

func TestPolicy(t *testing.T) {
	_, public := newKey(t)
	line := public.Line()
	good := "[prove]\nprover = \"dev\"\nkey = \"proof.key\"\nafter = \"20m\"\n[[require]]\nservices = [\"web\"]\nprover = \"stage\"\nkey = \"" + line + "\"\ncarry = \"registry\"\n"
	p, err := ParsePolicy([]byte(good))
	if err != nil || p.Prove == nil || p.Prove.After != 20*time.Minute || len(p.For("web")) != 1 || len(p.For("shop")) != 0 || !p.Proves("web") {
		t.Fatalf("%+v, %v", p, err)
	}
	if p, err := ParsePolicy([]byte("[[require]]\nprover = \"dev\"\nkey = '''" + public.PEM() + "'''\n")); err != nil || len(p.For("shop")) != 1 {
		t.Errorf("%+v, %v", p, err)
	}
	private, _, _ := NewKey()
	for text, want := range map[string]string{
		"[prove]\nprover = \"dev\"\n":                         "keygen",
		"[prove]\nprover = \"Dev\"\nkey = \"k\"\n":            "prover",
		"[prove]\nprover=\"d\"\nkey=\"k\"\nafter = \"1\"\n":   "after",
		"[prove]\nprover=\"d\"\nkey=\"k\"\ncarry = \"usb\"\n": "carry",
		"[prov]\n":                        "prov is no setting",
		"[[require]]\nprover = \"dev\"\n": "public key",
		"[[require]]\nprover = \"dev\"\nkey = '''" + string(private) + "'''\n":     "not a public key",
		"[[require]]\nkey = \"" + line + "\"\n":                                    "prover",
		"[[require]]\nprover = \"dev\"\nkey = \"" + line + "\"\noptional = true\n": "optional is no setting",
		"[[require]\n": "line 1",
	} {
		_, err := ParsePolicy([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: want %q, have %v", text, want, err)
		}
		if err != nil && strings.Contains(err.Error(), strings.Split(string(private), "\n")[1]) {
			t.Errorf("the error holds the private key: %v", err)
		}
	}
}

func TestAUsersPolicyTakesNothingAway(t *testing.T) {
	_, a := newKey(t)
	_, b := newKey(t)
	system := Policy{Prove: &Prove{Prover: "dev"}, Require: []Requirement{{Prover: "stage", Key: a}}}
	user := Policy{Prove: &Prove{Prover: "mine"}, Require: []Requirement{{Prover: "stage", Key: b}}}
	if p := user.Under(system); p.Prove.Prover != "dev" || len(p.For("web")) != 2 {
		t.Errorf("%+v", p)
	}
	if p := (Policy{}).Under(system); len(p.For("web")) != 1 {
		t.Errorf("%+v", p)
	}
	if p := user.Under(Policy{}); p.Prove.Prover != "mine" || len(p.For("web")) != 1 {
		t.Errorf("%+v", p)
	}
}

func FuzzRead(f *testing.F) {
	text, _, err := NewKey()
	if err != nil {
		f.Fatal(err)
	}
	key, err := ParsePrivate(text)
	if err != nil {
		f.Fatal(err)
	}
	e, err := Sign(f.Context(), NewStatement(repository, []string{manifest}, predicate()), key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(e)
	f.Add([]byte(`{"payloadType":"application/vnd.in-toto+json","payload":"e30=","signatures":[{"sig":""}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if s, err := Read(data); err == nil && (len(s.Digests()) == 0 || s.Predicate.Prover == "") {
			t.Errorf("%+v", s)
		}
		if _, err := Open(t.Context(), data, PublicKey{}); err == nil {
			t.Error("it opens without a key")
		}
	})
}
