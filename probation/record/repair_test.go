package record_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toad/probation"
	"toad/probation/record"
)

func TestSalvageTakesWhatIsWhole(t *testing.T) {
	dir := t.TempDir()
	s, err := record.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	svc := probation.Service{Name: "web", Generation: 7, Promoted: &probation.Release{Digest: "sha256:x", Generation: 6},
		Refusals:  []probation.Refusal{{Operation: "web-g3", Reason: "one"}, {Operation: "web-g5", Reason: "two"}},
		Operation: &probation.Operation{ID: "web-g7", Service: "web", Generation: 7, Phase: probation.Probation}}
	if err := s.Put(svc); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "services", "web.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(text) {
		have := record.Salvage("web", text[:cut])
		if have.Generation != 0 && have.Generation != 7 || have.Promoted != nil && have.Promoted.Generation != 6 {
			t.Fatalf("cut at %d: %+v", cut, have)
		}
		if second := strings.Index(string(text), "web-g5"); cut < second && len(have.Refusals) > 1 {
			t.Fatalf("cut at %d: a refusal from nowhere: %+v", cut, have.Refusals)
		}
	}
	half := text[:strings.Index(string(text), `"two"`)]
	if have := record.Salvage("web", half); len(have.Refusals) != 1 || have.Refusals[0].Operation != "web-g3" {
		t.Errorf("half a list: %+v", have.Refusals)
	}
	newer := strings.Replace(string(text), `"schema": 1`, `"schema": 9`, 1)
	if have := record.Salvage("web", []byte(newer)); have.Promoted != nil || len(have.Refusals) != 2 {
		t.Errorf("of a newer version: %+v", have)
	}
	if have := record.Salvage("other", text); have.Generation != 0 || have.Refusals != nil {
		t.Errorf("another service's record: %+v", have)
	}

	// What is repaired is read again, and the damaged file counts for nothing.
	if err := os.WriteFile(path, half, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Service("web"); err == nil {
		t.Fatal("half a record was read")
	}
	kept, err := s.PutRepaired(svc)
	if err != nil || len(kept) != 1 {
		t.Fatalf("%v %v", kept, err)
	}
	if _, err := s.Service("web"); err != nil {
		t.Error(err)
	}
	if names, _ := s.Names(); len(names) != 1 {
		t.Errorf("services: %v", names)
	}
}

func TestHighestSeesEveryFile(t *testing.T) {
	dir := t.TempDir()
	s, err := record.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"web-g3.json", "web-g12.log", "web-g13.watch.json", "web-x-g99.json", "other-g50.log", "web-g4.json.tmp"} {
		if err := os.WriteFile(filepath.Join(dir, "operations", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := s.Highest("web"); have != 13 || err != nil {
		t.Errorf("want 13, have %d %v", have, err)
	}
	if ops, damaged, err := s.Archived("web"); len(ops) != 0 || len(damaged) != 1 || err != nil {
		t.Errorf("have %v %v %v", ops, damaged, err)
	}
}
