//go:build e2e

package badinput

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

const state = "/home/toad/.local/state/toad"

// A host that does not help: whose fault it is must be plain, and nothing of the release.
func TestTrouble(t *testing.T) {
	t.Parallel()
	b := newBed(t, scene.Options{Faults: true})
	v3 := b.Digest(t, "v3")

	t.Run("no bus for a command that needs it", func(t *testing.T) {
		nowhere := "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/nobus"
		for _, command := range []string{"setup", "act web-g1", "reconcile", "tick"} {
			b.refused(t, refusal{exit: 78, says: []string{"the user manager is not reachable at unix:path=/run/user/1000/nobus", "loginctl enable-linger"}},
				append([]string{"env", nowhere, "toad"}, strings.Fields(command)...)...)
		}
		// The daemon has a bus of its own.
		b.refused(t, refusal{exit: 1, code: "pull_failed"}, "env", nowhere, "toad", "deploy", "web", absent)
	})
	t.Run("no runtime folder", func(t *testing.T) {
		bare := []string{"env", "-u", "XDG_RUNTIME_DIR", "-u", "DBUS_SESSION_BUS_ADDRESS", "toad"}
		if out := b.MustUser(t, append(bare, "status")...); !strings.Contains(out, "web") {
			t.Errorf("toad status by su:\n%s", out)
		}
		b.MustUser(t, append(bare, "setup")...)
		b.refusedBy(t, refusal{exit: 78, says: []string{"there is no /run/user/65534", "loginctl enable-linger nobody"}}, "nobody: toad status",
			func() host.Result {
				return b.Exec(t, "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env", "-i", "HOME=/nonexistent", "PATH=/usr/bin:/usr/local/bin", "toad", "status")
			})
	})
	t.Run("another user", func(t *testing.T) {
		nobody := func(env string) func() host.Result {
			return func() host.Result {
				return b.Exec(t, "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "env", "-i", "HOME=/nonexistent", env, "PATH=/usr/bin:/usr/local/bin", "toad", "status")
			}
		}
		b.refusedBy(t, refusal{exit: 77, says: []string{"permission denied", "only the user that runs toad may use its socket"}}, "nobody, at the socket: toad status",
			nobody("TOAD_ENDPOINT=unix:///run/user/1000/toad/toad.sock"))
		b.refusedBy(t, refusal{exit: 78, says: []string{"XDG_RUNTIME_DIR is /run/user/1000, which is another user's", "XDG_RUNTIME_DIR=/run/user/65534"}}, "nobody, after sudo: toad status",
			nobody("XDG_RUNTIME_DIR=/run/user/1000"))
	})
	t.Run("no daemon", func(t *testing.T) {
		b.MustUser(t, "systemctl", "--user", "stop", "toad.socket", "toad.service")
		defer b.MustUser(t, "systemctl", "--user", "start", "toad.socket")
		b.refused(t, refusal{exit: 75, says: []string{"toad is out of reach at unix:///run/user/1000/toad/toad.sock", "systemctl --user status toad.socket", "toad setup"}}, "toad", "deploy", "web", v3)
	})
	t.Run("root by mistake", func(t *testing.T) { root(t, b, v3) })
	t.Run("a second daemon", func(t *testing.T) {
		b.MustUser(t, "toad", "status")
		pid := b.Show(t, "toad.service", "MainPID")
		b.refused(t, refusal{exit: 78, says: []string{"another toad serve (pid " + pid + ") runs on " + state, "toad: hint: "}}, "toad", "serve")
		if have := b.Show(t, "toad.service", "MainPID"); have != pid {
			t.Errorf("the daemon is another one: %s, then %s", pid, have)
		}
		// Its socket alone is in use, by systemd: also a daemon on other state must not take it.
		b.refused(t, refusal{exit: 78, says: []string{"toad.sock is in use", "systemctl --user status toad.socket"}}, "toad", "serve", "--state", "/home/toad/other")
	})
	t.Run("the bus goes away", func(t *testing.T) { noBus(t, b, v3) })
	t.Run("no Podman", func(t *testing.T) { noPodman(t, b, v3) })
	t.Run("an old Podman", func(t *testing.T) { oldPodman(t, b, v3) })
	t.Run("a save that fails", func(t *testing.T) { failingSave(t, b) })
	t.Run("a full disk", func(t *testing.T) { fullDisk(t, b, v3) })
	t.Run("after all that", func(t *testing.T) {
		b.MustDeploy(t, 0, "v3")
		b.MustServe(t, "v3")
		b.Quiet(t)
	})
}

func root(t *testing.T, b bed, v3 string) {
	asRoot := func(env []string, args ...string) func() host.Result {
		return func() host.Result {
			return b.Exec(t, append(append([]string{"env"}, env...), append([]string{"toad"}, args...)...)...)
		}
	}
	users := []string{"HOME=/home/toad", "XDG_RUNTIME_DIR=/run/user/1000", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus"}
	for _, command := range [][]string{{"setup"}, {"serve"}, {"act", "web-g1"}, {"check", "web-g1"}, {"reconcile"}, {"tick"}} {
		for _, env := range [][]string{nil, users} {
			b.refusedBy(t, refusal{exit: 78, says: []string{"this is root", "run it as that user: scripts/toad-as USER"}}, fmt.Sprint("root: toad ", command, env), asRoot(env, command...))
		}
	}
	for _, env := range [][]string{nil, users} {
		b.refusedBy(t, refusal{exit: 78, says: []string{"this is root", "run it as that user: scripts/toad-as USER"}}, "root: toad deploy", asRoot(env, "deploy", "web", v3))
	}
	if strangers := b.MustExec(t, "find", "/home/toad", "/run/user/1000", "-xdev", "-uid", "0"); strangers != "" {
		t.Errorf("root left files in the user's folders:\n%s", strangers)
	}
	if left := b.Exec(t, "ls", "-A", "/root/.local", "/root/.config").Stdout; strings.Contains(left, "toad") || strings.Contains(left, "state") {
		t.Errorf("root has got a toad of its own:\n%s", left)
	}
	// The host's root may use the user's toad.
	if r := asRoot([]string{"TOAD_ENDPOINT=unix:///run/user/1000/toad/toad.sock"}, "status")(); r.Exit != 0 {
		t.Errorf("root with an endpoint: exit %d\n%s", r.Exit, r.Stderr)
	}
}

func noBus(t *testing.T, b bed, v3 string) {
	b.MustUser(t, "toad", "status")
	b.MustUser(t, "systemctl", "--user", "mask", "--now", "--runtime", "dbus.socket", "dbus.service")
	back := func() {
		b.MustUser(t, "systemctl", "--user", "unmask", "--runtime", "dbus.socket", "dbus.service")
		b.MustUser(t, "systemctl", "--user", "start", "dbus.socket")
	}
	defer back()
	says := []string{"the user manager is not reachable", "try again with the same Idempotency-Key"}
	b.refused(t, refusal{exit: 75, says: says}, "toad", "deploy", "web", v3)
	b.rejected(t, 503, "state_unavailable", deployments, "k-nobus", wish(v3))
	t.Run("and the daemon is started without it", func(t *testing.T) {
		b.MustUser(t, "systemctl", "--user", "kill", "-s", "KILL", "toad.service")
		began := time.Now()
		b.refused(t, refusal{exit: 75, says: says}, "toad", "deploy", "web", v3)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the answer took %v", took)
		}
	})
	back()
	host.Eventually(t, "toad to be well again", time.Minute, func() bool {
		return b.User(t, "curl", "-sSf", "--unix-socket", "/run/user/1000/toad/toad.sock", "http://toad/healthz").Exit == 0
	})
	// The request that was not accepted has not been acted on behind the caller's back.
	if have := b.Record(t).Operation.Candidate.Digest; have == v3 {
		t.Error("the refused request was carried out")
	}
	b.Quiet(t)
}

func noPodman(t *testing.T, b bed, v3 string) {
	b.enroll(t, strings.Replace(web(ready), `pull = "20s"`, `pull = "3s"`, 1))
	b.MustUser(t, "systemctl", "--user", "mask", "--now", "--runtime", "podman.socket", "podman.service")
	defer func() {
		b.MustUser(t, "systemctl", "--user", "unmask", "--runtime", "podman.socket", "podman.service")
		b.MustUser(t, "systemctl", "--user", "start", "podman.socket")
	}()
	why := []string{"no podman answers at /run/user/1000/podman/podman.sock", "systemctl --user enable --now podman.socket"}
	r := b.refused(t, refusal{exit: 75, code: "pull_unavailable", says: append(why, "try again later")}, "toad", "deploy", "web", v3)
	// One who follows is told at once why it takes so long.
	if n := strings.Count(r.Stdout, why[0]); n != 2 || !strings.Contains(r.Stdout, "tried again") {
		t.Errorf("want the reason told when it begins and when it ends, have it %d times:\n%s", n, r.Stdout)
	}
	b.refused(t, refusal{exit: 78, says: why}, "toad", "setup")
}

// A Podman of before version 5 has another API and other Quadlets.
func oldPodman(t *testing.T, b bed, v3 string) {
	socket := filepath.Join(b.Root, "home/toad/old.sock")
	if len(socket) > 100 {
		t.Fatalf("%s is too long for a socket", socket)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	old := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Libpod-API-Version", "4.9.4")
		if !strings.HasSuffix(r.URL.Path, "/_ping") {
			w.WriteHeader(http.StatusInternalServerError)
		}
		fmt.Fprint(w, "OK")
	})}
	go func() { _ = old.Serve(l) }()
	defer old.Close()
	b.MustExec(t, "chown", "toad:toad", "/home/toad/old.sock")
	b.MustUser(t, "systemctl", "--user", "mask", "--now", "--runtime", "podman.socket", "podman.service")
	b.MustUser(t, "ln", "-sfn", "/home/toad/old.sock", "/run/user/1000/podman/podman.sock")
	defer func() {
		b.MustUser(t, "rm", "-f", "/run/user/1000/podman/podman.sock", "/home/toad/old.sock")
		b.MustUser(t, "systemctl", "--user", "unmask", "--runtime", "podman.socket", "podman.service")
		b.MustUser(t, "systemctl", "--user", "start", "podman.socket")
	}()
	why := []string{"podman is too old", "it is 4.9.4, toad needs 5.0.0 or newer", "upgrade it"}
	began := time.Now()
	b.refused(t, refusal{exit: 1, code: "state_unavailable", says: why}, "toad", "deploy", "web", v3)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v; another try would meet the same Podman", took)
	}
	b.refused(t, refusal{exit: 78, says: why}, "toad", "setup")
}

