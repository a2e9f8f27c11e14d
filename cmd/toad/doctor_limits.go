package main

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"toad/probation"
)

// checkUnitLimits holds the unit's own limits against those of a deployment.
func (h *host) checkUnitLimits(ctx context.Context, f *findings, what, service string, l probation.Limits) {
	out, err := output(ctx, "systemctl", "--user", "show", service, "-p", "StartLimitIntervalUSec", "-p", "StartLimitBurst",
		"-p", "RestartUSec", "-p", "TimeoutStartUSec", "-p", "TimeoutStopUSec")
	if err != nil {
		return
	}
	for _, w := range limitWarnings(properties(out), l) {
		f.add(levelWarn, what, w[0], w[1])
	}
}

// limitWarnings are pairs of what is at odds and what mends it.
func limitWarnings(p map[string]string, l probation.Limits) (found [][2]string) {
	warn := func(mend, format string, args ...any) {
		found = append(found, [2]string{fmt.Sprintf(format, args...), mend})
	}
	interval, burst := systemdSpan(p["StartLimitIntervalUSec"]), 0
	burst, _ = strconv.Atoi(p["StartLimitBurst"])
	restart := systemdSpan(p["RestartUSec"])
	// The switch itself is a start too. Restarts that are further apart than the interval meet no limit.
	if starts := l.Restarts + 1; interval > 0 && burst > 0 && starts > burst && restart*time.Duration(burst) < interval {
		warn(fmt.Sprintf("set StartLimitBurst=%d in [Unit]", starts+1), "a budget of %d restarts meets the unit's start limit of %d starts in %s first", l.Restarts, burst, interval)
	}
	if restart >= l.Deadline {
		warn("make RestartSec= shorter, or the deadline longer", "RestartSec=%s is not shorter than the deadline of %s: no restart is ever seen", restart, l.Deadline)
	}
	if stop := systemdSpan(p["TimeoutStopUSec"]); stop >= l.Deadline {
		warn("make the deadline longer, or TimeoutStopSec= shorter", "the release before may take TimeoutStopSec=%s to stop, which is the whole deadline of %s", said(stop), l.Deadline)
	}
	if start := systemdSpan(p["TimeoutStartUSec"]); start != math.MaxInt64 && start < l.Stable {
		warn("make TimeoutStartSec= longer", "TimeoutStartSec=%s is shorter than the stable window of %s", start, l.Stable)
	}
	return found
}

func said(d time.Duration) string {
	if d == math.MaxInt64 {
		return "infinity"
	}
	return d.String()
}

var spanUnits = map[string]time.Duration{"us": time.Microsecond, "ms": time.Millisecond, "s": time.Second, "min": time.Minute,
	"h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour, "month": 2629800 * time.Second, "y": 31557600 * time.Second}

// systemdSpan reads a length of time as systemctl show prints it, e.g. "1min 30s"; the largest one for infinity.
func systemdSpan(text string) time.Duration {
	if text == "infinity" {
		return math.MaxInt64
	}
	total := time.Duration(0)
	for _, part := range strings.Fields(text) {
		i := strings.IndexFunc(part, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if i < 0 {
			continue
		}
		n, err := strconv.ParseFloat(part[:i], 64)
		if err == nil {
			total += time.Duration(n * float64(spanUnits[part[i:]]))
		}
	}
	return total
}
