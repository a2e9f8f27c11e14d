//go:build e2e

package cases

import (
	"fmt"
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C29: after a power loss the record has the right name and the wrong content, and the service starts as if it had no
// history. A record that cannot be believed is never taken for a new service: what is refused would be forgotten.
func TestC29TornRecords(t *testing.T) {
	const services = "/home/toad/.local/state/toad/services/"
	b := lay(t, scene.Options{})
	text := b.ReadFile(t, enrollment)
	b.WriteFile(t, folder+"web2.container", "[Container]\nImage="+host.Repository+":v1\nNetwork=none\n[Service]\nRestart=always\n", 0o644)
	b.WriteFile(t, enrollment, text+fmt.Sprintf("\n[service.web2]\nunits = [\"web2.container\"]\nimage = %q\n[service.web2.probation]\nstable = \"500ms\"\n", host.Repository), 0o644)
	b.MustUser(t, "systemctl", "--user", "daemon-reload")
	b.MustUser(t, "systemctl", "--user", "start", "--no-block", "web2.service")
	b.deploy(t, "v2", promoted("v2"))
	b.deploy(t, "crash", rolledBack("candidate_exited", "v2"))
	if r := b.User(t, "toad", "deploy", "web2", b.Digest(t, "v2")); r.Exit != 0 {
		t.Fatalf("web2: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	good, other := b.ReadFile(t, services+"web.json"), b.ReadFile(t, services+"web2.json")
	digests := []string{b.Digest(t, "v3"), b.Digest(t, "v2")}
	for i, c := range []struct{ name, content string }{
		{"empty", ""},
		{"NULs", strings.Repeat("\x00", len(good))},
		{"half", good[:len(good)/2]},
		{"another service's", other},
		{"of a newer toad", strings.Replace(good, `"schema": 1`, `"schema": 99`, 1)},
	} {
		if c.content == good {
			t.Fatalf("%s: the record is whole", c.name)
		}
		b.MustUser(t, "systemctl", "--user", "stop", "toad.service")
		b.WriteFile(t, services+"web.json", c.content, 0o600)
		b.WriteFile(t, services+".toad-tmp-123", "half a wri", 0o600)
		invocation := b.Invocation(t)
		for _, tag := range []string{"v3", "crash"} {
			if r := b.User(t, "toad", "deploy", "web", b.Digest(t, tag)); r.Exit != 5 || !strings.Contains(r.Stderr, "web") || !strings.Contains(r.Stderr, "doctor --repair web") {
				t.Errorf("%s: deploy %s: want exit 5, have %d\n%s%s", c.name, tag, r.Exit, r.Stdout, r.Stderr)
			}
		}
		if out := b.MustUser(t, "toad", "status"); !strings.Contains(out, "damaged") || !strings.Contains(out, "web2") {
			t.Errorf("%s: toad status:\n%s", c.name, out)
		}
		aside := i + 1
		if c.name == "of a newer toad" { // it is whole, so it waits for that toad
			aside = i
			if have := b.ReadFile(t, services+"web.json"); have != c.content {
				t.Errorf("%s: it was changed:\n%s", c.name, have)
			}
		}
		if kept := b.MustUser(t, "sh", "-c", "ls "+services+" | grep -cE 'web.(json.corrupt|repaired)-' || true"); kept != fmt.Sprint(aside) {
			t.Errorf("%s: want what was damaged kept aside, have %s of %d", c.name, kept, aside)
		}
		if have := b.Invocation(t); have != invocation {
			t.Errorf("%s: the unit was started again", c.name)
		}
		if i == 0 { // the others are not held up
			if r := b.User(t, "toad", "deploy", "web2", digests[0]); r.Exit != 0 {
				t.Errorf("%s: web2: exit %d\n%s%s", c.name, r.Exit, r.Stdout, r.Stderr)
			}
		}
		b.MustUser(t, "toad", "doctor", "--repair", "web")
		if s := b.Status(t); s.Promoted == nil || s.Promoted.Digest != b.Digest(t, "v2") || len(s.Refusals) != 1 {
			t.Errorf("%s: repaired it is %+v", c.name, s)
		}
	}
	if r := b.User(t, "toad", "deploy", "web", b.Digest(t, "crash")); r.Exit != 5 || !strings.Contains(r.Stderr, "failed here as web-g2") {
		t.Errorf("the refusal is forgotten: exit %d\n%s", r.Exit, r.Stderr)
	}
	b.deploy(t, "v3", promoted("v3"))
}
