package userbus

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"toad/unitgen"
)

func TestReadersThatLagMissNoJobAndLookOnce(t *testing.T) {
	var q queue
	for _, c := range []unitgen.Change{
		{Kind: unitgen.Changed, Unit: "a"},
		{Kind: unitgen.JobNew, Unit: "a", Job: 1, JobType: "stop"},
		{Kind: unitgen.Changed, Unit: "a"},
		{Kind: unitgen.Changed, Unit: "b"},
		{Kind: unitgen.JobNew, Unit: "a", Job: 1, JobType: "stop"},
		{Kind: unitgen.Lost},
		{Kind: unitgen.Lost},
	} {
		q.push(c)
	}
	want := []unitgen.Change{
		{Kind: unitgen.Changed, Unit: "a"},
		{Kind: unitgen.JobNew, Unit: "a", Job: 1, JobType: "stop"},
		{Kind: unitgen.Changed, Unit: "b"},
		{Kind: unitgen.JobNew, Unit: "a", Job: 1, JobType: "stop"},
		{Kind: unitgen.Lost},
	}
	if !reflect.DeepEqual(want, q.list) {
		t.Errorf("want %v\nhave %v", want, q.list)
	}
	q.pop()
	q.push(unitgen.Change{Kind: unitgen.Changed, Unit: "a"})
	if want, have := 5, len(q.list); want != have {
		t.Errorf("a change after the reader took the last one: want %d waiting, have %d", want, have)
	}
}

func TestStopsAreConcludedFromTheUnitAlone(t *testing.T) {
	for name, c := range map[string]struct {
		before glimpse
		now    unitgen.State
		want   bool
	}{
		"stopped":                   {glimpse{"active", "1"}, unitgen.State{ActiveState: "inactive", InvocationID: "1"}, true},
		"stopped, ended by 143":     {glimpse{"active", "1"}, unitgen.State{ActiveState: "failed", InvocationID: "1"}, true},
		"stopped and unloaded":      {glimpse{"active", "1"}, unitgen.State{ActiveState: "inactive"}, true},
		"stopped in auto-restart":   {glimpse{"activating", "1"}, unitgen.State{ActiveState: "inactive", InvocationID: "1"}, true},
		"restarted":                 {glimpse{"active", "1"}, unitgen.State{ActiveState: "active", InvocationID: "2"}, false},
		"restarted and crashed":     {glimpse{"active", "1"}, unitgen.State{ActiveState: "failed", InvocationID: "2"}, false},
		"started but skipped":       {glimpse{"inactive", "1"}, unitgen.State{ActiveState: "inactive", InvocationID: "1"}, false},
		"crashed before the job":    {glimpse{"failed", "1"}, unitgen.State{ActiveState: "failed", InvocationID: "1"}, false},
		"nothing known of the unit": {glimpse{}, unitgen.State{ActiveState: "inactive"}, false},
	} {
		if have := stopped(c.before, c.now); have != c.want {
			t.Errorf("%s: want %v have %v", name, c.want, have)
		}
	}
}

func TestErrorsOfTheManagerAreComparableAndKeepTheirWords(t *testing.T) {
	for name, want := range map[string]error{
		"org.freedesktop.systemd1.UnitExists":               ErrExists,
		"org.freedesktop.systemd1.NoSuchUnit":               ErrNoUnit,
		"org.freedesktop.systemd1.TransactionIsDestructive": ErrDestructive,
		"org.freedesktop.systemd1.ShuttingDown":             ErrDestructive,
		"org.freedesktop.DBus.Error.ServiceUnknown":         ErrNoBus,
		"org.freedesktop.DBus.Error.NoReply":                ErrNoBus,
	} {
		have := translate(dbus.Error{Name: name, Body: []any{"Unit web.service said no."}})
		if !errors.Is(have, want) || !strings.Contains(have.Error(), "Unit web.service said no.") {
			t.Errorf("%s: %v", name, have)
		}
	}
	if have := translate(dbus.ErrClosed); !errors.Is(have, ErrNoBus) {
		t.Errorf("closed: %v", have)
	}
	other := dbus.Error{Name: "org.freedesktop.DBus.Error.InvalidArgs", Body: []any{"no"}}
	for _, sentinel := range []error{ErrExists, ErrNoUnit, ErrDestructive, ErrNoBus} {
		if errors.Is(translate(other), sentinel) {
			t.Errorf("%v is %v", other, sentinel)
		}
	}
}

func TestPropertiesOfUnexpectedShapeAreZero(t *testing.T) {
	have := decode(map[string]dbus.Variant{
		"Id":                     dbus.MakeVariant("web.service"),
		"LoadState":              dbus.MakeVariant(7),
		"InvocationID":           dbus.MakeVariant(make([]byte, 16)),
		"Job":                    dbus.MakeVariant([]string{"x"}),
		"NextElapseUSecRealtime": dbus.MakeVariant(^uint64(0)),
	})
	if want := (unitgen.State{Name: "web.service"}); !reflect.DeepEqual(want, have) {
		t.Errorf("want %+v\nhave %+v", want, have)
	}
}

func TestWithoutABusTheErrorSaysWhatToDo(t *testing.T) {
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	_, err := Dial(t.Context())
	if !errors.Is(err, ErrNoBus) || !strings.Contains(err.Error(), "loginctl enable-linger") {
		t.Error(err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "nonsense")
	if _, err := Dial(t.Context()); !errors.Is(err, ErrNoBus) {
		t.Error(err)
	}
}

func TestTheBusIsFoundByItsAddressFirst(t *testing.T) {
	t.Setenv("XDG_RUNTIME_DIR", "/run/with space")
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/x")
	if have, err := address(); have != "unix:path=/x" || err != nil {
		t.Error(have, err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "")
	if have, err := address(); have != "unix:path=/run/with%20space/bus" || err != nil {
		t.Error(have, err)
	}
}

// A bus that is stopped accepts connections, since the kernel does, and says nothing.
func TestDialGivesUpOnASilentBus(t *testing.T) {
	dir, err := os.MkdirTemp("", "bus") // t.TempDir is too long for a socket address
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := net.Listen("unix", filepath.Join(dir, "bus"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path="+filepath.Join(dir, "bus"))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := Dial(ctx)
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, ErrNoBus) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Dial hangs")
	}
}

func TestOverlongPropertiesNeverReachTheManager(t *testing.T) {
	b := &Bus{turn: make(chan struct{}, 1)} // a connection would be dialled, and found missing
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
	long := unitgen.Act("web-g7", 1, 0, unitgen.Program{Exe: "/toad", State: strings.Repeat("x", 1<<20)})
	for _, err := range []error{b.Create(t.Context(), long), b.SetEnvironment(t.Context(), strings.Repeat("x", 1<<20))} {
		if err == nil || errors.Is(err, ErrNoBus) {
			t.Error(err)
		}
	}
}
