//go:build e2e

package install

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestAnAdministratorsWholeWayWithTheDaemonInAContainer(t *testing.T) {
	if os.Getenv("TOAD_ALL") == "" {
		t.Log("the short form is TestAnAdministratorsWholeWay, with the daemon on the host")
		return
	}
	t.Parallel()
	wholeWay(t, "container")
}

// inside looks at the daemon's own container, where there is one.
func (b *bed) inside(t *testing.T) {
	t.Helper()
	b.toad(t, 0, "status") // starts it
	if names := b.sh(t, "podman ps --format {{.Names}}"); !slices.Contains(strings.Fields(names), "toad") {
		t.Fatalf("toad does not run in a container: %s", names)
	}
	var c []struct {
		EffectiveCaps []string
		Mounts        []struct {
			Type, Source, Destination string
			RW                        bool
		}
		HostConfig struct {
			ReadonlyRootfs bool
			NetworkMode    string
		}
		State struct{ Pid int }
	}
	if err := json.Unmarshal([]byte(b.sh(t, "podman inspect toad")), &c); err != nil || len(c) != 1 {
		t.Fatal(err)
	}
	var mounts []string
	for _, m := range c[0].Mounts {
		mounts = append(mounts, m.Source)
		if m.Type != "bind" || m.Source != m.Destination {
			t.Errorf("mounted is %+v", m)
		}
	}
	slices.Sort(mounts)
	uid := b.MustExec(t, "id", "-u", user)
	want := []string{"/data/toad", "/home/apps/.config/containers", "/home/apps/.config/toad", "/run/user/" + uid}
	if !slices.Equal(mounts, want) || len(c[0].EffectiveCaps) > 0 || !c[0].HostConfig.ReadonlyRootfs || c[0].HostConfig.NetworkMode != "none" {
		t.Errorf("want the mounts %q, have %q in %+v", want, mounts, c[0])
	}
	pid := b.sh(t, "systemctl --user show -P MainPID toad.service; podman inspect toad --format {{.State.Pid}}")
	pid = strings.Fields(pid)[1]
	status := b.MustExec(t, "sh", "-c", "grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs)' /proc/"+pid+"/status; find /data/toad/rootfs -type f -size +0 | tr '\\n' ' '")
	for _, want := range []string{"Uid:\t" + uid, "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "/data/toad/rootfs/toad"} {
		if !strings.Contains(status, want) {
			t.Errorf("want %q, have\n%s", want, status)
		}
	}
	if files := b.MustExec(t, "sh", "-c", "find /data/toad/rootfs -type f -size +0 | wc -l"); files != "1" {
		t.Errorf("its root holds %s files", files)
	}
	b.step(t, "toad's container: %s\n%s", strings.Join(mounts, " "), status)
}
