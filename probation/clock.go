package probation

import "time"

// Instant is one reading of the host's clocks.
type Instant struct {
	Wall   time.Time     `json:"wall"`
	Boot   time.Duration `json:"boot"` // CLOCK_BOOTTIME: time since boot, suspended time included
	BootID string        `json:"boot_id"`
}

// Deadline is an instant that is set once. Within the boot that set or carried it CLOCK_BOOTTIME decides, so that a
// step of the wall clock neither loses nor hastens it; across boots the wall clock does.
type Deadline struct {
	At     time.Time     `json:"at"`
	Boot   time.Duration `json:"boot"` // CLOCK_BOOTTIME at which it is reached, in the boot BootID
	BootID string        `json:"boot_id"`
	Left   time.Duration `json:"left"`   // what was left at the last save
	Newest time.Time     `json:"newest"` // the newest wall clock ever recorded
}

// NewDeadline sets a deadline that is d away.
func NewDeadline(now Instant, d time.Duration) Deadline {
	return Deadline{At: now.Wall.Add(d).UTC(), Boot: now.Boot + d, BootID: now.BootID, Left: d, Newest: now.Wall.UTC()}
}

// LeftAt says how long the deadline is away; zero or less means that it is past. After a boot it is never more than at
// the last save, and a wall clock behind the newest one recorded tells nothing and counts as past.
func (d Deadline) LeftAt(now Instant) time.Duration {
	if now.BootID == d.BootID {
		return d.Boot - now.Boot
	}
	if now.Wall.Before(d.Newest) {
		return 0
	}
	return min(d.At.Sub(now.Wall), d.Left)
}

// Past reports whether the deadline has been reached.
func (d Deadline) Past(now Instant) bool { return d.LeftAt(now) <= 0 }

// Seen notes what was left at an instant, so that a boot cannot add to it.
func (d Deadline) Seen(now Instant) Deadline {
	d.Left = max(0, min(d.Left, d.LeftAt(now)))
	if now.Wall.After(d.Newest) {
		d.Newest = now.Wall.UTC()
	}
	return d
}

// Carried binds the deadline to the clock of a new boot. At stays what it was.
func (d Deadline) Carried(now Instant) Deadline {
	if now.BootID == d.BootID {
		return d
	}
	left := max(0, d.LeftAt(now))
	d = d.Seen(now)
	d.Boot, d.BootID, d.Left = now.Boot+left, now.BootID, left
	return d
}

// Carried binds the limits of a service's operation to the clock of a new boot. The deadline of a switch goes on, with
// no more left than at the last save (seen is the check's); the limit of a restore begins anew.
func (s Service) Carried(now Instant, seen Deadline) Service {
	if s.Operation == nil {
		return s
	}
	op := *s.Operation
	op.PrepareBy = op.PrepareBy.Carried(now)
	if op.Deadline != nil {
		d := *op.Deadline
		if d.At.Equal(seen.At) {
			d.Left, d.Newest = min(d.Left, seen.Left), later(d.Newest, seen.Newest)
		}
		d = d.Carried(now)
		op.Deadline = &d
	}
	if op.RestoreBy != nil && op.RestoreBy.BootID != now.BootID {
		by := NewDeadline(now, op.restoreLimit())
		op.RestoreBy = &by
	}
	s.Operation = &op
	return s
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
