package probation_test

import (
	"testing"
	"time"

	"toad/probation"
)

// story feeds samples half a second apart and returns the first verdict, and the watch as it was left.
type story struct {
	t *testing.T
	w probation.Watch
	n int
	// left is the time that the attempt has.
	left time.Duration
}

func newStory(t *testing.T, budget int) *story {
	e := enrollment()
	e.Limit.Restarts = budget
	want := []probation.Want{{Service: "web.service", Replaces: "old", ImageID: idB, Operation: "web-g7"}}
	w := probation.NewWatch(e, want, nil)
	w.Queued = true
	return &story{t: t, w: w}
}

func running(invocation string) probation.UnitSample {
	return probation.UnitSample{Service: "web.service", ActiveState: "active", SubState: "running", Restart: "always",
		Invocation: invocation, Container: "c-" + invocation, ImageID: idB, Operation: "web-g7"}
}

func (s *story) see(u probation.UnitSample, ready bool) probation.Verdict {
	s.t.Helper()
	s.n++
	why := "it answers 200"
	if !ready {
		why = "it answers 503"
	}
	var v probation.Verdict
	s.w, v = s.w.Next(probation.Sample{At: time.Hour + time.Duration(s.n)*500*time.Millisecond,
		Units: []probation.UnitSample{u}, Ready: ready, Why: why, Left: s.left})
	return v
}

// until sees the same sample again until there is a verdict, at most n times.
func (s *story) until(n int, u probation.UnitSample, ready bool) probation.Verdict {
	s.t.Helper()
	for range n {
		if v := s.see(u, ready); v.Kind != "" {
			return v
		}
	}
	return probation.Verdict{}
}

func (s *story) want(v probation.Verdict, kind probation.Kind, code probation.Code, evidence bool) {
	s.t.Helper()
	if v.Kind != kind || v.Code != code || (v.Evidence != nil) != evidence {
		s.t.Fatalf("want %q %q (evidence %v), have %+v", kind, code, evidence, v)
	}
}

func TestAnUnbrokenWindowIsStable(t *testing.T) {
	s := newStory(t, 0)
	s.want(s.until(4, running("new"), true), "", "", false)
	s.want(s.see(running("new"), true), probation.Stable, "", false)
}

func TestOneUnreadySampleBeginsTheWindowAnew(t *testing.T) {
	s := newStory(t, 0)
	s.until(4, running("new"), true)
	s.want(s.see(running("new"), false), "", "", false)
	s.want(s.until(4, running("new"), true), "", "", false)
	s.want(s.see(running("new"), true), probation.Stable, "", false)
}

// What a file ends with is its own doing: no Podman stands between it and systemd.
func TestNoExitStatusOfAFileIsPodmans(t *testing.T) {
	for status, result := range map[int]string{125: "exit-code", 126: "exit-code", 0: "protocol"} {
		s := newStory(t, 0)
		s.w.Files = true
		u := running("new")
		u.ActiveState, u.SubState, u.Result, u.ExitStatus = "activating", "auto-restart", result, status
		u.Container, u.ImageID, u.Operation = "", "", ""
		s.want(s.see(u, false), probation.Unfit, probation.CodeCandidateExited, true)
	}
}

// A container that systemd never heard of is the host's trouble, and its next start is no restart; one that was seen to
// run and should have spoken for itself is not.
func TestAStartThatSystemdNeverHeardOfIsNotTheReleasesFault(t *testing.T) {
	for _, c := range []struct{ ran, ownReady bool }{{}, {ownReady: true}, {ran: true}, {ran: true, ownReady: true}} {
		s := newStory(t, 0)
		u := running("new")
		u.ActiveState, u.SubState, u.Result, u.OwnReady = "activating", "auto-restart", "protocol", c.ownReady
		if c.ran {
			s.see(running("new"), false)
			u.Container = ""
		}
		if c.ran && c.ownReady {
			s.want(s.see(u, false), probation.Unfit, probation.CodeCandidateExited, true)
			continue
		}
		u.Container, u.ImageID, u.Operation = "", "", ""
		s.want(s.until(3, u, false), "", "", false)
		if !c.ran && s.w.Unready() != nil {
			t.Error("that it was not ready would be held against the release")
		}
		again := running("again")
		again.Restarts = 1
		s.want(s.until(4, again, true), "", "", false)
		s.want(s.see(again, true), probation.Stable, "", false)
		again.Result, again.ExitStatus, again.ActiveState, again.SubState = "exit-code", 2, "activating", "auto-restart"
		s.want(s.see(again, false), probation.Unfit, probation.CodeCandidateExited, true)
	}
	s := newStory(t, 0)
	u := running("new")
	u.ActiveState, u.SubState, u.Result, u.Container, u.Restart = "failed", "failed", "protocol", "", "no"
	s.want(s.see(u, false), probation.Unfit, probation.CodeInterrupted, false)
}

