package matrix

import (
	"flag"
	"os"
	"strings"
	"testing"
)

func TestTheDocumentCountsWhatWasRun(t *testing.T) {
	point := Cell{Scenario: "a good release", Action: Kill, Point: "file.rename.web-g{-1}.json", N: 1}
	second, failed, other := point, point, point
	second.Second = "bus.Reload.before 1"
	failed.N, other.N = 2, 3
	text := Document([]Result{
		{Cell: Cell{Scenario: "a good release"}, Points: []Passing{{Name: "bus.Reload.before"}}},
		{Cell: point, Result: Passed, Build: "toad v1", Machine: "a machine"}, {Cell: second, Result: Passed}, {Cell: failed, Result: Failed}, {Cell: other, Result: NotMet},
		{Cell: Cell{Scenario: "a good release", Action: Reboot, After: 7}, Result: Passed},
	})
	for _, want := range []string{
		"| `file.rename.*-g*[0-9].json` | **1 of 2**+1 · – · – | *not run* | *not run* | *not run* | *not run* | *not run* | *not run* |",
		"| `bus.Reload.before` | *not run* |",
		"5 cells run: 3 passed, 1 failed, 1 not met", "| reboot | 1 | 1 |", "| user manager restarted | *not run* | |", "on a machine", "toad v1 (1 cells)",
		"Failed, and not run again since: a good release: kill at file.rename.web-g{-1}.json 2 (",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
}

var update = flag.Bool("update", false, "write docs/recovery.md from docs/recovery.jsonl")

// The document tells of the points that the code has, and of what was run. A new point is in it as not run.
func TestTheDocumentIsWhatTheResultsAndTheTableSay(t *testing.T) {
	results, err := Load("../../../docs/recovery.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	want, file := Document(results), "../../../docs/recovery.md"
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("docs/recovery.md is not what docs/recovery.jsonl and internal/fault say; write it anew: go test ./tests/recovery/matrix -args -update")
	}
}
