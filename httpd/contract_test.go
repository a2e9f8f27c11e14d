package httpd

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"toad/authstore"
	"toad/tests/contract"
)

var promise = sync.OnceValue(func() *contract.Contract {
	c, err := contract.Read(document)
	if err != nil {
		panic(err)
	}
	return c
})

// watched holds every answer of a test's server against the document.
func watched(t *testing.T) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return promise().Watch(next, func(err error) { t.Errorf("not as openapi.yaml promises: %v", err) })
	}
}

func TestEveryRouteIsDocumented(t *testing.T) {
	want, have := map[string]bool{}, map[string]bool{}
	param := regexp.MustCompile(`:([a-z]+)`)
	for _, r := range new(Server).routes() {
		have[r.method+" "+param.ReplaceAllString(r.path, "{$1}")] = true
	}
	for path, item := range promise().Document.Paths.Map() {
		for method := range item.Operations() {
			want[method+" "+path] = true
		}
	}
	if !maps.Equal(want, have) {
		t.Errorf("documented\n%s\nthere are\n%s", strings.Join(slices.Sorted(maps.Keys(want)), "\n"), strings.Join(slices.Sorted(maps.Keys(have)), "\n"))
	}
}

// A code is a constant of the type probation.Code, wherever one is declared.
func TestEveryCodeIsDocumented(t *testing.T) {
	have := map[string]bool{}
	for _, pattern := range []string{"*.go", "../probation/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatal(pattern, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			codesIn(t, f, have)
		}
	}
	enum := promise().Document.Components.Schemas["Code"].Value.Enum
	want := map[string]bool{}
	for _, v := range enum {
		want[v.(string)] = true
	}
	if !maps.Equal(want, have) {
		t.Errorf("documented\n%s\nthere are\n%s", slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(have)))
	}
	used := map[string]bool{}
	note := func(codes []string) {
		for _, c := range codes {
			used[c] = true
		}
	}
	note(contract.Codes(promise().Document.Extensions))
	for _, item := range promise().Document.Paths.Map() {
		for _, op := range item.Operations() {
			note(contract.Codes(op.Extensions))
		}
	}
	for c := range used {
		if !have[c] {
			t.Errorf("a route may answer with %s, which is no code", c)
		}
	}
}

func codesIn(t *testing.T, file string, into map[string]bool) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 {
			return true
		}
		name := ""
		switch typ := spec.Type.(type) {
		case *ast.Ident:
			name = typ.Name
		case *ast.SelectorExpr:
			name = typ.Sel.Name
		}
		if lit, ok := spec.Values[0].(*ast.BasicLit); ok && name == "Code" {
			code, _ := strconv.Unquote(lit.Value)
			into[code] = true
		}
		return true
	})
}

func TestTheDocumentIsServed(t *testing.T) {
	f := start(t)
	for _, r := range []response{f.get("/openapi.yaml"), remote{f, ""}.get("/openapi.yaml")} {
		if r.status != 200 || r.body != string(document) {
			t.Errorf("have %d %.80s", r.status, r.body)
		}
	}
}

func TestFigures(t *testing.T) {
	f := start(t, func(s *Server) { s.Version, s.Alerts = "v1", func() (int, error) { return 2, nil } })
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	f.promote()
	f.deploy(two, "k2").operation(t, http.StatusAccepted)
	all := f.over("*", authstore.Read).get("/metrics")
	for _, want := range []string{`toad_operations_total{outcome="promoted",service="web"} 1`, `toad_phase_seconds_count{phase="probation",service="web"} 1`,
		`toad_operation_active{phase="accepted",service="web"} 1`, `toad_refusals{service="web"} 0`, `toad_generation{service="web"} 2`,
		`toad_alerts_spooled 2`, `toad_build_info{goversion="`} {
		if !strings.Contains(all.body, want) {
			t.Errorf("%s is not in\n%s", want, all.body)
		}
	}
	f.over("web", authstore.Read).get("/metrics").problem(t, 403, "forbidden")
	if r := f.get("/metrics"); r.status != 200 {
		t.Errorf("on the host: %d", r.status)
	}
}
