package quadlet

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func many(t testing.TB, n int) Dirs {
	t.Helper()
	d := Dirs{Config: t.TempDir()}
	d.Roots = []string{d.Config}
	for i := range n {
		unit := filepath.Join(d.Config, fmt.Sprintf("svc-%d.container", i))
		for _, err := range []error{os.WriteFile(unit, []byte("[Container]\nImage=x\n"), 0o644), os.Mkdir(unit+".d", 0o755)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return d
}

func TestASurveyListsTheFoldersOnceForAllUnits(t *testing.T) {
	d := many(t, 2)
	survey := d.Survey()
	later := filepath.Join(d.Config, "later", "late.container")
	if err := os.Mkdir(filepath.Dir(later), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(later, []byte("[Container]\nImage=x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := survey.Find("late.container"); err == nil {
		t.Error("the folders were listed once more")
	}
	for _, find := range []func() (Source, error){
		func() (Source, error) { return survey.Find("svc-1.container") },
		func() (Source, error) { return Find(d, "late.container") },
	} {
		if src, err := find(); err != nil || src.ServiceUnit == "" {
			t.Errorf("have %+v, %v", src, err)
		}
	}
}

func TestAFileInAFolderCostsASurveyNoMoreThanItsName(t *testing.T) {
	const most = 8 // allocations for a unit and its drop-in folder: their names, and what the listing holds
	few, lots := many(t, 10), many(t, 210)
	allocs := func(d Dirs) float64 { return testing.AllocsPerRun(5, func() { d.Survey() }) }
	if each := (allocs(lots) - allocs(few)) / 200; each > most {
		t.Errorf("want at most %d allocations for each, have %.1f", most, each)
	}
}
