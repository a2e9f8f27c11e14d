package toad_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// allowed says which packages of this module each package may import: the directions of the design. Nothing imports
// upward, and only cmd/toad knows every package.
var allowed = map[string][]string{
	"probation":           {},
	"internal/fault":      {},
	"internal/atomicfile": {"internal/fault"},
	"internal/redact":     {},
	"alert":               {"internal/atomicfile"},
	"agent/transport":     {},
	"agent/protocol":      {"agent/transport", "internal/redact"},
	"agent/bao":           {"agent/protocol", "agent/transport", "internal/redact"},
	"agent":               {"agent/bao", "agent/protocol", "agent/transport", "probation", "quadlet", "internal/atomicfile", "internal/redact"},
	"probation/record":    {"probation", "internal/atomicfile", "internal/fault"},
	"unitgen":             {},
	"unitgen/userbus":     {"unitgen", "internal/fault"},
	"podmanc":             {"internal/atomicfile", "internal/fault", "internal/redact"},
	"quadlet":             {"probation", "unitgen", "internal/atomicfile", "internal/fault"}, // a pin names what unitgen names
	"probation/watch":     {"probation", "probation/record", "unitgen"},
	"probation/rollout":   {"probation", "probation/record", "quadlet", "unitgen", "internal/atomicfile"},
	"probation/proof":     {},
	"releases":            {"internal/atomicfile", "internal/fault"},
	"authstore":           {"internal/atomicfile"},
	"webui":               {},
	"httpd/api":           {},
	"httpd":               {"httpd/api", "authstore", "probation", "probation/record"},
}

// pure packages know rules and texts only; time and the host come to them as values.
var pure = map[string][]string{
	"probation": {"os", "net", "net/http", "context", "io", "syscall"},
	"unitgen":   {"os", "net", "net/http", "context"},
}

func TestNothingImportsUpward(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(path))
		if pkg == "cmd/toad" || strings.HasPrefix(pkg, "tests/") {
			return nil
		}
		may, known := allowed[pkg]
		if !known {
			t.Errorf("%s: the package %s has no row in this test; give it its place", path, pkg)
			return nil
		}
		seen[pkg] = true
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imp := range file.Imports {
			name, _ := strconv.Unquote(imp.Path.Value)
			if rest, ours := strings.CutPrefix(name, "toad/"); ours && !slices.Contains(may, rest) {
				t.Errorf("%s imports %s; %s may import %v", path, name, pkg, may)
			}
			if slices.Contains(pure[pkg], name) {
				t.Errorf("%s imports %s; %s does no I/O", path, name, pkg)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(seen) < 5 {
		t.Fatalf("only %d packages were looked at", len(seen))
	}
}

func TestProbationReadsNoClock(t *testing.T) {
	files, err := filepath.Glob("probation/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		if text := source(t, path); strings.Contains(text, "time.Now(") || strings.Contains(text, "time.Since(") {
			t.Errorf("%s reads the clock", path)
		}
	}
}

func source(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
