//go:build e2e

// Package threat plays those of whom docs/threat-model.md speaks, on a host, and finds out what they can and cannot do.
package threat

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	tcp    = "127.0.0.1:8686"
	socket = "/run/user/1000/toad/toad.sock"
	page   = "/run/user/1000/toad-web/web.sock"
	state  = "/home/toad/.local/state/toad"
)

type lair struct{ *scene.Web }

// lay is a host with the services web and shop, whose API is answered over TCP, too.
func lay(t *testing.T) lair {
	t.Helper()
	l := lair{scene.New(t, scene.Options{Files: map[string]string{
		"~/.config/containers/systemd/shop.container": "[Container]\nImage=" + host.Repository + ":v1\nNetwork=none\n"}})}
	file := "~/.config/toad/enrollment.toml"
	l.WriteFile(t, file, l.ReadFile(t, file)+fmt.Sprintf("\n[service.shop]\nunits = [\"shop.container\"]\nimage = %q\n", host.Repository), 0o644)
	l.MustUser(t, "toad", "setup", "--listen", tcp)
	return l
}

// mallory runs a line of shell as another user of the host.
func (l lair) mallory(t *testing.T, line string) host.Result {
	t.Helper()
	return l.Exec(t, "setpriv", "--reuid", "mallory", "--regid", "mallory", "--init-groups", "--inh-caps=-all", "--no-new-privs", "sh", "-c", "cd /; "+line)
}

func TestAnotherUserOfTheHost(t *testing.T) {
	t.Parallel()
	l := lay(t)
	l.MustExec(t, "useradd", "-m", "mallory")
	l.MustUser(t, "toad", "proof", "keygen", ".config/toad/proof.key")
	l.MustUser(t, "toad", "token", "issue", "ci", "--services", "web")
	l.MustDeploy(t, 0, "v2")
	l.MustUser(t, "chmod", "755", "/home/toad") // the folder of a user may be open; those of toad are not
	main := l.Show(t, "web.service", "MainPID")

	for what, line := range map[string]string{
		"reach the API":                    "curl -sS --unix-socket " + socket + " http://toad/v1/services",
		"reach the page":                   "curl -sS --unix-socket " + page + " http://toad/",
		"reach Podman":                     "curl -sS --unix-socket /run/user/1000/podman/podman.sock http://d/_ping",
		"read the state":                   "cat " + state + "/services/web.json",
		"list the state":                   "ls " + state,
		"read the tokens":                  "cat " + state + "/tokens.json",
		"read a key":                       "cat /home/toad/.config/toad/proof.key",
		"write the enrollment":             "echo >>/home/toad/.config/toad/enrollment.toml",
		"write a pin":                      "echo >>/home/toad/.config/containers/systemd/web.container.d/zz-toad.conf",
		"write into the folder of a pin":   "touch /home/toad/.config/containers/systemd/web.container.d/zzz.conf",
		"write what systemd starts":        "echo >>" + state + "/libexec/toad",
		"write what holds for all":         "mkdir /etc/toad",
		"stop the service":                 "kill " + main,
		"read the environment of a unit":   "cat /proc/" + main + "/environ",
		"command the user's manager":       "systemctl --user -M toad@ stop web.service",
		"become the user":                  "runuser -u toad true",
		"take the port that systemd holds": "mkdir -p /tmp/m && timeout 20 registry serve --dir /tmp/m --addr " + tcp,
	} {
		if r := l.mallory(t, line); r.Exit == 0 || r.Exit == 124 {
			t.Errorf("another user can %s:\n%s%s", what, r.Stdout, r.Stderr)
		}
	}
	for path, want := range map[string]string{"/healthz": "200", "/openapi.yaml": "200", "/v1/services": "401", "/v1/services/web": "401", "/metrics": "401", "/v1/tokens": "403"} {
		if r := l.mallory(t, "curl -s -o /tmp/said -w '%{http_code}' http://"+tcp+path); r.Stdout != want && !(path == "/v1/tokens" && r.Stdout == "401") {
			t.Errorf("%s: want %s, have %s", path, want, r.Stdout)
		}
	}
	if said := l.mallory(t, "curl -s http://"+tcp+"/healthz").Stdout; said != "ok\n" {
		t.Errorf("health says %q to anybody", said)
	}

	// Where somebody has opened the folders, the kernel still tells who asks.
	l.MustUser(t, "chmod", "755", "/run/user/1000", "/run/user/1000/toad")
	l.MustUser(t, "chmod", "666", socket)
	if r := l.mallory(t, "curl -sS -o /dev/null -w '%{http_code}' --unix-socket "+socket+" http://toad/v1/services"); r.Stdout != "403" {
		t.Errorf("the folder open, the API says %s %s", r.Stdout, r.Stderr)
	}
	if r := l.mallory(t, "curl -sS -X POST -H 'Content-Type: application/json' -H 'Idempotency-Key: m' -d '{}' -o /dev/null -w '%{http_code}' --unix-socket "+socket+" http://toad/v1/services/web/rollback"); r.Stdout != "403" {
		t.Errorf("the folder open, a rollback is answered %s %s", r.Stdout, r.Stderr)
	}
	l.MustServe(t, "v2")
	// What it says of the port: while systemd does not hold it, it is anybody's.
	l.MustUser(t, "toad", "setup", "--listen", "none")
	if r := l.mallory(t, "timeout 3 registry serve --dir /tmp/m --addr "+tcp); r.Exit != 124 {
		t.Errorf("the port is nobody's, and yet: exit %d %s", r.Exit, r.Stderr)
	}
}

