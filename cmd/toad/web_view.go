package main

import (
	"encoding/json"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"toad/internal/redact"
	"toad/podmanc"
	"toad/probation"
	"toad/probation/record"
	"toad/unitgen"
	"toad/webui"
)

// What is on record becomes what is shown, field by field; what is not named here is not shown.

var secrets redact.Redactor

// podmansOwn comes before words that are taken from a unit's journal, where the application writes as well.
const podmansOwn = "Podman could not run the container"

// tellable makes a text fit to be shown.
func tellable(text string) webui.Text {
	text = text[:min(len(text), 8<<10)]
	if before, _, ok := strings.Cut(text, podmansOwn+":"); ok {
		text = before + podmansOwn
	}
	return webui.Clean(secrets.String(text))
}

func (s subject) card() webui.Card {
	c := webui.Card{Name: webui.NameOf(s.name), State: webui.StateOf("never"), Generation: s.record.Generation, Unenrolled: !s.enrolled}
	if s.damaged != nil {
		c.State, c.Reason = webui.StateOf("damaged"), tellable(s.damaged.Error())
		return c
	}
	if r := s.record.Promoted; r != nil {
		id := r.Digest
		if id == "" {
			id = r.ImageID
		}
		c.InForce = &webui.Release{Digest: webui.IDOf(id), Generation: r.Generation, PromotedAt: r.PromotedAt}
	}
	c.Side = webui.TermOf(s.side())
	op := s.record.Operation
	switch {
	case op == nil:
		return c
	case s.record.Promoted == nil && s.record.Unpinned == s.record.Generation && op.Phase.Terminal() && s.record.Unpinned > 0:
		c.State = webui.StateOf("unpinned")
		return c
	}
	c.State = webui.StateOf(string(op.Phase))
	if op.Phase.Terminal() {
		if op.EndedAt != nil {
			c.Since = *op.EndedAt
		}
		if op.Phase != probation.Promoted {
			c.Reason = tellable(op.Reason)
		}
		return c
	}
	if op.Phase == probation.Restoring {
		c.Reason = tellable(op.Reason)
	}
	trial := s.trial(*op)
	c.Trial, c.Since = &trial, s.began(*op)
	return c
}

// trial is what there is to see of an operation under way: the limit that holds now, and how far its window is filled.
func (s subject) trial(op probation.Operation) webui.Trial {
	t := webui.Trial{Candidate: webui.IDOf(op.Candidate.Digest), Stable: op.Enrollment.Limit.Stable, Budget: op.Enrollment.Limit.Restarts}
	by, from := op.PrepareBy, op.AcceptedAt
	t.Bound = webui.TermOf("preparation")
	switch {
	case op.Phase == probation.Restoring && op.RestoreBy != nil:
		by, from = *op.RestoreBy, s.began(op)
		t.Bound = webui.TermOf("restore")
	case op.Deadline != nil:
		by, from = *op.Deadline, op.Deadline.At.Add(-op.Enrollment.Limit.Deadline)
		t.Bound = webui.TermOf("deadline")
		t.ReadyFrom = s.readyFrom(op)
	}
	t.From, t.Until = from, by.At
	// The clock that decides is not the wall's; where they differ, it is the one to show.
	now := s.source.now()
	if until := now.Wall.Add(by.LeftAt(now)); until.Sub(by.At).Abs() > 2*time.Second {
		t.Until = until.UTC().Round(time.Second)
	}
	return t
}

// began is when the phase of an operation began, by its log.
func (s subject) began(op probation.Operation) time.Time {
	at := op.AcceptedAt
	for _, l := range s.lines(op.ID) {
		if l.Event == string(op.Phase) {
			at = l.At
		}
	}
	return at
}

// readyFrom is since when the candidate has been ready without a break; zero if it is not ready.
func (s subject) readyFrom(op probation.Operation) (at time.Time) {
	if op.Phase == probation.Switching {
		return at
	}
	for _, l := range s.lines(op.ID) {
		switch l.Event {
		case "ready":
			at = l.At
		case "unready", string(probation.Probation):
			at = time.Time{}
		}
	}
	return at
}

