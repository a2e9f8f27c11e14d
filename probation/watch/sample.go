package watch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"toad/probation"
	"toad/unitgen"
)

// sample looks at everything once. The probe is asked only when what it reaches can be attributed: the same invocation
// and container before and after it.
func (c *Check) sample(ctx context.Context, w probation.Watch) (s probation.Sample, err error) {
	defer func() { s.At = c.Now().Boot }() // what was seen holds at the end of the look, not at its beginning
	if s.Stopping, err = c.Units.Stopping(ctx); err != nil {
		return s, err
	}
	up, former, asked, first := true, false, -1, unitgen.State{}
	for i, want := range w.Want {
		u, st, err := c.unit(ctx, want.Service)
		if err != nil {
			return s, err
		}
		s.Units = append(s.Units, u)
		if want.Down {
			continue
		}
		up = up && u.ActiveState == "active" && u.Container != ""
		former = former || u.Invocation == want.Replaces
		if asked < 0 {
			asked, first = i, st
		}
	}
	s.Left = max(0, c.file.Deadline.LeftAt(c.Now()))
	held := c.op.Enrollment.Binary() && c.op.Enrollment.Hold != "" // then the port is the user manager's
	c.foreign = asked >= 0 && !held && c.Foreign(first, c.op.Enrollment.Ready)
	if s.Stopping || !up || asked < 0 {
		s.Why = "not up"
		return s, nil
	}
	u := s.Units[asked]
	s.Ready, s.Why = c.probe(ctx, c, u)
	if c.foreign && s.Ready {
		s.Ready, s.Why = false, "it was answered by something that is not "+first.Name
	}
	// Within an invocation the unit has one cgroup, so nothing else of the unit needs another look.
	after, err := c.Units.Invocation(ctx, u.Service)
	if err != nil {
		return s, err
	}
	if after != u.Invocation || c.Runs(first) != u.Container {
		s.Ready, s.Why = false, "it was replaced while it was probed"
	}
	if s.Serving = s.Ready; former { // what is about to be replaced serves still, and is not judged
		s.Ready, s.Why = false, "not up"
	}
	return s, nil
}

func (c *Check) unit(ctx context.Context, name string) (u probation.UnitSample, st unitgen.State, err error) {
	if st, err = c.Units.State(ctx, name); err != nil {
		return u, st, err
	}
	u = probation.UnitSample{Service: name, ActiveState: st.ActiveState, SubState: st.SubState, Result: st.Result,
		Restart: st.Restart, Invocation: st.InvocationID, Restarts: int(st.NRestarts), ExitStatus: exitStatus(st),
		RestartIn: restartIn(st), StopSeen: c.stops[name], MemoryLimit: c.MemoryLimit(st), OwnReady: ownReady(st.ExecStart)}
	delete(c.stops, name)
	if st.Job != 0 {
		u.Job = st.JobType
		if u.Job == "" {
			u.Job = "unknown"
		}
	}
	if u.Container = c.Runs(st); u.Container != "" {
		k, err := c.container(ctx, u.Container)
		if err != nil {
			u.Container = "" // it is gone between the two looks, or not there yet
		}
		u.ImageID, u.Operation = k.ImageID, k.Operation
	}
	return u, st, nil
}

// ownReady reports whether a Quadlet has Notify=true or Notify=healthy: without, Podman itself tells systemd that the
// container runs.
func ownReady(commands [][]string) bool {
	for _, argv := range commands {
		if slices.Contains(argv, "--sdnotify=container") || slices.Contains(argv, "--sdnotify=healthy") {
			return true
		}
	}
	return false
}

// restartIn is how long a unit still waits for its automatic restart; 0 where systemd does not tell.
func restartIn(st unitgen.State) time.Duration {
	const longest = uint64(24 * time.Hour / time.Microsecond) // infinity is a very large number
	var now unix.Timespec
	if st.RestartUSecNext == 0 || unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	since := time.Duration(now.Nano()) - time.Duration(st.StateChangeTimestampMonotonic)*time.Microsecond
	return max(0, time.Duration(min(st.RestartUSecNext, longest))*time.Microsecond-since)
}

// exitStatus is what the main process ended with; 128 + n for one that a signal ended.
func exitStatus(st unitgen.State) int {
	const killed, dumped = 2, 3
	if st.ExecMainCode == killed || st.ExecMainCode == dumped {
		return 128 + int(st.ExecMainStatus)
	}
	return int(st.ExecMainStatus)
}

func (c *Check) container(ctx context.Context, id string) (Container, error) {
	if k, ok := c.known[id]; ok {
		return k, nil
	}
	k, err := c.Containers.Container(ctx, id)
	if err != nil {
		return Container{}, fmt.Errorf("container %.12s: %w", id, err)
	}
	c.known[id] = k
	return k, nil
}
