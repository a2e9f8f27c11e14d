//go:build e2e

// Package web shows the page to a real Chromium: services in every state on a stage, and a host's own through a real Caddy.
// Pictures of what it saw lie in the folder TOAD_SHOTS.
package web

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"toad/tests/fetched"
	"toad/tests/web/browser"
	"toad/tests/web/stage"
	"toad/webui"
)

const longName = "a-service-whose-name-has-just-as-many-letters-as-it-may-have"

var (
	wide  = browser.View{Width: 1280, Height: 800}
	phone = browser.View{Width: 360, Height: 740}
)

func dark(v browser.View) browser.View { v.Dark = true; return v }

func play(t *testing.T, s *stage.Stage) string {
	t.Helper()
	srv := httptest.NewServer(webui.New(s, slog.New(slog.DiscardHandler)))
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return srv.URL
}

// checked asserts what holds for each page: it fits, nobody is shut out, and it asks nothing of anybody else.
func checked(t *testing.T, p *browser.Page, url string) {
	t.Helper()
	var width []int
	p.Eval("[document.documentElement.scrollWidth, innerWidth]", &width)
	if width[0] > width[1] {
		t.Errorf("the page is %d wide where there is room for %d", width[0], width[1])
	}
	if bad := violations(t, p); len(bad) > 0 {
		t.Errorf("axe: %s", strings.Join(bad, "\n"))
	}
	for _, f := range p.Faults() {
		t.Errorf("the browser complains: %s", f)
	}
	for _, a := range p.Asked() {
		if !strings.HasPrefix(a, url+"/") && !strings.HasPrefix(a, "data:") {
			t.Errorf("the page asks %s", a)
		}
	}
}

// violations is what axe finds.
func violations(t *testing.T, p *browser.Page) []string {
	t.Helper()
	p.Eval(fetched.Axe(t)+"; true", nil)
	var text string
	p.Await(`axe.run({resultTypes: ["violations"]}).then(r => JSON.stringify(r.violations.map(v =>
		v.id + " (" + v.impact + "): " + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + " " + n.failureSummary).join(" | "))))`, &text)
	var found []string
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		t.Fatal(err)
	}
	return found
}

const live = `document.querySelector("#live span").textContent === "live"`

// TestPages shows the stage to one browser.
func TestPages(t *testing.T) {
	t.Parallel()
	b := browser.Start(t, browser.Options{})
	for _, c := range []struct {
		name string
		show func(*testing.T, *browser.Browser)
	}{
		{"EveryStateIsShown", everyState}, {"AHundredServicesAreShown", aHundred}, {"ReadWithoutScripts", scriptless},
		{"Follows", follows}, {"TheKeyboardIsEnough", keyboard},
	} {
		t.Run(c.name, func(t *testing.T) { c.show(t, b) })
	}
}

// Each state is shown in words of its own, on both pages, by day and by night, on a desk and on a phone.
func everyState(t *testing.T, b *browser.Browser) {
	s := &stage.Stage{}
	for i, state := range webui.States() {
		s.Put(stage.In(state, "svc-"+strings.ReplaceAll(state, "_", "-"), i))
	}
	s.Put(stage.In("probation", longName, 99))
	url := play(t, s)
	views := []browser.View{wide, dark(phone), dark(wide), phone}
	p := b.Open(t, wide)
	for _, v := range views {
		p.Look(v)
		p.Go(url + "/")
		p.Until("that it is live", live)
		text := p.Text("main")
		for _, state := range webui.States() {
			if words := webui.StateOf(state).Words(); !strings.Contains(text, words) {
				t.Errorf("no service is %q on the first page", words)
			}
		}
		checked(t, p, url)
		p.Shot(fmt.Sprintf("all-%d-%v", v.Width, map[bool]string{true: "dark", false: "light"}[v.Dark]))
	}
	for i, state := range append(webui.States(), longName) {
		name := "svc-" + strings.ReplaceAll(state, "_", "-")
		if state == longName {
			state, name = "probation", longName
		}
		p.Look(views[i%len(views)])
		p.Go(url + "/services/" + name)
		p.Until("that it is live", live)
		if text := p.Text("#stand"); !strings.Contains(text, webui.StateOf(state).Words()) || !strings.Contains(text, name) {
			t.Errorf("the page of %s says:\n%s", name, text)
		}
		checked(t, p, url)
		p.Shot("service-" + name)
	}
}

func aHundred(t *testing.T, b *browser.Browser) {
	s := &stage.Stage{}
	for i := range 100 {
		state := "promoted"
		switch i {
		case 17:
			state = "probation"
		case 31:
			state = "rolled_back"
		}
		s.Put(stage.In(state, fmt.Sprintf("worker-%02d", i), i))
	}
	url := play(t, s)
	p := b.Open(t, wide)
	for _, v := range []browser.View{wide, dark(phone)} {
		p.Look(v)
		p.Go(url + "/")
		p.Until("that it is live", live)
		var cards int
		p.Eval(`document.querySelectorAll(".card").length`, &cards)
		if have := p.Text("h1"); cards != 100 || have != "worker-17 is on probation" {
			t.Errorf("%d cards under %q", cards, have)
		}
		checked(t, p, url)
		if v.Width == wide.Width {
			p.Shot("hundred")
		}
	}
}

