//go:build e2e

package main

import (
	"fmt"
	"strings"

	"toad/tests/host"
)

// autoUpdate is podman auto-update --rollback, on a Quadlet like toad's beside it on the same host.
type autoUpdate struct {
	*host.Host
	unit    string
	healthy bool // started means healthy, which is the best that auto-update can be told
	version string
}

const peerQuadlet = `[Container]
Image=127.0.0.1:5000/app:%[1]s
PublishPort=127.0.0.1:%[2]d:8080
AutoUpdate=registry
%[3]s
[Service]
Restart=always
RestartSec=1
TimeoutStopSec=3
TimeoutStartSec=%[4]d

[Install]
WantedBy=default.target
`

const peerHealth = `Notify=healthy
HealthCmd=["/app","health"]
HealthInterval=2s
`

func newAutoUpdate(b *bench, h *host.Host, healthy bool) *autoUpdate {
	a := &autoUpdate{Host: h, unit: "plain", healthy: healthy}
	more := ""
	if healthy {
		a.unit, more = "healthy", peerHealth
	}
	h.WriteFile(b, "~/.config/containers/systemd/"+a.unit+".container",
		fmt.Sprintf(peerQuadlet, a.unit, a.port(), more, int(readyWithin.Seconds())), 0o644)
	h.MustUser(b, "systemctl", "--user", "daemon-reload")
	a.version = "first"
	a.reset(b)
	return a
}

func (a *autoUpdate) name() string {
	if a.healthy {
		return "podman auto-update, Notify=healthy"
	}
	return "podman auto-update"
}

func (a *autoUpdate) port() int {
	if a.healthy {
		return 8082
	}
	return 8081
}

func (a *autoUpdate) good() string           { return a.version }
func (a *autoUpdate) promote(version string) { a.version = version }

func (a *autoUpdate) offer(b *bench, version, behaviour string) {
	a.Push(b, a.unit, behaviour, version)
}

func (a *autoUpdate) update(b *bench) (string, int) {
	r := a.User(b, "podman", "auto-update", "--rollback", "--format", "{{.Unit}} {{.Updated}}")
	said := "nothing"
	for line := range strings.Lines(r.Stdout) {
		if word, ok := strings.CutPrefix(strings.TrimSpace(line), a.unit+".service "); ok {
			said = map[string]string{"true": "updated", "false": "nothing to update"}[word]
			if said == "" {
				said = word
			}
		}
	}
	return said, r.Exit
}

// reset does what an operator would have to: the tag back, the image back, the unit started again.
func (a *autoUpdate) reset(b *bench) {
	a.Push(b, a.unit, "good", a.version)
	a.MustUser(b, "podman", "pull", "-q", "127.0.0.1:5000/app:"+a.unit)
	a.User(b, "systemctl", "--user", "reset-failed", a.unit+".service")
	a.MustUser(b, "systemctl", "--user", "restart", a.unit+".service")
	serves(b, a.Host, a.port(), a.version)
}