func TestALateSampleBreaksTheWindow(t *testing.T) {
	s := newStory(t, 0)
	s.until(4, running("new"), true)
	s.n += 10 // nobody looked for five seconds
	s.want(s.see(running("new"), true), "", "", false)
	if s.w.Filled() != 0 {
		t.Errorf("a gap counted as health: %v", s.w.Filled())
	}
	if s.w.Breaks != 0 {
		t.Error("a gap was held against the release")
	}
}

func TestTheFormerInvocationIsNotJudged(t *testing.T) {
	s := newStory(t, 0)
	old := running("old")
	old.ActiveState, old.SubState = "failed", "failed"
	s.want(s.until(5, old, true), "", "", false)
	starting := running("new")
	starting.Job, starting.ActiveState, starting.Container = "start", "activating", ""
	s.want(s.until(5, starting, true), "", "", false)
	s.want(s.until(5, running("new"), true), probation.Stable, "", false)
}

func TestARestartOverTheBudgetFailsWithEvidence(t *testing.T) {
	s := newStory(t, 1)
	s.see(running("new"), true)
	for i, inv := range []string{"second", "third"} {
		u := running(inv)
		u.Restarts, u.ExitStatus, u.Result = i+1, 2, "exit-code"
		v := s.see(u, true)
		if i == 0 {
			s.want(v, "", "", false)
			continue
		}
		s.want(v, probation.Unfit, probation.CodeCandidateExited, true)
		if v.Evidence.ExitStatus != 2 {
			t.Errorf("want exit status 2, have %+v", v.Evidence)
		}
	}
}

func TestARestartWithinTheBudgetIsTheExpectedInvocation(t *testing.T) {
	s := newStory(t, 1)
	s.until(4, running("new"), true)
	u := running("second")
	u.Restarts = 1
	s.want(s.until(4, u, true), "", "", false)
	s.want(s.see(u, true), probation.Stable, "", false)
}

func TestAutoRestartOverTheBudgetNeedNotBeWaitedFor(t *testing.T) {
	s := newStory(t, 0)
	u := running("new")
	u.ActiveState, u.SubState, u.Container, u.ExitStatus = "activating", "auto-restart", "", 2
	s.want(s.see(u, true), probation.Unfit, probation.CodeCandidateExited, true)
}

func TestResetFailedByOthersHidesNoRestart(t *testing.T) {
	s := newStory(t, 1)
	u := running("new")
	s.see(u, true)
	u = running("second")
	u.Restarts = 1
	s.see(u, true)
	u.Restarts = 0 // reset-failed while it ran
	s.want(s.see(u, true), "", "", false)
	u = running("third")
	u.Restarts = 1
	s.want(s.see(u, true), probation.Unfit, probation.CodeCandidateExited, true)
}

func TestARestartBySomebodyElseRefusesNothing(t *testing.T) {
	s := newStory(t, 0)
	s.see(running("new"), true)
	s.want(s.see(running("by hand"), true), probation.Unfit, probation.CodeInterrupted, false)
}

func TestAStopByAnOperatorWithdraws(t *testing.T) {
	s := newStory(t, 0)
	s.see(running("new"), true)
	u := running("new")
	u.StopSeen, u.ActiveState = true, "deactivating"
	s.want(s.see(u, true), probation.Stopped, probation.CodeStopped, false)
}

func TestPodmansOwnFailureIsNotTheReleases(t *testing.T) {
	for _, status := range []int{125, 126} {
		s := newStory(t, 0)
		u := running("new")
		u.ActiveState, u.SubState, u.Container, u.ExitStatus, u.Restart = "failed", "failed", "", status, "no"
		s.want(s.see(u, true), probation.Unfit, probation.CodeInterrupted, false)
	}
}

