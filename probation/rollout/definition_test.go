package rollout_test

import (
	"strings"
	"testing"

	"toad/probation"
	"toad/quadlet"
)

// brings makes the next release bring this line beside its image.
func (l *lab) brings(line string) {
	l.enrollment.Definition = probation.Define(map[string]string{unit: "[Container]\nImage=" + repository + "\n" + line + "\n"}, l.enrollment.Ready)
}

// pinned asserts that the pin in place holds a release's line, and no other's.
func (l *lab) pinned(line string) {
	l.t.Helper()
	text, _, err := l.dirs.Pins().Read(unit)
	p, bad := quadlet.ParsePin(text)
	if err != nil || bad != nil || !strings.HasSuffix(p.Release, "\n"+line+"\n") {
		l.t.Errorf("want %q in the pin, have %v %v\n%s", line, err, bad, text)
	}
}

// What a release brings beside its image goes through the same probation, and comes back with the release before it.
func TestTheTextOfAReleaseIsPutBackWithIt(t *testing.T) {
	inLab(t, func(l *lab) {
		l.brings("Secret=key-v1")
		l.until(l.accept(v2))
		l.ended(probation.Promoted, "", v2)
		l.pinned("Secret=key-v1")

		l.brings("Secret=key-v2")
		l.unwell[v3.ID] = true
		l.until(l.accept(v3))
		l.ended(probation.RolledBack, probation.CodeCandidateExited, v2)
		l.pinned("Secret=key-v1")
		if want := l.service().Promoted.Definition.Text(unit); !strings.Contains(want, "key-v1") {
			t.Errorf("in force by the record: %q", want)
		}
		refused := l.service().Refusals
		if len(refused) != 1 || refused[0].Release.Definition == nil || refused[0].Release.Definition.Texts != nil {
			t.Errorf("refused: %+v", refused)
		}

		// The image that failed with that text is not refused with another, and a new text alone is a new release.
		delete(l.unwell, v3.ID)
		l.brings("Secret=key-v3")
		l.until(l.accept(v3))
		l.ended(probation.Promoted, "", v3)
		l.brings("Secret=key-v4")
		l.until(l.accept(v3))
		l.ended(probation.Promoted, "", v3)
		l.pinned("Secret=key-v4")
		if g := l.service().Generation; g != 4 {
			t.Errorf("generation %d, want 4", g)
		}

		// The way back, by hand, needs nobody who still has the text.
		l.enrollment.Definition = nil
		l.until(l.accept(v3, func(r *probation.Request) { r.Rollback = true }))
		l.ended(probation.Promoted, "", v3)
		l.pinned("Secret=key-v3")
	})
}

// At any call, and whatever became of the release: the pin in the end is the one of what runs.
func TestDeadAtAnyCallTheTextIsThatOfTheRelease(t *testing.T) {
	for n := 1; ; n++ {
		died := false
		inLab(t, func(l *lab) {
			l.brings("Secret=key-v1")
			l.until(l.accept(v2))
			l.brings("Secret=key-v2")
			l.unwell[v3.ID] = true
			id := l.accept(v3)
			l.dieAt = l.calls + n
			l.until(id)
			died = l.calls >= l.dieAt
			l.ended(probation.RolledBack, probation.CodeCandidateExited, v2)
			l.pinned("Secret=key-v1")
		})
		if !died {
			if n < 10 {
				t.Errorf("only %d calls were found", n)
			}
			return
		}
	}
}
