//go:build e2e

package agent

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"toad/agent/protocol"
)

// cell is a point at which the tick is killed, at its nth passing.
type cell struct {
	point string
	n     int
	bad   bool // of a bundle that is put back
	all   bool // with TOAD_ALL=1 only
}

var cells = []cell{
	{"file.rename.manifest.json", 1, false, true},
	{"file.rename.bearer", 1, false, true},
	{"file.renamed.bearer", 1, false, false},
	{"podman.secret.before", 1, false, true},
	{"podman.secret.after", 1, false, true},
	{"file.renamed.state.json", 1, false, true},
	{"file.renamed.state.json", 2, false, false},
	{"file.renamed.current", 1, false, true},
	{"file.renamed.agent.toml", 1, false, true},
	{"bus.Reload.before", 1, false, true},
	{"record.saved.accepted", 1, false, true},
	{"bus.StartTransientUnit.after", 1, false, true},
	{"podman.drop.before", 1, false, false},
	{"podman.drop.after", 1, false, true},
	{"file.renamed.state.json", 3, true, false},
	{"file.renamed.agent.toml", 2, true, true},
	{"bus.Reload.after", 2, true, true},
}

const fault = "~/.local/state/toad/fault"

// A tick that is killed at any of its steps is carried on by the next: the bundle is in force, or the one before is, nothing is
// left of either, and it is reported once.
func TestATickThatIsKilledIsCarriedOn(t *testing.T) {
	t.Parallel()
	s := newSite()
	b := s.boxes(t, 1, true)[0]
	s.PutSecret(env, "key", "value-0-of-the-key")
	tags := []string{"v1", "v2"}
	s.publish(t, part{"web", b.Digest(t, "v1"), 8080, secret})
	b.bootstrap(t)
	b.Serves(t, "v1")
	in := 0
	for i, c := range cells {
		if c.all && os.Getenv("TOAD_ALL") == "" {
			continue
		}
		t.Run(fmt.Sprintf("%s %d", c.point, c.n), func(t *testing.T) {
			reports := len(s.Reports(env, b.name))
			value := fmt.Sprintf("value-%d-of-the-key", i+1)
			s.PutSecret(env, "key", value)
			want, result, more := tags[1-in], protocol.ResultApplied, secret
			if c.bad {
				want, result, more = tags[in], protocol.ResultFailed, secret+"Exec=crash\n"
			}
			sha := s.publish(t, part{"web", b.Digest(t, tags[1-in]), 8080, fmt.Sprintf("%sEnvironment=N=%d\n", more, i)})
			b.WriteFile(t, fault, fmt.Sprintf("%s %d kill\n", c.point, c.n), 0o600)
			b.User(t, "systemctl", "--user", "start", "toad-agent.service")
			if b.User(t, "sh", "-c", "test -e "+fault).Exit == 0 {
				t.Fatalf("the point was not met\n%s", b.Journal(t, "toad-agent.service"))
			}
			b.User(t, "sh", "-c", "systemctl --user start toad-agent.service; systemctl --user reset-failed toad-agent.service")
			b.MustServe(t, want)
			if !c.bad {
				in = 1 - in
				if have := b.inside(t); have != value {
					t.Errorf("the application has %q", have)
				}
			}
			all := s.Reports(env, b.name)[reports:]
			if len(all) != 1 || all[0].Result != result || all[0].BundleSHA != sha {
				t.Errorf("reported: %+v\n%s", all, b.Journal(t, "toad-agent.service"))
			}
			b.Quiet(t)
			if left := strings.Fields(b.MustUser(t, "sh", "-c", "ls .local/state/toad/agent/releases")); len(left) > 3 {
				t.Errorf("releases: %v", left)
			}
		})
	}
	b.noSecret(t)
}
