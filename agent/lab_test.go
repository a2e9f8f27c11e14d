package agent

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"toad/agent/bao"
	"toad/agent/protocol"
	"toad/agent/transport"
	"toad/internal/redact"
	"toad/probation"
	"toad/quadlet"
	"toad/tests/control"
)

const (
	env     = "env-dev-01"
	image   = "registry.example.org/team/web"
	digestA = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	digestB = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	digestC = "sha256:cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc"
)

// lab is a box before real servers, with a host that is told of in maps and behaves as the rollout does.
type lab struct {
	t     *testing.T
	world *control.World
	box   string
	env   string
	state string
	conf  Folder
	cfg   Config
	at    time.Time

	services map[string]probation.Service
	ops      map[string]probation.Operation // by service and key
	files    map[string]string
	enrolled []probation.Enrollment
	secrets  map[string]string
	foreign  map[string]string // secrets of the operator's
	volumes  map[string]bool
	running  map[string]bool // units
	bad      map[string]bool // digests that fail
	code     probation.Code  // by which they do
	free     uint64
	taken    []string

	calls, dieAt int // the call of the host at which the process dies
	deploys      []string
	log          strings.Builder
	retry        bool
}

// died is how a killed process ends here.
type died struct{ at string }

func newLab(t *testing.T) *lab { return labIn(t, control.New(), env, "box-1") }

func labIn(t *testing.T, w *control.World, env, box string) *lab {
	t.Helper()
	l := bare(t, w, env, box, t.TempDir())
	w.Set(env, func(*control.Env) {})
	c, b := w.Loopback(t)
	l.cfg = Config{Control: c, Bao: b, EnvID: env, Box: box, Role: control.Role}
	if err := l.conf.Save(l.cfg); err != nil {
		t.Fatal(err)
	}
	l.grant()
	return l
}

// bare is a box that knows of no servers yet.
func bare(t *testing.T, w *control.World, env, box, dir string) *lab {
	return &lab{t: t, world: w, env: env, box: box, state: filepath.Join(dir, "state"), conf: Folder(filepath.Join(dir, "config")), at: time.Now(),
		services: map[string]probation.Service{}, ops: map[string]probation.Operation{}, files: map[string]string{}, secrets: map[string]string{},
		foreign: map[string]string{}, volumes: map[string]bool{}, running: map[string]bool{}, bad: map[string]bool{}, code: probation.CodeCandidateExited, free: 1 << 30}
}

