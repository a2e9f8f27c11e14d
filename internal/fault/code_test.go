package fault

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A wrapper passes a point before and after what it is given to do. In its package every call that changes the host stands
// in what a wrapper is given, or in a function that is called from nowhere else.
var wrappers = map[string]string{"internal/atomicfile": "change", "unitgen/userbus": "change", "podmanc": "between", "releases": "between"}

// excused are the calls that change something without a point before and after, each with the reason.
var excused = map[string]string{
	"internal/atomicfile write os.CreateTemp":   "nobody sees a temporary file",
	"internal/atomicfile write os.Remove":       "takes the temporary file away again",
	"internal/atomicfile link os.Symlink":       "nobody sees a temporary link",
	"internal/atomicfile link os.Remove":        "takes the temporary link away again",
	"internal/atomicfile Scratch os.CreateTemp": "a file without a name: nobody sees it",
	"internal/atomicfile Scratch os.Remove":     "takes its name away",
	"unitgen/userbus change manager":            "is the wrapper",
	"unitgen/userbus manager call":              "passes on what it is given",
	"unitgen/userbus call call":                 "passes on what it is given",
	"podmanc do Do":                             "passes on what it is given",
	"probation/record LockServe os.WriteFile":   "the pid in a lock is for people; nothing reads it to decide",
	"probation/record Lock os.WriteFile":        "a mark of who holds a lock; without it a folder is flushed once less",
	"probation/record Lock os.Truncate":         "as above; with a stale mark it is flushed once more",
	"cmd/toad ownSocket os.MkdirAll":            "a folder in the runtime folder, which no boot keeps",
	"cmd/toad ownSocket os.Remove":              "a stale socket, which cannot be renamed over",
	"cmd/toad looked os.OpenFile":               "without it, it is looked once more than is needed",
	"cmd/toad looked os.Chtimes":                "as above",
	"cmd/toad systemctl exec.CommandContext":    "toad setup: enables units; nothing is decided there",
	"cmd/toad output exec.CommandContext":       "doctor: asks other programs",
	"cmd/toad journalLines exec.CommandContext": "journalctl reads",
	"alert run exec.CommandContext":             "the operator's own command for alerts",
}

// reads are the calls of the user manager and of Podman's bindings that change nothing.
var reads = []string{"ListUnitsByPatterns", "GetUnit", ".Get", ".Subscribe", ".Ping",
	"images.GetImage", "containers.Inspect", "containers.List", "containers.Logs", "secrets.Inspect", "bindings.NewConnection"}

var (
	osWrites = regexp.MustCompile(`^(os|syscall|unix)\.(WriteFile|Rename\w*|Remove|RemoveAll|Create|CreateTemp|Mkdir\w*|Symlink\w*|Link\w*|Chmod|Chown|Lchown|Fchmod\w*|Fchown\w*|Chtimes|Truncate|Ftruncate|Unlink\w*|Mount|Unmount|Kill|Mknod\w*|OpenRoot)$`)
	bindings = regexp.MustCompile(`^(images|containers|secrets|system|volumes|pods|network|manifests|bindings)\.[A-Z]\w+$`)
)

// call is one call that changes the host, or may.
type call struct {
	pkg, fn, what string
	pos           token.Pos
	in            bool // it stands in what a wrapper is given
}

func (c call) String() string { return c.pkg + " " + c.fn + " " + c.what }

// code is all of toad that is not a test, without this package.
func code(t *testing.T) (*token.FileSet, map[string][]*ast.File) {
	t.Helper()
	fset, all := token.NewFileSet(), map[string][]*ast.File{}
	root := "../.."
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(root, file)
		if err == nil && d.IsDir() && (rel == "tests" || rel == "internal/fault" || rel != "." && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(fset, file, nil, parser.SkipObjectResolution)
		all[filepath.ToSlash(filepath.Dir(rel))] = append(all[filepath.ToSlash(filepath.Dir(rel))], f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d packages were found", len(all))
	}
	return fset, all
}

// name spells what is called: os.Rename, b.manager as manager, f as f.
func name(e ast.Expr) string {
	switch f := e.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		if x, ok := f.X.(*ast.Ident); ok {
			return x.Name + "." + f.Sel.Name
		}
		return "." + f.Sel.Name
	case *ast.IndexExpr:
		return name(f.X)
	}
	return ""
}

func last(name string) string { return name[strings.LastIndex(name, ".")+1:] }

func text(e ast.Expr) string {
	var all []string
	ast.Inspect(e, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			s, _ := strconv.Unquote(l.Value)
			all = append(all, s)
		}
		return true
	})
	return strings.Join(all, "")
}

// changes says what a call changes; "" if it only reads.
func changes(pkg string, c *ast.CallExpr) string {
	what := name(c.Fun)
	args := ""
	for _, a := range c.Args {
		args += text(a) + " "
	}
	isRead := func(s string) bool {
		return slices.ContainsFunc(reads, func(r string) bool { return s != "" && strings.Contains(s, r) })
	}
	switch {
	case osWrites.MatchString(what), strings.HasPrefix(what, "exec.Command"):
		return what
	case what == "os.OpenFile" && opensToWrite(c.Args[1]):
		return what
	case pkg == "unitgen/userbus" && slices.Contains([]string{"call", "b.call", "b.manager"}, what) && !isRead(args):
		return last(what)
	case pkg == "unitgen/userbus" && slices.Contains([]string{"CallWithContext", "Call", "Go", "GoWithContext"}, last(what)) && !isRead(args):
		return "call"
	case pkg == "podmanc" && bindings.MatchString(what) && !isRead(what) && !strings.Contains(what, "Options") && what != "bindings.ServiceVersion":
		return what
	case pkg == "podmanc" && last(what) == "do" && len(c.Args) > 1 && name(c.Args[1]) != "http.MethodGet":
		return "do"
	case pkg == "podmanc" && last(what) == "Do":
		return "Do"
	}
	return ""
}

