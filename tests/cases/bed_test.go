//go:build e2e

package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	folder     = "~/.config/containers/systemd/"
	quadlet    = folder + "web.container"
	pin        = folder + "web.container.d/zz-toad.conf"
	enrollment = "~/.config/toad/enrollment.toml"

	ready  = "http = \"http://127.0.0.1:8080/healthz\"\ninterval = \"200ms\"\ntimeout = \"1s\""
	limits = "deadline = \"2m\"\nstable = \"500ms\"\npull = \"2m\""
)

// hosts are those that the cases share: a boot for each would take longer than the case.
var hosts pool

func TestMain(m *testing.M) {
	code := m.Run()
	hosts.down()
	os.Exit(code)
}

type pool struct {
	mu    sync.Mutex
	free  []*host.Host
	downs []func()
}

// atOnce bounds how many hosts there are, whatever the number of processors.
var atOnce = make(chan struct{}, 2)

// keeper lends a test to host.Up, and keeps what is to be done at the end for the end of all cases.
type keeper struct {
	testing.TB
	pool *pool
}

func (k keeper) Cleanup(f func()) {
	k.pool.mu.Lock()
	defer k.pool.mu.Unlock()
	k.pool.downs = append(k.pool.downs, f)
}

func (p *pool) down() {
	for _, f := range slices.Backward(p.downs) {
		f()
	}
}

// borrow gives the test a host until it ends. One on which a test has failed is given to no other.
func (p *pool) borrow(t *testing.T) *host.Host {
	t.Helper()
	t.Parallel()
	atOnce <- struct{}{}
	t.Cleanup(func() { <-atOnce })
	p.mu.Lock()
	var h *host.Host
	if n := len(p.free); n > 0 {
		h, p.free = p.free[n-1], p.free[:n-1]
	}
	p.mu.Unlock()
	if h == nil {
		h = host.Up(keeper{t, p}, host.Options{})
	}
	t.Cleanup(func() {
		if t.Failed() {
			h.Off(keeper{t, p}) // it would only take time from the others
			return
		}
		clean(t, h)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.free = append(p.free, h)
	})
	return h
}

// clean makes a host as if nobody had used it; the images stay.
func clean(t *testing.T, h *host.Host) {
	t.Helper()
	h.Fault(t, "", "", 0, "")
	h.RegistryArgs(t, "")
	h.MustUser(t, "sh", "-c", `
		toad setup --uninstall >/dev/null 2>&1
		systemctl --user list-units --plain --no-legend --all 'web*' 'foreign*' 'toad*' 'shop*' | cut -d' ' -f1 | xargs -r systemctl --user stop 2>/dev/null
		podman rm -af -t 0 >/dev/null
		podman secret rm -a >/dev/null
		rm -rf .config/containers/systemd .config/toad .config/containers/auth.json .local/state/toad .local/share/systemd .config/systemd/user /run/user/1000/containers/auth.json *.env
		systemctl --user daemon-reload
		systemctl --user reset-failed`)
	h.MustExec(t, "journalctl", "-q", "--rotate", "--vacuum-size=1")
	binary, err := os.ReadFile(os.Getenv("TOAD_BIN"))
	if err != nil {
		t.Fatal(err)
	}
	h.WriteFile(t, "/usr/local/bin/toad", string(binary), 0o755)
}

// bed is a host with the service web.
type bed struct{ *scene.Web }

// bare is a bed on which nothing runs yet.
func bare(t *testing.T) bed {
	t.Helper()
	return bed{&scene.Web{Host: hosts.borrow(t)}}
}

// lay brings the service web up; what o leaves open is short.
func lay(t *testing.T, o scene.Options) bed {
	t.Helper()
	b := bare(t)
	b.up(t, o)
	return b
}

func (b bed) up(t *testing.T, o scene.Options) {
	t.Helper()
	if o.Ready == "" {
		o.Ready = ready
	}
	if o.Limits == "" {
		o.Limits = limits
	}
	b.Up(t, o)
}

