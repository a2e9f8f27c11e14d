package quadlet

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2/unstable"
)

// reader collects what is wrong with an enrollment file while it is read, so that an operator sees all of it at once.
type reader struct {
	file  string
	lines map[string]int // dotted key to the line it stands on, from 1
	found Problems
	// brought says that the file is of a bundle, which brings the text of its units.
	brought bool
}

// maxProblems is as many as anybody reads; the wrong file would have thousands.
const maxProblems = 50

func (r *reader) err() error {
	slices.SortStableFunc(r.found, func(a, b Problem) int { return a.Line - b.Line })
	if more := len(r.found) - maxProblems; more > 0 {
		r.found = append(r.found[:maxProblems], Problem{File: r.file, What: fmt.Sprintf("%d more problems", more), Fix: "is it the right file?"})
	}
	return r.found.err()
}

func (r *reader) refuse(key, what, fix string) {
	r.found = append(r.found, Problem{File: r.file, Line: r.line(key), Key: key, What: what, Fix: fix})
}

// line of a key, else of the nearest table around it: a key that is missing stands nowhere.
func (r *reader) line(key string) int {
	for {
		if n, ok := r.lines[key]; ok {
			return n
		}
		dot := strings.LastIndexByte(key, '.')
		if dot < 0 {
			return 0
		}
		key = key[:dot]
	}
}

// table is one TOML table while it is read. Every key that somebody asks for is known; the rest is refused.
type table struct {
	*reader
	path   string
	values map[string]any
	known  []string
}

func (r *reader) table(path string, values map[string]any) *table {
	return &table{reader: r, path: path, values: values}
}

func (t *table) key(name string) string {
	if t.path == "" {
		return name
	}
	return t.path + "." + name
}

func (t *table) refuse(name, what, fix string) { t.reader.refuse(t.key(name), what, fix) }

func (t *table) has(name string) bool {
	_, ok := t.get(name)
	return ok
}

func (t *table) get(name string) (any, bool) {
	if !slices.Contains(t.known, name) {
		t.known = append(t.known, name)
	}
	v, ok := t.values[name]
	return v, ok
}

// refuseTheRest names the keys nobody asked for. A key that is silently ignored is a setting the operator believes in.
func (t *table) refuseTheRest() {
	for _, name := range slices.Sorted(maps.Keys(t.values)) {
		if !slices.Contains(t.known, name) {
			t.refuse(name, "is not a known key", "known here: "+strings.Join(t.known, ", "))
		}
	}
}

// table returns the sub-table of that name, if there is one.
func (t *table) table(name string) (*table, bool) {
	v, ok := t.get(name)
	if !ok {
		return nil, false
	}
	m, ok := v.(map[string]any)
	if !ok {
		t.refuse(name, "is not a table", fmt.Sprintf("write [%s] on a line of its own", t.key(name)))
		return nil, false
	}
	return t.reader.table(t.key(name), m), true
}

// part is table for what may be left out: then its values are the defaults.
func (t *table) part(name string) *table {
	if sub, ok := t.table(name); ok {
		return sub
	}
	return t.reader.table(t.key(name), nil)
}

// tables yields the sub-tables of the sub-table of that name, by name.
func (t *table) tables(name string) iter.Seq2[string, *table] {
	return func(yield func(string, *table) bool) {
		sub := t.part(name)
		for _, each := range slices.Sorted(maps.Keys(sub.values)) {
			if one, ok := sub.table(each); ok && !yield(each, one) {
				return
			}
		}
	}
}

func (t *table) text(name string) (string, bool) {
	v, ok := t.get(name)
	if !ok {
		return "", false
	}
	s, ok := v.(string)
	if !ok {
		t.refuse(name, "is not a text", "put it in quotes")
	}
	return s, ok
}

