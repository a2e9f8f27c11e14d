package watch

import (
	"context"
	"strings"

	"toad/probation"
)

// podmansWords adds to a verdict on a container that Podman could not run what Podman said of it. That the runtime found
// the image's command unfit is evidence against the release; a port that is taken, or a full disk, is not.
func (c *Check) podmansWords(ctx context.Context, w probation.Watch, v probation.Verdict) probation.Verdict {
	if v.Kind != probation.Unfit || v.Code != probation.CodeInterrupted {
		return v
	}
	for i, seen := range w.Seen {
		if !w.PodmanFailed(seen) {
			continue
		}
		words := podmanError(c.PodmansLines(ctx, c.op, seen.Invocation))
		if words == "" {
			return v
		}
		v.Reason += ": " + words
		if imagesFault(words) {
			v.Code = probation.CodeCandidateExited
			v.Evidence = &probation.Evidence{Unit: w.Want[i].Service, Invocation: seen.Invocation, ExitStatus: seen.ExitStatus}
		}
		return v
	}
	return v
}

// takenPort clears a release of what comes of somebody else on its port.
func (c *Check) takenPort(v probation.Verdict) probation.Verdict {
	if c.foreign && v.Kind == probation.Unfit && v.Evidence != nil {
		v.Code, v.Evidence = probation.CodeInterrupted, nil
		v.Reason += ": the port that is to answer is held by something that is not " + c.op.Before[0].Service
	}
	return v
}

// unready is what would be held against the release at the deadline.
func (c *Check) unready(w probation.Watch) *probation.Evidence {
	if c.foreign {
		return nil
	}
	return w.Unready()
}

// podmanError is the last error that Podman wrote, with the line that follows it where it ends in a colon.
func podmanError(lines []string) string {
	for i := len(lines) - 1; i >= 0; i-- {
		if rest, ok := strings.CutPrefix(lines[i], "Error: "); ok {
			if strings.HasSuffix(rest, ":") && i+1 < len(lines) {
				rest += " " + lines[i+1]
			}
			return rest
		}
	}
	return ""
}

// imagesFault tells by the words of the OCI runtimes and of Podman that the image names a command it cannot run.
func imagesFault(words string) bool {
	for _, say := range []string{"OCI permission denied", "OCI runtime attempted to invoke a command that was not found",
		"executable file not found", "exec format error"} {
		if strings.Contains(words, say) {
			return true
		}
	}
	return false
}