// image is the usual Quadlet with another image.
func image(ref string) string { return strings.Replace(scene.Quadlet, "{image}", ref, 1) }

// ending is how a deployment is to end.
type ending struct {
	exit    int
	phase   string
	code    string
	says    []string // on stderr, or on stdout where it is promoted
	refused bool     // the digest, from now on
	serves  string   // the tag whose image runs afterwards; nothing if empty
}

// promoted is the good end.
func promoted(tag string) ending { return ending{phase: "promoted", serves: tag} }

// untouched is the end of a deployment that began and failed before anything was stopped.
func untouched(code, serves string, says ...string) ending {
	exit := 1
	if code == "pull_unavailable" {
		exit = 75
	}
	return ending{exit: exit, phase: "failed", code: code, says: says, serves: serves}
}

// rolledBack is the end of a bad release.
func rolledBack(code, serves string, says ...string) ending {
	return ending{exit: 3, phase: "rolled_back", code: code, says: says, refused: code != "interrupted", serves: serves}
}

// deploy deploys the digest of a tag, and asserts how that ends and all that must hold whatever happened.
func (b bed) deploy(t *testing.T, tag string, want ending, flags ...string) host.Result {
	t.Helper()
	return b.deployDigest(t, b.Digest(t, tag), want, flags...)
}

func (b bed) deployDigest(t *testing.T, digest string, want ending, flags ...string) host.Result {
	t.Helper()
	before := b.state(t)
	r := b.User(t, append([]string{"toad", "deploy", "web", digest}, flags...)...)
	b.ended(t, digest, want, before, r)
	return r
}

// ended asserts how a deployment ended.
func (b bed) ended(t *testing.T, digest string, want ending, before seen, r host.Result) {
	t.Helper()
	s := b.Status(t)
	if s.Operation == nil || r.Exit != want.exit || s.Phase() != want.phase || s.Operation.Code != want.code || s.Operation.Digest != digest {
		t.Fatalf("deploy %.19s: want exit %d, %s %s; have exit %d, %+v\n%s%s\n%s",
			digest, want.exit, want.phase, want.code, r.Exit, s.Operation, r.Stdout, r.Stderr, b.Log(t))
	}
	b.Quiet(t)
	for _, says := range want.says {
		if !strings.Contains(r.Stdout+r.Stderr, says) {
			t.Errorf("deploy %.19s: it does not say %q\n%s%s", digest, says, r.Stdout, r.Stderr)
		}
	}
	if have := slices.ContainsFunc(s.Refusals, func(f struct{ Digest, Reason string }) bool { return f.Digest == digest }); have != want.refused {
		t.Errorf("deploy %.19s: want refused %v, have %+v", digest, want.refused, s.Refusals)
	}
	after := b.state(t)
	if want.phase == "failed" && after != before {
		t.Errorf("deploy %.19s changed something\nbefore %+v\nafter  %+v\n%s", digest, before, after, b.Log(t))
	}
	if want.phase == "promoted" && (s.Promoted == nil || s.Promoted.Digest != digest) {
		t.Errorf("deploy %.19s: on record as promoted is %+v", digest, s.Promoted)
	}
	b.Untouched(t)
	if want.serves == "" {
		if id := b.MustUser(t, "podman", "ps", "-q"); id != "" {
			t.Errorf("deploy %.19s: something runs: %s", digest, id)
		}
		return
	}
	if id := b.running(t); id != b.Image(t, want.serves).ID {
		t.Errorf("deploy %.19s: want %s to run, the running image is %s\n%s", digest, want.serves, id, b.Log(t))
	}
}

// running is the image id of the service's container, whatever its name.
func (b bed) running(t *testing.T) string {
	t.Helper()
	ids := strings.Fields(b.MustUser(t, "sh", "-c", `podman ps -q --filter label=PODMAN_SYSTEMD_UNIT=`+b.unit(t)+` | xargs -r podman inspect --format 'sha256:{{.Image}}'`))
	if len(ids) != 1 {
		t.Fatalf("want one container of %s, have %q\n%s", b.unit(t), ids, b.Log(t))
	}
	return ids[0]
}

