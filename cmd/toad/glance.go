package main

import (
	"context"
	"sync"
	"time"
)

// glances remember what was seen of the host, so that a page which many have open costs one look. Who asks waits no
// longer than it can; what comes later wakes those who follow.
type glances struct {
	mu      sync.Mutex
	seen    map[string]*glance
	waiting map[chan struct{}]bool
	looks   chan struct{} // bounds how many go on at a time
}

type glance struct {
	value any // comparable; nil before the first look
	at    time.Time
	done  chan struct{} // closed when the look under way is over; nil when there is none
}

const (
	mostLooks   = 8
	mostGlances = 2000
	lookLimit   = 10 * time.Second
)

func newGlances() *glances {
	return &glances{seen: map[string]*glance{}, waiting: map[chan struct{}]bool{}, looks: make(chan struct{}, mostLooks)}
}

// get returns what was seen last, and looks again where that is older than fresh. Until is when the asker goes on without.
func (g *glances) get(key string, fresh time.Duration, until <-chan struct{}, look func(context.Context) any) any {
	g.mu.Lock()
	if len(g.seen) > mostGlances {
		g.seen = map[string]*glance{} // containers come and go
	}
	one := g.seen[key]
	if one == nil {
		one = &glance{}
		g.seen[key] = one
	}
	if one.done == nil && time.Since(one.at) >= fresh {
		one.done = make(chan struct{})
		go g.look(one, look)
	}
	value, done := one.value, one.done
	g.mu.Unlock()
	if done == nil || value != nil {
		return value // a little old is better than late; the look under way wakes who follows
	}
	select {
	case <-done:
	case <-until:
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return one.value
}

func (g *glances) look(one *glance, look func(context.Context) any) {
	g.looks <- struct{}{}
	defer func() { <-g.looks }()
	ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
	defer cancel()
	value := look(ctx)
	g.mu.Lock()
	defer g.mu.Unlock()
	news := value != one.value
	one.value, one.at = value, time.Now()
	close(one.done)
	one.done = nil
	if !news {
		return
	}
	for w := range g.waiting {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// join adds a reason to wake somebody: anything new was seen. What else wakes them comes by changed.
func (g *glances) join(changed <-chan struct{}) (both <-chan struct{}, leave func()) {
	news, out, done := make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{})
	g.mu.Lock()
	g.waiting[news] = true
	g.mu.Unlock()
	go func() {
		for {
			select {
			case <-done:
				return
			case <-changed:
			case <-news:
			}
			select {
			case out <- struct{}{}:
			default:
			}
		}
	}()
	return out, sync.OnceFunc(func() {
		close(done)
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.waiting, news)
	})
}
