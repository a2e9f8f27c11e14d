package toad_test

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of what tries to break the first truths names no test and no mutant that is not there, and misses no mutant.
func TestTheTableOfTruthsIsTrue(t *testing.T) {
	table := source(t, "docs/truths.md")
	tests := testSources(t)
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(table, -1)
	if len(named) < 20 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, m := range named {
		if !strings.Contains(tests, "func "+m[1]+"(") {
			t.Errorf("there is no %s", m[1])
		}
	}
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| 1") || strings.HasPrefix(line, "| 2") || strings.HasPrefix(line, "| 3") {
			holdRow(t, cells[1], cells[2])
		}
	}
	listed := map[string]bool{}
	for _, m := range regexp.MustCompile("`([1-3]-[a-z-]+)`").FindAllStringSubmatch(table, -1) {
		listed[m[1]] = true
	}
	mutants, err := filepath.Glob("tests/mutants/[1-3]-*.patch")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range mutants {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		if !listed[name] {
			t.Errorf("the mutant %s is not in the table", name)
		}
		delete(listed, name)
	}
	for name := range listed {
		t.Errorf("there is no mutant %s", name)
	}
}

// testSources is the text of all tests.
func testSources(t *testing.T) string {
	t.Helper()
	var tests strings.Builder
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			tests.WriteString(source(t, path))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tests.String()
}

var (
	testName = regexp.MustCompile(`Test[A-Za-z0-9]+`)
	ofRules  = regexp.MustCompile(`the rules:[^;]*`)
)

// holdRow asserts that a truth names the tests that its mutants name, and that those under "the rules", and no others, need
// no host.
func holdRow(t *testing.T, tests, mutants string) {
	t.Helper()
	for _, m := range regexp.MustCompile("`([1-3]-[a-z-]+)`").FindAllStringSubmatch(mutants, -1) {
		for _, h := range mutantHead.FindAllStringSubmatch(source(t, "tests/mutants/"+m[1]+".patch"), -1) {
			run := testName.FindString(h[2])
			if h[1] == "test" && !strings.Contains(tests, run) {
				t.Errorf("%s is seen by %s, which its truth does not name", m[1], run)
			}
		}
	}
	suites := functions(t, "tests")
	rules := strings.Join(ofRules.FindAllString(tests, -1), " ")
	for _, name := range testName.FindAllString(tests, -1) {
		if inRules := strings.Contains(rules, "`"+name+"`"); inRules == suites[name] {
			t.Errorf("%s stands under the wrong heading", name)
		}
	}
}

// functions are the tests below a folder.
func functions(t *testing.T, dir string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") {
			for _, m := range regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`).FindAllStringSubmatch(source(t, path), -1) {
				all[m[1]] = true
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var (
	mutantHead = regexp.MustCompile(`(?m)^# (\w+): (.*)$`)
	caseTest   = regexp.MustCompile(`(?m)^func (Test(C[0-9]{2})\w+)\(`)
)

// Each case of tests/cases has a mutant that its test has to see, and says by which words.
func TestEveryCaseHasAMutant(t *testing.T) {
	files, err := filepath.Glob("tests/cases/c[0-9]*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]string{}
	for _, path := range files {
		m := caseTest.FindStringSubmatch(source(t, path))
		if m == nil || !strings.HasPrefix(filepath.Base(path), strings.ToLower(m[2])+"_") {
			t.Errorf("%s holds no test of its case", path)
			continue
		}
		tests[m[2]] = m[1]
	}
	if len(tests) != 25 {
		t.Errorf("want 25 cases, have %d", len(tests))
	}
	mutants, err := filepath.Glob("tests/mutants/C*.patch")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, path := range mutants {
		head, _, _ := strings.Cut(source(t, path), "\ndiff ")
		lines := map[string]string{}
		for _, m := range mutantHead.FindAllStringSubmatch(head, -1) {
			lines[m[1]] = m[2]
		}
		name, _, _ := strings.Cut(filepath.Base(path), "-")
		want := fmt.Sprintf("./tests/cases -run %s", tests[name])
		if tests[name] == "" || lines["case"] != name || lines["test"] != want || lines["breaks"] == "" || lines["says"] == "" {
			t.Errorf("%s: want case %s, test %s, and what it breaks and says; have %q", path, name, want, lines)
		}
		seen[name] = true
	}
	for name := range tests {
		if !seen[name] {
			t.Errorf("no mutant breaks %s", name)
		}
	}
}
