package userbus

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	sd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"toad/unitgen"
)

// State reads a unit, loading it if need be. A unit that does not exist is a State with LoadState "not-found".
func (b *Bus) State(ctx context.Context, name string) (unitgen.State, error) {
	return b.readUnit(ctx, name, read)
}

func (b *Bus) readUnit(ctx context.Context, name string, read func(context.Context, *dbus.Conn, dbus.ObjectPath) (unitgen.State, error)) (unitgen.State, error) {
	ctx, cancel := bounded(ctx, callTimeout)
	defer cancel()
	conn, err := b.connection(ctx)
	if err != nil {
		return unitgen.State{}, fmt.Errorf("read %s: %w", name, err)
	}
	s, err := read(ctx, conn, unitPath(name))
	if err != nil {
		return unitgen.State{}, fmt.Errorf("read %s: %w", name, err)
	}
	return s, nil
}

func read(ctx context.Context, conn *dbus.Conn, unit dbus.ObjectPath) (unitgen.State, error) {
	// The empty interface asks for those of all interfaces at once; asking for the object loads the unit.
	answer := conn.Object(destination, unit).CallWithContext(ctx, propsIface+".GetAll", 0, "")
	if answer.Err != nil {
		return unitgen.State{}, translate(answer.Err)
	}
	// Store would copy some 350 values by reflection: a fifth of what a look at a unit costs.
	if len(answer.Body) == 1 {
		if all, ok := answer.Body[0].(map[string]dbus.Variant); ok {
			return decode(all), nil
		}
	}
	return unitgen.State{}, errors.New("the user manager answers with something that is no map of properties")
}

// Invocation is the InvocationID of a unit, empty when it has none. It costs a tenth of State.
func (b *Bus) Invocation(ctx context.Context, name string) (string, error) {
	var v dbus.Variant
	if err := b.call(ctx, unitPath(name), propsIface+".Get", []any{unitIface, "InvocationID"}, &v); err != nil {
		return "", fmt.Errorf("read the invocation of %s: %w", name, err)
	}
	id, _ := v.Value().([]byte)
	return invocation(id), nil
}

// Running reads of a unit which process and which container run as it, and where it comes from; the rest of the State is
// zero. It costs a tenth of State, which matters to those who look at many units.
func (b *Bus) Running(ctx context.Context, name string) (unitgen.State, error) {
	return b.readUnit(ctx, name, readRunning)
}

// readRunning asks for all of them before it waits for the first.
func readRunning(ctx context.Context, conn *dbus.Conn, unit dbus.ObjectPath) (unitgen.State, error) {
	object := conn.Object(destination, unit)
	all, calls := map[string]dbus.Variant{}, map[string]*dbus.Call{}
	for property, iface := range running {
		calls[property] = object.GoWithContext(ctx, propsIface+".Get", 0, make(chan *dbus.Call, 1), iface, property)
	}
	for property, c := range calls {
		var v dbus.Variant
		if err := (<-c.Done).Store(&v); err != nil {
			return unitgen.State{}, translate(err)
		}
		all[property] = v
	}
	return decode(all), nil
}

// running are the properties that Running reads, and their interfaces.
var running = map[string]string{"Id": unitIface, "ActiveState": unitIface, "SubState": unitIface, "SourcePath": unitIface,
	"FragmentPath": unitIface, "MainPID": serviceIface, "ControlGroup": serviceIface}

// Loaded says whether the manager has a unit of this name in memory. It loads none, which is what costs it most.
func (b *Bus) Loaded(ctx context.Context, name string) (bool, error) {
	err := b.manager(ctx, "GetUnit", []any{name}, new(dbus.ObjectPath))
	if errors.Is(err, ErrNoUnit) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", name, err)
	}
	return true, nil
}

// List reads the loaded units that match one of the globs: name, LoadState, ActiveState, SubState and job only.
func (b *Bus) List(ctx context.Context, patterns ...string) ([]unitgen.State, error) {
	if len(patterns) == 0 {
		return nil, nil // systemd would list all
	}
	var rows []struct {
		Name, Description, Load, Active, Sub, Followed string
		Path                                           dbus.ObjectPath
		Job                                            uint32
		JobType                                        string
		JobPath                                        dbus.ObjectPath
	}
	if err := b.manager(ctx, "ListUnitsByPatterns", []any{[]string{}, patterns}, &rows); err != nil {
		return nil, fmt.Errorf("list %s: %w", strings.Join(patterns, " "), err)
	}
	list := make([]unitgen.State, len(rows))
	for i, r := range rows {
		list[i] = unitgen.State{
			Name: r.Name, LoadState: r.Load, ActiveState: r.Active, SubState: r.Sub, Job: r.Job, JobType: r.JobType,
		}
	}
	return list, nil
}

func unitPath(name string) dbus.ObjectPath {
	return managerPath + "/unit/" + dbus.ObjectPath(sd.PathBusEscape(name))
}