// What could not be saved was not accepted, leaves nothing behind, and is accepted by the next try.
func failingSave(t *testing.T, b bed) {
	for _, point := range []string{"record.put.accepted", "file.create.web.json", "file.sync.web.json", "file.rename.web.json"} {
		b.WriteFile(t, "~/.local/state/toad/fault", point+" 1 error\n", 0o600)
		b.refused(t, refusal{exit: 75, says: []string{"injected fault", "try again with the same Idempotency-Key"}}, "toad", "deploy", "web", absent)
		if r := b.User(t, "rm", ".local/state/toad/fault"); r.Exit == 0 {
			t.Errorf("%s was not reached", point)
		}
		b.Quiet(t)
	}
	b.refused(t, refusal{exit: 1, code: "pull_failed"}, "toad", "deploy", "web", absent)

	// A save that fails when the record is there already is carried on: who asks again finds it.
	b.WriteFile(t, "~/.local/state/toad/fault", "file.syncdir.services 1 error\n", 0o600)
	b.refused(t, refusal{exit: 75, code: "pull_failed", says: []string{"injected fault", "try again"}}, "toad", "deploy", "web", absent, "--key", "late")
	if p := b.ask(t, deployments, "late", fmt.Sprintf(`{"digest":%q,"expected_generation":%d}`, absent, b.Record(t).Generation-1)); p.Status != 200 || p.ID != b.Record(t).Operation.ID {
		t.Errorf("the same request again: %+v", p)
	}
}

