package userbus

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
)

// Kind says what a Change is about.
type Kind string

// The kinds of changes.
const (
	Changed    Kind = "changed"     // a property of the unit changed: read it again
	JobNew     Kind = "job-new"     // a job was queued for the unit
	JobRemoved Kind = "job-removed" // a job of the unit ended
	Reloading  Kind = "reloading"   // the manager has reloaded: read everything again
	Lost       Kind = "lost"        // changes may have been missed, the watch is up again: read everything again
)

// Change tells that something happened to a watched unit. What is, is read by State; a Change only says when to look.
type Change struct {
	Kind Kind
	Unit string // "" for Reloading and Lost
	Job  uint32 // its number; JobNew and JobRemoved
	// JobType is start, stop, restart …; "" if the job had ended before it could be asked. A restart job turns into a
	// start job when the old process is gone, and may be read as such; a stop job stays one. JobNew only.
	JobType   string
	JobResult string // done, failed, canceled, timeout, dependency, skipped …; JobRemoved only
}

// Watch tells of changes of these units, loaded or not, in the order in which they happened, until the context ends;
// then the channel is closed. A slow reader holds nobody up: of several Changed for one unit, it gets one; jobs
// are all kept. When the bus goes away the watch waits for it to come back. The units are as they are when Watch
// returns, or later: read them then.
func (b *Bus) Watch(ctx context.Context, names ...string) (<-chan Change, error) {
	w := &watch{units: map[dbus.ObjectPath]string{}, out: make(chan Change), links: make(chan link, 1)}
	for _, name := range names {
		w.units[unitPath(name)] = name
	}
	l, err := w.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", strings.Join(names, " "), err)
	}
	go w.run(ctx, l)
	return w.out, nil
}

// watch has a connection of its own, so that ending it leaves no match rule and no subscription behind.
type watch struct {
	units map[dbus.ObjectPath]string
	queue queue
	out   chan Change
	links chan link // a new connection after a loss
}

type link struct {
	conn    *dbus.Conn
	signals chan *dbus.Signal
}

const (
	jobTypeTimeout = time.Second
	redialEvery    = 200 * time.Millisecond
)

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
			w.queue.push(Change{Kind: Lost})
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

// connect dials and subscribes; the connection ends with ctx. Signals that come before it returns are kept.
func (w *watch) connect(ctx context.Context) (link, error) {
	bound, cancel := bounded(ctx, callTimeout)
	defer cancel()
	conn, err := dial(bound)
	if err != nil {
		return link{}, err
	}
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	for _, m := range w.matches() {
		if err := conn.AddMatchSignalContext(bound, m...); err != nil {
			_ = conn.Close()
			return link{}, translate(err)
		}
	}
	if err := subscribe(bound, conn); err != nil {
		_ = conn.Close()
		return link{}, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return link{conn, signals}, nil
}

// subscribe makes the manager send signals; it sends none to nobody.
func subscribe(ctx context.Context, conn *dbus.Conn) error {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	err := call(ctx, conn, managerPath, managerIface+".Subscribe", nil)
	if e := (dbus.Error{}); errors.As(err, &e) && e.Name == "org.freedesktop.systemd1.AlreadySubscribed" {
		return nil
	}
	return err
}

// matches let the bus pass on what concerns the watched units only; a busy manager would wake us all the time.
func (w *watch) matches() [][]dbus.MatchOption {
	manager := func(member string, more ...dbus.MatchOption) []dbus.MatchOption {
		return append([]dbus.MatchOption{
			dbus.WithMatchSender(destination), dbus.WithMatchObjectPath(managerPath),
			dbus.WithMatchInterface(managerIface), dbus.WithMatchMember(member),
		}, more...)
	}
	list := [][]dbus.MatchOption{
		manager("Reloading"),
		{
			dbus.WithMatchSender("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged"),
			dbus.WithMatchArg(0, destination),
		},
	}
	for path, name := range w.units {
		list = append(list,
			manager("JobNew", dbus.WithMatchArg(2, name)),
			manager("JobRemoved", dbus.WithMatchArg(2, name)),
			[]dbus.MatchOption{
				dbus.WithMatchSender(destination), dbus.WithMatchObjectPath(path),
				dbus.WithMatchInterface(propsIface), dbus.WithMatchMember("PropertiesChanged"),
			})
	}
	return list
}

// take queues what a signal says. An error means that the manager has to be found again.
func (w *watch) take(ctx context.Context, conn *dbus.Conn, s *dbus.Signal) error {
	switch s.Name {
	case "org.freedesktop.DBus.NameOwnerChanged":
		// A manager that was executed anew has a new connection, and may or may not know of the subscription.
		if at[string](s.Body, 2) == "" {
			return nil
		}
		w.queue.push(Change{Kind: Lost})
		return subscribe(ctx, conn)
	case propsIface + ".PropertiesChanged":
		if name, watched := w.units[s.Path]; watched {
			w.queue.push(Change{Kind: Changed, Unit: name})
		}
	case managerIface + ".JobNew":
		path := at[dbus.ObjectPath](s.Body, 1)
		w.queue.push(Change{
			Kind: JobNew, Unit: at[string](s.Body, 2), Job: at[uint32](s.Body, 0), JobType: jobType(ctx, conn, path),
		})
	case managerIface + ".JobRemoved":
		w.queue.push(Change{
			Kind: JobRemoved, Unit: at[string](s.Body, 2), Job: at[uint32](s.Body, 0), JobResult: at[string](s.Body, 3),
		})
	case managerIface + ".Reloading":
		if begins := at[bool](s.Body, 0); !begins {
			w.queue.push(Change{Kind: Reloading})
		}
	}
	return nil
}

// jobType asks the job itself, since the signal does not say. Meanwhile signals wait in order in the handler.
func jobType(ctx context.Context, conn *dbus.Conn, path dbus.ObjectPath) string {
	ctx, cancel := context.WithTimeout(ctx, jobTypeTimeout)
	defer cancel()
	var v dbus.Variant
	if err := call(ctx, conn, path, propsIface+".Get", []any{"org.freedesktop.systemd1.Job", "JobType"}, &v); err != nil {
		return ""
	}
	t, _ := v.Value().(string)
	return t
}

// queue holds what the reader has not taken yet.
type queue struct{ list []Change }

// push adds a change, unless the reader is yet to be told to look anyway. Jobs are never left out.
func (q *queue) push(c Change) {
	switch c.Kind {
	case Changed, Reloading, Lost:
		for _, waiting := range q.list {
			if waiting == c {
				return
			}
		}
	}
	q.list = append(q.list, c)
}

// head returns the first change and the channel to send it on, or a nil channel, which blocks, if there is none.
func (q *queue) head(out chan<- Change) (Change, chan<- Change) {
	if len(q.list) == 0 {
		return Change{}, nil
	}
	return q.list[0], out
}

func (q *queue) pop() { q.list = q.list[1:] }
