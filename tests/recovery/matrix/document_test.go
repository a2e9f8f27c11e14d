package matrix

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"toad/internal/fault"
)

func TestTheDocumentCountsWhatWasRun(t *testing.T) {
	point := Cell{Scenario: "a good release", Action: Kill, Point: "file.rename.web-g{-1}.json", N: 1}
	second, failed, other := point, point, point
	second.Second = "bus.Reload.before 1"
	failed.N, other.N = 2, 3
	text := Document([]Result{
		{Cell: Cell{Scenario: "a good release"}, Points: []Passing{{Name: "bus.Reload.before"}}},
		{Cell: point, Result: Passed, Build: "toad v1"}, {Cell: second, Result: Passed}, {Cell: failed, Result: Failed}, {Cell: other, Result: NotMet},
		{Cell: Cell{Scenario: "a good release", Action: Reboot, After: 7}, Result: Passed},
	}, "a machine")
	for _, want := range []string{
		"| `file.rename.*-g*[0-9].json` | **1 of 2**+1 · – · – | *not run* | *not run* | *not run* | *not run* |",
		"| `bus.Reload.before` | *not run* |",
		"5 cells run: 3 passed, 1 failed, 1 not met", "| reboot | 1 | 1 |", "| user manager restarted | *not run* | |", "on a machine", "toad v1",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("want %q in\n%s", want, text)
		}
	}
}

// The document is made by the matrix; when the points of the code change, it is to be made anew.
func TestTheDocumentHasThePointsOfTheTable(t *testing.T) {
	text, err := os.ReadFile("../../../docs/recovery.md")
	if err != nil {
		t.Fatal(err)
	}
	var have, want []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\|").FindAllStringSubmatch(string(text), -1) {
		have = append(have, m[1])
	}
	for _, tried := range []bool{true, false} {
		for _, row := range fault.Points {
			if (row.By == "") == tried {
				want = append(want, row.Name)
			}
		}
	}
	if strings.Join(have, "\n") != strings.Join(want, "\n") {
		t.Errorf("docs/recovery.md has not the points of internal/fault: make it anew with scripts/matrix\nwant %v\nhave %v", want, have)
	}
}