func TestAContainerOfAnotherOperationIsNotReady(t *testing.T) {
	s := newStory(t, 0)
	u := running("new")
	u.Operation = "web-g6"
	s.want(s.until(20, u, true), "", "", false)
	if s.w.ReadySince != 0 {
		t.Error("what another operation started counts as ready")
	}
}

func TestAnotherImageFailsAtOnceAndRefusesNothing(t *testing.T) {
	s := newStory(t, 0)
	u := running("new")
	u.ImageID = idA
	s.want(s.see(u, true), probation.Unfit, probation.CodeWrongImage, false)
}

func TestAnEarlyCleanExitIsAFailure(t *testing.T) {
	s := newStory(t, 0)
	u := running("new")
	u.ActiveState, u.SubState, u.Container, u.Restart = "inactive", "dead", "", "no"
	s.want(s.see(u, true), probation.Unfit, probation.CodeCandidateExited, true)
}

func TestNothingIsJudgedWhileTheManagerStops(t *testing.T) {
	s := newStory(t, 0)
	s.see(running("new"), true)
	u := running("new")
	u.ActiveState, u.SubState, u.Container = "failed", "failed", ""
	w, v := s.w.Next(probation.Sample{At: 2 * time.Hour, Units: []probation.UnitSample{u}, Stopping: true})
	s.want(v, "", "", false)
	if w.Breaks != 0 || w.ReadySince != 0 {
		t.Errorf("a stopping manager is a gap: %+v", w)
	}
}

func TestUnreadyEvidenceNeedsAnAttributedInvocation(t *testing.T) {
	s := newStory(t, 0)
	if s.w.Unready() != nil {
		t.Error("evidence before anything was seen")
	}
	s.see(running("old"), false)
	if s.w.Unready() != nil {
		t.Error("evidence against the former invocation")
	}
	s.see(running("new"), false)
	if e := s.w.Unready(); e == nil || e.Invocation != "new" {
		t.Errorf("want evidence, have %+v", e)
	}
	s.see(running("new"), true)
	if s.w.Unready() != nil {
		t.Error("a release that has just become ready is not held to be unready")
	}
	s.see(running("new"), false)
	s.see(running("new"), true)
	if s.w.Unready() == nil {
		t.Error("a release that flaps was not ready")
	}
}

func TestWhatDidNotRunIsStableWhenItIsDown(t *testing.T) {
	e := enrollment()
	w := probation.NewWatch(e, []probation.Want{{Service: "web.service", Down: true}}, nil)
	u := running("new")
	w, v := w.Next(probation.Sample{At: time.Hour, Units: []probation.UnitSample{u}, Why: "not up"})
	if v.Kind != "" {
		t.Fatalf("it still runs: %+v", v)
	}
	u.ActiveState = "failed" // exit 143 on SIGTERM leaves it so
	if _, v = w.Next(probation.Sample{At: time.Hour + time.Second, Units: []probation.UnitSample{u}, Why: "not up"}); v.Kind != probation.Stable {
		t.Fatalf("want stable, have %+v", v)
	}
}

func TestAKillIsEvidenceOnlyUnderALimitOfItsOwn(t *testing.T) {
	for _, limited := range []bool{false, true} {
		s := newStory(t, 0)
		s.see(running("new"), true)
		u := running("new")
		u.ActiveState, u.SubState, u.Container, u.ExitStatus, u.MemoryLimit = "activating", "auto-restart", "", 137, limited
		if limited {
			s.want(s.see(u, true), probation.Unfit, probation.CodeCandidateExited, true)
		} else {
			s.want(s.see(u, true), probation.Unfit, probation.CodeInterrupted, false)
		}
	}
}

func TestNothingIsABaselineBeforeTheJobsAreQueued(t *testing.T) {
	s := newStory(t, 0)
	s.w.Queued = false
	s.want(s.see(running("by itself"), true), "", "", false) // systemd was quicker with a restart of its own
	s.w.Queued = true
	s.want(s.until(4, running("by the job"), true), "", "", false)
	s.want(s.see(running("by the job"), true), probation.Stable, "", false)
}