// decode takes what it knows out of a unit's properties; what is missing or of another type is zero.
func decode(all map[string]dbus.Variant) unitgen.State {
	return unitgen.State{
		Name:                          get[string](all, "Id"),
		LoadState:                     get[string](all, "LoadState"),
		ActiveState:                   get[string](all, "ActiveState"),
		SubState:                      get[string](all, "SubState"),
		Result:                        get[string](all, "Result"),
		InvocationID:                  invocation(get[[]byte](all, "InvocationID")),
		MainPID:                       get[uint32](all, "MainPID"),
		NRestarts:                     get[uint32](all, "NRestarts"),
		ExecMainStatus:                get[int32](all, "ExecMainStatus"),
		ExecMainCode:                  get[int32](all, "ExecMainCode"),
		StatusText:                    get[string](all, "StatusText"),
		ControlGroup:                  get[string](all, "ControlGroup"),
		SourcePath:                    get[string](all, "SourcePath"),
		FragmentPath:                  get[string](all, "FragmentPath"),
		DropInPaths:                   get[[]string](all, "DropInPaths"),
		Type:                          get[string](all, "Type"),
		Restart:                       get[string](all, "Restart"),
		ExecStart:                     argvs(get[[][]any](all, "ExecStart")),
		ExecPaths:                     paths(get[[][]any](all, "ExecStart")),
		ExecCondition:                 argvs(get[[][]any](all, "ExecCondition")),
		EnvNames:                      names(get[[]string](all, "Environment")),
		Operation:                     value(get[[]string](all, "Environment"), unitgen.OperationVar),
		Conditions:                    conditions(get[[][]any](all, "Conditions")),
		After:                         get[[]string](all, "After"),
		OnFailure:                     get[[]string](all, "OnFailure"),
		Requires:                      get[[]string](all, "Requires"),
		RequiredBy:                    get[[]string](all, "RequiredBy"),
		BoundBy:                       get[[]string](all, "BoundBy"),
		TriggeredBy:                   get[[]string](all, "TriggeredBy"),
		DefaultDependencies:           get[bool](all, "DefaultDependencies"),
		NeedDaemonReload:              get[bool](all, "NeedDaemonReload"),
		UnitFileState:                 get[string](all, "UnitFileState"),
		Job:                           at[uint32](get[[]any](all, "Job"), 0),
		TimeoutStartUSec:              get[uint64](all, "TimeoutStartUSec"),
		TimeoutStopUSec:               get[uint64](all, "TimeoutStopUSec"),
		MemoryMax:                     get[uint64](all, "MemoryMax"),
		RestartUSecNext:               get[uint64](all, "RestartUSecNext"),
		ActiveEnterTimestampMonotonic: get[uint64](all, "ActiveEnterTimestampMonotonic"),
		StateChangeTimestampMonotonic: get[uint64](all, "StateChangeTimestampMonotonic"),
		NextElapse:                    instant(get[uint64](all, "NextElapseUSecRealtime")),
	}
}

func get[T any](all map[string]dbus.Variant, name string) T {
	v, _ := all[name].Value().(T)
	return v
}

// at takes a field out of a structure, which godbus gives as a list.
func at[T any](row []any, i int) T {
	var v T
	if i < len(row) {
		v, _ = row[i].(T)
	}
	return v
}

// argvs reads a(sasbttttuii), one for each command.
func argvs(rows [][]any) [][]string {
	var list [][]string
	for _, row := range rows {
		list = append(list, at[[]string](row, 1))
	}
	return list
}

// paths reads what is executed, which the first word of an argv need not say.
func paths(rows [][]any) []string {
	var list []string
	for _, row := range rows {
		list = append(list, at[string](row, 0))
	}
	return list
}

// value is that of one variable; of several assignments the last counts.
func value(assignments []string, name string) (last string) {
	for _, a := range assignments {
		if v, ok := strings.CutPrefix(a, name+"="); ok {
			last = v
		}
	}
	return last
}

// names leaves the values out.
func names(assignments []string) []string {
	var list []string
	for _, a := range assignments {
		name, _, _ := strings.Cut(a, "=")
		list = append(list, name)
	}
	return list
}

// conditions reads a(sbbsi).
func conditions(rows [][]any) []unitgen.Condition {
	var list []unitgen.Condition
	for _, row := range rows {
		list = append(list, unitgen.Condition{
			Type: at[string](row, 0), Trigger: at[bool](row, 1), Negate: at[bool](row, 2),
			Param: at[string](row, 3), State: at[int32](row, 4),
		})
	}
	return list
}

// invocation is empty for a unit that never ran, whether systemd says so by no bytes or by zeros.
func invocation(id []byte) string {
	if s := hex.EncodeToString(id); strings.Trim(s, "0") != "" {
		return s
	}
	return ""
}

func instant(usec uint64) time.Time {
	if usec == 0 || usec > math.MaxInt64 {
		return time.Time{}
	}
	return time.UnixMicro(int64(usec)).UTC()
}
