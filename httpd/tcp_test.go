package httpd

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"toad/authstore"
	"toad/httpd/api"
	"toad/probation"
)

func TestATokenIsNeededOverTCP(t *testing.T) {
	f := start(t)
	good := f.over("web", authstore.Read)
	if r := good.get("/v1/services/web"); r.status != 200 {
		t.Fatalf("have %d %s", r.status, r.body)
	}
	id, secret, _ := authstore.Parse(good.bearer)
	var answers []string
	for name, authorization := range map[string][]string{
		"none":           nil,
		"a wrong id":     {"Bearer 0123456789." + secret},
		"a wrong secret": {"Bearer " + id + "." + strings.Repeat("A", 43)},
		"basic":          {"Basic " + good.bearer},
		"no scheme":      {good.bearer},
		"two":            {"Bearer " + good.bearer, "Bearer " + good.bearer},
		"nonsense":       {"Bearer \xff"},
		"long":           {"Bearer " + strings.Repeat("A", 8<<10)},
	} {
		r := good.do(request{"GET", "/v1/services/web", "", http.Header{"Authorization": authorization}})
		p := r.problem(t, 401, "unauthorized")
		if r.header.Get("WWW-Authenticate") != "Bearer" || strings.Contains(r.body, id) || strings.Contains(r.body, secret) {
			t.Errorf("%s: %s", name, r.body)
		}
		answers = append(answers, p.Detail)
	}
	for _, a := range answers {
		if a != answers[0] {
			t.Errorf("the answers differ: %q and %q", answers[0], a)
		}
	}
	if r := good.do(request{"GET", "/v1/services/web", "", http.Header{"Authorization": {"bearer  " + good.bearer}}}); r.status != 200 {
		t.Errorf("another spelling: %d", r.status)
	}
	if strings.Contains(f.logged.String(), secret) {
		t.Error("the secret is in the journal")
	}
}

func TestATokenReachesNoFurtherThanItSays(t *testing.T) {
	f := start(t)
	f.deploy(one, "k0").operation(t, http.StatusAccepted)
	body := fmt.Sprintf(`{"digest":%q}`, one)
	for _, c := range []struct {
		name     string
		services string
		verbs    []authstore.Verb
		method   string
		path     string
		body     string
		want     int
	}{
		{"read its service", "web", []authstore.Verb{"read"}, "GET", "/v1/services/web", "", 200},
		{"read another's", "web", []authstore.Verb{"read"}, "GET", "/v1/services/db", "", 403},
		{"read one that there is not", "web", []authstore.Verb{"read"}, "GET", "/v1/services/nope", "", 403},
		{"read with deploy", "web", []authstore.Verb{"deploy"}, "GET", "/v1/services/web", "", 403},
		{"its history", "web", []authstore.Verb{"read"}, "GET", "/v1/services/web/operations", "", 200},
		{"another's history", "db", []authstore.Verb{"read"}, "GET", "/v1/services/web/operations", "", 403},
		{"its operation", "web db", []authstore.Verb{"read"}, "GET", "/v1/operations/web-g1", "", 200},
		{"another's operation", "db", []authstore.Verb{"read"}, "GET", "/v1/operations/web-g1", "", 403},
		{"another's log", "db", []authstore.Verb{"read"}, "GET", "/v1/operations/web-g1/log", "", 403},
		{"its log", "*", []authstore.Verb{"read"}, "GET", "/v1/operations/web-g1/log", "", 200},
		{"an operation that is none", "web", []authstore.Verb{"read"}, "GET", "/v1/operations/web", "", 403},
		{"its tags", "web", []authstore.Verb{"read"}, "GET", "/v1/services/web/tags/v1", "", 200},
		{"another's tags", "db", []authstore.Verb{"read"}, "GET", "/v1/services/web/tags/v1", "", 403},
		{"deploy with read", "db", []authstore.Verb{"read"}, "POST", "/v1/services/db/deployments", body, 403},
		{"deploy another's", "web", []authstore.Verb{"deploy"}, "POST", "/v1/services/db/deployments", body, 403},
		{"retry with deploy", "db", []authstore.Verb{"deploy"}, "POST", "/v1/services/db/deployments", fmt.Sprintf(`{"digest":%q,"retry":true}`, one), 403},
		{"retry with override", "db", []authstore.Verb{"deploy", "override"}, "POST", "/v1/services/db/deployments", fmt.Sprintf(`{"digest":%q,"retry":true}`, one), 422},
		{"deploy with override alone", "db", []authstore.Verb{"override"}, "POST", "/v1/services/db/deployments", body, 403},
		{"roll back with read", "web", []authstore.Verb{"read"}, "POST", "/v1/services/web/rollback", "{}", 403},
		{"ship with read", "db", []authstore.Verb{"read"}, "PUT", "/v1/services/db/files/" + one, body, 403},
		{"ship another's", "web", []authstore.Verb{"deploy"}, "PUT", "/v1/services/db/files/" + one, body, 403},
		{"ship what is JSON", "db", []authstore.Verb{"deploy"}, "PUT", "/v1/services/db/files/" + one, body, 415},
		{"deploy", "db", []authstore.Verb{"deploy"}, "POST", "/v1/services/db/deployments", body, 202},
		{"issue tokens", "*", authstore.Verbs, "POST", "/v1/tokens", `{"name":"x","services":["*"],"verbs":["read"]}`, 403},
		{"list tokens", "*", authstore.Verbs, "GET", "/v1/tokens", "", 403},
		{"revoke tokens", "*", authstore.Verbs, "DELETE", "/v1/tokens/0123456789", "", 403},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := f.over(c.services, c.verbs...).do(request{c.method, c.path, c.body, nil})
			if r.status != c.want {
				t.Errorf("want %d, have %d %s", c.want, r.status, r.body)
			}
		})
	}
	r := remote{f, ""}
	r.get("/v1/tokens").problem(t, 403, "forbidden")
	var all api.Services
	if err := json.Unmarshal([]byte(f.over("db", authstore.Read).get("/v1/services").body), &all); err != nil || len(all.Services) != 1 || all.Services[0].Service != "db" {
		t.Errorf("want db alone, have %+v, %v", all, err)
	}
}

