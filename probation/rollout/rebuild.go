package rollout

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"toad/probation"
	"toad/probation/record"
	"toad/quadlet"
)

// remains are all that a service without a readable record has left on the host.
type remains struct {
	Name       string
	Now        probation.Instant
	Enrollment probation.Enrollment         // as it is now, or as the latest archived operation has it
	Archived   []probation.Operation        // oldest first
	Undecided  *probation.Operation         // the latest one, as it was when its switch began
	Unpinned   map[int]bool                 // generations whose log ends with an unpin
	Salvaged   probation.Service            // what is whole in the set-aside record
	Latest     int                          // the highest generation that anything tells of
	Lines      []record.Line                // its log
	Watch      record.Watch                 // its check's
	Units      []remainingUnit              // in the enrollment's order
	Images     map[string]probation.Release // what Podman knows, by reference
}

// remainingUnit is a unit as it stands.
type remainingUnit struct {
	probation.UnitBefore // Pin is what was laid for a restore, Running whether it runs now
	Laid                 bool
	Have                 quadlet.Pin // the pin in place; zero if there is none
	HaveText             string
}

// rebuild makes a service's record of what is left, and says of what. Nothing that is refused anywhere is forgotten. An
// operation that is found undecided is given up: the record then owes a restore of the release before it.
func rebuild(m remains) (svc probation.Service, from []string) {
	say := func(format string, args ...any) { from = append(from, fmt.Sprintf(format, args...)) }
	svc = probation.Service{Name: m.Name}
	promoted := map[int]probation.Release{}
	for _, op := range m.Archived {
		svc = svc.Fold(op)
		if op.Phase == probation.Promoted {
			promoted[op.Generation] = op.Candidate
		}
		if m.Unpinned[op.Generation] {
			svc.Promoted, svc.Retained, svc.Unpinned = nil, nil, op.Generation
		}
	}
	if len(m.Archived) > 0 {
		say("%d archived operations, the latest %s", len(m.Archived), m.Archived[len(m.Archived)-1].ID)
	}
	if p := m.Salvaged.Promoted; p != nil && (svc.Promoted == nil || p.Generation > svc.Promoted.Generation) && svc.Unpinned < m.Latest {
		svc.Promoted, svc.Retained = p, m.Salvaged.Retained
		say("the release in force of the damaged record, %s", name(*p))
	}
	if op := m.Undecided; op != nil && op.Previous != nil {
		if svc.Promoted == nil || svc.Promoted.Generation != op.Previous.Generation {
			svc.Promoted, svc.Retained = op.Previous, []probation.Release{*op.Previous}
		}
		say("the copy of %s, made when its switch began", op.ID)
	}
	svc.Unpinned = max(svc.Unpinned, m.Salvaged.Unpinned)
	if svc.Promoted == nil && svc.Unpinned < m.Latest {
		svc = m.adoptPins(svc, say)
	}
	svc.Generation = m.Latest
	if m.Latest > 0 && (svc.Operation == nil || svc.Operation.Generation != m.Latest) {
		svc = m.latest(svc, say)
		if svc.Operation.Phase == probation.Promoted {
			promoted[m.Latest] = svc.Operation.Candidate
		}
	}
	if m.Unpinned[m.Latest] && (svc.Operation == nil || svc.Operation.Phase.Terminal()) {
		svc.Promoted, svc.Retained, svc.Unpinned = nil, nil, m.Latest
		say("the log of generation %d: it was unpinned", m.Latest)
	}
	if n := len(m.Salvaged.Refusals); n > 0 {
		say("%d refusals of the damaged record", n)
	}
	svc.Drain = m.drain(svc)
	return svc.Refuse(m.Salvaged.Refusals, promoted), from
}

// drain is what the last turn of a door may have left. It is looked at again in any case: the manager may not have loaded
// the fence of the former side, or not have stopped it.
func (m remains) drain(svc probation.Service) *probation.Drain {
	if m.Enrollment.Door == nil || svc.Promoted == nil || svc.Promoted.Side == "" || svc.Active() != nil {
		return nil
	}
	for _, u := range m.Units {
		if u.Unit != svc.Promoted.Side {
			return &probation.Drain{Unit: u.Unit, Service: u.Service, By: probation.NewDeadline(m.Now, m.Enrollment.Door.Drain), Stopping: u.Have.Idle()}
		}
	}
	return nil
}

