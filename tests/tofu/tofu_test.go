//go:build e2e

// Package tofu sets a host up with the module of scripts/tofu: by its provisioners' own steps always, by OpenTofu itself in
// the long run.
package tofu

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"toad/tests/fetched"
	"toad/tests/host"
)

const (
	quadlet = "[Container]\nImage=" + host.Repository + ":v1\nPublishPort=127.0.0.1:8080:8080\nEnvironment=DB_PW=" + sentinel +
		"\n[Service]\nRestart=always\nRestartSec=1\n[Install]\nWantedBy=default.target\n"
	sentinel = "S3NT1NEL-value"
)

func module(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../../scripts/tofu")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The module takes no secret and needs nothing from elsewhere; that can be read off its text.
func TestTheModuleTakesNoSecretAndNoProvider(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(module(t), "*.tf"))
	if err != nil || len(files) != 3 {
		t.Fatalf("%v %v", files, err)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for _, m := range regexp.MustCompile(`(?m)^(\w+)(?: "([^"]*)")?(?: "([^"]*)")? \{`).FindAllStringSubmatch(all.String(), -1) {
		switch {
		case m[1] == "resource" && m[2] != "terraform_data", m[1] == "provider", m[1] == "data", m[1] == "module":
			t.Errorf("it has %s %s", m[1], m[2])
		case regexp.MustCompile(`(?i)token|secret|password|key|credential`).MatchString(m[2] + m[3]):
			t.Errorf("%s %s %s may hold a secret", m[1], m[2], m[3])
		}
	}
	if strings.Contains(all.String(), "required_providers") {
		t.Error("it asks for a provider")
	}
}

// run is the command that runs words as root on the host.
func run(t *testing.T, h *host.Host) []string {
	t.Helper()
	script, err := filepath.Abs("../../scripts/testhost")
	if err != nil {
		t.Fatal(err)
	}
	return []string{script, "exec", h.Name}
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func binary(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs(os.Getenv("TOAD_BIN"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// What the provisioners do, in their order, on a host that has never seen toad.
func TestTheStepsSetAHostUp(t *testing.T) {
	t.Parallel()
	h := host.Up(t, host.Options{NoToad: true})
	step := func(name string, env ...string) {
		t.Helper()
		cmd := exec.Command("bash", filepath.Join(module(t), "apply"), name)
		cmd.Env = append(os.Environ(), append(env, "RUN="+strings.Join(run(t, h), "\n"), "TOAD_USER=toad")...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	file := write(t, filepath.Join(t.TempDir(), "web.container"), quadlet)
	enrollment := fmt.Sprintf("[service.web]\nunits = [\"web.container\"]\nimage = %q\n[service.web.probation]\nstable = \"1s\"\n", host.Repository)
	for range 2 { // and once more changes nothing
		step("install", "TOAD_DATA=/data/toad", "TOAD_LISTEN=none", "TOAD_SHAPE=binary", "TOAD_BINARY="+binary(t))
		step("quadlet", "NAME=web.container", "FILE="+file)
		step("enrollment", "TEXT="+enrollment)
	}
	if have := h.ReadFile(t, "~/.config/containers/systemd/web.container"); have != quadlet {
		t.Errorf("the Quadlet is %q", have)
	}
	works(t, h)

	program, err := os.ReadFile(fetched.Caddy(t))
	if err != nil {
		t.Fatal(err)
	}
	h.WriteFile(t, "/usr/bin/caddy", string(program), 0o755)
	for range 2 {
		step("gateway", "NAME=toad.example.org")
	}
	host.Eventually(t, "the gateway to show the page", time.Minute, func() bool {
		return strings.Contains(h.User(t, "curl", "-s", "--unix-socket", host.Home+"/.local/share/toad-gateway/page.sock", "http://toad.example.org/").Stdout, "toad")
	})
	step("remove")
	gone(t, h)
}

// works deploys as root would, through the wrapper.
func works(t *testing.T, h *host.Host) {
	t.Helper()
	h.MustExec(t, "toad", "deploy", "web", h.Digest(t, "v2"))
	if out := h.MustExec(t, "toad", "status", "web"); !strings.Contains(out, h.Digest(t, "v2")[7:19]) {
		t.Errorf("status: %s", out)
	}
	if left := h.MustExec(t, "sh", "-c", "ls -d /tmp/toad-tofu* 2>/dev/null || true"); left != "" {
		t.Errorf("left on the host: %s", left)
	}
}

// gone: toad is, and what it has deployed runs on.
func gone(t *testing.T, h *host.Host) {
	t.Helper()
	if r := h.Exec(t, "sh", "-c", "ls /usr/local/bin/toad /home/toad/.local/share/systemd/user/toad.service"); !strings.Contains(r.Stderr, "toad.service") || r.Stdout != "" {
		t.Errorf("removed, and left are %s", r.Stdout)
	}
	if state := h.Show(t, "web.service", "ActiveState"); state != "active" {
		t.Errorf("web.service is %s", state)
	}
}

// opentofu builds OpenTofu, once for this machine and version. Where that cannot be done, the module has not been shown to
// work, and this says so.
func opentofu(t *testing.T) string {
	t.Helper()
	sum, err := os.ReadFile("opentofu/go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir := fetched.Cached(t, fmt.Sprintf("opentofu-%x", sha256.Sum256(sum))[:24], func(dir string) [][]string {
		return [][]string{{"sh", "-c", `cd opentofu && CGO_ENABLED=0 GOFLAGS= go build -trimpath -o "$0/tofu" github.com/opentofu/opentofu/cmd/tofu ||
			{ echo "GAP: OpenTofu cannot be built here, so validate, plan and apply of scripts/tofu are not shown to work" && exit 1; }`, dir}}
	})
	return filepath.Join(dir, "tofu")
}

// workspace is a folder with a configuration that uses the module, and OpenTofu to run in it.
type workspace struct {
	dir, tofu string
}

func (w workspace) run(t *testing.T, args ...string) string {
	t.Helper()
	// In a network of its own, without any: what it needs it has.
	cmd := exec.Command("unshare", append([]string{"-n", w.tofu}, args...)...)
	if args[0] == "apply" || args[0] == "destroy" {
		cmd = exec.Command(w.tofu, args...)
	}
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "HOME="+w.dir, "TF_IN_AUTOMATION=1", "TF_CLI_CONFIG_FILE=/dev/null", "CHECKPOINT_DISABLE=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("tofu %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func (w workspace) configure(t *testing.T, h *host.Host, shape, stable string) {
	t.Helper()
	words, err := json.Marshal(run(t, h))
	if err != nil {
		t.Fatal(err)
	}
	// A module by an absolute path would be copied, without what lies beside it.
	source, err := filepath.Rel(w.dir, module(t))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(w.dir, "main.tf"), fmt.Sprintf(`module "toad" {
  source   = %q
  run      = %s
  binary   = %q
  shape    = %q
  listen   = "127.0.0.1:8686"
  quadlets = "${path.root}/units"
  services = {
    web = {
      image     = %q
      units     = ["web.container"]
      ready     = { http = "http://127.0.0.1:8080/healthz", interval = "200ms" }
      probation = { deadline = "30s", stable = %q }
    }
  }
  alerts = { webhook_file = "webhook" }
}

output "enrollment" { value = module.toad.enrollment }
`, source, words, binary(t), shape, host.Repository, stable))
}

func TestTheModuleIsPlannedAndApplied(t *testing.T) {
	if os.Getenv("TOAD_ALL") != "1" {
		return // OpenTofu takes minutes to build; its steps are run above
	}
	t.Parallel()
	w := workspace{t.TempDir(), opentofu(t)}
	h := host.Up(t, host.Options{NoToad: true})
	write(t, filepath.Join(w.dir, "units/web.container"), quadlet)
	w.configure(t, h, "binary", "1s")
	cmd := exec.Command(w.tofu, "fmt", "-check", "-diff", module(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("tofu fmt: %v\n%s", err, out)
	}
	w.run(t, "init", "-no-color")
	w.run(t, "validate", "-no-color")
	if out := w.run(t, "plan", "-no-color", "-out=plan"); !strings.Contains(out, "4 to add, 0 to change, 0 to destroy") {
		t.Errorf("the plan:\n%s", out)
	}
	if r := h.Exec(t, "sh", "-c", "ls -d /data/toad /usr/local/bin/toad"); r.Stdout != "" {
		t.Errorf("a plan has made %s", r.Stdout)
	}
	w.run(t, "apply", "-no-color", "plan")
	h.WriteFile(t, "~/.config/toad/webhook", "http://127.0.0.1:9/"+sentinel+"\n", 0o600)
	works(t, h)
	token := h.MustExec(t, "toad", "token", "issue", "ci", "--services", "web")
	h.MustUser(t, "toad", "proof", "keygen", ".config/toad/proof.key")
	key := strings.Split(h.ReadFile(t, "~/.config/toad/proof.key"), "\n")[1]

	if out := w.run(t, "plan", "-no-color", "-detailed-exitcode"); !strings.Contains(out, "No changes") {
		t.Errorf("applied, it plans:\n%s", out)
	}
	w.configure(t, h, "binary", "2s")
	if out := w.run(t, "apply", "-no-color", "-auto-approve"); !strings.Contains(out, "1 added, 0 changed, 1 destroyed") {
		t.Errorf("another window:\n%s", out)
	}
	if have := h.ReadFile(t, "~/.config/toad/enrollment.toml"); !strings.Contains(have, `stable = "2s"`) {
		t.Errorf("the enrollment:\n%s", have)
	}
	w.configure(t, h, "container", "2s")
	w.run(t, "apply", "-no-color", "-auto-approve")
	h.MustExec(t, "toad", "deploy", "web", h.Digest(t, "v3"))

	// No secret has come by it: neither those made on the host nor what a Quadlet holds.
	state, err := filepath.Glob(filepath.Join(w.dir, "terraform.tfstate*"))
	if err != nil || len(state) == 0 {
		t.Fatalf("no state: %v", err)
	}
	for _, path := range state {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for what, secret := range map[string]string{"a value of a Quadlet": sentinel, "the token": strings.Split(token, ".")[1], "the key": key} {
			if strings.Contains(string(text), secret) {
				t.Errorf("%s holds %s", filepath.Base(path), what)
			}
		}
	}
	if out := w.run(t, "show", "-json", "plan"); strings.Contains(out, sentinel) {
		t.Error("the plan holds a value of a Quadlet")
	}
	w.run(t, "destroy", "-no-color", "-auto-approve")
	gone(t, h)
}
