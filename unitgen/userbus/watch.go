package userbus

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"toad/unitgen"
)

// Watch tells of changes of these units, loaded or not, in the order in which they happened, until the context ends;
// then the channel is closed. A slow reader holds nobody up: of several Changed for one unit, it gets one; jobs
// are all kept. When the bus goes away the watch waits for it to come back. The units are as they are when Watch
// returns, or later: read them then.
func (b *Bus) Watch(ctx context.Context, names ...string) (<-chan unitgen.Change, error) {
	w := &watch{units: map[dbus.ObjectPath]string{}, out: make(chan unitgen.Change), links: make(chan link, 1)}
	for _, name := range names {
		w.units[unitPath(name)] = name
	}
	l, err := w.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", strings.Join(names, " "), err)
	}
	w.last = l.seen
	go w.run(ctx, l)
	return w.out, nil
}

// watch has a connection of its own, so that ending it leaves no match rule and no subscription behind.
type watch struct {
	units map[dbus.ObjectPath]string
	queue queue
	out   chan unitgen.Change
	links chan link          // a new connection after a loss
	last  map[string]glimpse // what the signals that were taken said of each unit
}

const redialEvery = 200 * time.Millisecond

func (w *watch) run(ctx context.Context, l link) {
	defer close(w.out)
	for {
		next, out := w.queue.head(w.out)
		select {
		case <-ctx.Done():
			return
		case out <- next:
			w.queue.pop()
		case l = <-w.links:
			w.last = l.seen
			w.queue.push(unitgen.Change{Kind: unitgen.Lost})
		case s, up := <-l.signals:
			if up && w.take(ctx, l.conn, s) == nil {
				continue
			}
			_ = l.conn.Close()
			l = link{}
			go w.redial(ctx)
		}
	}
}

// redial tries until there is a bus with a manager on it.
func (w *watch) redial(ctx context.Context) {
	for {
		l, err := w.connect(ctx)
		if err == nil {
			w.links <- l
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(redialEvery):
		}
	}
}

// take queues what a signal says. An error means that the manager has to be found again.
func (w *watch) take(ctx context.Context, conn *dbus.Conn, s *dbus.Signal) error {
	switch s.Name {
	case "org.freedesktop.DBus.NameOwnerChanged":
		// A manager that was executed anew has a new connection, and may or may not know of the subscription.
		if at[string](s.Body, 2) == "" {
			return nil
		}
		w.queue.push(unitgen.Change{Kind: unitgen.Lost})
		return subscribe(ctx, conn)
	case propsIface + ".PropertiesChanged":
		if name, watched := w.units[s.Path]; watched {
			w.see(name, s)
			w.queue.push(unitgen.Change{Kind: unitgen.Changed, Unit: name})
		}
	case managerIface + ".JobNew":
		c := unitgen.Change{Kind: unitgen.JobNew, Unit: at[string](s.Body, 2), Job: at[uint32](s.Body, 0)}
		c.JobType = w.jobType(ctx, conn, at[dbus.ObjectPath](s.Body, 1), c.Unit)
		w.queue.push(c)
	case managerIface + ".JobRemoved":
		w.queue.push(unitgen.Change{
			Kind: unitgen.JobRemoved, Unit: at[string](s.Body, 2), Job: at[uint32](s.Body, 0), JobResult: at[string](s.Body, 3),
		})
	case managerIface + ".Reloading":
		if begins := at[bool](s.Body, 0); !begins {
			w.queue.push(unitgen.Change{Kind: unitgen.Reloading})
		}
	}
	return nil
}

// queue holds what the reader has not taken yet.
type queue struct{ list []unitgen.Change }

// push adds a change, unless the reader is yet to be told to look anyway. Jobs are never left out.
func (q *queue) push(c unitgen.Change) {
	switch c.Kind {
	case unitgen.Changed, unitgen.Reloading, unitgen.Lost:
		for _, waiting := range q.list {
			if waiting == c {
				return
			}
		}
	}
	q.list = append(q.list, c)
}

// head returns the first change and the channel to send it on, or a nil channel, which blocks, if there is none.
func (q *queue) head(out chan<- unitgen.Change) (unitgen.Change, chan<- unitgen.Change) {
	if len(q.list) == 0 {
		return unitgen.Change{}, nil
	}
	return q.list[0], out
}

func (q *queue) pop() { q.list = q.list[1:] }
