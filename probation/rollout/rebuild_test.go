package rollout

import (
	"strings"
	"testing"
	"time"

	"toad/probation"
	"toad/probation/record"
	"toad/quadlet"
)

var (
	digest1, digest2 = "sha256:" + strings.Repeat("1", 64), "sha256:" + strings.Repeat("2", 64)
	image1, image2   = strings.Repeat("a", 64), strings.Repeat("b", 64)
	noon             = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
)

const repository = "registry.example.org/team/web"

// left is a service that was promoted as web-g1, with web-g2 after it, of which only what a case adds is left.
func left() remains {
	e := probation.Enrollment{Name: "web", Units: []string{"web.container"}, Image: repository,
		Limit: probation.Limits{Deadline: time.Minute, Keep: 2}}
	ended := noon
	one := probation.Operation{ID: "web-g1", Service: "web", Generation: 1, Phase: probation.Promoted, EndedAt: &ended, Enrollment: e,
		Candidate: probation.Release{Digest: digest1, Digests: []string{digest1}, ImageID: image1, Generation: 1}, Released: true, Retained: true}
	return remains{Name: "web", Now: probation.Instant{Wall: noon.Add(time.Hour), Boot: time.Hour, BootID: "b"}, Enrollment: e,
		Archived: []probation.Operation{one}, Unpinned: map[int]bool{}, Latest: 2,
		Images: map[string]probation.Release{
			repository + "@" + digest1: {ImageID: image1, Digests: []string{digest1}},
			repository + "@" + digest2: {ImageID: image2, Digests: []string{digest2}},
		}}
}

func unit(have, laid quadlet.Pin, isLaid bool) remainingUnit {
	u := remainingUnit{UnitBefore: probation.UnitBefore{Unit: "web.container", Service: "web.service"}, Have: have, Laid: isLaid}
	if have.Operation != "" {
		u.HaveText = have.Text()
	}
	if laid.Operation != "" {
		u.Pin = laid.Text()
	}
	return u
}

func pinOf(op, digest string, fenced bool) quadlet.Pin {
	p := quadlet.Pin{Operation: op, Service: "web", Digest: digest, Reference: repository + "@" + digest}
	if fenced {
		p.Fenced, p.AdmissionVar = true, "TOAD_ADMITTED_"+strings.ReplaceAll(op, "-", "_")
	}
	return p
}

func logged(lines ...string) (all []record.Line) {
	for i, l := range lines {
		event, message, _ := strings.Cut(l, " ")
		event, code, _ := strings.Cut(event, ":")
		all = append(all, record.Line{At: noon.Add(time.Duration(i) * time.Second), Event: event, Message: message, Fields: map[string]string{"code": code}})
	}
	return all
}

