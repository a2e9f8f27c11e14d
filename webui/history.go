package webui

import (
	"math"
	"time"
)

// bar is one deployment in the picture: the longer it took, the higher. What went through is full, what did not is hollow
// with a cross on its foot, so that it is told without colour.
type bar struct {
	Operation
	X, Y, H int
	Through bool
}

// picture is the last deployments, oldest first.
type picture struct {
	Bars          []bar
	Width, Height int
	Through       int
}

const (
	pictured = 30
	barStep  = 12
	barMost  = 56
)

func (d Detail) picture() picture {
	ended := make([]Operation, 0, pictured)
	for _, op := range d.History {
		if !op.EndedAt.IsZero() && len(ended) < pictured {
			ended = append(ended, op)
		}
	}
	p := picture{Width: pictured * barStep, Height: barMost + 14}
	for i := len(ended) - 1; i >= 0; i-- {
		op := ended[i]
		b := bar{Operation: op, X: len(p.Bars) * barStep, H: height(op.EndedAt.Sub(op.AcceptedAt)), Through: op.State.s == "promoted"}
		b.Y = barMost - b.H
		if b.Through {
			p.Through++
		}
		p.Bars = append(p.Bars, b)
	}
	return p
}

// height grows by the same for each doubling, from a second to an hour: both are seen in one picture.
func height(d time.Duration) int {
	return 6 + int(min(math.Log2(1+max(d.Seconds(), 0))/math.Log2(3601), 1)*(barMost-6))
}