// over asks over TCP with a token, and returns the status and what was said.
func (l lair) over(t *testing.T, token, method, path, body string) string {
	t.Helper()
	r := l.Exec(t, "curl", "-s", "-X", method, "-H", "Authorization: Bearer "+token, "-H", "Content-Type: application/json",
		"-H", fmt.Sprintf("Idempotency-Key: k%d", time.Now().UnixNano()), "-d", body, "-w", "\n%{http_code}", "http://"+tcp+path)
	return r.Stdout
}

// A token that was stolen from a job does on its service what the job may do, and nothing else anywhere.
func TestAStolenToken(t *testing.T) {
	t.Parallel()
	l := lay(t)
	l.MustDeploy(t, 3, "crash")
	token := l.MustUser(t, "toad", "token", "issue", "ci", "--services", "web", "--verbs", "read,deploy")
	digest := func(tag, more string) string { return fmt.Sprintf(`{"digest":%q%s}`, l.Digest(t, tag), more) }
	nowhere := "sha256:" + strings.Repeat("5", 64)
	for _, c := range []struct{ what, method, path, body, want string }{
		{"another service", "GET", "/v1/services/shop", "", "\n403"},
		{"deploy another service", "POST", "/v1/services/shop/deployments", digest("v2", ""), "\n403"},
		{"roll another service back", "POST", "/v1/services/shop/rollback", "{}", "\n403"},
		{"a service that is not there", "GET", "/v1/services/nowhere", "", "\n403"},
		{"what is refused", "POST", "/v1/services/web/deployments", digest("crash", ""), "\n409"},
		{"a retry", "POST", "/v1/services/web/deployments", digest("crash", `,"retry":true`), "\n403"},
		{"another program", "POST", "/v1/services/web/deployments", digest("other", `,"program_change":true`), "\n403"},
		{"an image of another repository", "POST", "/v1/services/web/deployments", digest("v2", `,"image":"evil.example.org/x"`), "\n422"},
		{"a tag", "POST", "/v1/services/web/deployments", `{"digest":"latest"}`, "\n422"},
		{"list tokens", "GET", "/v1/tokens", "", "\n403"},
		{"issue a token", "POST", "/v1/tokens", `{"name":"x","services":["*"],"verbs":["read","deploy","override"]}`, "\n403"},
		{"revoke a token", "DELETE", "/v1/tokens/" + strings.Split(token, ".")[0], "", "\n403"},
		{"the figures of the host", "GET", "/metrics", "", "\n403"},
	} {
		if have := l.over(t, token, c.method, c.path, c.body); !strings.HasSuffix(have, c.want) {
			t.Errorf("%s: want %s, have %s", c.what, strings.TrimSpace(c.want), have)
		}
	}
	list := l.over(t, token, "GET", "/v1/services", "")
	if !strings.Contains(list, `"web"`) || strings.Contains(list, "shop") || strings.Contains(list, "/home/") {
		t.Errorf("it learns: %s", list)
	}
	l.MustServe(t, "v1")

	// What it can: any digest of the service's own repository, on trial as ever.
	if have := l.over(t, token, "POST", "/v1/services/web/deployments", fmt.Sprintf(`{"digest":%q}`, nowhere)); !strings.HasSuffix(have, "\n202") {
		t.Errorf("have %s", have)
	}
	l.WaitPhase(t, "failed")
	l.MustServe(t, "v1")
	if have := l.over(t, token, "POST", "/v1/services/web/deployments", digest("v2", "")); !strings.HasSuffix(have, "\n202") {
		t.Errorf("have %s", have)
	}
	l.WaitPhase(t, "promoted")
	l.MustServe(t, "v2")
	id := strings.Split(token, ".")[0]
	if log := l.Journal(t, "toad.service"); !strings.Contains(log, id) || strings.Contains(log, strings.Split(token, ".")[1]) {
		t.Error("the journal does not say which token it was, or says all of it")
	}
	l.MustUser(t, "toad", "token", "revoke", id)
	if have := l.over(t, token, "GET", "/v1/services/web", ""); !strings.HasSuffix(have, "\n401") {
		t.Errorf("revoked: %s", have)
	}
}

