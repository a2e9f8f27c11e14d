//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C02: hand-kept files have the value on the next line, and the old run command pasted in as comments. Parsers that work
// line by line lose the value, or take a commented image for the real one.
func TestC02ContinuationsAndComments(t *testing.T) {
	const rest = `PublishPort=127.0.0.1:8080:8080
Environment=A=1 \
# a note inside the continuation
  B=2
[Service]
Restart=always
RestartSec=1

[Install]
WantedBy=default.target` // no newline at the end
	b := bare(t)
	b.up(t, scene.Options{Quadlet: "[Container]\nImage= \\\n  " + host.Repository + ":v1\n" + rest})
	b.deploy(t, "v2", promoted("v2"))
	pinned := b.ReadFile(t, pin)
	for _, c := range []struct{ name, lines string }{
		{"the value on the next line", "Image= \\\n  " + host.Repository + ":v1\n"},
		{"the value cut in two", "Image=" + host.Repository[:len(host.Repository)-3] + "\\\napp:v1\n"},
		{"commented images", "# -e OLD=1 \\\n#Image=127.0.0.1:5000/app:old\n;Image=127.0.0.1:5000/app:older\nImage=" + host.Repository + ":v1\n"},
	} {
		b.operators(t, "[Container]\n"+c.lines+rest)
		b.accepts(t, c.name)
		if have := b.command(t, "web.service"); !strings.Contains(have, " "+b.at(t, "v2")+" ") || !strings.Contains(have, "B=2") {
			t.Errorf("%s: the command is %s", c.name, have)
		}
	}
	b.deploy(t, "crash", rolledBack("candidate_exited", "v2"))

	// The same digest once more changes nothing.
	before := b.state(t)
	if r := b.User(t, "toad", "deploy", "web", b.Digest(t, "v2")); r.Exit != 0 || !strings.Contains(r.Stdout, "already") {
		t.Errorf("the same again: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	if after := b.state(t); after != before || b.ReadFile(t, pin) != pinned {
		t.Errorf("the same again changed something\nbefore %+v\nafter  %+v", before, after)
	}
}
