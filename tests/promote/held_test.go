//go:build e2e

package promote

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"toad/tests/scene"
)

const heldSocket = `[Socket]
ListenStream=127.0.0.1:8080
Backlog=4096
TriggerLimitIntervalSec=0
PollLimitIntervalSec=2s
PollLimitBurst=4
[Install]
WantedBy=sockets.target
`

// With a socket unit that keeps the port, nobody is turned away: not while a good release replaces another, and not
// while a bad one is put back before it accepted anything.
func TestAHeldPortRefusesNobody(t *testing.T) {
	quadlet := strings.Replace(scene.Quadlet, "PublishPort=127.0.0.1:8080:8080", "Network=none", 1)
	quadlet = strings.Replace(quadlet, "Description=web", "Description=web\nRequires=web.socket\nAfter=web.socket\nStartLimitIntervalSec=0", 1)
	w := scene.New(t, scene.Options{Quadlet: quadlet, Files: map[string]string{"~/.config/systemd/user/web.socket": heldSocket}})
	enrollment := w.ReadFile(t, "~/.config/toad/enrollment.toml")
	w.WriteFile(t, "~/.config/toad/enrollment.toml", enrollment+"\n[service.web.switch]\nhold = \"web.socket\"\n", 0o644)

	stop := make(chan struct{})
	var load sync.WaitGroup
	var mu sync.Mutex
	asked, failed := 0, map[string]int{}
	load.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				load.Go(func() {
					status, body := w.Get("http://127.0.0.1:8080/")
					mu.Lock()
					defer mu.Unlock()
					if asked++; status != 200 {
						failed[fmt.Sprintf("%d %s", status, body)]++
					}
				})
			}
		}
	})
	w.MustDeploy(t, 0, "v2")
	w.MustDeploy(t, 3, "crash")
	w.MustDeploy(t, 0, "v3")
	close(stop)
	load.Wait()
	if len(failed) > 0 {
		t.Errorf("%v of %d requests failed\n%s", failed, asked, w.Log(t))
	}
	t.Logf("%d requests, none failed", asked)
	w.MustServe(t, "v3")
	if state := w.Show(t, "web.socket", "ActiveState"); state != "active" {
		t.Errorf("the socket is %s", state)
	}
	w.Quiet(t)
}