func TestWhoAskedIsOnRecord(t *testing.T) {
	f := start(t)
	ci := f.over("web", authstore.Deploy, authstore.Read)
	id, _, _ := authstore.Parse(ci.bearer)
	op := ci.do(request{"POST", "/v1/services/web/deployments", fmt.Sprintf(`{"digest":%q}`, one), nil}).operation(t, http.StatusAccepted)
	if op.By != "token "+id {
		t.Errorf("have %q", op.By)
	}
	ci.do(request{"POST", "/v1/services/web/deployments", fmt.Sprintf(`{"digest":%q}`, two), http.Header{"Idempotency-Key": {"k2"}}}).problem(t, 409, "operation_active")
	log := ci.get("/v1/operations/web-g1/log").body
	for _, want := range []string{"accepted from token " + id, `"fields":{"from":"127.0.0.1:`, `"event":"audit"`, "of token " + id + " from 127.0.0.1:", "operation_active"} {
		if !strings.Contains(log, want) {
			t.Errorf("%q is not in the log: %s", want, log)
		}
	}
	for range refusalsTold + 5 {
		ci.do(request{"POST", "/v1/services/web/deployments", fmt.Sprintf(`{"digest":%q}`, two), http.Header{"Idempotency-Key": {"k2"}}})
	}
	if have := strings.Count(ci.get("/v1/operations/web-g1/log").body, "operation_active"); have != refusalsTold {
		t.Errorf("want %d refusals told, have %d", refusalsTold, have)
	}
	if journal := f.logged.String(); strings.Count(journal, "code=operation_active") != refusalsTold+6 || !strings.Contains(journal, `by="token `+id) {
		t.Errorf("the journal: %s", journal)
	}
}

