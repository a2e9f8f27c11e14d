package userbus

import (
	"context"
	"errors"

	"github.com/godbus/dbus/v5"
)

// link is a connection of a watch, subscribed.
type link struct {
	conn    *dbus.Conn
	signals chan *dbus.Signal
	seen    map[string]glimpse // the units as they were found
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
	seen := map[string]glimpse{}
	for path, name := range w.units {
		s, err := read(bound, conn, path)
		if err != nil {
			_ = conn.Close()
			return link{}, err
		}
		seen[name] = glimpse{s.ActiveState, s.InvocationID}
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return link{conn, signals, seen}, nil
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
