//go:build e2e

package cases

import (
	"strconv"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

// C26: a timer without AccuracySec drifts by up to a minute. With every process of toad killed, and nothing left of it that
// could act before, the restore begins at the deadline.
func TestC26TheDeadlineIsExact(t *testing.T) {
	b := lay(t, scene.Options{Limits: "deadline = \"15s\"\nstable = \"500ms\""})
	b.MustUser(t, "toad", "deploy", "web", b.Digest(t, "never"), "--detach")
	b.WaitPhase(t, "probation")
	const timer = "toad-probation-web-g1.timer"
	if accuracy, random := b.Show(t, timer, "AccuracyUSec"), b.Show(t, timer, "RandomizedDelayUSec"); accuracy == "1min" || random != "0" {
		t.Errorf("AccuracyUSec=%s RandomizedDelayUSec=%s", accuracy, random)
	}
	deadline := b.Record(t).Operation.Deadline.At
	b.MustUser(t, "systemctl", "--user", "mask", "--runtime", "toad.service", "toad.socket", "toad-tick.timer", "toad-fence.path")
	b.User(t, "sh", "-c", "systemctl --user kill -s KILL toad.service 'toad-act-*' 'toad-check-*'; systemctl --user stop toad.socket toad-tick.timer toad-fence.path")
	host.Eventually(t, "the restore to begin", host.Limit, func() bool { return b.Record(t).Operation.Phase != "probation" })
	b.MustUser(t, "systemctl", "--user", "unmask", "--runtime", "toad.service", "toad.socket", "toad-tick.timer", "toad-fence.path")
	b.MustUser(t, "sh", "-c", "systemctl --user reset-failed; systemctl --user start toad.socket toad-tick.timer toad-fence.path")
	b.WaitPhase(t, "rolled_back")
	began := b.MustUser(t, "sh", "-c", "journalctl --user -q -b -o short-unix -u toad-probation-web-g1.service | head -n 1 | cut -d ' ' -f 1")
	seconds, err := strconv.ParseFloat(began, 64)
	fired := time.UnixMilli(int64(seconds * 1000))
	if err != nil || fired.Before(deadline.Add(-2*time.Second)) || fired.After(deadline.Add(2*time.Second)) {
		t.Errorf("the timer fired at %s (%q, %v), the deadline was %s", fired, began, err, deadline)
	}
	b.Quiet(t)
	if b.running(t) != b.Image(t, "v1").ID {
		t.Errorf("%s runs", b.running(t))
	}
}
