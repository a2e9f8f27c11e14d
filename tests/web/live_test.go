//go:build e2e

package web

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"toad/tests/fetched"
	"toad/tests/host"
	"toad/tests/scene"
	"toad/tests/web/browser"
)

const (
	name    = "toad.test"
	front   = "https://" + name + ":8443"
	user    = "night"
	word    = "a password of this page alone"
	gateway = host.Home + "/.local/share/toad-gateway/page.sock"
)

// quadlet is full of what the page must not show.
const quadlet = `# a comment of poison-comment
[Unit]
Description=poison-description

[Container]
Image={image}
PublishPort=127.0.0.1:8080:8080
Environment=DATABASE_PASSWORD=poison-environment
Environment=HARMLESS=<script>poison</script>
Label=poison-label=poison-label
Volume=%h/poison-folder:/data:ro

[Service]
Restart=always
RestartSec=1
TimeoutStopSec=3

[Install]
WantedBy=default.target
`

// site is a host whose page is served through the gateway and a Caddy in front of it.
type site struct {
	*scene.Web
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{&scene.Web{Host: host.Up(t, host.Options{})}}
	s.MustUser(t, "mkdir", host.Home+"/poison-folder")
	s.Up(t, scene.Options{Quadlet: quadlet})
	program, err := os.ReadFile(fetched.Caddy(t))
	if err != nil {
		t.Fatal(err)
	}
	s.WriteFile(t, "/usr/bin/caddy", string(program), 0o755)
	files, err := filepath.Glob("../../scripts/gateway/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no gateway: %v", err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s.WriteFile(t, "/opt/gateway/"+filepath.Base(f), string(text), 0o755)
	}
	return s
}

// listeners are the TCP sockets of the host that wait for others.
func (s *site) listeners(t *testing.T) string {
	t.Helper()
	return s.MustExec(t, "sh", "-c", "ss -Hltn | awk '{print $4}' | sort")
}

// front starts the Caddy that the world would reach, with the snippet as it is.
func (s *site) front(t *testing.T) {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(word), bcrypt.MinCost) // Caddy's own would take seconds on a busy machine
	if err != nil {
		t.Fatal(err)
	}
	s.WriteFile(t, "/opt/front/Caddyfile", `{
	admin off
	https_port 8443
	http_port 8081
	local_certs
	skip_install_trust
}
import /opt/gateway/public.Caddyfile
`, 0o644)
	s.MustExec(t, "ln", "-s", filepath.Dir(gateway), "/run/toad-gateway")
	ctx, cancel := context.WithCancel(context.Background())
	cmd := s.UserCommand(ctx, t, "env", "TOAD_HOSTNAME="+name, "TOAD_PAGE_USER="+user, "TOAD_PAGE_HASH="+string(hash),
		"caddy", "run", "--config", "/opt/front/Caddyfile")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); _ = cmd.Wait() })
	host.Eventually(t, "the Caddy in front to answer", time.Minute, func() bool {
		return s.User(t, "curl", "-sk", "--resolve", name+":8443:127.0.0.1", "-o", "/dev/null", front+"/").Exit == 0
	})
}

// ask asks the gateway as a Caddy in front would, and returns the status and what came with it.
func (s *site) ask(t *testing.T, args ...string) (status, text string) {
	t.Helper()
	out := s.MustUser(t, append([]string{"curl", "-s", "-i", "-m", "20", "--unix-socket", gateway}, args...)...)
	head, _, _ := strings.Cut(out, "\n")
	fields := strings.Fields(head)
	if len(fields) < 2 {
		t.Fatalf("curl %v: %q", args, out)
	}
	return fields[1], out
}

// TestTheGateway holds a stock Caddy to what it is for, and a browser looks through it at a host's own deployments.
func TestTheGateway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	before := s.listeners(t)
	s.MustUser(t, "/opt/gateway/install", name)
	host.Eventually(t, "the gateway to answer", time.Minute, func() bool {
		return s.User(t, "curl", "-s", "-o", "/dev/null", "--unix-socket", gateway, "http://"+name+"/").Exit == 0
	})
	t.Run("NoHostListener", func(t *testing.T) {
		if after := s.listeners(t); after != before {
			t.Errorf("listeners before:\n%s\nafter:\n%s", before, after)
		}
		if d := s.User(t, "toad", "doctor"); d.Exit != 0 {
			t.Errorf("toad doctor: %d\n%s", d.Exit, d.Stdout+d.Stderr)
		}
	})
	t.Run("Answers", s.answers)
	t.Run("SeesTwoFolders", s.seesTwoFolders)
	s.front(t)
	t.Run("Front", s.frontAsks)
	b := browser.Start(t, browser.Options{Enter: s.Net(t), Dial: s.Dial,
		Args: []string{"--ignore-certificate-errors", "--host-resolver-rules=MAP " + name + " 127.0.0.1"}})
	t.Run("Live", func(t *testing.T) { s.live(t, b) })
	t.Run("NothingPoisoned", s.nothingPoisoned)
	t.Run("IdleExit", func(t *testing.T) { s.idleExit(t, b) })
}