// Without scripts all can be read, and what needs them is not there.
func scriptless(t *testing.T, b *browser.Browser) {
	s := &stage.Stage{}
	s.Put(stage.In("rolled_back", "mail", 1))
	s.Put(stage.In("probation", "web", 2))
	url := play(t, s)
	v := phone
	v.Scriptless = true
	p := b.Open(t, v)
	p.Go(url + "/services/mail")
	for _, want := range []string{"Rolled back", "its restart is over the budget of 0", "This is where it went wrong.", "Refused here", "registry.example.org/team/mail",
		"3 lines of the application are kept", "Without JavaScript it does not follow by itself"} {
		if text := p.Text("body"); !strings.Contains(text, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	var buttons int
	p.Eval(`[...document.querySelectorAll(".copy")].filter(b => b.offsetParent).length`, &buttons)
	if buttons > 0 {
		t.Errorf("%d buttons do nothing", buttons)
	}
	p.Shot("scriptless")
	p.Go(url + "/")
	if text := p.Text("body"); !strings.Contains(text, "On probation") || !strings.Contains(text, "to the deadline") {
		t.Errorf("the first page says:\n%s", text)
	}
}

// What changes comes by itself, and nobody loses their place for it.
func follows(t *testing.T, b *browser.Browser) {
	s := &stage.Stage{}
	s.Put(stage.In("promoted", "mail", 1))
	s.Put(stage.In("promoted", "web", 2))
	url := play(t, s)
	p := b.Open(t, wide)
	p.Go(url + "/")
	p.Until("that it is live", live)
	p.Until("where the keyboard is", `(document.querySelector("#s-web .copy").focus(), document.activeElement.dataset.copy !== undefined)`)
	d := stage.In("probation", "web", 2)
	d.Log = d.Log[:5]
	s.Put(d)
	p.Until("web under way", `document.querySelector("#trial-list #s-web .state strong")?.textContent === "On probation" && !!document.querySelector("#trial").offsetParent`)
	p.Until("the sentence", `document.querySelector("h1").textContent === "web is on probation" && document.title.startsWith("web is on probation")`)
	p.Until("the place that was left", `document.activeElement.closest("#s-web") !== null`)
	p.Until("the word to those who listen", `document.getElementById("said").textContent === "web is on probation"`)
	var left string
	p.Eval(`document.querySelector("#s-web .count[data-until]").textContent`, &left)
	p.Until("the deadline counting down", fmt.Sprintf(`document.querySelector("#s-web .count[data-until]").textContent !== %q`, left))

	q := b.Open(t, wide)
	q.Go(url + "/services/web")
	q.Until("that it is live", live)
	d = stage.In("rolled_back", "web", 2)
	s.Put(d)
	q.Until("the end", `document.querySelector("#stand strong").textContent === "Rolled back"`)
	q.Until("the line where it went wrong", `document.querySelector("#log .failing .msg")?.textContent.includes("over the budget")`)
	q.Until("the step", `document.querySelector('.steps [data-mark="bad"] .phase')?.textContent === "Rolled back"`)
	p.Until("it where it belongs", `document.querySelector("#back-list #s-web") !== null && !!!document.querySelector("#trial").offsetParent`)
	s.Remove("mail")
	p.Until("that mail is no more", `!document.querySelector("#s-mail")`)
	for _, page := range []*browser.Page{p, q} {
		checked(t, page, url)
	}
}

// The keyboard reaches all there is, and what is copied is the whole of what is shown short.
func keyboard(t *testing.T, b *browser.Browser) {
	s := &stage.Stage{}
	s.Put(stage.In("promoted", "web", 2))
	url := play(t, s)
	p := b.Open(t, wide)
	p.Allow(url, "clipboard-read", "clipboard-write")
	p.Go(url + "/")
	p.Until("that it is live", live)
	var at []string
	for range 4 {
		p.Press("\t")
		var where string
		p.Eval(`document.activeElement.className + " " + (document.activeElement.getAttribute("href") || document.activeElement.getAttribute("aria-label"))`, &where)
		at = append(at, strings.TrimSpace(where))
	}
	digest := stage.Digest(1000).String()
	if want := fmt.Sprintf("[skip #main home / /services/web copy Copy %s]", digest); fmt.Sprint(at) != want {
		t.Errorf("want %s, have %v", want, at)
	}
	p.Press("\r")
	p.Until("that it is copied", `document.getElementById("said").textContent === "Copied"`)
	var copied string
	p.Await("navigator.clipboard.readText()", &copied)
	if copied != digest {
		t.Errorf("want %s copied, have %q", digest, copied)
	}
}