// lines is the log of an operation as far as it can be read.
func (s subject) lines(id string) []record.Line {
	raw, _, err := s.source.records.ReadLog(id, 0)
	if err != nil {
		return nil
	}
	var all []record.Line
	for _, text := range raw {
		var l record.Line
		if json.Unmarshal(text, &l) == nil {
			all = append(all, l)
		}
	}
	return all
}

// viewLog leaves out what the application said: of such a line only that there is one is told.
func viewLog(lines []record.Line) []webui.Line {
	var all []webui.Line
	for _, l := range lines {
		v := webui.Line{At: l.At, Level: webui.TermOf(l.Level), Event: webui.TermOf(l.Event)}
		if l.Event != "application" {
			v.Message = tellable(l.Message)
		}
		all = append(all, v)
	}
	return all
}

func viewOperation(op probation.Operation) webui.Operation {
	v := webui.Operation{ID: webui.TermOf(op.ID), Generation: op.Generation, Rollback: op.Rollback, State: webui.StateOf(string(op.Phase)),
		Code: webui.TermOf(string(op.Code)), Reason: tellable(op.Reason), Candidate: webui.IDOf(op.Candidate.Digest), By: by(op.By), AcceptedAt: op.AcceptedAt}
	if op.EndedAt != nil {
		v.EndedAt = *op.EndedAt
	}
	if op.Gap != nil {
		v.Gap = *op.Gap
	}
	return v
}

// by is who asked; which token it was is not for this page.
func by(who string) webui.Text {
	if uid, ok := strings.CutPrefix(who, "uid "); ok {
		if n, err := strconv.Atoi(uid); err == nil {
			return webui.Clean("uid " + strconv.Itoa(n))
		}
	}
	if who == "" {
		return webui.Text{}
	}
	return webui.Clean("a token")
}

func viewRefusal(r probation.Refusal) webui.Refusal {
	return webui.Refusal{Digest: webui.IDOf(r.Release.Digest), Operation: webui.TermOf(r.Operation), Code: webui.TermOf(string(r.Code)),
		Reason: tellable(r.Reason), At: r.RefusedAt}
}

func viewConfig(e probation.Enrollment) webui.Config {
	c := webui.Config{File: e.Binary(), Repository: tellable(e.Image), Interval: e.Ready.Interval, Timeout: e.Ready.Timeout, Status: e.Ready.Status,
		Deadline: e.Limit.Deadline, Stable: e.Limit.Stable, Pull: e.Limit.Pull, Restarts: e.Limit.Restarts, Keep: e.Limit.Keep,
		Hold: webui.TermOf(e.Hold), Probe: webui.TermOf("active")}
	if e.Door != nil {
		c.Door = webui.TermOf(e.Door.Socket)
	}
	for _, u := range e.Units {
		c.Units = append(c.Units, webui.TermOf(u))
	}
	switch r := e.Ready; {
	case r.HTTP != "":
		c.Probe = webui.TermOf("http")
		if u, err := url.Parse(r.HTTP); err == nil {
			c.Port, _ = strconv.Atoi(u.Port())
		}
	case r.TCP != "":
		c.Probe = webui.TermOf("tcp")
		if _, port, err := net.SplitHostPort(r.TCP); err == nil {
			c.Port, _ = strconv.Atoi(port)
		}
	case r.Unix != "":
		c.Probe = webui.TermOf("unix")
	case r.Health:
		c.Probe = webui.TermOf("health")
	case r.Notify:
		c.Probe = webui.TermOf("notify")
	}
	return c
}

func viewUnit(st unitgen.State, since time.Time) webui.Unit {
	return webui.Unit{Name: webui.TermOf(st.Name), Known: st.Exists(), Active: webui.TermOf(st.ActiveState), Sub: webui.TermOf(st.SubState),
		Invocation: webui.IDOf(st.InvocationID), Restarts: int(st.NRestarts), Since: since}
}

func viewContainer(c podmanc.Container) webui.Container {
	return webui.Container{Image: webui.IDOf(c.ImageID), Status: webui.TermOf(c.Status), Health: webui.TermOf(c.Health),
		Started: c.StartedAt.Round(time.Second)}
}
