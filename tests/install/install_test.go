//go:build e2e

package install

import (
	"slices"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
)

func TestAnAdministratorsWholeWay(t *testing.T) {
	t.Parallel()
	wholeWay(t, "binary")
}

// confined looks at what the user manager made of the confinement of toad's units; all that was deployed before ran in it.
func (b *bed) confined(t *testing.T) {
	t.Helper()
	for property, want := range map[string]string{"NoNewPrivileges": "yes", "LimitCORE": "0", "LockPersonality": "yes", "MemoryDenyWriteExecute": "yes",
		"RestrictNamespaces": "yes", "RestrictRealtime": "yes", "RestrictSUIDSGID": "yes", "SystemCallArchitectures": "native"} {
		have := strings.Fields(b.sh(t, "systemctl --user show -P "+property+" toad-tick.service toad-fence.service"))
		if !slices.Equal(have, []string{want, want}) {
			t.Errorf("%s is %q", property, have)
		}
	}
}

// wholeWay is the life of toad on a host.
func wholeWay(t *testing.T, shape string) {
	b := newBed(t)
	b.refusals(t)

	b.mustInstall(t, "make the user apps", "--user", user, "--shape", shape)
	b.mustInstall(t, "nothing to do", "--user", user)
	b.mustInstall(t, "nothing to do")
	if uid := b.MustExec(t, "id", "-u", user); uid == "1000" {
		t.Errorf("%s has uid %s", user, uid)
	}
	b.applications(t)

	if shape == "container" {
		b.inside(t)
	}
	b.looks(t)
	b.toad(t, 0, "deploy", "web", "v2")
	b.confined(t)
	b.toad(t, 0, "deploy", "store", b.Digest(t, "store-v2"))
	b.toad(t, 3, "deploy", "web", b.Digest(t, "crash"))
	b.toad(t, 3, "deploy", "store", b.Digest(t, "store-bad"))
	b.serves(t, webPort, "v2")
	b.serves(t, storePort, "v2")
	b.withoutPrivileges(t)

	b.Reboot(t)
	b.serves(t, webPort, "v3")
	b.serves(t, storePort, "v2")
	if shape == "container" {
		b.inside(t)
	}
	b.step(t, "after a reboot both serve\n%s", b.toad(t, 0, "status"))

	b.idle(t)
	b.sh(t, "podman system prune -af >/dev/null")
	b.step(t, "pruned while toad was idle")
	b.toad(t, 0, "rollback", "web")
	b.serves(t, webPort, "v2")

	b.mustInstall(t, "write /usr/local/lib/toad/toad\n", "--binary", "/root/src/bin/toad-next")
	b.mustInstall(t, "nothing to do", "--binary", "/root/src/bin/toad-next")
	if have := b.toad(t, 0, "version"); !strings.Contains(have, "-faults") {
		t.Errorf("after an upgrade it is %s", have)
	}
	b.toad(t, 0, "doctor")
	b.toad(t, 0, "deploy", "web", b.Digest(t, "v4"))

	b.mustInstall(t, "done: toad is gone", "--uninstall")
	b.mustInstall(t, "nothing to do", "--uninstall")
	b.nothingLeft(t)
	b.serves(t, webPort, "v4")
	b.Reboot(t)
	b.serves(t, webPort, "v4")
	b.serves(t, storePort, "v2")
	b.step(t, "toad is gone, and both serve after a reboot")
}

