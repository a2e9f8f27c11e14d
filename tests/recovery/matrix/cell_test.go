package matrix

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

func TestAStateIsTriedOnce(t *testing.T) {
	all, unknown := choose(parseTrace(`record.put.accepted 7
file.create.web.json 7
file.rename.web.json 7
record.saved.accepted 7
bus.StartTransientUnit.before 7
serve.heartbeat 7
bus.StartTransientUnit.after 7
record.put.preparing 9
record.saved.preparing 9
file.append.web-g3.log 9
file.appended.web-g3.log 9
file.append.web-g3.log 9
file.appended.web-g3.log 9
record.put.preparing 9
bus.Dance.before 9
file.rename.web-g2.json 9
file.rename.web-g3.json 9
file.rename.web-g3.watch.json 9
file.rename.web-g3-rolled_back.json 9
`, 3), part{})
	every, error := []string{Kill, Cut, Error}, []string{Error}
	want := []Passing{
		{"record.put.accepted", 1, every}, {"record.saved.accepted", 1, every},
		{"bus.StartTransientUnit.before", 1, error}, {"bus.StartTransientUnit.after", 1, every},
		// Another process: what the one before did last may not be done yet when this one begins.
		{"record.put.preparing", 1, every}, {"record.saved.preparing", 1, every},
		{"file.append.web-g{0}.log", 1, error}, {"file.appended.web-g{0}.log", 1, every},
		// Behind a line that is not tried.
		{"record.put.preparing", 2, every},
		{"file.rename.web-g{-1}.json", 1, every}, {"file.rename.web-g{0}.json", 1, every}, {"file.rename.web-g{0}.watch.json", 1, every},
		{"file.rename.web-g{0}-rolled_back.json", 1, every},
	}
	if have := nameIn("file.rename.web-g{-1}.json", 3); have != "file.rename.web-g2.json" {
		t.Errorf("have %s", have)
	}
	if !reflect.DeepEqual(all, want) {
		t.Errorf("want %v\nhave %v", want, all)
	}
	if !reflect.DeepEqual(unknown, []string{"bus.Dance.before"}) {
		t.Errorf("unknown: %v", unknown)
	}
}

func TestWhatComesBeforeIsCountedAndNotTried(t *testing.T) {
	trace := parseTrace(`bus.StopUnit.before 7
record.put.promoting 7
bus.Reload.before 7
bus.StopUnit.before 7
bus.StopUnit.before 7
`, 1)
	every := []string{Kill, Cut, Error}
	all, _ := choose(trace, part{from: "record.put.promoting", points: []string{"record.*.promoting", "bus.StopUnit.*"}, times: 1})
	if want := []Passing{{"record.put.promoting", 1, every}, {"bus.StopUnit.before", 2, every}}; !reflect.DeepEqual(all, want) {
		t.Errorf("want %v\nhave %v", want, all)
	}
}

func TestTheLastResultOfACellCounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "results")
	text := `{"scenario":"s","action":"kill","point":"p","n":1,"result":"failed"}
{"scenario":"s","action":"kill","point":"p","n":1,"second":"q 2","result":"passed"}
{"scenario":"s","action":"kill","point":"p","n":1,"result":"passed"}
{"scenario":"s","action":"kill","poi`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := Load(file)
	if err != nil || len(all) != 2 || all[0].Result != Passed {
		t.Errorf("%v, %v", err, all)
	}
}