func opensToWrite(flags ast.Expr) bool {
	write := false
	ast.Inspect(flags, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			write = write || slices.Contains([]string{"O_WRONLY", "O_RDWR", "O_CREATE", "O_APPEND", "O_TRUNC"}, s.Sel.Name)
		}
		return true
	})
	return write
}

// look lists the calls of a package that change the host, and from where each function is called.
func look(pkg string, files []*ast.File) (calls []call, callers map[string][]call) {
	callers = map[string][]call{}
	for _, f := range files {
		for _, d := range f.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			var within []*ast.FuncLit // given to a wrapper
			ast.Inspect(fn, func(n ast.Node) bool {
				c, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				in := slices.ContainsFunc(within, func(l *ast.FuncLit) bool { return l.Pos() <= c.Pos() && c.End() <= l.End() })
				one := call{pkg, fn.Name.Name, "", c.Pos(), in}
				if one.what = changes(pkg, c); one.what != "" {
					calls = append(calls, one)
				}
				called := last(name(c.Fun))
				callers[called] = append(callers[called], one)
				if w := wrappers[pkg]; w != "" && called == w && len(c.Args) > 0 {
					if lit, ok := c.Args[len(c.Args)-1].(*ast.FuncLit); ok {
						within = append(within, lit)
					}
				}
				return true
			})
		}
	}
	return calls, callers
}

// under tells whether a function is called, and only within what a wrapper is given.
func under(fn string, callers map[string][]call, seen []string) bool {
	from := callers[fn]
	return len(from) > 0 && !slices.Contains(seen, fn) && !slices.ContainsFunc(from, func(c call) bool {
		return !c.in && !under(c.fn, callers, append(seen, fn))
	})
}

func TestEveryMutationHasAPointBeforeAndAfter(t *testing.T) {
	fset, all := code(t)
	met, covered := map[string]bool{}, 0
	for pkg, files := range all {
		calls, callers := look(pkg, files)
		for _, c := range calls {
			if wrappers[pkg] != "" && (c.in || under(c.fn, callers, nil)) {
				covered++
				continue
			}
			if _, ok := excused[c.String()]; !ok {
				t.Errorf("%s: %s has no point before and after it: put it through %v, or give a reason in this test", fset.Position(c.pos), c, wrappers)
			}
			met[c.String()] = true
		}
	}
	for c := range excused {
		if !met[c] {
			t.Errorf("%q is excused and is not there", c)
		}
	}
	if covered < 5 {
		t.Errorf("only %d mutations with points were found: this test does not see them any more", covered)
	}
}

// points lists the names that the code gives to points; what it puts together while it runs is a * here.
func points(t *testing.T) []string {
	t.Helper()
	_, all := code(t)
	var names []string
	literal := func(c *ast.CallExpr, i int) string {
		if l, ok := c.Args[i].(*ast.BasicLit); ok {
			s, _ := strconv.Unquote(l.Value)
			return s
		}
		return ""
	}
	for pkg, files := range all {
		for _, f := range files {
			ast.Inspect(f, func(n ast.Node) bool {
				c, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				switch called := last(name(c.Fun)); {
				case called == "Point" && name(c.Fun) == "fault.Point":
					if s := literal(c, 0); s != "" {
						names = append(names, s)
					} else if b, ok := c.Args[0].(*ast.BinaryExpr); ok && pkg == "probation/record" {
						names = append(names, text(b)+"*")
					}
				case pkg == "internal/atomicfile" && called == "step" && literal(c, 0) != "":
					names = append(names, "file."+literal(c, 0)+".*")
				case pkg == "internal/atomicfile" && called == "change":
					names = append(names, "file."+literal(c, 0)+".*", "file."+literal(c, 1)+".*")
				case pkg == "unitgen/userbus" && called == "change":
					names = append(names, both("bus.", literal(c, 1))...)
				case pkg == "unitgen/userbus" && called == "queue":
					names = append(names, both("bus.", literal(c, 2))...)
				case pkg == "releases" && called == "between":
					names = append(names, both("release.", literal(c, 0))...)
				case pkg == "podmanc" && called == "between":
					names = append(names, both("podman.", literal(c, 0))...)
				}
				return true
			})
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func both(kind, what string) []string {
	if what == "" { // a name that is handed on
		return nil
	}
	return []string{kind + what + ".before", kind + what + ".after"}
}

func TestTheTableHoldsThePointsOfTheCode(t *testing.T) {
	names := points(t)
	for _, n := range names {
		// A star of the code must be caught by a row for all; a row for some only is not enough.
		if _, ok := Find(strings.ReplaceAll(n, "*", "x")); !ok {
			t.Errorf("the point %s of the code is not in the table", n)
		}
	}
	for _, r := range Points {
		example := strings.NewReplacer("[0-9]", "1", "*", "x").Replace(r.Name)
		if strings.HasPrefix(r.Name, "file.*.") {
			example = strings.Replace(r.Name, "file.*.", "file.rename.", 1)
		}
		if !slices.ContainsFunc(names, func(n string) bool { ok, _ := path.Match(n, example); return ok }) {
			t.Errorf("the point %s of the table is not in the code", r.Name)
		}
	}
	if len(names) < 30 {
		t.Errorf("only %d points were found in the code", len(names))
	}
}