func (s *site) answers(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"200", []string{"http://" + name + "/"}},
		{"200", []string{"http://" + name + "/services/web"}},
		{"200", []string{"-I", "http://" + name + "/"}},
		{"404", []string{"http://other.test/"}},
		{"404", []string{"http://127.0.0.1/"}},
		{"404", []string{"-H", "Host:", "--http1.0", "http://" + name + "/"}},
		{"404", []string{"http://other.test/services/web"}},
		{"404", []string{"http://" + name + "/v1/services"}},
		{"404", []string{"http://" + name + "/healthz"}},
		{"404", []string{"--path-as-is", "http://" + name + "/../../etc/passwd"}},
		{"405", []string{"-X", "POST", "http://" + name + "/v1/services/web/rollback"}},
		{"405", []string{"-X", "DELETE", "http://" + name + "/"}},
	} {
		status, text := s.ask(t, c.args...)
		if status != c.want {
			t.Errorf("%v: want %s, have %s\n%.400s", c.args, c.want, status, text)
		}
		for _, h := range []string{"Cache-Control: no-store", "X-Content-Type-Options: nosniff", "default-src 'none'"} {
			if strings.Contains(c.args[len(c.args)-1], name+"/services/web") && !strings.Contains(text, h) {
				t.Errorf("%v: no %s", c.args, h)
			}
		}
	}
}

func (s *site) seesTwoFolders(t *testing.T) {
	have := s.MustUser(t, "podman", "inspect", "toad-gateway", "--format",
		"{{range .Mounts}}{{.Source}} {{.Destination}} {{.RW}};{{end}} {{.HostConfig.NetworkMode}} {{.HostConfig.ReadonlyRootfs}} {{.EffectiveCaps}}")
	for _, want := range []string{"/run/user/1000/toad-web /run/toad-web false;", filepath.Dir(gateway) + " /run/gateway true;", " none true []"} {
		if !strings.Contains(have, want) {
			t.Errorf("want %q in %q", want, have)
		}
	}
	if n := strings.Count(have, ";"); n != 2 {
		t.Errorf("it sees %d folders: %s", n, have)
	}
	if mode := s.MustUser(t, "sh", "-c", "stat -c '%a %n' $XDG_RUNTIME_DIR/toad-web $XDG_RUNTIME_DIR/toad-web/*"); mode != "750 /run/user/1000/toad-web\n660 /run/user/1000/toad-web/web.sock" {
		t.Errorf("the page's socket: %s", mode)
	}
}

func (s *site) frontAsks(t *testing.T) {
	curl := func(args ...string) string {
		return s.MustUser(t, append([]string{"curl", "-sk", "-m", "20", "--resolve", name + ":8443:127.0.0.1", "-o", "/dev/null", "-w", "%{http_code}"}, args...)...)
	}
	if have := curl(front + "/"); have != "401" {
		t.Errorf("without a password: %s", have)
	}
	if have := curl("-u", user+":wrong", front+"/"); have != "401" {
		t.Errorf("with a wrong one: %s", have)
	}
	if have := curl("-u", user+":"+word, front+"/"); have != "200" {
		t.Errorf("with the right one: %s", have)
	}
}

