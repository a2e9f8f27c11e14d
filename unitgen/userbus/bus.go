// Package userbus speaks to the systemd user manager over D-Bus, and hides what is treacherous about it.
//
// Every call ends: with its context, or after 25 s when the context has no deadline.
package userbus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"toad/unitgen"
)

// The errors of unitgen, which calls return wrapped.
var (
	ErrNoBus       = unitgen.ErrNoBus
	ErrExists      = unitgen.ErrExists
	ErrNoUnit      = unitgen.ErrNoUnit
	ErrDestructive = unitgen.ErrDestructive
)

const (
	callTimeout = 25 * time.Second
	// reloadTimeout is longer: a reload is quadratic in loaded units, and takes 35 s with 10,000 of them.
	reloadTimeout = 2 * time.Minute

	destination  = "org.freedesktop.systemd1"
	managerPath  = dbus.ObjectPath("/org/freedesktop/systemd1")
	managerIface = "org.freedesktop.systemd1.Manager"
	unitIface    = "org.freedesktop.systemd1.Unit"
	serviceIface = "org.freedesktop.systemd1.Service"
	propsIface   = "org.freedesktop.DBus.Properties"
)

// Bus is a connection to the user manager. It may be used by many goroutines, and dials again by itself when the
// bus was restarted; a call that was under way then fails with ErrNoBus.
type Bus struct {
	turn   chan struct{} // held while conn or closed is looked at; a channel, since waiting must end with the context
	conn   *dbus.Conn
	closed bool
}

// New returns a bus that dials at its first call, and again at each call until one gets through.
func New() *Bus { return &Bus{turn: make(chan struct{}, 1)} }

// Dial connects to the bus at DBUS_SESSION_BUS_ADDRESS, else in XDG_RUNTIME_DIR, else in /run/user/<uid>. The error
// is ErrNoBus and says what to do.
func Dial(ctx context.Context) (*Bus, error) {
	b := New()
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	if _, err := b.connection(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// Close ends the connection; calls that are under way fail. Watches live on until their contexts end.
func (b *Bus) Close() error {
	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	b.closed = true
	if b.conn == nil {
		return nil
	}
	return b.conn.Close()
}

// connection returns a connection that is up as far as one can know.
func (b *Bus) connection(ctx context.Context) (*dbus.Conn, error) {
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for the bus: %w", ctx.Err())
	}
	if b.closed {
		return nil, fmt.Errorf("%w: the connection was closed", ErrNoBus)
	}
	if b.conn != nil && b.conn.Connected() {
		return b.conn, nil
	}
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	b.conn = conn
	return conn, nil
}

// call calls a method of the user manager and stores what it returns.
func (b *Bus) call(ctx context.Context, path dbus.ObjectPath, method string, args []any, out ...any) error {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	conn, err := b.connection(ctx)
	if err != nil {
		return err
	}
	return call(ctx, conn, path, method, args, out...)
}

func (b *Bus) manager(ctx context.Context, method string, args []any, out ...any) error {
	return b.call(ctx, managerPath, managerIface+"."+method, args, out...)
}

func call(ctx context.Context, conn *dbus.Conn, path dbus.ObjectPath, method string, args []any, out ...any) error {
	return translate(conn.Object(destination, path).CallWithContext(ctx, method, 0, args...).Store(out...))
}

// bounded gives a context that has no deadline one.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

// translate makes D-Bus errors comparable, and keeps their words.
func translate(err error) error {
	var e dbus.Error
	switch {
	case errors.Is(err, dbus.ErrClosed), errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the connection to the bus was lost", ErrNoBus)
	case !errors.As(err, &e):
		return err
	}
	switch e.Name {
	case "org.freedesktop.systemd1.UnitExists":
		return fmt.Errorf("%w: %w", ErrExists, err)
	case "org.freedesktop.systemd1.NoSuchUnit":
		return fmt.Errorf("%w: %w", ErrNoUnit, err)
	case "org.freedesktop.systemd1.TransactionIsDestructive", "org.freedesktop.systemd1.ShuttingDown":
		return fmt.Errorf("%w: %w", ErrDestructive, err)
	case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner",
		"org.freedesktop.DBus.Error.NoReply", "org.freedesktop.DBus.Error.Disconnected":
		return fmt.Errorf("%w: %w", ErrNoBus, err)
	}
	return err
}

// dial connects, and gives up with the context. The connection outlives the context.
func dial(ctx context.Context) (*dbus.Conn, error) {
	addr, err := address()
	if err != nil {
		return nil, err
	}
	// godbus has no contexts for the handshake, which a stopped bus never ends; but it closes with this one.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	keep := context.AfterFunc(ctx, end)
	// The default handler changes the order of signals when they come fast.
	conn, err := dbus.Dial(addr, dbus.WithContext(life), dbus.WithSignalHandler(dbus.NewSequentialSignalHandler()))
	if err != nil {
		end()
		return nil, fmt.Errorf("%w at %s: %w; %s", ErrNoBus, addr, err, hint)
	}
	if err = conn.Auth(nil); err == nil {
		err = conn.Hello()
	}
	if !keep() {
		err = ctx.Err()
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("%w at %s: %w", ErrNoBus, addr, err)
	}
	context.AfterFunc(conn.Context(), end)
	return conn, nil
}

const hint = "log in as this user, or let its manager run always: loginctl enable-linger"

// address finds the bus of the user manager.
func address() (string, error) {
	if addr := os.Getenv("DBUS_SESSION_BUS_ADDRESS"); addr != "" {
		return addr, nil
	}
	dir := os.Getenv("XDG_RUNTIME_DIR")
	if dir == "" {
		dir = "/run/user/" + strconv.Itoa(os.Getuid())
		info, err := os.Stat(dir)
		if err != nil {
			return "", fmt.Errorf("%w: XDG_RUNTIME_DIR is not set and %s is not there; %s", ErrNoBus, dir, hint)
		}
		if stat, ok := info.Sys().(*syscall.Stat_t); !ok || int(stat.Uid) != os.Getuid() {
			return "", fmt.Errorf("%w: XDG_RUNTIME_DIR is not set and %s is not this user's; %s", ErrNoBus, dir, hint)
		}
	}
	return "unix:path=" + dbus.EscapeBusAddressValue(dir+"/bus"), nil
}