// unit is the service that the Quadlet web.container makes.
func (b bed) unit(t *testing.T) string {
	t.Helper()
	for line := range strings.Lines(b.ReadFile(t, quadlet)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "ServiceName="); ok {
			return name + ".service"
		}
	}
	return "web.service"
}

// seen is what a deployment that fails early must not change.
type seen struct{ Invocation, Files, Promoted, Refusals string }

// state looks at the host: the unit's run, every file below the Quadlet folder, and the record.
func (b bed) state(t *testing.T) seen {
	t.Helper()
	lines := strings.Split(b.MustUser(t, "sh", "-c", fmt.Sprintf(`
		record=.local/state/toad/services/web.json
		echo "run $(systemctl --user show -P InvocationID %s)"
		echo "files $(find .config/containers/systemd -type f | sort | xargs -r sha256sum | tr '\n' ' ')"
		echo "promoted $(jq -c .promoted $record 2>/dev/null)"
		echo "refusals $(jq -c .refusals $record 2>/dev/null)"`, b.unit(t))), "\n")
	return seen{lines[0], strings.TrimSpace(lines[1]), onRecord(lines[2]), strings.TrimSuffix(lines[3], " null")}
}

// onRecord leaves out the generation 0, which is only put on record by the first deployment.
func onRecord(promoted string) string {
	if strings.Contains(promoted, `"generation":0`) {
		return "promoted"
	}
	return strings.TrimSuffix(strings.TrimSpace(promoted), " null")
}

// put writes files of the operator and has them loaded; an empty text removes one.
func (b bed) put(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if text == "" {
			b.MustUser(t, "rm", "-f", filepath.Join(host.Home, strings.TrimPrefix(name, "~/")))
			continue
		}
		b.WriteFile(t, name, text, 0o644)
	}
	b.MustUser(t, "systemctl", "--user", "daemon-reload")
}

// command is what the manager would start.
func (b bed) command(t *testing.T, unit string) string {
	t.Helper()
	return b.Show(t, unit, "ExecStart")
}

// at is a reference of the sample repository by the digest of a tag.
func (b bed) at(t *testing.T, tag string) string {
	t.Helper()
	return host.Repository + "@" + b.Digest(t, tag)
}

// operators makes a text the operator's file, and has it loaded.
func (b bed) operators(t *testing.T, text string) {
	t.Helper()
	b.Quadlet(text)
	b.put(t, map[string]string{quadlet: text})
}

// accepts asserts that the unit can be deployed to, as far as the pull of a digest that no registry has.
func (b bed) accepts(t *testing.T, what string) {
	t.Helper()
	r := b.User(t, "toad", "deploy", "web", absent)
	if r.Exit != 1 || !strings.Contains(r.Stderr, "registry does not have it") {
		t.Errorf("%s: want it to get as far as the pull, have exit %d\n%s%s", what, r.Exit, r.Stdout, r.Stderr)
	}
}

// absent is a digest that no registry has.
var absent = "sha256:" + strings.Repeat("0123456789abcdef", 4)

// refuses asserts that v9 is not deployed, since the host is not as toad needs it, and that nothing was touched.
func (b bed) refuses(t *testing.T, what, code string, says ...string) {
	t.Helper()
	before := b.state(t)
	r := b.User(t, "toad", "deploy", "web", b.Digest(t, "v9"))
	s := b.Status(t)
	if r.Exit != 1 || s.Phase() != "failed" || s.Operation.Code != code {
		t.Errorf("%s: want exit 1, failed %s; have exit %d, %+v\n%s%s", what, code, r.Exit, s.Operation, r.Stdout, r.Stderr)
	}
	for _, say := range append(says, "toad: hint: ") {
		if !strings.Contains(r.Stderr, say) {
			t.Errorf("%s: it does not say %q\n%s", what, say, r.Stderr)
		}
	}
	b.Quiet(t)
	if after := b.state(t); after != before {
		t.Errorf("%s: it changed something\nbefore %+v\nafter  %+v\n%s", what, before, after, b.Log(t))
	}
}
