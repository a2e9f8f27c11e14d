package main

import (
	"fmt"
	"strings"
	"time"

	"toad/httpd/api"
	"toad/probation"
)

// note keeps what the last line of a terminal tells between two events.
func (p *progress) note(l api.Line) {
	switch l.Event {
	case "ready":
		p.ready, p.why = l.At, ""
	case "unready":
		p.ready, p.why = time.Time{}, strings.TrimPrefix(l.Message, "not ready: ")
	case "pull":
		p.pulled++
		p.why = l.Message
	case "audit", "step", "application": // tell nothing about readiness
	default:
		p.ready, p.why = time.Time{}, ""
	}
}

// shown says whether a line stays on the screen. On a terminal the many of a pull pass by in the last line.
func (p *progress) shown(l api.Line) bool {
	return p.columns == 0 || l.Event != "pull" || p.pulled <= 1 || l.Level != "info"
}

func (p *progress) draw() {
	if columns := p.g.width(); columns > 0 {
		p.columns = columns // it may have been made wider
	}
	if p.columns == 0 || p.silent {
		return
	}
	p.erase()
	fmt.Fprint(p.g.Stdout, p.g.style().paint(dim, fit(p.live(), p.columns-1))) // a full line would wrap, and could not be erased
	p.drawn = true
}

func (p *progress) erase() {
	if p.drawn {
		fmt.Fprint(p.g.Stdout, "\r\x1b[K")
		p.drawn = false
	}
}

// live says where the operation stands: phase, how far the stable window is filled or why not, how much time is left.
func (p *progress) live() string {
	now := p.g.now()
	parts := []string{fmt.Sprintf("%8s   %-11s", span(now.Sub(p.op.AcceptedAt)), p.op.Phase)}
	watched := p.op.Phase == string(probation.Probation) || p.op.Phase == string(probation.Restoring)
	left := ""
	if by := limit(p.op); by != nil {
		left = span(by.Sub(now)) + " left"
	}
	switch stable, err := time.ParseDuration(p.op.Stable); {
	case watched && !p.ready.IsZero() && err == nil && stable > 0:
		filled := min(max(now.Sub(p.ready), 0), stable)
		if p.columns >= 70 {
			parts = append(parts, bar(float64(filled)/float64(stable), 20)+" ")
		}
		parts = append(parts, fmt.Sprintf("ready %s of %s", span(filled), tidy(p.op.Stable)))
	case watched && !p.ready.IsZero():
		parts = append(parts, "ready")
	case watched:
		room := p.columns - 1 - len([]rune(parts[0])) - len(left) - len(" not ready: , ")
		why := "not ready"
		if p.why != "" && room > 8 {
			why += ": " + fit(p.why, room)
		}
		parts = append(parts, why)
	case p.op.Phase == string(probation.Preparing) && p.why != "":
		parts = append(parts, brief(p.why, p.columns))
	}
	if left != "" {
		parts[len(parts)-1] += ", " + left
	}
	return clean(strings.TrimRight(strings.Join(parts, " "), " "))
}
