package userbus

import (
	"context"
	"time"

	"github.com/godbus/dbus/v5"

	"toad/unitgen"
)

const jobTypeTimeout = time.Second

// jobType asks a job what it is, since the signal does not say. Meanwhile signals wait in order in the handler. A job
// that has ended cannot be asked; but that somebody stopped a unit must not be missed, or its end would be taken
// for the unit's own, so it is concluded from the unit.
func (w *watch) jobType(ctx context.Context, conn *dbus.Conn, job dbus.ObjectPath, unit string) string {
	ctx, cancel := context.WithTimeout(ctx, jobTypeTimeout)
	defer cancel()
	var v dbus.Variant
	if err := call(ctx, conn, job, propsIface+".Get", []any{"org.freedesktop.systemd1.Job", "JobType"}, &v); err == nil {
		t, _ := v.Value().(string)
		return t
	}
	if now, err := read(ctx, conn, unitPath(unit)); err == nil && stopped(w.last[unit], now) {
		return "stop"
	}
	return ""
}

// glimpse is what tells a unit that was stopped from one that was started.
type glimpse struct{ active, invocation string }

// stopped says that a unit that ran before a job does not after it, and was not started in between.
func stopped(before glimpse, now unitgen.State) bool {
	ran := unitgen.State{ActiveState: before.active}.Running()
	// A unit that was unloaded since has no invocation any more.
	return ran && !now.Running() && (now.InvocationID == before.invocation || now.InvocationID == "")
}

// see keeps what a signal says of a unit.
func (w *watch) see(unit string, s *dbus.Signal) {
	changed := at[map[string]dbus.Variant](s.Body, 1)
	g := w.last[unit]
	if v := get[string](changed, "ActiveState"); v != "" {
		g.active = v
	}
	if v, has := changed["InvocationID"]; has {
		id, _ := v.Value().([]byte)
		g.invocation = invocation(id)
	}
	w.last[unit] = g
}
