package toad_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of what tries to break the first truths names no test and no mutant that is not there, and misses no mutant.
func TestTheTableOfTruthsIsTrue(t *testing.T) {
	table := source(t, "docs/truths.md")
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
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)`").FindAllStringSubmatch(table, -1)
	if len(named) < 20 {
		t.Errorf("only %d tests are named", len(named))
	}
	for _, m := range named {
		if !strings.Contains(tests.String(), "func "+m[1]+"(") {
			t.Errorf("there is no %s", m[1])
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