// grant puts a deploy grant where an operator would.
func (l *lab) grant() {
	l.t.Helper()
	if err := os.WriteFile(l.conf.GrantFile(), []byte(l.world.Grant(l.env, l.box)+"\n"), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) agent() *Agent {
	l.t.Helper()
	cfg, err := l.conf.Load()
	if err != nil {
		l.t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(l.world.CA())
	client := transport.Client(transport.Direct, pool)
	l.t.Cleanup(client.CloseIdleConnections)
	secrets := &redact.Redactor{}
	vault, err := bao.New(bao.Config{Address: cfg.Bao, HTTP: client, EnvID: cfg.EnvID, Redactor: secrets})
	if err != nil {
		l.t.Fatal(err)
	}
	plane, err := protocol.New(protocol.Config{Address: cfg.Control, HTTP: client, EnvID: cfg.EnvID, Box: cfg.Box, Token: vault.Token, Redactor: secrets})
	if err != nil {
		l.t.Fatal(err)
	}
	return &Agent{Config: cfg, Folder: l.conf, Store: Store{l.state}, Control: plane, Vault: vault, Services: l, Ground: l, Podman: l, Redactor: secrets,
		Version: "test", Retry: l.retry, Now: func() time.Time { return l.at }, Log: slog.New(slog.NewTextHandler(secrets.Writer(&l.log), nil))}
}

// tick is one run of toad agent run. It reports where the process died, if it did.
func (l *lab) tick() (outcome Outcome, dead string, err error) {
	defer func() {
		if r := recover(); r != nil {
			d, ok := r.(died)
			if !ok {
				panic(r)
			}
			dead = d.at
		}
	}()
	outcome, err = l.agent().Tick(l.t.Context())
	return outcome, "", err
}

// must is a tick that has to end so.
func (l *lab) must(want Outcome) error {
	l.t.Helper()
	outcome, dead, err := l.tick()
	if outcome != want || dead != "" {
		l.t.Fatalf("the tick ended %d (%v) %s, want %d\n%s", outcome, err, dead, want, l.log.String())
	}
	return err
}

func (l *lab) saved() State {
	l.t.Helper()
	st, err := Store{l.state}.Load()
	if err != nil {
		l.t.Fatal(err)
	}
	return st
}

// call is what every change of the host goes through.
func (l *lab) call(what string) {
	if l.calls++; l.calls == l.dieAt {
		panic(died{fmt.Sprintf("at %s (call %d)", what, l.calls)})
	}
}

func (l *lab) Standing(service string) (probation.Service, error) {
	svc := l.services[service]
	svc.Name = service
	return svc, nil
}

func (l *lab) Deploy(_ context.Context, e probation.Enrollment, req probation.Request) (probation.Operation, error) {
	l.call("deploy " + e.Name)
	if _, err := quadlet.CheckBrought([]probation.Enrollment{e}); err != nil {
		l.t.Errorf("deployed with an enrollment that cannot be read: %v", err)
	}
	for _, unit := range e.Units {
		if l.files[unit] == "" {
			l.t.Errorf("%s is deployed, and %s is not installed", e.Name, unit)
		}
		l.hasAllIt(e.Definition.Text(unit))
	}
	if op, ok := l.ops[e.Name+req.Key]; ok {
		return op, nil
	}
	svc, _ := l.Standing(e.Name)
	next, changed, err := svc.Accept(e, req, probation.Instant{Wall: l.at})
	if err != nil {
		return probation.Operation{}, err
	}
	if !changed {
		return svc.Promotion(), nil
	}
	l.deploys = append(l.deploys, e.Name)
	op, end := *next.Operation, l.at
	op.EndedAt = &end
	op.Candidate.Digests = []string{op.Candidate.Digest}
	if l.bad[op.Candidate.Digest] {
		op.Phase, op.Code, op.Reason = probation.RolledBack, l.code, "it exited"
		if l.code == probation.CodePullUnavailable {
			op.Phase = probation.Failed
		} else {
			op.Evidence = &probation.Evidence{Lines: []string{"fatal: no such thing"}}
			next.Refusals = append(next.Refusals, probation.Refusal{Release: op.Candidate, Operation: op.ID, Reason: op.Reason, RefusedAt: end})
		}
	} else {
		op.Phase = probation.Promoted
		r := op.Candidate
		next.Retained = append([]probation.Release{r}, next.Retained...)
		next.Promoted = &r
		for _, unit := range e.Units {
			l.running[unit] = true
		}
	}
	next.Operation = &op
	l.services[e.Name], l.ops[e.Name+req.Key] = next, op
	l.call("deployed " + e.Name)
	return op, nil
}

// hasAllIt makes sure that what a text names is there: a unit that names a missing volume or secret does not start.
func (l *lab) hasAllIt(text string) {
	settings, err := quadlet.Settings("", []byte(text))
	if err != nil {
		l.t.Error(err)
	}
	for _, s := range settings {
		name, _, _ := strings.Cut(s.Value, ":")
		if (s.Key == "Volume" || s.Key == "Network") && strings.Contains(name, ".") && l.files[name] == "" {
			l.t.Errorf("%s=%s is not installed", s.Key, name)
		}
		name, _, _ = strings.Cut(s.Value, ",")
		if _, ok := l.secrets[name]; s.Key == "Secret" && !ok {
			l.t.Errorf("the secret %s is not in the store", name)
		}
	}
}

func (l *lab) Retire(_ context.Context, service string, units []string) error {
	l.call("retire " + service)
	for _, u := range units {
		delete(l.running, u)
	}
	if service != "" {
		svc, _ := l.Standing(service)
		next, _, err := svc.Unpin()
		if err != nil {
			return err
		}
		l.services[service] = next
	}
	return nil
}

func (l *lab) Install(_ context.Context, files map[string]string, services []probation.Enrollment) error {
	l.call("install")
	l.files = maps.Clone(files)
	l.call("enroll")
	l.enrolled = slices.Clone(services)
	for unit := range l.running {
		if l.files[unit] == "" {
			l.t.Errorf("%s runs, and is not installed", unit)
		}
	}
	// What is in force must be able to start at any moment.
	for _, svc := range l.services {
		if svc.Promoted != nil {
			for _, text := range svc.Promoted.Definition.Texts {
				l.hasAllIt(text)
			}
		}
	}
	return nil
}

func (l *lab) Taken(context.Context, []probation.Enrollment, []string) ([]string, error) {
	return l.taken, nil
}

func (l *lab) Free() (uint64, error) { return l.free, nil }

func (l *lab) FindSecret(_ context.Context, name string) (string, bool, bool, error) {
	if value, ok := l.foreign[name]; ok {
		return value, false, true, nil
	}
	value, ok := l.secrets[name]
	return value, ok, ok, nil
}

func (l *lab) PutSecret(_ context.Context, name, value string) error {
	l.call("secret " + name)
	if l.secrets[name] != "" {
		return errors.New("the name is taken")
	}
	l.secrets[name] = value
	return nil
}

func (l *lab) DropSecrets(_ context.Context, keep []string) error {
	l.call("drop secrets")
	for name := range l.secrets {
		if !slices.Contains(keep, name) {
			delete(l.secrets, name)
		}
	}
	return nil
}

func (l *lab) DropVolumes(_ context.Context, names []string) error {
	l.call("drop volumes")
	for _, n := range names {
		delete(l.volumes, n)
	}
	return nil
}

// ---- bundles ----

// source is a bundle's folder, by file name.
type source map[string]string

func unit(more string) string {
	return "[Unit]\nDescription=web\n[Container]\nImage=" + image + "\nPublishPort=127.0.0.1:8080:8080\n" + more + "[Install]\nWantedBy=default.target\n"
}

// manifest of an environment; services are name=digest, each of a unit of its name.
func manifest(env string, created time.Time, services ...string) string {
	var all []string
	for _, s := range services {
		name, digest, _ := strings.Cut(s, "=")
		all = append(all, fmt.Sprintf(`{"name":%q,"units":["%s.container"],"image":%q,"digest":%q,"ready":{"http":"http://127.0.0.1:8080/healthz"},"probation":{"stable":"1s"}}`, name, name, image, digest))
	}
	return fmt.Sprintf(`{"env_id":%q,"created":%q,"services":[%s]}`, env, created.UTC().Format(time.RFC3339), strings.Join(all, ","))
}

func (s source) with(name, text string) source {
	out := maps.Clone(s)
	out[name] = text
	return out
}

// write lays the folder down.
func (s source) write(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range s {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (s source) make(t *testing.T) (*Bundle, []byte) {
	t.Helper()
	b, data, err := Make(s.write(t), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return b, data
}

// raw is a bundle as somebody makes it who does not use toad.
func (s source) raw() (string, []byte) {
	files := map[string][]byte{}
	for name, text := range s {
		files[name] = []byte(text)
	}
	return SHA(files), pack(files)
}

var (
	day = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	one = source{ManifestName: manifest(env, day, "web="+digestA), "web.container": unit("Secret=key,type=env,target=KEY\nEnvironment=NAME=${NAME}\nVolume=data.volume:/data\n"),
		"data.volume": "[Volume]\n"}
	two = one.with(ManifestName, manifest(env, day.Add(time.Hour), "web="+digestB))
)

// publish makes a bundle the environment's.
func (l *lab) publish(s source) string {
	l.t.Helper()
	b, data := s.make(l.t)
	l.world.Publish(l.env, b.SHA, data)
	return b.SHA
}

// ready is a box that has converged to the bundle one.
func ready(t *testing.T) *lab {
	l := newLab(t)
	l.world.Set(env, func(e *control.Env) { e.Variables = map[string]string{"NAME": "box"} })
	l.world.PutSecret(env, "key", "first-secret-value")
	l.publish(one)
	l.must(Converged)
	return l
}

// reported is the last report.
func (l *lab) reported() control.Report {
	l.t.Helper()
	all := l.world.Reports(l.env, l.box)
	if len(all) == 0 {
		l.t.Fatalf("nothing was reported\n%s", l.log.String())
	}
	return all[len(all)-1]
}

// noSecret looks for every secret there ever was in all that the box keeps but in Podman's store and the token's file.
func (l *lab) noSecret() {
	l.t.Helper()
	texts := map[string]string{"the log": l.log.String()}
	for _, dir := range []string{l.state, string(l.conf)} {
		_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && filepath.Base(path) != "bearer" {
				data, _ := os.ReadFile(path)
				texts[path] = string(data)
			}
			return nil
		})
	}
	for name, text := range l.files {
		texts[name] = text
	}
	for _, r := range l.world.Reports(l.env, "") {
		texts["report "+r.ID] = fmt.Sprintf("%+v", r)
	}
	for _, secret := range l.world.Secrets() {
		for where, text := range texts {
			if strings.Contains(text, secret) {
				l.t.Errorf("a secret is in %s", where)
			}
		}
	}
}
