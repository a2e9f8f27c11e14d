package probation

import (
	"maps"
	"testing"
	"time"
)

func TestWhatBecameOfOperationsIsCounted(t *testing.T) {
	at := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	s := Service{Name: "web"}
	s, _, err := s.Accept(Enrollment{Name: "web"}, Request{Digest: "sha256:1", Key: "k"}, Instant{Wall: at})
	if err != nil {
		t.Fatal(err)
	}
	step := func(kind Kind, after time.Duration) {
		t.Helper()
		at = at.Add(after)
		before := s.Totals
		had := maps.Clone(before.Left)
		next, ok := s.Apply(Event{Kind: kind, At: Instant{Wall: at}, Code: CodePullFailed})
		if !ok {
			t.Fatal(kind)
		}
		if !maps.Equal(had, before.Left) {
			t.Error("the service before was changed")
		}
		s = next
	}
	step(Begun, time.Second)
	step(PrepareFailed, -time.Hour) // the clock was put back
	if want := map[Phase]Spent{Accepted: {1, time.Second}, Preparing: {1, 0}}; !maps.Equal(s.Totals.Left, want) {
		t.Errorf("want %v, have %v", want, s.Totals.Left)
	}
	if want := map[Phase]int{Failed: 1}; !maps.Equal(s.Totals.Ended, want) {
		t.Errorf("want %v, have %v", want, s.Totals.Ended)
	}
}
