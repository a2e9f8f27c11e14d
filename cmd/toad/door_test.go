package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/httpd"
	"toad/probation"
	"toad/probation/record"
)

// desk accepts what the rules accept, and has nobody to act on it.
type desk struct{ *record.Store }

func (d desk) Accept(ctx context.Context, e probation.Enrollment, req probation.Request) (op probation.Operation, replay bool, err error) {
	if op, found, err := d.ByKey(e.Name, req.Key); found || err != nil {
		return op, found, err
	}
	svc, err := d.Service(e.Name)
	if err != nil {
		return op, false, err
	}
	next, changed, err := svc.Accept(e, req, probation.Instant{Wall: time.Now()})
	if err != nil {
		return op, false, err
	}
	if !changed {
		return *svc.Operation, true, nil
	}
	return *next.Operation, false, errors.Join(d.Put(next), d.tell(next))
}

func (d desk) Abort(_ context.Context, id, by string) (probation.Operation, error) {
	op, err := d.Operation(id)
	if err != nil {
		return op, err
	}
	return op, d.Store.Abort(id, by)
}

func (d desk) Again(context.Context, probation.Operation) error { return nil }

func (d desk) tell(svc probation.Service) error {
	return d.Log(svc.Operation.ID, record.Line{At: time.Now().UTC(), Level: "info", Event: string(svc.Operation.Phase), Message: "now"})
}

// move carries web's operation through events, one every few milliseconds.
func (d desk) move(t *testing.T, events ...probation.Event) {
	t.Helper()
	for _, ev := range events {
		time.Sleep(5 * time.Millisecond)
		svc, err := d.Service("web")
		if err != nil {
			t.Error(err)
			return
		}
		ev.At.Wall = time.Now()
		next, ok := svc.Apply(ev)
		if !ok {
			t.Errorf("event %s does not fit %s", ev.Kind, svc.Operation.Phase)
			return
		}
		if err := errors.Join(d.Put(next), d.tell(next)); err != nil {
			t.Error(err)
			return
		}
	}
}

type onlyWeb struct{}

func (o onlyWeb) All() []probation.Enrollment {
	e, _ := o.Enrollment("web")
	return []probation.Enrollment{e}
}
func (onlyWeb) Invalid() error { return nil }
func (onlyWeb) Enrollment(name string) (probation.Enrollment, error) {
	if name != "web" {
		return probation.Enrollment{}, httpd.ErrUnknownService
	}
	return probation.Enrollment{Name: name, Image: "registry.example.org/team/web", Limit: probation.Limits{Stable: time.Second, Keep: 2}}, nil
}

func TestCommandsAndTheDoorUnderstandEachOther(t *testing.T) {
	store, err := record.Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "toad.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	d := desk{store}
	server := httpd.New(httpd.Options{Deployments: d, Records: store, Enrolled: onlyWeb{}, StateDir: store.Dir(),
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, listener) }()
	defer func() { cancel(); <-ended }()

	prepared := []probation.Event{{Kind: probation.Begun}, {Kind: probation.Prepared, Candidate: probation.Release{Digest: one}},
		{Kind: probation.SwitchBegun}, {Kind: probation.Switched}}
	begin := func(events []probation.Event, args ...string) result {
		before, _ := store.Service("web")
		done := make(chan result, 1)
		go func() { done <- toad(ctx, "unix://"+socket, args...) }()
		for {
			svc, err := store.Service("web")
			if err != nil {
				t.Fatal(err)
			}
			_, given := store.Aborted("web-g2")
			if svc.Generation > before.Generation || given {
				break
			}
			time.Sleep(time.Millisecond)
		}
		d.move(t, events...)
		return <-done
	}
	r := begin(append(prepared, probation.Event{Kind: probation.Stable}, probation.Event{Kind: probation.PinKept}), "deploy", "web", one)
	if r.code != 0 || !strings.HasSuffix(r.stdout, "web runs "+one+" (web-g1): it was ready for 1s without a break.\n") ||
		strings.Count(r.stdout, "\n") != 8 {
		t.Errorf("have %+v", r)
	}
	if r := toad(ctx, "unix://"+socket, "deploy", "web", one); r.code != 0 || !strings.Contains(r.stdout, "runs "+one+" already") {
		t.Errorf("have %+v", r)
	}
	if r := toad(ctx, "unix://"+socket, "deploy", "web", two, "--detach"); r.code != 0 {
		t.Errorf("have %+v", r)
	}
	if r := toad(ctx, "unix://"+socket, "deploy", "web", "sha256:"+strings.Repeat("3", 64)); r.code != exitRefused {
		t.Errorf("have %+v", r)
	}
	r = begin([]probation.Event{{Kind: probation.Aborted, Reason: "given up"}}, "rollback", "web")
	if r.code != 0 || !strings.Contains(r.stdout, one+" (generation 1) is in force") {
		t.Errorf("have %+v", r)
	}
	if r := toad(ctx, "unix://"+socket, "log", "web"); r.code != 0 || strings.Count(r.stdout, "\n") != 3 || !strings.Contains(r.stdout, "refused") {
		t.Errorf("have %+v", r)
	}
	if r := toad(ctx, "unix://"+socket, "status", "wbe"); r.code != exitConfig || !strings.Contains(r.stderr, "toad status lists the enrolled services") {
		t.Errorf("have %+v", r)
	}
}
