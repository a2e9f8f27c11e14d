package webui

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// A view can hold no raw text: every field is a word, a number or a time that this package has made or bounded.
func TestViewsHaveNoRoomForRawText(t *testing.T) {
	made := map[reflect.Type]bool{}
	for _, v := range []any{Text{}, Term{}, ID{}, Name{}, State{}, time.Time{}} {
		made[reflect.TypeOf(v)] = true
	}
	var walk func(path string, typ reflect.Type)
	walk = func(path string, typ reflect.Type) {
		switch {
		case made[typ]:
			return
		case typ.Kind() == reflect.Pointer, typ.Kind() == reflect.Slice:
			walk(path, typ.Elem())
		case typ.Kind() == reflect.Struct:
			for i := range typ.NumField() {
				f := typ.Field(i)
				for _, word := range []string{"path", "env", "label", "token", "secret", "quadlet", "journal", "host", "pin", "argv"} {
					if strings.Contains(strings.ToLower(f.Name), word) {
						t.Errorf("%s.%s sounds like what must not be shown", path, f.Name)
					}
				}
				walk(path+"."+f.Name, f.Type)
			}
		case typ.Kind() == reflect.Bool, typ.Kind() == reflect.Int, typ.Kind() == reflect.Int64:
		default:
			t.Errorf("%s is a %s: it could hold anything", path, typ)
		}
	}
	walk("Overview", reflect.TypeOf(Overview{}))
	walk("Detail", reflect.TypeOf(Detail{}))
	for typ := range made {
		for i := range typ.NumField() {
			if f := typ.Field(i); f.IsExported() {
				t.Errorf("%s.%s can be set from outside", typ, f.Name)
			}
		}
	}
}

func TestTextIsCleaned(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"ready for 3.1s without a break", "ready for 3.1s without a break"},
		{"one\ntwo\r\n\tthree\x00\x1b[31m", "one two three [31m"},
		{"a\u202eb\u2066c\u200bd\ufeffe", "a b c d e"},
		{"\xff\xfe bad", "bad"},
		{"open /home/toad/.local/state/toad/x.json: no such file", "open x.json: no such file"},
		{`read "/etc/toad/enrollment.toml"`, `read "enrollment.toml"`},
		{"in ~/.config/containers/systemd and $HOME/x", "in systemd and x"},
		{"dial unix:///run/user/1000/x.sock failed", "dial a file of the host failed"},
		{"http+unix:///run/x.sock:/healthz", "a file of the host"},
		{"pulling 127.0.0.1:5000/team/web@sha256:00", "pulling 127.0.0.1:5000/team/web@sha256:00"},
		{"registry.example.org/team/web and 1/2 of it", "registry.example.org/team/web and 1/2 of it"},
		{"a /x/y,/z/w;/q", "a y,w;q"},
		{"Grüße, 世界 ✓", "Grüße, 世界 ✓"},
	} {
		if have := Clean(c.in).String(); have != c.want {
			t.Errorf("Clean(%q): want %q, have %q", c.in, c.want, have)
		}
	}
	long := Clean(strings.Repeat("ä", 1<<20)).String()
	if n := len([]rune(long)); n > longest || !strings.HasSuffix(long, "…") {
		t.Errorf("a long text keeps %d characters", n)
	}
	if again := Clean(Clean("/a/b \x01 c").String()).String(); again != "b c" {
		t.Errorf("cleaned twice: %q", again)
	}
}

func FuzzClean(f *testing.F) {
	f.Add("open /home/toad/x: \x1b[0m")
	f.Fuzz(func(t *testing.T, in string) {
		have := Clean(in).String()
		if strings.ContainsAny(have, "\x00\n\r\x1b\u202e\u200b") || len([]rune(have)) > longest {
			t.Errorf("Clean(%q) = %q", in, have)
		}
	})
}

func TestWordsAreTakenWholeOrNotAtAll(t *testing.T) {
	for _, bad := range []string{"", "a b", "/etc/passwd", "<b>", "a\n", "\u202ea", strings.Repeat("a", 121), "-x"} {
		if have := TermOf(bad).String(); have != "" {
			t.Errorf("TermOf(%q) = %q", bad, have)
		}
	}
	if have := TermOf(`web\x2da@1.service`).String(); have != `web\x2da@1.service` {
		t.Errorf("a unit's name reads %q", have)
	}
	hex := strings.Repeat("0123456789abcdef", 4)
	for in, want := range map[string]string{"sha256:" + hex: "sha256:" + hex, hex: hex, "sha256:" + hex + "0": "", "hunter2": "", "sha256:ABC": "", "sha512:" + hex: ""} {
		if have := IDOf(in).String(); have != want {
			t.Errorf("IDOf(%q) = %q", in, have)
		}
	}
	for _, bad := range []string{"", "Web", "../x", "a/b", strings.Repeat("a", 61)} {
		if have := NameOf(bad).String(); have != "" {
			t.Errorf("NameOf(%q) = %q", bad, have)
		}
	}
	if have := StateOf("<script>").String(); have != "unknown" {
		t.Errorf("a state of its own: %q", have)
	}
}

