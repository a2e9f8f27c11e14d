package webui

import (
	"fmt"
	"slices"
	"time"
)

// group is a shelf of the first page; a service stands on the one that its state asks for.
type group struct {
	ID, Title string
	Cards     []Card
}

// IDs name the parts of the cards.
func (g group) IDs() []string {
	var ids []string
	for _, c := range g.Cards {
		ids = append(ids, cardID(c))
	}
	return ids
}

var shelves = []group{
	{ID: "needs", Title: "Needs somebody"},
	{ID: "trial", Title: "Under way"},
	{ID: "back", Title: "Did not go through"},
	{ID: "rest", Title: "At rest"},
}

// Shelf is the group a card belongs to.
func (c Card) Shelf() string { return shelves[c.State.look().rank].ID }

// NotReady says that what should serve does not.
func (c Card) NotReady() bool { return c.Ready.Known && !c.Ready.OK }

// Groups are the shelves with what stands on them.
func (o Overview) Groups() []group {
	all := slices.Clone(shelves)
	for _, c := range o.Services {
		rank := c.State.look().rank
		all[rank].Cards = append(all[rank].Cards, c)
	}
	return all
}

// summary is the first thing that is read: one sentence, and what it leaves out.
type summary struct {
	Sentence, Rest string
	Tone           string
	Invalid        []Text
}

func (o Overview) summary() summary {
	var needs, trial, unready []Card
	back := 0
	for _, c := range o.Services {
		switch rank := c.State.look().rank; {
		case rank == 0:
			needs = append(needs, c)
		case rank == 1:
			trial = append(trial, c)
		case c.NotReady():
			unready = append(unready, c)
		}
		if c.State.look().rank == 2 {
			back++
		}
	}
	s := summary{Tone: "good", Sentence: "All is quiet", Invalid: o.Invalid}
	switch {
	case len(needs) > 0:
		s.Tone, s.Sentence = "bad", about(needs, "needs somebody", "need somebody")
	case len(trial) > 0:
		s.Tone, s.Sentence = "trial", about(trial, "is under way", "are under way")
		if len(trial) == 1 && trial[0].State.s == "probation" {
			s.Sentence = trial[0].Name.s + " is on probation"
		}
	case len(unready) > 0:
		s.Tone, s.Sentence = "back", about(unready, "is not ready", "are not ready")
	case len(o.Services) == 0:
		s.Tone, s.Sentence = "idle", "No service is enrolled"
	}
	s.Rest = count(len(o.Services), "service", "services")
	if back > 0 {
		s.Rest += fmt.Sprintf(", the last deployment of %d did not go through", back)
	}
	if n := len(unready); n > 0 && s.Tone != "back" {
		s.Rest += fmt.Sprintf(", %d not ready", n)
	}
	return s
}

func about(cards []Card, one, many string) string {
	if len(cards) == 1 {
		return cards[0].Name.s + " " + one
	}
	return fmt.Sprintf("%d services %s", len(cards), many)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// span is how long something takes, as a person would say it.
func span(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second && d%time.Second != 0:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// countdown is minutes and seconds.
func countdown(d time.Duration) string {
	s := int((max(d, 0) + time.Second - 1) / time.Second)
	if s >= 3600 {
		return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
	}
	return fmt.Sprintf("%d:%02d", s/60, s%60)
}

// age is how long ago something was.
func age(at, now time.Time) string {
	if d := now.Sub(at); d >= time.Second {
		return span(d.Truncate(time.Second)) + " ago"
	}
	return "just now"
}

// share is how much of a time has passed, from 0 to 1000.
func share(from, until, now time.Time) int {
	if whole := until.Sub(from); whole > 0 {
		return int(min(max(now.Sub(from)*1000/whole, 0), 1000))
	}
	return 1000
}