func TestRebuildDecidesByWhatIsLeft(t *testing.T) {
	first, trial, second := pinOf("web-g1", digest1, false), pinOf("web-g2", digest2, true), pinOf("web-g2", digest2, false)
	accepted := "accepted deployment of " + digest2 + " accepted from uid 1000"
	for _, c := range []struct {
		name     string
		change   func(*remains)
		phase    probation.Phase
		inForce  string
		refusals int
	}{
		{"an unfenced pin newer than the operations was promoted",
			func(m *remains) { m.Units = []remainingUnit{unit(second, first, false)} }, probation.Promoting, digest1, 0},
		{"so it was if its log says so", func(m *remains) {
			m.Units = []remainingUnit{unit(second, quadlet.Pin{}, false)}
			m.Lines = logged(accepted, "promoted it is in force")
		}, probation.Promoted, digest2, 0},
		{"a fenced pin was undecided: what was laid is put back",
			func(m *remains) { m.Units = []remainingUnit{unit(trial, first, true)} }, probation.Restoring, digest1, 0},
		{"a fenced pin with nothing laid: the last promoted is put back",
			func(m *remains) { m.Units = []remainingUnit{unit(trial, quadlet.Pin{}, false)} }, probation.Restoring, digest1, 0},
		{"a fenced pin with the check's evidence", func(m *remains) {
			m.Units = []remainingUnit{unit(trial, first, true)}
			m.Watch = record.Watch{Check: 1, Phase: probation.Probation, Verdict: probation.Verdict{Kind: probation.Unfit,
				Code: probation.CodeCandidateExited, Reason: "it exited", Evidence: &probation.Evidence{Unit: "web.service"}}}
		}, probation.Restoring, digest1, 1},
		{"a log that ends rolled back, with the release's exit", func(m *remains) {
			m.Units = []remainingUnit{unit(first, quadlet.Pin{}, false)}
			m.Lines = logged(accepted, "restoring:candidate_exited restoring the previous release: it exited", "rolled_back:candidate_exited again")
		}, probation.RolledBack, digest1, 1},
		{"a log that ends rolled back by an abort", func(m *remains) {
			m.Units = []remainingUnit{unit(first, quadlet.Pin{}, false)}
			m.Lines = logged(accepted, "restoring:aborted restoring the previous release: given up", "rolled_back:aborted again")
		}, probation.RolledBack, digest1, 0},
		{"a log that ends in the preparation", func(m *remains) {
			m.Units = []remainingUnit{unit(first, quadlet.Pin{}, false)}
			m.Lines = logged(accepted, "preparing preparing")
		}, probation.Failed, digest1, 0},
		{"pins that were taken away during the trial", func(m *remains) {
			m.Units = []remainingUnit{unit(quadlet.Pin{}, quadlet.Pin{}, false)}
			m.Lines = logged(accepted, "switching switching to "+digest2, "probation on probation")
		}, probation.Restoring, digest1, 0},
		{"one unit of two without its fence was being promoted", func(m *remains) {
			other := unit(trial, first, true)
			other.Unit = "other.container"
			m.Units = []remainingUnit{unit(second, first, true), other}
		}, probation.Promoting, digest1, 0},
		{"a refusal in the damaged record", func(m *remains) {
			m.Units, m.Lines = []remainingUnit{unit(second, first, false)}, logged("promoted it is in force")
			m.Salvaged.Refusals = []probation.Refusal{{Operation: "web-g1", Release: probation.Release{Digest: "sha256:" + strings.Repeat("3", 64)}}}
		}, probation.Promoted, digest2, 1},
		{"a refusal that a later promotion lifted", func(m *remains) {
			m.Units, m.Lines = []remainingUnit{unit(second, first, false)}, logged("promoted it is in force")
			m.Salvaged.Refusals = []probation.Refusal{{Operation: "web-g1", Release: probation.Release{Digest: digest2}}}
		}, probation.Promoted, digest2, 0},
		{"an unpin after the last operation", func(m *remains) {
			m.Latest, m.Unpinned[1] = 1, true
			m.Units = []remainingUnit{unit(quadlet.Pin{}, quadlet.Pin{}, false)}
		}, probation.Promoted, "", 0},
		{"no operation at all, and a pin of what ran before", func(m *remains) {
			m.Archived = nil
			m.Units = []remainingUnit{unit(trial, quadlet.Pin{Operation: "web-g0", Service: "web", Reference: image1, Digest: digest1}, true)}
		}, probation.Restoring, digest1, 0},
	} {
		m := left()
		c.change(&m)
		svc, from := rebuild(m)
		inForce := ""
		if svc.Promoted != nil {
			inForce = svc.Promoted.Digest
		}
		if svc.Operation == nil || svc.Operation.Phase != c.phase || inForce != c.inForce || len(svc.Refusals) != c.refusals || svc.Generation != m.Latest {
			t.Errorf("%s: want %s, %.12s in force, %d refusals; have %+v\nfrom %q", c.name, c.phase, c.inForce, c.refusals, svc, from)
			continue
		}
		if c.phase != probation.Restoring {
			continue
		}
		b := svc.Operation.Before[0]
		p, err := quadlet.ParsePin(b.Pin)
		if err != nil || p.Fenced || p.Digest != digest1 || b.ImageID != image1 || !b.Running || svc.Operation.RestoreBy == nil {
			t.Errorf("%s: the restore puts back %+v (%v)", c.name, b, err)
		}
	}
}

// What did not run before is stopped, not started.
func TestRebuildStopsWhatDidNotRun(t *testing.T) {
	m := left()
	m.Archived = nil
	m.Latest = 1
	m.Units = []remainingUnit{unit(pinOf("web-g1", digest2, true), quadlet.Pin{}, true)}
	svc, _ := rebuild(m)
	if svc.Promoted != nil || svc.Operation.Phase != probation.Restoring || svc.Operation.RanBefore() {
		t.Errorf("have %+v %+v", svc, svc.Operation)
	}
}
