// Package table lays figures of toad beside those of its peers, for people and for programs.
package table

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Toad is the system that all others are compared with.
const Toad = "toad"

// Units of figures.
const (
	Milliseconds = "ms"
	Percent      = "%"
	Megabytes    = "MB"
	Requests     = "requests"
	Count        = "count" // says how many there were; no ratio makes sense of it
)

// Figure is the median of repeated measurements, or what was said most often.
type Figure struct {
	Unit   string  `json:"unit,omitempty"`
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	N      int     `json:"n"`
	Text   string  `json:"text,omitempty"`
}

// Measured makes a figure of numbers.
func Measured(unit string, values []float64) Figure {
	if len(values) == 0 {
		return Figure{Text: "not measured"}
	}
	v := slices.Sorted(slices.Values(values))
	n := len(v)
	return Figure{Unit: unit, Median: (v[(n-1)/2] + v[n/2]) / 2, Min: v[0], Max: v[n-1], N: n}
}

// Said makes a figure of words, and tells when they were not always the same.
func Said(words []string) Figure {
	count := map[string]int{}
	for _, w := range words {
		count[w]++
	}
	var kinds []string
	for w := range count {
		kinds = append(kinds, w)
	}
	slices.SortFunc(kinds, func(a, b string) int { return 100*(count[b]-count[a]) + strings.Compare(a, b) })
	if len(kinds) == 1 {
		return Figure{Text: kinds[0], N: len(words)}
	}
	for i, w := range kinds {
		kinds[i] = fmt.Sprintf("%d× %s", count[w], w)
	}
	return Figure{Text: strings.Join(kinds, "; "), N: len(words)}
}

// Row is one question, answered for each system.
type Row struct {
	Name  string            `json:"name"`
	Cells map[string]Figure `json:"cells"`
	Goal  string            `json:"goal,omitempty"`
	Met   *bool             `json:"met,omitempty"`
}

// Section is a group of rows about the same systems.
type Section struct {
	Name    string   `json:"name"`
	Systems []string `json:"systems"`
	Rows    []Row    `json:"rows"`
	Notes   []string `json:"notes,omitempty"`
	Run     string   `json:"run,omitempty"` // when it was measured, of what, and beside how much else
}

// Add puts a row in, with its cells in the order of the systems; a figure of nothing is left out.
func (s *Section) Add(name string, cells ...Figure) *Row {
	r := Row{Name: name, Cells: map[string]Figure{}}
	for i, c := range cells {
		if c != (Figure{}) {
			r.Cells[s.Systems[i]] = c
		}
	}
	s.Rows = append(s.Rows, r)
	return &s.Rows[len(s.Rows)-1]
}

// Want sets a goal beside a row and says whether it was met.
func (r *Row) Want(goal string, met bool) { r.Goal, r.Met = goal, &met }

// Table is one run, or what several runs measured of different sections.
type Table struct {
	Date     string    `json:"date"`
	Machine  []string  `json:"machine"`
	Rounds   int       `json:"rounds"`
	Sections []Section `json:"sections"`
}

// Merge puts sections in the place of those of the same name, and all in the order of names.
func (t *Table) Merge(sections []Section, names []string) {
	for _, s := range sections {
		t.Sections = slices.DeleteFunc(t.Sections, func(old Section) bool { return old.Name == s.Name })
		t.Sections = append(t.Sections, s)
	}
	slices.SortStableFunc(t.Sections, func(x, y Section) int {
		return slices.Index(names, x.Name) - slices.Index(names, y.Name)
	})
}

// Missed are the rows whose goal was missed.
func (t Table) Missed() (names []string) {
	for _, s := range t.Sections {
		for _, r := range s.Rows {
			if r.Met != nil && !*r.Met {
				names = append(names, s.Name+": "+strings.TrimSpace(r.Name))
			}
		}
	}
	return names
}