// inside runs the host's curl in a container of the user's that has a folder mounted.
func (l lair) inside(t *testing.T, flags, folder, args string) host.Result {
	t.Helper()
	return l.User(t, "sh", "-c", "podman run --rm --pull=never --network none "+flags+
		" -v /usr:/usr:ro -v /usr/lib:/lib:ro -v /usr/lib64:/lib64:ro -v "+folder+":/mounted:ro --entrypoint /usr/bin/curl "+host.Repository+":v1 -sS "+args)
}

// What a container can do with a socket that somebody has mounted into it.
func TestAContainerWithASocket(t *testing.T) {
	t.Parallel()
	l := lay(t)
	const status = "-o /dev/null -w '%{http_code}' "

	// The page's folder is what a gateway gets, and it is good for looking.
	for args, want := range map[string]string{
		"http://toad/":                       "200",
		"http://toad/v1/services":            "404",
		"http://toad/metrics":                "404",
		"-X POST -d x http://toad/":          "405",
		"-X DELETE http://toad/services/web": "405",
		"-X POST -H 'Content-Type: application/json' -H 'Idempotency-Key: k' -d {} http://toad/v1/services/web/rollback": "405",
	} {
		if r := l.inside(t, "", "/run/user/1000/toad-web", status+"--unix-socket /mounted/web.sock "+args); r.Stdout != want {
			t.Errorf("the page, %s: want %s, have %s %s", args, want, r.Stdout, r.Stderr)
		}
	}
	// toad's own folder is for nobody but the user: whoever is that user on the host, whatever it is called inside, is let in.
	// Root of a keep-id container passes by the permissions of the files, and is another user of the host all the same.
	api := status + "--unix-socket /mounted/toad.sock http://toad/v1/services"
	for flags, want := range map[string]string{"": "200", "--userns=keep-id": "200", "--user 1000:1000": "000", "--userns=keep-id --user 0:0": "403"} {
		if r := l.inside(t, flags, "/run/user/1000/toad", api); r.Stdout != want {
			t.Errorf("the API with %q: want %s, have %s %s", flags, want, r.Stdout, r.Stderr)
		}
	}
	l.MustUser(t, "chmod", "755", "/run/user/1000/toad")
	l.MustUser(t, "chmod", "666", socket)
	if r := l.inside(t, "--user 1000:1000", "/run/user/1000/toad", api); r.Stdout != "403" {
		t.Errorf("the socket open, another id of the container's is answered %s %s", r.Stdout, r.Stderr)
	}
	// So is the bus: a container that has it commands the user's manager.
	l.MustUser(t, "sh", "-c", "podman run --rm --pull=never --network none --userns=keep-id -v /usr:/usr:ro -v /usr/lib:/lib:ro -v /usr/lib64:/lib64:ro "+
		"-v /run/user/1000:/mounted:ro --entrypoint /usr/bin/busctl "+host.Repository+":v1 --address=unix:path=/mounted/bus "+
		"call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager SetEnvironment as 1 INSIDE=was-here")
	if out := l.MustUser(t, "systemctl", "--user", "show-environment"); !strings.Contains(out, "INSIDE=was-here") {
		t.Errorf("the document says that the bus gives everything away, and it does not: %s", out)
	}
	// Podman's socket is all of the user's power, and no permission of toad's changes that.
	l.MustUser(t, "sh", "-c", "printf hunter2 | podman secret create dbpw -")
	r := l.inside(t, "", "/run/user/1000/podman", "--unix-socket /mounted/podman.sock 'http://d/v5.0.0/libpod/secrets/dbpw/json?showsecret=true'")
	if !strings.Contains(r.Stdout, "hunter2") {
		t.Errorf("the document says that Podman's socket gives everything away, and it does not: %s %s", r.Stdout, r.Stderr)
	}
}