func fullDisk(t *testing.T, b bed, v3 string) {
	used := b.MustExec(t, "du", "-sm", state)
	var mib int
	if _, err := fmt.Sscan(used, &mib); err != nil {
		t.Fatal(err)
	}
	b.MustUser(t, "systemctl", "--user", "stop", "toad.service")
	b.MustExec(t, "sh", "-c", fmt.Sprintf(`mount -t tmpfs -o size=%dm,uid=1000,gid=1000,mode=700 tmpfs /mnt && cp -a %s/. /mnt && mount --bind /mnt %[2]s`, mib+40, state))
	defer func() {
		b.MustUser(t, "systemctl", "--user", "stop", "toad.service")
		b.MustExec(t, "sh", "-c", fmt.Sprintf("umount -l %s && rm -rf %[1]s/services %[1]s/operations && cp -a /mnt/services /mnt/operations %[1]s && umount -l /mnt", state))
	}()

	t.Run("nearly", func(t *testing.T) {
		b.refused(t, refusal{exit: 1, code: "state_unavailable", says: []string{"MiB are free for toad's state and pins, a switch wants 64 MiB", "free some space"}}, "toad", "deploy", "web", v3)
	})
	t.Run("to the last byte", func(t *testing.T) {
		b.User(t, "sh", "-c", "cat /dev/zero >"+state+"/filler")
		defer b.MustUser(t, "rm", state+"/filler")
		b.refused(t, refusal{exit: 75, says: []string{"no space left on device", "free some space for toad's state folder"}}, "toad", "deploy", "web", v3)
		b.rejected(t, 503, "state_unavailable", deployments, "k-full", wish(v3))
		b.Quiet(t)
		if out := b.MustUser(t, "toad", "status"); !strings.Contains(out, "web") {
			t.Errorf("toad status:\n%s", out)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		r, err := b.UserCommand(ctx, t, "sh", "-c", "cat "+state+"/services/web.json | jq -e .schema").Output()
		if err != nil || strings.TrimSpace(string(r)) != "1" {
			t.Errorf("the record: %s, %v", r, err)
		}
	})
	t.Run("and there is room again", func(t *testing.T) {
		b.refused(t, refusal{exit: 1, code: "state_unavailable"}, "toad", "deploy", "web", v3)
	})
}
