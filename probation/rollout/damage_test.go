package rollout_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"toad/probation"
	"toad/probation/record"
)

// damage spoils the record of web as hosts do.
func (l *lab) damage(how string) {
	l.t.Helper()
	path := filepath.Join(l.records.Dir(), "services/web.json")
	text := map[string]string{"empty": "", "NUL": strings.Repeat("\x00", 4096), "torn": l.record()[:len(l.record())/2],
		"newer": strings.Replace(l.record(), `"schema": 1`, `"schema": 2`, 1)}[how]
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// Whenever a record is damaged, its service ends on one of two releases without a person, or was not touched at all and
// waits for one.
func TestARecordDamagedAtAnyCallLeavesNoReleaseOnTrial(t *testing.T) {
	for _, how := range []string{"empty", "NUL", "torn", "newer"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			n, ends := 1, map[string]int{}
			for damagedAtCall(t, how, n, ends) {
				n++
			}
			if n < 15 || ends["untouched"] == 0 || ends["rolled_back"] == 0 || ends["promoted"] == 0 {
				t.Errorf("%d calls, which ended %v", n, ends)
			}
		})
	}
}

func damagedAtCall(t *testing.T, how string, n int, ends map[string]int) (died bool) {
	inLab(t, func(l *lab) {
		l.until(l.accept(v3))
		id := l.accept(v2)
		l.dieAt = l.calls + n
		l.until2(id)
		died = l.calls >= l.dieAt
		if !died {
			return
		}
		l.damage(how)
		l.until2(id)
		if _, err := l.records.Service("web"); errors.Is(err, record.ErrDamaged) {
			if l.run.ImageID != v3.ID && l.run.ImageID != v2.ID {
				t.Errorf("nothing runs")
			}
			text, _, _ := l.dirs.Pins().Read(unit)
			if strings.Contains(text, "TOAD_ADMITTED") {
				t.Errorf("left alone with a candidate in force:\n%s", text)
			}
			ends["untouched"]++
		} else {
			op := l.operation()
			if op.Phase == probation.Promoted {
				l.ended(probation.Promoted, op.Code, v2)
			} else {
				l.ended(probation.RolledBack, op.Code, v3)
				if l.service().Refusal(op.Candidate) != nil {
					t.Error("the damage was held against the release")
				}
			}
			if p := l.service().Promoted; p == nil || p.ImageID != l.run.ImageID {
				t.Errorf("%+v is in force by the record, %.1s runs", p, l.run.ImageID)
			}
			ends[string(op.Phase)]++
		}
		if t.Failed() {
			t.Fatalf("damaged at call %d\n%s", n, strings.Join(l.asked, "\n"))
		}
	})
	return died
}

// until2 acts and lets checks end until the process dies, or nothing is owed any more as far as a record tells.
func (l *lab) until2(id string) {
	l.t.Helper()
	for range 20 {
		if l.act(id) != "" {
			return
		}
		svc, err := l.records.Service("web")
		if err != nil || probation.Due(*svc.Operation) == probation.Nothing || !l.check() {
			return
		}
	}
}