// What lies on the disk for whoever reads it: a thief of the disk, a backup.
func TestWhatIsNotEncrypted(t *testing.T) {
	t.Parallel()
	l := lay(t)
	token := l.MustUser(t, "toad", "token", "issue", "ci", "--services", "web")
	l.MustUser(t, "sh", "-c", "printf hunter2 | podman secret create dbpw -")
	l.MustUser(t, "toad", "proof", "keygen", ".config/toad/proof.key")
	l.MustDeploy(t, 0, "v2")
	l.Quiet(t)
	store := "/home/toad/.local/share/containers/storage/secrets/filedriver/secretsdata.json"
	if text := l.ReadFile(t, store); !strings.Contains(text, base64.StdEncoding.EncodeToString([]byte("hunter2"))) {
		t.Error("Podman's secret store is not what the document says")
	}
	if key := l.ReadFile(t, "~/.config/toad/proof.key"); !strings.HasPrefix(key, "-----BEGIN PRIVATE KEY-----") {
		t.Error("the key of proofs is not what the document says")
	}
	for _, path := range []string{store, "/home/toad/.config/toad/proof.key", state + "/tokens.json", state + "/services/web.json"} {
		if mode := l.MustUser(t, "stat", "-c", "%a", path); mode != "600" {
			t.Errorf("%s has mode %s", path, mode)
		}
	}
	// Layers of images are kept as they are, for their user alone; values of secrets and tokens are not among what toad keeps.
	if blobs := l.MustUser(t, "sh", "-c", "ls "+state+"/images/blobs | wc -l"); blobs == "0" {
		t.Error("no image is kept, so nothing was looked at")
	}
	if r := l.User(t, "grep", "-rlF", "-e", "hunter2", "-e", base64.StdEncoding.EncodeToString([]byte("hunter2")), "-e", strings.Split(token, ".")[1], state); r.Exit != 1 {
		t.Errorf("a secret lies in %s%s", r.Stdout, r.Stderr)
	}
}