// refusals are told before anything is changed.
func (b *bed) refusals(t *testing.T) {
	t.Helper()
	b.WriteFile(t, "/opt/old/podman", "#!/bin/sh\necho podman version 4.9.4\n", 0o755)
	b.MustExec(t, "sh", "-c", "useradd --system low; mkdir -p /srv/others; touch /srv/others/file")
	for _, c := range []struct {
		exit       int
		says, with string
	}{
		{78, "this is Podman 4.9.4, and toad needs 5 or newer", "PATH=/opt/old:$PATH"},
		{78, "there is no cgroup version 2 here", "unshare --mount sh -c 'mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"' -"},
		{77, "only root may set up a machine", "setpriv --reuid 1000 --clear-groups --regid 1000"},
	} {
		b.refused(t, c.exit, c.says, "cp -r /root/src /tmp/src; "+c.with+" /tmp/src/scripts/install --user "+user)
	}
	for args, says := range map[string]string{
		"--user low":                     "below 1000 a user may not read its own journal",
		"--user apps --data /srv/others": "is root's and not empty",
		"--user apps --data relative":    "want an absolute path",
		"--shape vm":                     "want binary or container",
		"--binary /bin/false":            "is no toad that runs here",
		"--uninstal":                     "unknown argument --uninstal",
	} {
		b.refused(t, 0, says, "/root/src/scripts/install "+args)
	}
	if r := b.Exec(t, "sh", "-c", "id apps; ls /usr/local/bin/toad /usr/local/lib/toad /data"); r.Stdout != "" {
		t.Errorf("a refusal left behind: %s", r.Stdout)
	}
}

// refused wants a failure, of any status where none is named.
func (b *bed) refused(t *testing.T, exit int, says, script string) {
	t.Helper()
	r := b.Exec(t, "bash", "-c", script)
	if r.Exit == 0 || exit != 0 && r.Exit != exit || !strings.Contains(r.Stderr, says) {
		t.Errorf("%s: want exit %d and %q, have %+v", script, exit, says, r)
	}
}

// looks asks for what the records do not tell: readiness, another release's configuration, a tag, what would be done.
func (b *bed) looks(t *testing.T) {
	t.Helper()
	if have := b.toad(t, 0, "status", "web"); !strings.Contains(have, "ready") || strings.Contains(have, "not ready") {
		t.Errorf("status says\n%s", have)
	}
	if have := b.toad(t, 0, "deploy", "web", "v2", "--dry-run"); !strings.Contains(have, "would be deployed as web-g1") {
		t.Errorf("a dry run says\n%s", have)
	}
	if have := b.toad(t, 0, "diff", "web", "other"); have == "" {
		t.Error("diff says nothing")
	}
}

// withoutPrivileges deploys on a host that has no setuid program but newuidmap and newgidmap, no system bus, and so no
// polkit and no sudo that would work.
func (b *bed) withoutPrivileges(t *testing.T) {
	t.Helper()
	const setuid = `find / -xdev -type f -perm /6000 ! -name newuidmap ! -name newgidmap`
	before := b.MustExec(t, "sh", "-c", setuid+` -printf '%m %p\n'`)
	b.MustExec(t, "sh", "-c", setuid+` -exec chmod a-s {} +; systemctl stop dbus.socket dbus.service`)
	if r := b.Exec(t, "busctl", "--system", "list"); r.Exit == 0 {
		t.Error("there is a system bus still")
	}
	if left := b.MustExec(t, "sh", "-c", setuid); left != "" {
		t.Errorf("setuid still: %s", left)
	}
	b.toad(t, 0, "deploy", "web", b.Digest(t, "v3"))
	b.toad(t, 3, "deploy", "web", b.Digest(t, "late-crash"))
	b.serves(t, webPort, "v3")
	b.step(t, "deployed and restored without the system bus and without %s", strings.ReplaceAll(before, "\n", ", "))
	b.MustExec(t, "sh", "-c", `while read -r mode file; do chmod "$mode" "$file"; done <<'END'
`+before+`
END
systemctl start dbus.socket`)
}

// idle waits until the daemon has ended because nobody asks.
func (b *bed) idle(t *testing.T) {
	t.Helper()
	host.Eventually(t, "toad to be idle", time.Minute, func() bool {
		return b.sh(t, "systemctl --user show -P ActiveState toad.service") == "inactive"
	})
}

// nothingLeft looks for what an uninstalled toad must not leave. Pins name units that are not there any more, which harms
// nobody.
func (b *bed) nothingLeft(t *testing.T) {
	t.Helper()
	left := b.MustExec(t, "sh", "-c", "find /usr/local /etc/systemd /usr/lib/systemd -name '*toad*' ! -path '*/toad-tests*'")
	left += b.sh(t, "systemctl --user list-unit-files --no-legend 'toad*'; systemctl --user list-units --all --no-legend --plain 'toad*' | grep -v not-found; ls -A .local/share/systemd/user")
	if left != "" {
		t.Errorf("left behind: %s", left)
	}
}
