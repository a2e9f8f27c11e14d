package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"toad/httpd"
	"toad/podmanc"
	"toad/probation"
	"toad/probation/record"
	"toad/unitgen"
	"toad/webui"
)

// poison is what must never be seen, in every place of a record, an enrollment, a unit and a container where it can be.
var poison = []string{
	"hunter2-environment", "hunter2-label", "hunter2-application", "hunter2-evidence", "hunter2-field", "hunter2-pin", "hunter2-key",
	"hunter2-body", "hunter2-probe", "hunter2-argv", "hunter2-token", "hunter2-status", "hunter2-podman",
	"/home/toad/secret", "/run/user/1000/private", "~/.config/hidden",
}

// strange is markup, control characters and right-to-left marks; endless is a line of a megabyte.
var strange = `<script>alert("x")</script><img src=x onerror=alert(1)>` + "\x1b[31mred\x07\x00\r\n\u202eltr\u2066\u200b\ufeff" + `"'&{{.}}`

var endless = strings.Repeat("A", 1<<20)

func poisoned(t *testing.T) *pageSource {
	t.Helper()
	records, err := record.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i, phase := range []probation.Phase{probation.Preparing, probation.Probation, probation.Restoring, probation.Promoted,
		probation.RolledBack, probation.RollbackFailed, probation.Failed, probation.Withdrawn, probation.Phase(strange)} {
		putPoisoned(t, records, fmt.Sprintf("svc-%d", i), phase)
	}
	damaged := filepath.Join(records.Dir(), "services", "damaged.json")
	if err := os.WriteFile(damaged, []byte("hunter2-key "+strange), 0o600); err != nil {
		t.Fatal(err)
	}
	return &pageSource{records: record.NewReader(records), enrolled: poisonedEnrollment{}, units: poisonedUnits{}, containers: poisonedContainers{},
		sight:  poisonedSight{},
		follow: func(string) (<-chan struct{}, func()) { return make(chan struct{}), func() {} },
		now:    now, glances: newGlances()}
}

func dirty(what string) string {
	return what + " in /home/toad/secret/file and unix:///run/user/1000/private/x.sock and ~/.config/hidden/y; Authorization: Bearer hunter2-token " + strange + endless[:2000]
}

func putPoisoned(t *testing.T, records *record.Store, name string, phase probation.Phase) {
	t.Helper()
	at := time.Now().Add(-time.Minute).UTC()
	digest := "sha256:" + strings.Repeat("0c220ab041f4dead", 4)
	by := probation.NewDeadline(now(), 5*time.Minute)
	id := probation.OperationID(name, 1)
	evidence := &probation.Evidence{Unit: "web.service", Invocation: strange, Lines: []string{"hunter2-evidence " + strange}}
	e, _ := poisonedEnrollment{}.Enrollment(name)
	op := probation.Operation{ID: id, Service: name, Generation: 1, Phase: phase, Code: probation.Code(strange), Reason: dirty("it failed"),
		Key: "hunter2-key", Body: "hunter2-body", By: "token hunter2-token", AcceptedAt: at, Enrollment: e, Candidate: probation.Release{Digest: digest},
		PrepareBy: by, Evidence: evidence, Checks: 1,
		Before: []probation.UnitBefore{{Unit: "web.container", Service: "web.service", Pin: "Environment=SECRET=hunter2-pin"}}}
	if phase != probation.Preparing {
		op.Deadline, op.RestoreBy = &by, &by
	}
	if phase.Terminal() {
		op.EndedAt = &at
	}
	svc := probation.Service{Name: name, Generation: 1, Promoted: &probation.Release{Digest: "hunter2-label", ImageID: strange}, Operation: &op,
		Refusals: []probation.Refusal{{Release: probation.Release{Digest: digest}, Operation: id, Reason: dirty("refused"), Code: "x", RefusedAt: at, Evidence: evidence}}}
	if err := records.Put(svc); err != nil {
		t.Fatal(err)
	}
	if err := records.PutWatch(id, record.Watch{Check: 1, Phase: phase, Why: dirty("not ready"), Unready: evidence}); err != nil {
		t.Fatal(err)
	}
	tail := endless[:2000]
	if phase == probation.RolledBack {
		tail = endless
	}
	for _, l := range []record.Line{
		{Level: "info", Event: "accepted", Message: dirty("accepted"), Fields: map[string]string{"x": "hunter2-field"}},
		{Level: strange, Event: strange, Message: strange + tail},
		{Level: "info", Event: "application", Message: "hunter2-application " + strange + tail, Fields: map[string]string{"unit": "hunter2-field"}},
		{Level: "warn", Event: "restoring", Message: "restoring: Podman could not run the container: Error: hunter2-podman"},
	} {
		l.At = at
		if err := records.Log(id, l); err != nil {
			t.Fatal(err)
		}
	}
}

type poisonedEnrollment struct{}

func (poisonedEnrollment) All() []probation.Enrollment {
	return []probation.Enrollment{{Name: "never"}}
}
func (poisonedEnrollment) Invalid() error { return errors.New(dirty("enrollment.toml:1: nonsense")) }
func (poisonedEnrollment) Enrollment(name string) (probation.Enrollment, error) {
	if name == "svc-7" {
		return probation.Enrollment{}, httpd.ErrUnknownService
	}
	return probation.Enrollment{Name: name, Units: []string{"web.container"}, Image: "registry.example.org/team/web", Hold: strange,
		Ready: probation.Ready{HTTP: "http://127.0.0.1:1/hunter2-probe?token=hunter2-probe", Interval: time.Second, Timeout: time.Second}}, nil
}

