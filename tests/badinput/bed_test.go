//go:build e2e

package badinput

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	ready  = "http = \"http://127.0.0.1:8080/healthz\"\ninterval = \"200ms\"\ntimeout = \"1s\""
	limits = "deadline = \"60s\"\nstable = \"500ms\"\npull = \"20s\""

	enrollment = "~/.config/toad/enrollment.toml"
	quadlet    = "~/.config/containers/systemd/web.container"
)

// bed is a host on which toad has promoted v2 for the service web. Nothing in this package may change that.
type bed struct{ *scene.Web }

func newBed(t *testing.T, o scene.Options) bed {
	t.Helper()
	o.Ready, o.Limits = ready, limits
	b := bed{scene.New(t, o)}
	b.MustDeploy(t, 0, "v2", "--key", "first")
	b.Quiet(t)
	return b
}

// seen is what must not change.
type seen struct {
	Unit, Folder string // the unit's run, and every file of the Quadlet folder with its sum
	Record       struct {
		Generation         int
		Promoted, Refusals string
		Operation          string // its id
	}
}

const look = `systemctl --user show -P InvocationID -P MainPID web.service | tr '\n' ' '; echo
(cd .config/containers/systemd && find . -type f | sort | xargs -r sha256sum | tr '\n' ' '); echo
jq -c '{Generation: .generation, Promoted: (.promoted | tostring), Refusals: (.refusals | tostring), Operation: .operation.id}' .local/state/toad/services/web.json`

func (b bed) look(t *testing.T) (s seen) {
	t.Helper()
	lines := strings.Split(b.MustUser(t, "sh", "-c", look), "\n")
	if len(lines) != 3 {
		t.Fatalf("looked and saw %q", lines)
	}
	s.Unit, s.Folder = lines[0], lines[1]
	if err := json.Unmarshal([]byte(lines[2]), &s.Record); err != nil {
		t.Fatal(err)
	}
	b.MustServe(t, "v2")
	return s
}

func record(t *testing.T, b bed, service string, into any) {
	t.Helper()
	text := b.MustUser(t, "cat", ".local/state/toad/services/"+service+".json")
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// refusal is how toad answers what it does not do.
type refusal struct {
	exit int
	code string   // with which an operation was begun and failed; "" when nothing may be begun
	says []string // on stderr: what is wrong, why, and what to do
}

// refused runs a command, and asserts that it was refused so and that nothing has changed.
func (b bed) refused(t *testing.T, want refusal, argv ...string) host.Result {
	t.Helper()
	return b.refusedBy(t, want, strings.Join(argv, " "), func() host.Result { return b.User(t, argv...) })
}

func (b bed) refusedBy(t *testing.T, want refusal, what string, run func() host.Result) host.Result {
	t.Helper()
	before := b.look(t)
	r := run()
	said(t, want, what, r)
	after := b.look(t)
	if want.code != "" {
		b.failed(t, want.code)
		before.Record.Generation++
		before.Record.Operation = fmt.Sprintf("web-g%d", before.Record.Generation)
	}
	if before != after {
		t.Errorf("%s changed something\nbefore %+v\nafter  %+v\n%s", what, before, after, b.Log(t))
	}
	return r
}

func said(t *testing.T, want refusal, what string, r host.Result) {
	t.Helper()
	if r.Exit != want.exit {
		t.Errorf("%s: want exit %d, have %d\n%s%s", what, want.exit, r.Exit, r.Stdout, r.Stderr)
	}
	for _, s := range want.says {
		if !strings.Contains(r.Stderr, s) {
			t.Errorf("%s: it does not say %q\n%s", what, s, r.Stderr)
		}
	}
	t.Logf("%s\n%s", what, r.Stderr)
}

// failed asserts that the latest operation ended before anything was changed, and has let go of everything.
func (b bed) failed(t *testing.T, code string) {
	t.Helper()
	b.WaitPhase(t, "failed")
	op := b.Record(t).Operation
	if op.Code != code || op.Reason == "" {
		t.Errorf("want the code %s with a reason, have %q: %q\n%s", code, op.Code, op.Reason, b.Log(t))
	}
	b.Quiet(t)
}

// problem is an answer of the API that is not a success.
type problem struct {
	Status             int
	Code, Detail, Hint string
	Operation          string
	Generation         *int
	ID                 string // of the operation, in a success
}

// ask posts to the Unix socket as curl does.
func (b bed) ask(t *testing.T, path, key, body string) problem {
	t.Helper()
	out := b.MustUser(t, "curl", "-sS", "--unix-socket", "/run/user/1000/toad/toad.sock", "-w", "\n%{http_code}",
		"-H", "Content-Type: application/json", "-H", "Idempotency-Key: "+key, "-d", body, "http://toad"+path)
	text, status, _ := cutLast(out, "\n")
	var p problem
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if p.Detail != "" && fmt.Sprint(p.Status) != status {
		t.Errorf("the problem says status %d, the answer %s", p.Status, status)
	}
	_, err := fmt.Sscan(status, &p.Status)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// rejected asks over HTTP and asserts the problem, and that nothing has changed.
func (b bed) rejected(t *testing.T, status int, code, path, key, body string) problem {
	t.Helper()
	before := b.look(t)
	p := b.ask(t, path, key, body)
	if p.Status != status || p.Code != code || p.Detail == "" {
		t.Errorf("%s %s: want %d %s with a detail, have %+v", path, body, status, code, p)
	}
	if after := b.look(t); before != after {
		t.Errorf("%s %s changed something\nbefore %+v\nafter  %+v", path, body, before, after)
	}
	t.Logf("%s %s\n%d %s: %s; %s", path, body, p.Status, p.Code, p.Detail, p.Hint)
	return p
}

const deployments = "/v1/services/web/deployments"

func wish(digest string) string { return fmt.Sprintf(`{"digest":%q}`, digest) }

// absent is a digest that no registry has.
var absent = "sha256:" + strings.Repeat("0123456789abcdef", 4)

// with writes files for the length of a test; an empty text removes one. The manager reads them anew.
func (b bed) with(t *testing.T, files map[string]string) {
	t.Helper()
	old := map[string]string{}
	for name := range files {
		if b.User(t, "sh", "-c", "test -e "+strings.Replace(name, "~", "$HOME", 1)).Exit == 0 {
			old[name] = b.ReadFile(t, name)
		}
	}
	put := func(files map[string]string) {
		for _, name := range slices.Sorted(maps.Keys(files)) {
			if files[name] == "" {
				b.MustUser(t, "sh", "-c", "rm -f "+strings.Replace(name, "~", "$HOME", 1))
				continue
			}
			b.WriteFile(t, name, files[name], 0o644)
		}
		b.MustUser(t, "systemctl", "--user", "daemon-reload")
	}
	put(files)
	t.Cleanup(func() {
		back := map[string]string{}
		for name := range files {
			back[name] = old[name]
		}
		put(back)
	})
}

// enroll writes an enrollment for the length of a test.
func (b bed) enroll(t *testing.T, text string) {
	t.Helper()
	b.with(t, map[string]string{enrollment: text})
}

// web is the enrollment of the service web with other readiness.
func web(ready string) string {
	return fmt.Sprintf("[service.web]\nunits = [\"web.container\"]\nimage = %q\n\n[service.web.ready]\n%s\n\n[service.web.probation]\n%s\n",
		host.Repository, ready, limits)
}
