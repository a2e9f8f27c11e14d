package table

import (
	"strings"
	"testing"
)

func TestTheTableShowsMediansSpreadRatiosAndGoals(t *testing.T) {
	s := Section{Name: "overhead", Systems: []string{Toad, "bare"}, Notes: []string{"a note"}}
	s.Add("start", Measured(Milliseconds, []float64{1300, 1100, 1200}), Measured(Milliseconds, []float64{600, 800, 400})).Want("≤ 300 ms more", false)
	s.Add("says", Said([]string{"promoted", "promoted", "failed"}), Said([]string{"done", "done"}))
	s.Add("lost", Measured(Requests, []float64{0, 0}), Figure{})
	tab := Table{Machine: []string{"a machine"}, Rounds: 3, Sections: []Section{s}}
	var b strings.Builder
	tab.Text(&b)
	want := `a machine

Medians of 3 rounds (notes say where it is more), then least–most. (×r): toad's figure is r times this one.

overhead  toad                     bare                 goal
start     1.20 s, 1.10–1.30        600 ms, 400–800 (×2)  ≤ 300 ms more: missed
says      2× promoted; 1× failed  done
lost      0                        –
  * a note
`
	if have := b.String(); squeezed(have) != squeezed(want) {
		t.Errorf("want\n%s\nhave\n%s", want, have)
	}
	if have := tab.Missed(); len(have) != 1 || have[0] != "overhead: start" {
		t.Errorf("missed: %v", have)
	}
	b.Reset()
	tab.Markdown(&b)
	if have := b.String(); !strings.Contains(have, "| start | 1.20 s, 1.10–1.30 | 600 ms, 400–800 (×2) | ≤ 300 ms more: missed |\n") {
		t.Errorf("markdown:\n%s", have)
	}
}

func TestTheMedianOfAnEvenCountLiesBetween(t *testing.T) {
	if have := Measured(Percent, []float64{4, 1, 3, 2}); have.Median != 2.5 || have.Min != 1 || have.Max != 4 || have.N != 4 {
		t.Errorf("have %+v", have)
	}
	if have := Measured(Percent, nil); have.String() != "not measured" {
		t.Errorf("have %v", have)
	}
}

// squeezed is text with runs of blanks as one.
func squeezed(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestMergeReplacesASectionAndKeepsTheRestInOrder(t *testing.T) {
	tab := Table{Sections: []Section{{Name: "a", Run: "old"}, {Name: "c", Run: "old"}}}
	tab.Merge([]Section{{Name: "b", Run: "new"}, {Name: "a", Run: "new"}}, []string{"a", "b", "c"})
	var have []string
	for _, s := range tab.Sections {
		have = append(have, s.Name+" "+s.Run)
	}
	if want := "a new, b new, c old"; strings.Join(have, ", ") != want {
		t.Errorf("%v, want %s", have, want)
	}
}