// adoptPins takes the release that pins of an older generation name for the one in force.
func (m remains) adoptPins(svc probation.Service, say func(string, ...any)) probation.Service {
	for _, u := range m.Units {
		for _, text := range []string{u.HaveText, u.Pin} {
			p, err := quadlet.ParsePin(text)
			if err != nil || p.Fenced {
				continue
			}
			_, g, _ := probation.ParseOperationID(p.Operation)
			if g == m.Latest && g > 0 {
				continue
			}
			rel := m.release(p)
			rel.Generation, rel.Definition = g, m.definition(p.Operation)
			if m.Enrollment.Door != nil {
				rel.Side = u.Unit
			}
			svc.Promoted, svc.Retained = &rel, []probation.Release{rel}
			say("the pin of %s, which is of %s", u.Unit, p.Operation)
			return svc
		}
	}
	return svc
}

// release is what a pin names.
func (m remains) release(p quadlet.Pin) probation.Release {
	rel := m.Images[p.Reference]
	rel.Digest = p.Digest
	if _, digest, ok := strings.Cut(p.Reference, "@"); !ok {
		rel.ImageID, rel.Digests = p.Reference, nil
	} else if len(rel.Digests) == 0 {
		rel.Digests = []string{digest}
	}
	return rel
}

// latest makes the operation of which there is no record, and what became of it.
func (m remains) latest(svc probation.Service, say func(string, ...any)) probation.Service {
	id := probation.OperationID(m.Name, m.Latest)
	op := probation.Operation{ID: id, Service: m.Name, Generation: m.Latest, Enrollment: m.Enrollment, Key: "repaired-" + id,
		By: "toad doctor --repair", AcceptedAt: m.Now.Wall.UTC(), Previous: svc.Promoted, Prepared: svc.Promoted != nil,
		Checks: m.Watch.Check, PrepareBy: probation.NewDeadline(m.Now, m.Enrollment.Limit.Pull)}
	if len(m.Lines) > 0 {
		op.AcceptedAt = m.Lines[0].At
	}
	mine, unfenced := 0, 0
	for _, u := range m.Units {
		if u.Have.Operation != id || u.Have.Idle() {
			continue
		}
		mine++
		op.Candidate = m.release(u.Have)
		op.Candidate.Definition = m.definition(id)
		if m.Enrollment.Door != nil {
			op.Candidate.Side = u.Unit
		}
		if !u.Have.Fenced {
			unfenced++
		}
		if repository, _, ok := strings.Cut(u.Have.Reference, "@"); ok {
			op.Enrollment.Image = repository
		}
	}
	end := m.lastPhase()
	if op.Candidate.Digest == "" && op.Candidate.ImageID == "" {
		op.Candidate = m.toldCandidate()
	}
	op.Candidate.Generation = m.Latest
	if m.Enrollment.Door != nil && op.Candidate.Side == "" {
		inForce := ""
		if svc.Promoted != nil {
			inForce = svc.Promoted.Side
		}
		op.Candidate.Side = m.Enrollment.Other(inForce)
	}
	op.Before = m.before(id, svc)
	if m.Undecided != nil { // it tells all this, and better
		op = *m.Undecided
		op.Checks = max(op.Checks, m.Watch.Check)
	}
	op.Evidence = m.evidence()
	switch {
	case end.Event == string(probation.Promoted) && unfenced == mine:
		say("%s, of which no record is left, was promoted: so its log says", id)
		op.Evidence = nil
		return svc.Fold(op.Ended(probation.Promoted, "", "", m.endedAt(end)))
	case unfenced > 0:
		say("%s, of which no record is left, was promoted: a pin of its has no fence", id)
		op.Phase, op.Evidence = probation.Promoting, nil // the manager may not have loaded it yet, nor all of them be written
	case mine == 0 && probation.Phase(end.Event).Terminal():
		say("the log of %s, which ends %s", id, end.Event)
		if end.Event == string(probation.Failed) {
			op.Before, op.Evidence = nil, nil
		}
		return svc.Fold(op.Ended(probation.Phase(end.Event), probation.Code(end.Fields["code"]), m.reason(), m.endedAt(end)))
	case mine == 0 && (end.Event == "" || end.Event == string(probation.Accepted) || end.Event == string(probation.Preparing)):
		say("%s had touched nothing; it is closed as failed", id)
		op.Before, op.Evidence = nil, nil
		return svc.Fold(op.Ended(probation.Failed, probation.CodeInterrupted, "the record was lost while it was prepared", m.Now.Wall))
	default:
		say("%s was undecided: the release before it is put back", id)
		return m.giveUp(svc, op)
	}
	svc.Operation = &op
	return svc
}