func TestATokenIsIssuedAndRevoked(t *testing.T) {
	f := start(t)
	soon := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	issued, err := f.client().IssueToken(t.Context(), api.TokenRequest{Name: "ci", Services: []string{"web"}, Verbs: []string{"read"}, ExpiresAt: &soon})
	if err != nil {
		t.Fatal(err)
	}
	r := remote{f, issued.Bearer}
	if have := r.get("/v1/services/web"); have.status != 200 {
		t.Errorf("have %d %s", have.status, have.body)
	}
	all, err := f.client().Tokens(t.Context())
	if err != nil || len(all.Tokens) != 1 || all.Tokens[0].ID != issued.ID || all.Tokens[0].LastUsedAt == nil || !all.Tokens[0].ExpiresAt.Equal(soon) {
		t.Errorf("have %+v, %v", all, err)
	}
	if was, err := f.client().RevokeToken(t.Context(), issued.ID); err != nil || was.Name != "ci" {
		t.Errorf("have %+v, %v", was, err)
	}
	r.get("/v1/services/web").problem(t, 401, "unauthorized")
	f.do(request{"DELETE", "/v1/tokens/" + issued.ID, "", nil}).problem(t, 404, "unknown_token")
	for _, bad := range []string{`{}`, `{"name":"x","services":["Web"],"verbs":["read"]}`, `{"name":"x","services":["web"],"verbs":["write"]}`,
		`{"name":"x","services":["web"],"verbs":["read"],"expires_at":"2020-01-01T00:00:00Z"}`, `{"name":"x","services":["web"],"verbs":["read"],"secret":"x"}`} {
		f.post("/v1/tokens", "", bad).problem(t, 422, "invalid_request")
	}
	if err := os.WriteFile(f.store.Dir()+"/tokens.json", []byte(`{"schema":1,"tok`), 0o600); err != nil {
		t.Fatal(err)
	}
	r.get("/v1/services/web").problem(t, 401, "unauthorized")
	if !strings.Contains(f.logged.String(), "tokens.json.corrupt-") {
		t.Error("the damaged file is not named in the journal")
	}
	if all, err := f.client().Tokens(t.Context()); err != nil || len(all.Tokens) != 0 || !strings.Contains(all.Damaged, "tokens.json.corrupt-") {
		t.Errorf("have %+v, %v", all, err)
	}
}

func TestOtherNamesAndOtherSitesAreRefused(t *testing.T) {
	f := start(t, func(s *Server) { s.Hosts = []string{"toad.example.org", "192.0.2.1"} })
	ci := f.over("*", authstore.Read)
	for host, want := range map[string]int{
		f.tcp: 200, "localhost": 200, "localhost:8686": 200, "LOCALHOST": 200, "127.9.9.9": 200, "[::1]:8686": 200,
		"toad.example.org": 200, "toad.example.org:443": 200, "192.0.2.1:8686": 200,
		"evil.example": 421, "evil.example:8686": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421,
		"toad.example.org.": 421, "192.0.2.2": 421, "0.0.0.0": 421, "[::]": 421, "127.0.0.1@evil": 421,
	} {
		for _, path := range []string{"/v1/services", "/healthz"} {
			if r := ci.do(request{"GET", path, "", http.Header{"Host": {host}}}); r.status != want {
				t.Errorf("%s %s: want %d, have %d %s", host, path, want, r.status, r.body)
			}
		}
	}
	for _, c := range []struct {
		header http.Header
		want   int
	}{
		{http.Header{"Origin": {"http://evil.example"}}, 403},
		{http.Header{"Origin": {"null"}}, 403},
		{http.Header{"Origin": {""}}, 403},
		{http.Header{"Origin": {"https://" + f.tcp}}, 403},
		{http.Header{"Origin": {"http://" + f.tcp}}, 200},
		{http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
		{http.Header{"Sec-Fetch-Site": {"same-site"}}, 403},
		{http.Header{"Sec-Fetch-Site": {"same-origin"}}, 200},
		{http.Header{"Sec-Fetch-Site": {"none"}}, 200},
	} {
		if r := ci.do(request{"GET", "/v1/services", "", c.header}); r.status != c.want {
			t.Errorf("%v: want %d, have %d", c.header, c.want, r.status)
		}
	}
}

func TestNoPathOfTheHostIsToldOverTCP(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	f.line("web-g1", "step", "open /home/toad/.config/x.conf: denied")
	f.event(probation.Event{Kind: probation.PrepareFailed, Code: probation.CodePullFailed, Reason: "cannot read /run/user/1000/auth.json"})
	ci := f.over("web", authstore.Read)
	for _, path := range []string{"/v1/services", "/v1/services/web", "/v1/services/web/operations", "/v1/operations/web-g1", "/v1/operations/web-g1/log"} {
		for _, accept := range []string{"", "text/event-stream"} {
			r := ci.do(request{"GET", path, "", http.Header{"Accept": {accept}}})
			if r.status != 200 || strings.Contains(r.body, "/home") || strings.Contains(r.body, "/run/") {
				t.Errorf("%s: %d %s", path, r.status, r.body)
			}
		}
	}
	if r := f.get("/v1/operations/web-g1"); !strings.Contains(r.body, "/run/user/1000/auth.json") {
		t.Errorf("on the host it is not told: %s", r.body)
	}
}
