package unitgen

import "testing"

func TestWordsArriveInUnitFilesAsTheyWere(t *testing.T) {
	for _, c := range []struct{ word, want string }{
		{"/usr/bin/toad", "/usr/bin/toad"},
		{"", `""`},
		{"/home/a b/toad", `"/home/a b/toad"`},
		{"100%", `"100%%"`},
		{`a"b\c`, `"a\"b\\c"`},
		{"line\nbreak", `"line\nbreak"`},
		{"$HOME", `"$HOME"`},
		{"it's;", `"it's;"`},
	} {
		if have := quote(c.word); have != c.want {
			t.Errorf("%q: want %s have %s", c.word, c.want, have)
		}
	}
	if want, have := `":/a b/toad" act`, command("/a b/toad", "act"); want != have {
		t.Errorf("want %s have %s", want, have)
	}
	if want, have := "/a b/100%%", path("/a b/100%"); want != have {
		t.Errorf("want %s have %s", want, have)
	}
}

func TestAutomaticRestartCountsAsRunning(t *testing.T) {
	for _, c := range []struct {
		s       State
		running bool
	}{
		{State{ActiveState: "active", SubState: "running"}, true},
		{State{ActiveState: "activating", SubState: "auto-restart"}, true},
		{State{ActiveState: "failed", SubState: "failed-before-auto-restart"}, true},
		{State{ActiveState: "reloading"}, true},
		{State{ActiveState: "failed", SubState: "failed"}, false},
		{State{ActiveState: "deactivating", SubState: "stop-sigterm"}, false},
		{State{ActiveState: "inactive", SubState: "dead"}, false},
	} {
		if have := c.s.Running(); have != c.running {
			t.Errorf("%+v: want %v have %v", c.s, c.running, have)
		}
	}
}