func TestARestartOfTheCandidateIsNotTheRestoredReleases(t *testing.T) {
	w := probation.NewWatch(enrollment(), []probation.Want{{Service: "web.service", Replaces: "new", ImageID: idA}}, nil)
	w.Queued = true
	u := running("back")
	u.ImageID, u.Operation, u.Restarts = idA, "web-g6", 1 // systemd restarted it, the pin was back by then
	s := &story{t: t, w: w}
	s.want(s.until(4, u, true), "", "", false)
	s.want(s.see(u, true), probation.Stable, "", false)
	u.Restarts, u.Invocation = 2, "again"
	s = &story{t: t, w: s.w}
	s.want(s.see(u, true), probation.Unfit, probation.CodeCandidateExited, true)
}

// What is put back and ends by the host's doing is started again by systemd, whatever the budget; what ends by its own is not
// waited for.
func TestARestoreOutlastsWhatIsNotTheReleasesDoing(t *testing.T) {
	dead := running("first")
	dead.ActiveState, dead.SubState, dead.Container, dead.ImageID, dead.Operation, dead.Result = "activating", "auto-restart", "", "", "", "exit-code"
	for _, c := range []struct {
		status int
		result string
		goesOn bool
	}{{125, "exit-code", true}, {126, "exit-code", true}, {137, "signal", true}, {0, "protocol", true}, {1, "exit-code", false}, {1, "timeout", false}} {
		s := &story{t: t, w: probation.NewWatch(enrollment(), []probation.Want{{Service: "web.service", Replaces: "new", ImageID: idA}}, nil)}
		s.w.Queued, s.left = true, time.Minute
		u := dead
		u.ExitStatus, u.Result = c.status, c.result
		if !c.goesOn {
			s.want(s.see(u, false), probation.Unfit, probation.CodeCandidateExited, true)
			continue
		}
		s.want(s.see(u, false), "", "", false)
		u.Invocation, u.Restarts = "second", 1
		s.want(s.see(u, false), "", "", false)
		late := u
		late.RestartIn = 2 * time.Minute
		over := &story{t: t, w: s.w, n: s.n, left: s.left}
		over.want(over.see(late, false), probation.Unfit, probation.CodeInterrupted, false)
		ended := u
		ended.ActiveState, ended.SubState = "failed", "failed"
		over = &story{t: t, w: s.w, n: s.n, left: s.left}
		over.want(over.see(ended, false), probation.Unfit, probation.CodeInterrupted, false)
		back := running("third")
		back.ImageID, back.Operation, back.Restarts = idA, "web-g6", 2
		s.want(s.until(4, back, true), "", "", false)
		s.want(s.see(back, true), probation.Stable, "", false)
	}
}

// A restart that would come after the deadline is as good as none.
func TestARestartAfterTheDeadlineIsNotWaitedFor(t *testing.T) {
	s := newStory(t, 5)
	s.see(running("new"), false)
	dead := running("new")
	dead.ActiveState, dead.SubState, dead.Container, dead.ExitStatus, dead.Result = "activating", "auto-restart", "", 2, "exit-code"
	look := func(in, left time.Duration) probation.Verdict {
		dead.RestartIn = in
		_, v := s.w.Next(probation.Sample{At: 2 * time.Hour, Units: []probation.UnitSample{dead}, Left: left})
		return v
	}
	s.want(look(10*time.Second, time.Minute), "", "", false)
	s.want(look(0, time.Minute), "", "", false) // not known
	s.want(look(10*time.Minute, time.Minute), probation.Unfit, probation.CodeCandidateExited, true)
}

// A unit that tells when it is ready keeps its start job until then: one that never does has been unready all the same.
func TestAStartThatNeverEndsIsHeldAgainstTheRelease(t *testing.T) {
	s := newStory(t, 0)
	u := running("new")
	u.ActiveState, u.SubState, u.Job = "activating", "start", "unknown"
	s.see(u, false)
	if e := s.w.Unready(); e == nil || e.Invocation != "new" {
		t.Errorf("want evidence, have %+v", e)
	}
	other := newStory(t, 0)
	u.Operation = "web-g6" // the container of another operation
	other.see(u, false)
	if e := other.w.Unready(); e != nil {
		t.Errorf("evidence against another run: %+v", e)
	}
}