// checked is a text that check finds nothing wrong with. check returns what is wrong and what to do, or "".
func (t *table) checked(name string, check func(string) (what, fix string)) string {
	s, ok := t.text(name)
	if !ok {
		return ""
	}
	if what, fix := check(s); what != "" {
		t.refuse(name, what, fix)
		return ""
	}
	return s
}

func (t *table) texts(name string) []string {
	v, ok := t.get(name)
	if !ok {
		return nil
	}
	list, ok := v.([]any)
	var out []string
	for _, each := range list {
		s, isText := each.(string)
		ok = ok && isText
		out = append(out, s)
	}
	if !ok {
		t.refuse(name, "is not a list of texts", `write it as ["a", "b"]`)
		return nil
	}
	return out
}

func (t *table) boolean(name string) bool {
	v, ok := t.get(name)
	if !ok {
		return false
	}
	b, ok := v.(bool)
	if !ok {
		t.refuse(name, "is neither true nor false", "write true without quotes, or leave it out")
	}
	return b
}

func (t *table) number(name string, without, least, most int) int {
	v, ok := t.get(name)
	if !ok {
		return without
	}
	n, ok := v.(int64)
	if !ok || n < int64(least) || n > int64(most) || n > math.MaxInt {
		t.refuse(name, fmt.Sprintf("is not a whole number from %d to %d", least, most), "leave it out for the default")
		return without
	}
	return int(n)
}

func (t *table) duration(name string, without time.Duration) time.Duration {
	v, ok := t.get(name)
	if !ok {
		return without
	}
	s, _ := v.(string)
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		t.refuse(name, "is not a duration", `write a number and a unit in quotes, e.g. "500ms", "10s", "5m"`)
	case d <= 0:
		t.refuse(name, fmt.Sprintf("%s is no time at all", d), fmt.Sprintf("leave it out for %s", without))
	case d > maxSpan:
		t.refuse(name, fmt.Sprintf("%s is longer than %s", d, maxSpan), fmt.Sprintf("leave it out for %s", without))
	default:
		return d
	}
	return without
}

// lineFinder finds the line of every table and key of a TOML document that go-toml has accepted.
type lineFinder struct {
	unstable.Parser
	lines  map[string]int
	offset int // up to here newlines are counted
	line   int // and this is the line there
}

func keyLines(data []byte) map[string]int {
	f := &lineFinder{lines: map[string]int{}, line: 1}
	f.Reset(data)
	prefix := ""
	for f.NextExpression() {
		switch e := f.Expression(); e.Kind {
		case unstable.Table, unstable.ArrayTable:
			prefix = f.addKey("", e)
		case unstable.KeyValue:
			f.addKeyValue(prefix, e)
		}
	}
	return f.lines
}

func (f *lineFinder) addKeyValue(prefix string, e *unstable.Node) {
	path := f.addKey(prefix, e)
	if v := e.Value(); v.Kind == unstable.InlineTable {
		for children := v.Children(); children.Next(); {
			f.addKeyValue(path, children.Node())
		}
	}
}

// maxDepth is deeper than any key toad knows. Below it no line is looked for: a hostile file of dots would cost
// memory by the square of its size.
const maxDepth = 8

// addKey notes the line of each level of a dotted key that is new, and returns the whole of it.
func (f *lineFinder) addKey(prefix string, e *unstable.Node) string {
	depth := 0
	for parts := e.Key(); parts.Next() && depth < maxDepth; depth++ {
		node := parts.Node()
		if prefix != "" {
			prefix += "."
		}
		prefix += string(node.Data)
		if _, ok := f.lines[prefix]; !ok {
			f.lines[prefix] = f.lineOf(int(node.Raw.Offset))
		}
	}
	return prefix
}

// lineOf counts on from the last key: counting from the start each time costs seconds in a file of many keys.
func (f *lineFinder) lineOf(offset int) int {
	if offset < f.offset {
		f.offset, f.line = 0, 1
	}
	f.line += bytes.Count(f.Data()[f.offset:offset], []byte{'\n'})
	f.offset = offset
	return f.line
}
