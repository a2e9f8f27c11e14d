package httpd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"toad/httpd/api"
	"toad/probation"
)

func TestAServiceIsToldAsDocumented(t *testing.T) {
	f := start(t)
	fresh := f.get("/v1/services/web")
	want := `{"service":"web","image":"registry.example.org/team/web","generation":0,"promoted":null,"operation":null,"refusals":[]}` + "\n"
	if fresh.status != 200 || fresh.body != want {
		t.Errorf("want %s, have %d %s", want, fresh.status, fresh.body)
	}
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	f.promote()
	var shown map[string]any
	if err := json.Unmarshal([]byte(f.get("/v1/services/web").body), &shown); err != nil {
		t.Fatal(err)
	}
	op, promoted := shown["operation"].(map[string]any), shown["promoted"].(map[string]any)
	for _, c := range []struct{ want, have any }{
		{"web", shown["service"]}, {1.0, shown["generation"]}, {one, promoted["digest"]}, {1.0, promoted["generation"]},
		{"web-g1", op["id"]}, {"promoted", op["phase"]}, {"", op["code"]}, {"", op["reason"]}, {one, op["digest"]}, {"1s", op["stable"]},
	} {
		if c.want != c.have {
			t.Errorf("want %v, have %v", c.want, c.have)
		}
	}
	for _, moment := range []any{promoted["promoted_at"], op["deadline"], op["accepted_at"], op["ended_at"]} {
		if _, err := time.Parse(time.RFC3339, fmt.Sprint(moment)); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatIsTakenOverHasNoDateAndMayHaveNoDigest(t *testing.T) {
	have, err := json.Marshal(wireRelease(&probation.Release{ImageID: strings.Repeat("a", 64)}))
	want := `{"digest":"","image_id":"` + strings.Repeat("a", 64) + `","generation":0,"promoted_at":null}`
	if err != nil || string(have) != want {
		t.Errorf("want %s, have %s, %v", want, have, err)
	}
}

func TestHistoryComesInPages(t *testing.T) {
	f := start(t)
	for i := range 5 {
		f.deploy(one, fmt.Sprint("k", i)).operation(t, http.StatusAccepted)
		f.event(probation.Event{Kind: probation.PrepareFailed, Code: probation.CodePullFailed, Reason: "no such image"})
	}
	var seen []string
	for before, pages := 0, 0; ; pages++ {
		page, err := f.client().Operations(context.Background(), "web", before, 2)
		if err != nil || pages > 3 {
			t.Fatal(pages, err)
		}
		for _, op := range page.Operations {
			seen = append(seen, op.ID)
		}
		if before = page.Next; before == 0 {
			break
		}
	}
	if want, have := "web-g5 web-g4 web-g3 web-g2 web-g1", strings.Join(seen, " "); want != have {
		t.Errorf("want %s, have %s", want, have)
	}
}

func TestHealthSaysWhatIsWrongOnTheHostAndOneWordElsewhere(t *testing.T) {
	sick := errors.New("bus: connect /run/user/1000/bus: no such file\nstate: read-only")
	looks := 0
	f := start(t, func(s *Server) { s.Health, s.stands = func(context.Context) error { looks++; return sick }, time.Hour })
	stranger := remote{f, ""}
	if p := f.get("/healthz").problem(t, 503, "unhealthy"); p.Detail != "bus: connect bus: no such file; state: read-only" {
		t.Errorf("have %s", p.Detail)
	}
	if r := stranger.get("/healthz"); r.status != 503 || r.body != "failing\n" {
		t.Errorf("have %d %q", r.status, r.body)
	}
	if looks != 1 {
		t.Errorf("want one look for two answers, have %d", looks)
	}
	f.server.looking.Lock()
	f.server.looked, sick = time.Time{}, nil
	f.server.looking.Unlock()
	if r := f.get("/healthz"); r.status != 200 || r.body != "ok\n" {
		t.Errorf("have %d %q", r.status, r.body)
	}
	if r := stranger.get("/healthz"); r.status != 200 || r.body != "ok\n" {
		t.Errorf("have %d %q", r.status, r.body)
	}
}

func TestTheLogIsAnArrayOfItsLines(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	f.line("web-g1", "pull", "layer 1\nof 2")
	lines, err := f.client().Log(context.Background(), "web-g1")
	if err != nil || len(lines) != 2 {
		t.Fatal(len(lines), err)
	}
	if !strings.Contains(string(lines[1]), `"event":"pull","message":"layer 1\nof 2"`) {
		t.Errorf("have %s", lines[1])
	}
}

// published is a registry that has one tag.
type published struct{}

func (published) Resolve(_ context.Context, repository, tag string) (string, error) {
	switch tag {
	case "v1":
		return one, nil
	case "denied":
		return "", &TagError{probation.CodePullFailed, errors.New("registry denies access: open /home/toad/.config/auth.json")}
	case "away":
		return "", &TagError{probation.CodePullUnavailable, errors.New("connection refused")}
	}
	return "", &TagError{CodeUnknownTag, errors.New(repository + ":" + tag + " is not there")}
}

func TestATagIsResolved(t *testing.T) {
	f := start(t)
	tag, err := f.client().Tag(t.Context(), "web", "v1")
	if err != nil || tag != (api.Tag{Service: "web", Image: "registry.example.org/team/web", Tag: "v1", Digest: one}) {
		t.Errorf("have %+v, %v", tag, err)
	}
	f.get("/v1/services/web/tags/v2").problem(t, 404, "unknown_tag")
	f.get("/v1/services/web/tags/away").problem(t, 503, "pull_unavailable")
	if p := f.get("/v1/services/web/tags/denied").problem(t, 502, "pull_failed"); strings.Contains(p.Detail, "/home") {
		t.Errorf("a path of the host is told: %s", p.Detail)
	}
	f.get("/v1/services/wbe/tags/v1").problem(t, 404, "unknown_service")
	f.get("/v1/services/web/tags/-x").problem(t, 422, "invalid_request")
	f.get("/v1/services/web/tags/a%20b").problem(t, 422, "invalid_request")
}

func TestPathsAreLeftOut(t *testing.T) {
	for text, want := range map[string]string{
		"open /home/toad/.local/state/toad/x.json: denied": "open x.json: denied",
		`"/etc/toad/a", (/b/c) and file=/d/e.`:             `"a", (c) and file=e.`,
		"see ~/.config/toad/enrollment.toml":               "see enrollment.toml",
		"get http://127.0.0.1:8080/healthz: refused":       "get http://127.0.0.1:8080/healthz: refused",
		"pulling 127.0.0.1:5000/app@sha256:1":              "pulling 127.0.0.1:5000/app@sha256:1",
		"read/write and and/or, 1 / 2":                     "read/write and and/or, 1 / 2",
		"at /x":                                            "at x",
		"[/run/user/1000/bus]":                             "[bus]",
	} {
		if have := withoutPaths(text); have != want {
			t.Errorf("%s: want %s, have %s", text, want, have)
		}
	}
}
