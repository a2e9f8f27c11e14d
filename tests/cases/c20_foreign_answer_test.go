//go:build e2e

package cases

import (
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

// C20: something else answers on the readiness port, and a deployment of nothing is reported as good.
//
// toad replaces a unit by one restart job, so there is no moment between stop and start at which the port must be silent.
// It asks instead whose the port is: a published one can only be the container's, and where the container shares the host's
// network, the socket that listens must belong to a process of the unit.
func TestC20SomethingElseAnswers(t *testing.T) {
	network := strings.Replace(image(host.Repository+":v1"), "PublishPort=127.0.0.1:8080:8080", "Network=host\nEnvironment=PORT=9090", 1)
	b := lay(t, scene.Options{Stopped: true, Quadlet: network, Limits: "deadline = \"12s\"\nstable = \"500ms\""})
	foreign := func(port string) {
		b.MustUser(t, "systemd-run", "--user", "-q", "--collect", "--unit", "foreign-"+port, "-E", "PORT="+port, "/usr/local/lib/toad-tests/sample", "good")
		host.Eventually(t, "the other program to answer", host.Limit, func() bool {
			status, _ := b.Get("http://127.0.0.1:" + port + "/healthz")
			return status == 200
		})
	}

	// The candidate listens elsewhere, or nowhere, and the answer is good all the same.
	foreign("8080")
	b.deploy(t, "v1", ending{exit: 3, phase: "withdrawn", code: "deadline_exceeded", says: []string{"it was answered by something that is not web.service"}})
	b.deploy(t, "silent", ending{exit: 3, phase: "withdrawn", code: "deadline_exceeded", says: []string{"it was answered by something that is not web.service"}})

	// The candidate finds its port taken, and dies of it: that is not its fault.
	b.Enroll(t, strings.Replace(ready, "8080", "9090", 1), limits)
	foreign("9090")
	b.deploy(t, "v2", ending{exit: 3, phase: "withdrawn", code: "interrupted", says: []string{"is held by something that is not web.service"}})
	b.MustUser(t, "systemctl", "--user", "stop", "foreign-9090")
	b.deploy(t, "v2", promoted("v2"))

	// The unit publishes nothing where the probe asks: it would be answered by something else, if at all.
	b.Enroll(t, ready, "deadline = \"12s\"\nstable = \"500ms\"")
	b.operators(t, strings.Replace(image(host.Repository+":v1"), "PublishPort=127.0.0.1:8080:8080", "", 1))
	b.refuses(t, "nothing published", "probe_mismatch", "does not publish port 8080", "something else would answer")

	// It appears only after the start.
	b.MustUser(t, "systemctl", "--user", "stop", "foreign-8080")
	b.operators(t, network)
	b.MustUser(t, "toad", "deploy", "web", b.Digest(t, "v3"), "--detach")
	b.WaitPhase(t, "probation")
	foreign("8080")
	if phase := b.WaitPhase(t, "promoted", "rolled_back", "rollback_failed"); phase == "promoted" {
		t.Errorf("promoted by the answer of another program\n%s", b.Log(t))
	}
}