func (s *site) live(t *testing.T, b *browser.Browser) {
	login := "https://" + user + ":" + strings.ReplaceAll(word, " ", "%20") + "@" + name + ":8443"
	p := b.Open(t, wide)
	p.Go(login + "/")
	p.Until("that it is live", live)
	p.Until("web, never deployed and ready", `document.querySelector("#s-web .state strong").textContent === "Never deployed" && document.querySelector("#s-web .ready").textContent === "ready"`)
	d := b.Open(t, dark(phone))
	d.Go(front + "/services/web")
	d.Until("that it is live", live)

	s.Enroll(t, `http = "http://127.0.0.1:8080/healthz"`+"\ninterval = \"200ms\"", "deadline = \"60s\"\nstable = \"4s\"")
	s.MustUser(t, "toad", "deploy", "--detach", "web", s.Digest(t, "v2"))
	for _, page := range []*browser.Page{p, d} {
		page.Until("web on probation", `[...document.querySelectorAll(".state strong")].some(e => e.textContent === "On probation")`)
	}
	d.Until("the window filling", `document.querySelector("[data-since]") !== null && +document.querySelector(".fills .fill").getAttribute("width") > 100`)
	d.Shot("live-probation-360-dark")
	p.Until("web in force", `document.querySelector("#rest-list #s-web .state strong")?.textContent === "In force"`)
	p.Until("the new digest", fmt.Sprintf(`document.querySelector("#s-web .copy").dataset.copy === %q`, s.Digest(t, "v2")))
	d.Until("the whole way", `[...document.querySelectorAll(".steps li")].every(e => ["done", "good"].includes(e.dataset.mark)) && document.querySelectorAll(".steps li").length === 6`)
	d.Until("the log to its end", `document.querySelector("#log li:last-child .msg").textContent.endsWith("is in force")`)
	d.Until("unit and container", `["web.service", "active", "running"].every(w => document.querySelector("#runs").innerText.includes(w))`)

	// It tells its environment and fails.
	s.MustDeploy(t, 3, "leak")
	d.Until("that it was rolled back", `document.querySelector("#stand strong").textContent === "Rolled back"`)
	d.Until("where", `document.querySelector("#log .failing .msg")?.textContent.includes("exited with status 2")`)
	d.Until("that the application's lines are elsewhere", `document.querySelector("#log-notes").textContent.includes("of the application are kept and not shown here: toad log web-g2")`)
	d.Until("the refusal", `document.querySelector("#refusals").innerText.includes("exited with status 2")`)
	p.Until("it on its shelf", `document.querySelector("#back-list #s-web") !== null`)
	// A promoted unit that stops is told as well, though no record changes.
	s.MustUser(t, "systemctl", "--user", "stop", "web.service")
	p.Until("that it is not ready", `document.querySelector("#s-web .ready").textContent === "not ready"`)
	s.MustUser(t, "systemctl", "--user", "start", "--no-block", "web.service")
	p.Until("that it is ready again", `document.querySelector("#s-web .ready").textContent === "ready"`)
	for _, page := range []*browser.Page{p, d} {
		if bad := violations(t, page); len(bad) > 0 {
			t.Errorf("axe: %s", strings.Join(bad, "\n"))
		}
		for _, f := range page.Faults() {
			t.Errorf("the browser complains: %s", f)
		}
	}
	p.Shot("live-overview")
	d.Shot("live-rolled-back-360-dark")
}

// What the unit, its container and its application hold is on the host, and on no page.
func (s *site) nothingPoisoned(t *testing.T) {
	log := s.MustUser(t, "toad", "log", "web")
	if !strings.Contains(log, "environment:") {
		t.Fatalf("the application told nothing:\n%s", log)
	}
	paths := []string{"/", "/services/web", "/services/web/operations/web-g1", "/services/web/operations/web-g2", "/assets/toad.js", "/assets/toad.css"}
	for _, path := range paths {
		s.assertClean(t, path, "http://"+name+path)
	}
	for _, path := range []string{"/events", "/services/web/events", "/services/web/operations/web-g2/events"} {
		s.assertClean(t, path, "-N", "-m", "3", "http://"+name+path)
	}
}

var poison = regexp.MustCompile(`poison[a-z-]*|environment:|DATABASE_PASSWORD|/home/toad|/run/user|/etc/|io\.toad\.operation`)

func (s *site) assertClean(t *testing.T, where string, args ...string) {
	t.Helper()
	r := s.User(t, append([]string{"curl", "-s", "-i", "-m", "20", "--unix-socket", gateway}, args...)...)
	if !strings.Contains(r.Stdout, "200 OK") || len(r.Stdout) < 1000 {
		t.Fatalf("%s: %d %.300s", where, r.Exit, r.Stdout)
	}
	if m := poison.FindString(r.Stdout); m != "" {
		t.Errorf("%s shows %q", where, m)
	}
}

// Whoever looks keeps the daemon; when nobody does, it ends and the next look brings it back.
func (s *site) idleExit(t *testing.T, b *browser.Browser) {
	s.WriteFile(t, "~/.config/systemd/user/toad.service.d/idle.conf", "[Service]\nExecStart=\nExecStart="+
		host.Home+"/.local/state/toad/libexec/toad serve --idle 2s\n", 0o644)
	s.MustUser(t, "systemctl", "--user", "daemon-reload")
	s.MustUser(t, "systemctl", "--user", "stop", "toad.service")
	p := b.Open(t, wide)
	p.Go(front + "/services/web")
	p.Until("that it is live", live)
	first := s.Show(t, "toad.service", "MainPID")
	time.Sleep(6 * time.Second) // three times the limit
	if now := s.Show(t, "toad.service", "MainPID"); now != first || first == "0" {
		t.Errorf("it did not stay while somebody looked: %s, then %s", first, now)
	}
	p.Leave()
	host.Eventually(t, "toad to end when nobody looks", time.Minute, func() bool { return s.Show(t, "toad.service", "ActiveState") == "inactive" })
	if status, _ := s.ask(t, "http://"+name+"/"); status != "200" {
		t.Errorf("the next look is answered %s", status)
	}
}
