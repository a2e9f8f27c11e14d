package userbus

import (
	"context"
	"fmt"
	"strings"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"toad/internal/fault"
	"toad/unitgen"
)

// maxText is how much text a call may carry. The user manager kills itself, and with it every container of the user,
// over a property of some MB; nothing that toad passes is near this.
const maxText = 64 << 10

// Create makes a transient unit with its aux units and starts it. It returns when the manager took it, not when
// its job is done: for an instant the unit is inactive with a Job, and a missing binary is no error here. ErrExists if
// one of the names is taken.
func (b *Bus) Create(ctx context.Context, u unitgen.Unit) error {
	aux := []sd.PropertyCollection{}
	size := textSize(u.Properties)
	for _, a := range u.Aux {
		aux = append(aux, sd.PropertyCollection{Name: a.Name, Properties: a.Properties})
		size += textSize(a.Properties)
	}
	if size > maxText {
		return fmt.Errorf("create %s: its properties are %d bytes long, more than %d", u.Name, size, maxText)
	}
	if err := b.change(ctx, "StartTransientUnit", []any{u.Name, "fail", u.Properties, aux}, new(dbus.ObjectPath)); err != nil {
		return fmt.Errorf("create %s: %w", u.Name, err)
	}
	return nil
}

// change is a call that changes something; tests fail and kill before and after each.
func (b *Bus) change(ctx context.Context, method string, args []any, out ...any) error {
	if err := fault.Point("bus." + method + ".before"); err != nil {
		return err
	}
	if err := b.manager(ctx, method, args, out...); err != nil {
		return err
	}
	return fault.Point("bus." + method + ".after")
}

func textSize(properties []sd.Property) int {
	size := 0
	for _, p := range properties {
		size += len(p.Name) + len(p.Value.String())
	}
	return size
}

// Start queues one start job and does not wait for it. ErrNoUnit, ErrDestructive.
func (b *Bus) Start(ctx context.Context, name string) error {
	return b.queue(ctx, "start", "StartUnit", name)
}

// Stop queues one stop job and does not wait for it. ErrNoUnit if the unit is not loaded, ErrDestructive. A transient
// unit is gone when it has stopped.
func (b *Bus) Stop(ctx context.Context, name string) error {
	return b.queue(ctx, "stop", "StopUnit", name)
}

// Restart queues one restart job, which starts a unit that does not run, and does not wait for it. ErrNoUnit,
// ErrDestructive.
func (b *Bus) Restart(ctx context.Context, name string) error {
	return b.queue(ctx, "restart", "RestartUnit", name)
}

func (b *Bus) queue(ctx context.Context, verb, method, name string) error {
	if err := b.change(ctx, method, []any{name, "replace"}, new(dbus.ObjectPath)); err != nil {
		return fmt.Errorf("%s %s: %w", verb, name, err)
	}
	return nil
}

// ResetFailed forgets a unit's failure, its start limit and its count of restarts. A failed transient unit is
// gone after it. ErrNoUnit if the unit is not loaded.
func (b *Bus) ResetFailed(ctx context.Context, name string) error {
	if err := b.change(ctx, "ResetFailedUnit", []any{name}); err != nil {
		return fmt.Errorf("reset %s: %w", name, err)
	}
	return nil
}

// Reload makes the manager run its generators and read all units anew, and waits until it has; 2 minutes when the
// context has no deadline. An error does not mean that it has not reloaded.
func (b *Bus) Reload(ctx context.Context) error {
	ctx, cancel := bounded(ctx, reloadTimeout)
	defer cancel()
	if err := b.change(ctx, "Reload", nil); err != nil {
		return fmt.Errorf("reload the user manager: %w", err)
	}
	return nil
}

// SetEnvironment sets variables (NAME=value) that every unit started from now on sees, and that conditions test.
// They last until the user manager ends.
func (b *Bus) SetEnvironment(ctx context.Context, assignments ...string) error {
	if len(strings.Join(assignments, "")) > maxText {
		return fmt.Errorf("set variables of the user manager: more than %d bytes", maxText)
	}
	if err := b.change(ctx, "SetEnvironment", []any{assignments}); err != nil {
		return fmt.Errorf("set variables of the user manager: %w", err)
	}
	return nil
}

// UnsetEnvironment removes variables; one that is not set is no error.
func (b *Bus) UnsetEnvironment(ctx context.Context, names ...string) error {
	if err := b.change(ctx, "UnsetEnvironment", []any{names}); err != nil {
		return fmt.Errorf("unset variables of the user manager: %w", err)
	}
	return nil
}

// Environment returns the variables of the user manager.
func (b *Bus) Environment(ctx context.Context) (map[string]string, error) {
	var v dbus.Variant
	if err := b.call(ctx, managerPath, propsIface+".Get", []any{managerIface, "Environment"}, &v); err != nil {
		return nil, fmt.Errorf("read variables of the user manager: %w", err)
	}
	assignments, _ := v.Value().([]string)
	all := make(map[string]string, len(assignments))
	for _, a := range assignments {
		name, value, _ := strings.Cut(a, "=")
		all[name] = value
	}
	return all, nil
}

// Ping returns when the user manager has answered, and so is neither dead nor hung.
func (b *Bus) Ping(ctx context.Context) error {
	if err := b.call(ctx, managerPath, "org.freedesktop.DBus.Peer.Ping", nil); err != nil {
		return fmt.Errorf("ping the user manager: %w", err)
	}
	return nil
}

// SystemState is initializing, starting, running, degraded, maintenance or stopping.
func (b *Bus) SystemState(ctx context.Context) (string, error) {
	var v dbus.Variant
	if err := b.call(ctx, managerPath, propsIface+".Get", []any{managerIface, "SystemState"}, &v); err != nil {
		return "", fmt.Errorf("read the state of the user manager: %w", err)
	}
	state, _ := v.Value().(string)
	return state, nil
}

// Stopping says that the user manager is on its way down, so that nothing seen now is a unit's own fault.
func (b *Bus) Stopping(ctx context.Context) (bool, error) {
	state, err := b.SystemState(ctx)
	if err != nil || state == "stopping" {
		return state == "stopping", err
	}
	if state != "starting" && state != "initializing" {
		return false, nil
	}
	// A manager that is still starting up says so even when its end is queued.
	targets, err := b.List(ctx, "exit.target", "shutdown.target")
	for _, t := range targets {
		if t.Up() || t.ActiveState == "activating" || t.Job != 0 && t.JobType != "stop" {
			return true, err
		}
	}
	return false, err
}
