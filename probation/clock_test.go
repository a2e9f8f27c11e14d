package probation_test

import (
	"testing"
	"time"

	"toad/probation"
)

func TestWithinABootTheBootClockDecides(t *testing.T) {
	d := probation.NewDeadline(at(0), time.Minute)
	for _, step := range []time.Duration{-24 * time.Hour, -time.Hour, time.Hour, 24 * time.Hour} {
		now := at(30 * time.Second)
		now.Wall = now.Wall.Add(step)
		if left := d.LeftAt(now); left != 30*time.Second {
			t.Errorf("wall clock stepped by %v: want 30s left, have %v", step, left)
		}
	}
	if !d.Past(at(time.Minute)) || d.Past(at(time.Minute-1)) {
		t.Error("it is past exactly when it is reached")
	}
}

func TestAfterABootTheWallClockDecidesAndNothingIsGained(t *testing.T) {
	d := probation.NewDeadline(at(0), time.Minute).Seen(at(40 * time.Second))
	boot := func(wall time.Duration) probation.Instant {
		return probation.Instant{Wall: start.Add(wall), Boot: 3 * time.Second, BootID: "two"}
	}
	for _, c := range []struct {
		what string
		now  probation.Instant
		want time.Duration
	}{
		{"soon after", boot(45 * time.Second), 15 * time.Second},
		{"at once", boot(40 * time.Second), 20 * time.Second},
		{"after the deadline", boot(2 * time.Minute), -time.Minute},
		{"with a clock behind the last one recorded", boot(-time.Hour), 0},
	} {
		if have := d.LeftAt(c.now); have != c.want {
			t.Errorf("%s: want %v left, have %v", c.what, c.want, have)
		}
	}
}

func TestCarriedIntoABootItHoldsAgainstTheWallClock(t *testing.T) {
	d := probation.NewDeadline(at(0), time.Minute).Seen(at(40 * time.Second))
	now := probation.Instant{Wall: start.Add(45 * time.Second), Boot: time.Second, BootID: "two"}
	c := d.Carried(now)
	now.Boot += 5 * time.Second
	now.Wall = now.Wall.Add(-time.Hour)
	if left := c.LeftAt(now); left != 10*time.Second {
		t.Errorf("want 10s left, have %v", left)
	}
}

// Also where less is left than the wall clock would give, because that was set back.
func TestCarriedIntoABootItIsTheSameInstant(t *testing.T) {
	for _, back := range []time.Duration{0, 10 * time.Second} {
		last := at(40 * time.Second)
		last.Wall = last.Wall.Add(-back)
		d := probation.NewDeadline(at(0), time.Minute).Seen(last)
		c := d.Carried(probation.Instant{Wall: last.Wall.Add(2 * time.Second), Boot: time.Second, BootID: "two"})
		if !c.At.Equal(d.At) {
			t.Errorf("the clock put back by %v: the deadline moved from %v to %v", back, d.At, c.At)
		}
	}
}
