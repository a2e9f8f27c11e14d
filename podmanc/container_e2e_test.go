//go:build e2e

package podmanc

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestE2EContainers(t *testing.T) {
	startRegistry(t)
	c := New("")
	p := push(t, recipe{version: "run", docker: true, health: true})
	mustPull(t, c, p.ref())
	run(t, "podman", "run", "-d", "--name", "e2eweb", "--label", "io.toad.operation=web-g7", "--label", "PODMAN_SYSTEMD_UNIT=web.service",
		"-p", "127.0.0.1:18099:8080", "-p", "18100-18101:90-91/udp", p.ref())
	t.Cleanup(func() { run(t, "podman", "rm", "-f", "-t0", "e2eweb", "e2efail", "e2ehost") })
	begin := time.Now()
	have, err := c.Container(t.Context(), "e2eweb")
	t.Logf("%s: %+v, %v", time.Since(begin).Round(time.Microsecond), have, err)
	if err != nil || !have.Running || have.Name != "e2eweb" || have.ImageID != p.id || have.ImageRef != p.ref() || have.Unit != "web.service" ||
		have.Pid == 0 || time.Since(have.StartedAt) > time.Minute || have.HostNetwork || have.Status != "running" || len(have.Ports) != 3 {
		t.Errorf("have %+v", have)
	}
	for _, want := range []Port{{"127.0.0.1", 18099, 8080, "tcp"}} {
		if !slices.Contains(have.Ports, want) {
			t.Errorf("want %+v in %+v", want, have.Ports)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for have.Health != "healthy" && time.Now().Before(deadline) {
		time.Sleep(200 * time.Millisecond)
		if have, err = c.Container(t.Context(), have.ID); err != nil {
			t.Fatal(err)
		}
	}
	if have.Health != "healthy" {
		t.Errorf("have health %q", have.Health)
	}
	_ = exitOf(t, "podman", "run", "--name", "e2efail", "--label", "io.toad.operation=web-g7", "--network=none", "--no-healthcheck", p.ref(), "fail")
	run(t, "podman", "run", "-d", "--name", "e2ehost", "--network=host", "--no-healthcheck", p.ref())
	if have, err := c.Container(t.Context(), "e2ehost"); err != nil || !have.HostNetwork || have.Health != "" || len(have.Ports) != 0 {
		t.Errorf("have %+v, %v", have, err)
	}
	if have, err := c.Container(t.Context(), "e2efail"); err != nil || have.Running || have.ExitCode != 3 || have.Status != "exited" || have.Pid != 0 {
		t.Errorf("have %+v, %v", have, err)
	}
	list, err := c.Containers(t.Context(), "io.toad.operation=web-g7")
	if err != nil || len(list) != 2 {
		t.Fatalf("have %+v, %v", list, err)
	}
	for _, l := range list {
		if l.ImageID != p.id || l.Running != (l.Name == "e2eweb") || l.Running != (l.Pid != 0) || (l.ExitCode == 3) != (l.Name == "e2efail") {
			t.Errorf("have %+v", l)
		}
	}
	for _, name := range []string{"e2eweb", "e2efail"} {
		begin := time.Now()
		lines, err := c.Logs(t.Context(), name, 5)
		t.Logf("%s: %s %q", name, time.Since(begin).Round(time.Millisecond), lines)
		if err != nil || len(lines) != 5 || !strings.HasSuffix(strings.Join(lines, " "), "29") {
			t.Errorf("have %q, %v", lines, err)
		}
	}
	if _, err := c.Container(t.Context(), "e2enone"); !errors.Is(err, ErrNoContainer) {
		t.Errorf("have %v", err)
	}
	if _, err := c.Logs(t.Context(), "e2enone", 2); !errors.Is(err, ErrNoContainer) {
		t.Errorf("have %v", err)
	}
}

func TestE2ETimes(t *testing.T) {
	startRegistry(t)
	p := push(t, recipe{version: "oci"})
	mustPull(t, New(""), p.ref())
	median := func(n int, f func()) time.Duration {
		var all []time.Duration
		for range n {
			begin := time.Now()
			f()
			all = append(all, time.Since(begin))
		}
		slices.Sort(all)
		return all[n/2].Round(10 * time.Microsecond)
	}
	look := func(c *Client) {
		if _, err := c.Image(t.Context(), p.ref()); err != nil {
			t.Fatal(err)
		}
	}
	c := New("")
	t.Log("Image, same client:", median(50, func() { look(c) }))
	t.Log("Image, new client:", median(50, func() { look(New("")) }))
	t.Log("Image, service stopped before (stop included):", median(5, func() {
		run(t, "systemctl", "--user", "stop", "podman.service")
		look(New(""))
	}))
	t.Log("the stop alone:", median(5, func() { run(t, "systemctl", "--user", "stop", "podman.service") }))
}