// giveUp makes the operation owe a restore. What its check held against the release still counts.
func (m remains) giveUp(svc probation.Service, op probation.Operation) probation.Service {
	evidence := op.Evidence
	op.Phase, op.Evidence = probation.Probation, nil
	svc.Operation = &op
	ev := probation.Interrupt(m.Now, "its record was lost while it was undecided")
	if v := m.Watch.Verdict; m.Watch.Phase == probation.Probation && v.Kind == probation.Unfit {
		ev.Code, ev.Reason, evidence = v.Code, v.Reason, v.Evidence
	}
	if evidence != nil {
		ev.Evidence = evidence
		if reason := m.reason(); reason != "" {
			ev.Reason = reason
		}
	}
	next, _ := svc.Apply(ev)
	return next
}

// before is how the units stood, as far as what was laid beside the pins, or the release in force, tells.
func (m remains) before(id string, svc probation.Service) []probation.UnitBefore {
	var all []probation.UnitBefore
	for _, u := range m.Units {
		b := u.UnitBefore
		switch {
		case u.Laid:
		case u.Have.Operation != "" && u.Have.Operation != id:
			b.Pin = u.HaveText
		case svc.Promoted != nil:
			p := svc.Promoted
			b.Pin = quadlet.Pin{Operation: probation.OperationID(m.Name, p.Generation), Service: m.Name, Unit: u.Unit,
				Digest: p.Digest, Release: p.Definition.Text(u.Unit), File: m.Enrollment.Binary(), Reference: reference(m.Enrollment, *p)}.Text()
		}
		b.Running = b.Pin != ""
		if p, err := quadlet.ParsePin(b.Pin); err == nil {
			b.ImageID = m.release(p).ImageID
		}
		if b.ImageID == "" && svc.Promoted != nil && b.Running {
			b.ImageID = svc.Promoted.ImageID
		}
		b.Invocation = ""
		all = append(all, b)
	}
	return all
}

func (m remains) lastPhase() record.Line {
	for _, l := range slices.Backward(m.Lines) {
		if slices.Contains(probation.Phases, probation.Phase(l.Event)) {
			return l
		}
	}
	return record.Line{}
}

func (m remains) endedAt(l record.Line) time.Time {
	if l.At.IsZero() {
		return m.Now.Wall
	}
	return l.At
}

var anyDigest = regexp.MustCompile(`sha256:[0-9a-f]{64}`)

// toldCandidate is the release that the log's first lines name.
func (m remains) toldCandidate() probation.Release {
	for _, l := range m.Lines {
		if l.Event != string(probation.Accepted) && l.Event != string(probation.Switching) && l.Event != string(probation.Promoted) {
			continue
		}
		digest := anyDigest.FindString(l.Message)
		if digest == "" {
			continue
		}
		rel := m.Images[m.Enrollment.Image+"@"+digest]
		rel.Digest = digest
		if len(rel.Digests) == 0 {
			rel.Digests = []string{digest}
		}
		return rel
	}
	return probation.Release{}
}

// reason is why the restore of the latest operation began, by its log.
func (m remains) reason() string {
	for _, l := range slices.Backward(m.Lines) {
		if l.Event == string(probation.Restoring) {
			return strings.TrimPrefix(l.Message, "restoring the previous release: ")
		}
	}
	return ""
}

// evidence is what the log or the check's file holds against the latest release. A refusal rests on it: the lines that a
// failed release logged last are only kept where there is one, and an exit of the candidate always is.
func (m remains) evidence() *probation.Evidence {
	if v := m.Watch.Verdict.Evidence; v != nil && m.Watch.Phase == probation.Probation {
		return v
	}
	var e *probation.Evidence
	for _, l := range m.Lines {
		switch {
		case l.Event == "application" && l.Fields["invocation"] != "":
			if e == nil {
				e = &probation.Evidence{}
			}
			e.Unit, e.Invocation = l.Fields["unit"], l.Fields["invocation"]
			e.Lines = append(e.Lines, l.Message)
		case l.Event == string(probation.Restoring) && l.Fields["code"] == string(probation.CodeCandidateExited) && e == nil:
			e = &probation.Evidence{}
		}
	}
	return e
}