type poisonedUnits struct{}

func (poisonedUnits) State(context.Context, string) (unitgen.State, error) {
	return unitgen.State{Name: "web.service", LoadState: "loaded", ActiveState: "active", SubState: strange, StatusText: "hunter2-status",
		SourcePath: "/home/toad/secret/web.container", ControlGroup: "/x", ExecStart: [][]string{{"podman", "--env", "A=hunter2-argv"}},
		InvocationID: strings.Repeat("ab", 16), ActiveEnterTimestampMonotonic: 1}, nil
}

func (poisonedUnits) List(context.Context, ...string) ([]unitgen.State, error) {
	return []unitgen.State{{Name: "web.service", LoadState: "loaded", ActiveState: "failed", SubState: strange}}, nil
}

type poisonedContainers struct{}

func (poisonedContainers) Container(context.Context, string) (podmanc.Container, error) {
	return podmanc.Container{Name: "hunter2-label", ImageRef: "hunter2-label", ImageID: strings.Repeat("cd", 32), Running: true, Status: "running",
		Health: strange, Labels: map[string]string{"hunter2-label": "hunter2-label"}}, nil
}

var raw = regexp.MustCompile("[\x00-\x08\x0b-\x1f\x7f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]")

// assertClean asserts that nothing of the poison is in what was answered.
func assertClean(t *testing.T, where, text string) {
	t.Helper()
	for _, p := range poison {
		if i := strings.Index(text, p); i >= 0 {
			t.Errorf("%s shows %q: %.200q", where, p, text[max(i-80, 0):])
		}
	}
	for _, markup := range []string{"<script>alert", "<img src=x", "onerror=alert(1)>"} {
		if strings.Contains(text, markup) {
			t.Errorf("%s has the markup %q", where, markup)
		}
	}
	if m := raw.FindString(text); m != "" {
		t.Errorf("%s has the character %q", where, m)
	}
	if strings.Contains(text, strings.Repeat("A", 1000)) {
		t.Errorf("%s shows a line without an end", where)
	}
}

func TestNothingPoisonedReachesThePage(t *testing.T) {
	source := poisoned(t)
	site := webui.New(source, slog.New(slog.DiscardHandler))
	srv := httptest.NewServer(site)
	defer srv.Close()
	get := func(path string) (string, *http.Response) {
		resp, err := http.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return string(body), resp
	}
	overview, _ := get("/")
	names := regexp.MustCompile(`href="/services/([a-z0-9-]+)"`).FindAllStringSubmatch(overview, -1)
	if len(names) != 11 { // of each phase one, one that was never deployed, and the damaged one
		t.Fatalf("%d services on the page:\n%.3000s", len(names), overview)
	}
	paths := []string{"/", "/assets/toad.css", "/assets/toad.js", "/assets/toad.svg", "/services/nobody", "/services/web%3Cscript%3Ealert", "/hunter2-token"}
	streams := []string{"/events"}
	for _, n := range names {
		paths = append(paths, "/services/"+n[1])
		streams = append(streams, "/services/"+n[1]+"/events")
		if n[1] != "never" && n[1] != "damaged" {
			paths = append(paths, "/services/"+n[1]+"/operations/"+n[1]+"-g1")
		}
	}
	whole := ""
	for _, path := range paths {
		body, resp := get(path)
		assertClean(t, path, body)
		for k, v := range resp.Header {
			assertClean(t, path+" header "+k, strings.Join(v, " "))
		}
		whole += body
	}
	for _, path := range streams {
		assertClean(t, path, untilWhole(t, srv.URL+path))
	}
	if view, err := source.Service(t.Context(), "svc-4", ""); err != nil {
		t.Fatal(err)
	} else if text, err := json.Marshal(view); err != nil {
		t.Fatal(err)
	} else {
		assertClean(t, "the view", string(text))
	}
	// What may be shown is there: an empty page would be clean as well.
	for _, want := range []string{"0c220ab041f4", "web.service", "1 line of the application is kept", "toad log svc-4-g1", "HTTP on port 1 answers 2xx",
		"asked for by a token", "registry.example.org/team/web", "&lt;script&gt;alert(&#34;x&#34;)"} {
		if !strings.Contains(whole, want) {
			t.Errorf("no page shows %q", want)
		}
	}
}

// untilWhole reads a stream until all parts were sent.
func untilWhole(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var text strings.Builder
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatalf("%s: %v after %.300q", url, err, text.String())
		}
		text.WriteString(line)
		if line == "event: whole\n" {
			return text.String()
		}
	}
}

type poisonedSight struct{}

func (poisonedSight) ServiceOf(_ context.Context, unit string) (string, error) {
	return strings.Replace(unit, ".container", ".service", 1), nil
}

func (poisonedSight) Runs(context.Context, unitgen.State) string { return strings.Repeat("ab", 32) }

func (poisonedSight) FileOf(context.Context, string) (string, error) { return "", nil }

func (poisonedSight) Probe(ctx context.Context, ready probation.Ready, unit string) probed {
	return probe(ctx, poisonedUnits{}, poisonedContainers{}, ready, unit)
}