// No two states look the same but for their colour.
func TestEachStateHasWordsOfItsOwn(t *testing.T) {
	words := map[string]string{}
	for _, s := range States() {
		state := StateOf(s)
		if other, there := words[state.Words()]; there {
			t.Errorf("%s and %s read the same", s, other)
		}
		words[state.Words()] = s
		if state.Shape() == "" || state.Tone() == "" {
			t.Errorf("%s has no shape or tone", s)
		}
	}
}

func TestTheFirstSentenceIsWhatMattersMost(t *testing.T) {
	card := func(name, state string, ready bool) Card {
		return Card{Name: NameOf(name), State: StateOf(state), Ready: Readiness{Known: true, OK: ready}}
	}
	for _, c := range []struct {
		want, tone string
		cards      []Card
	}{
		{"No service is enrolled", "idle", nil},
		{"All is quiet", "good", []Card{card("a", "promoted", true), card("b", "rolled_back", true)}},
		{"a is not ready", "back", []Card{card("a", "promoted", false), card("b", "promoted", true)}},
		{"a is on probation", "trial", []Card{card("a", "probation", true), card("b", "promoted", false)}},
		{"b is under way", "trial", []Card{card("b", "preparing", true)}},
		{"2 services are under way", "trial", []Card{card("a", "probation", true), card("b", "restoring", true)}},
		{"c needs somebody", "bad", []Card{card("a", "probation", true), card("c", "rollback_failed", false)}},
		{"2 services need somebody", "bad", []Card{card("c", "damaged", false), card("d", "rollback_failed", true)}},
	} {
		s := Overview{Services: c.cards}.summary()
		if s.Sentence != c.want || s.Tone != c.tone {
			t.Errorf("want %q (%s), have %q (%s)", c.want, c.tone, s.Sentence, s.Tone)
		}
	}
}

func TestStepsGoWhereTheLogWent(t *testing.T) {
	begin := time.Date(2026, 11, 29, 22, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		state string
		log   []string
		want  string
	}{
		{"accepted", nil, "accepted:now preparing:ahead switching:ahead probation:ahead promoting:ahead promoted:ahead"},
		{"probation", []string{"accepted", "preparing", "pull", "switching", "probation", "ready"},
			"accepted:done preparing:done switching:done probation:now promoting:ahead promoted:ahead"},
		{"promoted", []string{"accepted", "preparing", "switching", "probation", "promoting", "promoted"},
			"accepted:done preparing:done switching:done probation:done promoting:done promoted:good"},
		{"restoring", []string{"accepted", "preparing", "switching", "probation", "restoring"},
			"accepted:done preparing:done switching:done probation:done restoring:now rolled_back:ahead"},
		{"rollback_failed", []string{"accepted", "preparing", "switching", "probation", "restoring", "rollback_failed"},
			"accepted:done preparing:done switching:done probation:done restoring:done rollback_failed:bad"},
		{"failed", []string{"accepted", "preparing", "failed"}, "accepted:done preparing:done failed:bad"},
		// The log is behind the record, or ahead of the look at it.
		{"promoted", []string{"accepted", "preparing", "switching", "probation"}, "accepted:done preparing:done switching:done probation:done promoted:good"},
		{"probation", []string{"accepted", "preparing", "switching", "probation", "promoting"},
			"accepted:done preparing:done switching:done probation:now promoting:ahead promoted:ahead"},
	} {
		d := Detail{Operation: &Operation{State: StateOf(c.state), AcceptedAt: begin}}
		for i, e := range c.log {
			d.Log = append(d.Log, Line{At: begin.Add(time.Duration(i) * time.Second), Event: TermOf(e)})
		}
		var have []string
		for _, s := range d.Steps() {
			have = append(have, s.State.String()+":"+s.Mark)
		}
		if strings.Join(have, " ") != c.want {
			t.Errorf("%s: want %s, have %s", c.state, c.want, strings.Join(have, " "))
		}
	}
}

func TestSpansAreAsAPersonSaysThem(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "0 ms", 40 * time.Millisecond: "40 ms", 9100 * time.Millisecond: "9.1 s", 5 * time.Second: "5 s",
		90 * time.Second: "90 s", 5 * time.Minute: "5 min", 3 * time.Hour: "3 h", 50 * time.Hour: "2 days"} {
		if have := span(d); have != want {
			t.Errorf("span(%v): want %q, have %q", d, want, have)
		}
	}
	for d, want := range map[time.Duration]string{-1: "0:00", time.Second: "0:01", 59*time.Second + 1: "1:00", 252 * time.Second: "4:12", 2*time.Hour + 3*time.Second: "2:00:03"} {
		if have := countdown(d); have != want {
			t.Errorf("countdown(%v): want %q, have %q", d, want, have)
		}
	}
}
