package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"toad/probation"
	"toad/unitgen"
)

// countedBus is a user manager that counts what it is asked: svc-0 runs, svc-1 has failed, and no other is loaded.
type countedBus struct{ running, loaded int }

func (b *countedBus) Running(_ context.Context, name string) (unitgen.State, error) {
	b.running++
	return unitgen.State{Name: name, ActiveState: map[string]string{"svc-0.service": "active", "svc-1.service": "failed"}[name]}, nil
}

func (b *countedBus) Loaded(_ context.Context, name string) (bool, error) {
	b.loaded++
	return name == "svc-0.service" || name == "svc-1.service", nil
}

func TestALookLoadsNoUnits(t *testing.T) {
	bus := &countedBus{}
	have := map[string]int{}
	for i := range 1000 {
		name := fmt.Sprintf("svc-%d.service", i)
		st, err := shortly{bus}.State(t.Context(), name)
		if err != nil || st.Name != name {
			t.Fatalf("have %+v, %v", st, err)
		}
		have[st.ActiveState]++
	}
	if have["active"] != 1 || have["failed"] != 1 || have["inactive"] != 998 || *bus != (countedBus{2, 1000}) {
		t.Errorf("want more asked of 2 of 1000, have %+v, %v", bus, have)
	}
}

func TestSoManyAtATimeUntilTheEnd(t *testing.T) {
	var mu sync.Mutex
	at, most := 0, 0
	done := make([]bool, 500)
	eachOf(t.Context(), len(done), 7, func(i int) {
		mu.Lock()
		at, done[i] = at+1, true
		most = max(most, at)
		mu.Unlock()
		mu.Lock()
		at--
		mu.Unlock()
	})
	for i, ok := range done {
		if !ok {
			t.Fatalf("%d was left out", i)
		}
	}
	if most > 7 {
		t.Errorf("want at most 7 at a time, have %d", most)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	n := 0
	eachOf(ctx, 500, 1, func(int) { n++; cancel(errors.New("enough")) })
	if n > 2 {
		t.Errorf("it went on after the end: %d", n)
	}
}

// oddsReady tells that every other service is ready, and of the last one nothing.
type oddsReady struct{ looks }

func (oddsReady) Ready(_ context.Context, all []probation.Enrollment, tell func(i int, ready bool, why string)) {
	for i, e := range all {
		if e.Image != "" {
			tell(i, false, "more was told than was asked for")
		} else if !strings.HasSuffix(e.Name, "-249") {
			tell(i, strings.ContainsAny(e.Name[len(e.Name)-1:], "13579"), e.Name)
		}
	}
}

func TestADaemonInAContainerAsksForManyServicesInAFewQuestions(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "look.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	var h *host
	questions, answers := 0, h.sightHandler(sight{Host: oddsReady{}})
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { questions++; answers.ServeHTTP(w, r) })}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	all := make([]probation.Enrollment, 250)
	for i := range all {
		all[i] = probation.Enrollment{Name: fmt.Sprintf("svc-%d", i), Image: "registry.example.org/web"}
	}
	told := map[int]bool{}
	farHost{newFarSight(socket), looks{}}.Ready(t.Context(), all, func(i int, ready bool, why string) {
		if told[i] = true; why != all[i].Name || ready != (i%2 == 1) {
			t.Errorf("of %s: have %v, %s", all[i].Name, ready, why)
		}
	})
	if len(told) != 249 || told[249] || questions != 3 {
		t.Errorf("want 249 told in 3 questions, have %d in %d", len(told), questions)
	}
}