// Text writes the table for people.
func (t Table) Text(w io.Writer) {
	fmt.Fprintln(w, strings.Join(t.Machine, "\n"))
	fmt.Fprintf(w, "\n%s\n", t.legend())
	for _, s := range t.Sections {
		grid := s.grid()
		wide := widths(grid)
		fmt.Fprintln(w)
		for _, line := range grid {
			var b strings.Builder
			for i, cell := range line {
				b.WriteString(cell + strings.Repeat(" ", wide[i]-utf8.RuneCountInString(cell)+2))
			}
			fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
		}
		for _, n := range s.Notes {
			fmt.Fprintln(w, "  * "+n)
		}
	}
}

// Markdown writes the same as a document's tables.
func (t Table) Markdown(w io.Writer) {
	fmt.Fprintf(w, "%s\n", t.legend())
	for _, s := range t.Sections {
		grid := s.grid()
		fmt.Fprintf(w, "\n## %s\n\n", s.Name)
		if s.Run != "" {
			fmt.Fprintf(w, "%s\n\n", s.Run)
		}
		grid[0][0] = ""
		for i, line := range grid {
			fmt.Fprintf(w, "| %s |\n", strings.Join(line, " | "))
			if i == 0 {
				fmt.Fprintln(w, "|"+strings.Repeat("---|", len(line)))
			}
		}
		for i, n := range s.Notes {
			if i == 0 {
				fmt.Fprintln(w)
			}
			fmt.Fprintln(w, "- "+n)
		}
	}
}

func (t Table) legend() string {
	return fmt.Sprintf("Medians of %d rounds (notes say where it is more), then least–most. (×r): toad's figure is r times this one.", t.Rounds)
}

// grid is the section as text: its name and the systems first, then the rows.
func (s Section) grid() [][]string {
	goals := slices.ContainsFunc(s.Rows, func(r Row) bool { return r.Goal != "" })
	head := append([]string{s.Name}, s.Systems...)
	if goals {
		head = append(head, "goal")
	}
	grid := [][]string{head}
	for _, r := range s.Rows {
		line := []string{r.Name}
		toad := r.Cells[Toad]
		for _, sys := range s.Systems {
			c, there := r.Cells[sys]
			switch {
			case !there:
				line = append(line, "–")
			case sys != Toad && c.Unit != "" && c.Unit != Count && c.Unit == toad.Unit && c.Median > 0:
				line = append(line, fmt.Sprintf("%s (×%.2g)", c, toad.Median/c.Median))
			default:
				line = append(line, c.String())
			}
		}
		if goals {
			line = append(line, r.goal())
		}
		grid = append(grid, line)
	}
	return grid
}

func (r Row) goal() string {
	switch {
	case r.Met == nil:
		return ""
	case *r.Met:
		return r.Goal + ": met"
	}
	return r.Goal + ": missed"
}

func (f Figure) String() string {
	if f.Unit == "" {
		return f.Text
	}
	s := amount(f.Unit, f.Median)
	if f.N > 1 && f.Min != f.Max {
		s += fmt.Sprintf(", %s–%s", bare(f.Unit, f.Min, f.Median), bare(f.Unit, f.Max, f.Median))
	}
	return s
}

func amount(unit string, v float64) string {
	switch {
	case unit == Milliseconds && v >= 1000:
		return bare(unit, v, v) + " s"
	case unit == Requests, unit == Count:
		return bare(unit, v, v)
	}
	return bare(unit, v, v) + " " + unit
}

// bare is a number in the unit that like is shown in.
func bare(unit string, v, like float64) string {
	switch {
	case unit == Milliseconds && like >= 1000:
		return fmt.Sprintf("%.2f", v/1000)
	case unit == Percent:
		return fmt.Sprintf("%.2f", v)
	case unit == Megabytes, unit == Milliseconds && like < 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

func widths(grid [][]string) []int {
	wide := make([]int, len(grid[0]))
	for _, line := range grid {
		for i, cell := range line {
			wide[i] = max(wide[i], utf8.RuneCountInString(cell))
		}
	}
	return wide
}
