package rollout_test

import (
	"slices"
	"strings"
	"testing"

	"toad/probation"
	"toad/probation/rollout"
)

// What others took from Podman comes back from its archive, wherever an act dies on the way, and is pinned by its id.
func TestAnImageInForceThatIsGoneIsLoadedBack(t *testing.T) {
	for n := 0; ; n++ {
		died := false
		inLab(t, func(l *lab) {
			id := l.accept(v2)
			l.until(id)
			l.down()
			l.prune()
			l.start(l.side) // as at a boot
			l.registry = nil
			if n > 0 {
				l.dieAt = l.calls + n
				died = l.act(id) != ""
			}
			l.dieAt = 0
			l.act(id)
			l.act(id) // and no more
			l.ended(probation.Promoted, "", v2)
			if text, _, _ := l.dirs.Pins().Read(unit); !strings.Contains(text, "Image="+v2.ID) || !strings.Contains(text, v2.Digest) {
				t.Errorf("the pin:\n%s", text)
			}
			if n := len(slices.DeleteFunc(slices.Clone(l.asked), func(s string) bool { return s != "load back "+v2.ID[:1] })); n == 0 || n > 2 {
				t.Errorf("it was loaded back %d times", n)
			}
			// The next one goes back to it, and comes to be pinned by its digest as ever.
			l.registry = map[string]rollout.Image{v3.RepoDigests[0]: v3}
			l.unwell[v3.ID] = true
			l.until(l.accept(v3))
			l.ended(probation.RolledBack, probation.CodeCandidateExited, v2)
		})
		if n > 0 && !died {
			if n < 4 {
				t.Errorf("only %d calls", n)
			}
			return
		}
	}
}
