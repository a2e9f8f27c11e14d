package webui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"html/template"
	"regexp"
	"strings"
	"sync"
	"time"
)

//go:embed page
var sources embed.FS

// digests are long and mean little to a reader; those that matter are shown beside, to be copied whole.
var digests = regexp.MustCompile(`\b(sha256:[0-9a-f]{12})[0-9a-f]{52}\b`)

// templates are read when a page is first asked for: most starts of toad serve none.
var templates = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("").Funcs(functions).ParseFS(sources, "page/*.html"))
})

var functions = template.FuncMap{
	"span":      span,
	"countdown": countdown,
	"age":       age,
	"share":     share,
	"stamp":     func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") },
	"utc":       func(t time.Time) string { return t.UTC().Format("2 Jan 2006, 15:04:05 UTC") },
	"clock":     func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"after":     func(d time.Duration) string { return fmt.Sprintf("+%.1f", max(d, 0).Seconds()) },
	"count":     count,
	"lower":     strings.ToLower,
	"ms":        func(d time.Duration) int64 { return d.Milliseconds() },
	"at":        func(now time.Time, data any) at { return at{Now: now, Data: data} },
	"stretch":   func(from, until, now time.Time) stretch { return stretch{from, until, now} },
	"plus":      func(t time.Time, d time.Duration) time.Time { return t.Add(d) },
	"sofar": func(from time.Time, most time.Duration, now time.Time) time.Duration {
		return min(max(now.Sub(from), 0), most)
	},
	"brief": func(t Text) string { return digests.ReplaceAllString(t.s, "$1…") },
	"add":   func(a, b int) int { return a + b },
	"build": build,
}

// at is what a part is rendered of: the view, and the instant of the look. With is what else it contains.
type at struct {
	Now  time.Time
	Data any
	With any
}

// stretch is a time that passes.
type stretch struct{ From, Until, Now time.Time }

// part is a piece of a page that is replaced when its data has changed. The template of that name makes one element with
// that id of it. What it contains besides are parts of their own.
type part struct {
	id, tmpl string
	data     any
	with     any
}

// sum tells one state of the data from another; the time that passes is no change.
func (p part) sum() string {
	data, err := json.Marshal(p.data)
	if err != nil {
		panic(err) // a view that cannot be encoded
	}
	sum := sha256.Sum256(append([]byte(p.tmpl+"\n"), data...))
	return string(sum[:8])
}

func (p part) render(now time.Time) ([]byte, error) {
	var b bytes.Buffer
	err := templates().ExecuteTemplate(&b, p.tmpl, at{now, p.data, p.with})
	return bytes.TrimSpace(b.Bytes()), err
}

// seen names the state of all parts of a page.
func seen(parts []part) string {
	sum := sha256.New()
	for _, p := range parts {
		_, _ = fmt.Fprintf(sum, "%s %x\n", p.id, p.sum())
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// page is what the layout is rendered of.
type page struct {
	Title  string
	Events string // where changes come from; empty if none do
	Seen   string
	Now    time.Time
	Data   any
	parts  map[string]part
}

func pageOf(title, events string, now time.Time, parts []part, data any) page {
	p := page{Title: title, Now: now, Data: data, Events: events, parts: map[string]part{}}
	if events != "" {
		p.Seen = seen(parts)
	}
	for _, one := range parts {
		p.parts[one.id] = one
	}
	return p
}

// Part renders a part in its place.
func (p page) Part(id string) (template.HTML, error) {
	one, there := p.parts[id]
	if !there {
		return "", fmt.Errorf("no part %s", id)
	}
	html, err := one.render(p.Now)
	return template.HTML(html), err //nolint:gosec // it comes out of a template that has escaped it
}

func overviewParts(o Overview) []part {
	parts := []part{{id: "summary", tmpl: "summary", data: o.summary()}}
	for _, c := range o.Services {
		parts = append(parts, part{id: cardID(c), tmpl: "card", data: c})
	}
	return parts
}

func cardID(c Card) string { return "s-" + c.Name.s }

// logNotes is what a log's lines do not tell.
type logNotes struct {
	Operation   Term
	Earlier     int
	Application int
	Failing     Term // id of the line
}

func (d Detail) notes() logNotes {
	lines, earlier, application := d.lines()
	n := logNotes{Operation: d.shown(), Earlier: earlier, Application: application}
	for _, l := range lines {
		if l.Failing {
			n.Failing = Term{l.ID()}
		}
	}
	return n
}

func (d Detail) shown() Term {
	if d.Operation == nil {
		return Term{}
	}
	return d.Operation.ID
}

// ID is the line's id within the page.
func (l logLine) ID() string { return fmt.Sprintf("l-%s-%d", l.Of.s, l.Number) }

// What the parts of a service's page are made of. Each holds only what it shows, so that it changes with nothing else.
type (
	stand struct {
		Card
		Invalid   []Text
		Operation *Operation
		Latest    bool
	}
	walk struct {
		Operation Term
		Latest    bool
		Steps     []step
	}
	runs struct {
		Units      []Unit
		Containers []Container
		Ready      Readiness
	}
	past struct {
		Name    Name
		Shown   Term
		History []Operation
		Picture picture
	}
)

func detailParts(d Detail) []part {
	lines, _, _ := d.lines()
	parts := []part{
		{id: "stand", tmpl: "stand", data: stand{d.Card, d.Invalid, d.Operation, d.Latest}},
		{id: "steps", tmpl: "steps", data: walk{d.shown(), d.Latest, d.Steps()}},
		{id: "runs", tmpl: "runs", data: runs{d.Units, d.Containers, d.Ready}},
		{id: "config", tmpl: "config", data: d.Config},
		{id: "refusals", tmpl: "refusals", data: d.Refusals},
		{id: "history", tmpl: "history", data: past{d.Name, d.shown(), d.History, d.picture()}},
		{id: "log-notes", tmpl: "log-notes", data: d.notes()},
		{id: "log", tmpl: "log", data: d.shown(), with: lines},
	}
	for _, l := range lines {
		parts = append(parts, part{id: l.ID(), tmpl: "line", data: l})
	}
	return parts
}
