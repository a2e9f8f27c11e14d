package record_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"toad/probation"
	"toad/probation/record"
)

func open(t *testing.T) *record.Store {
	t.Helper()
	s, err := record.Open(filepath.Join(t.TempDir(), "state"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func service(generation int) probation.Service {
	op := probation.Operation{ID: probation.OperationID("web", generation), Service: "web", Generation: generation,
		Phase: probation.Promoted, Key: fmt.Sprintf("key %d", generation), AcceptedAt: time.Date(2026, 11, 29, 20, 0, 0, 0, time.UTC)}
	return probation.Service{Name: "web", Generation: generation, Operation: &op}
}

func TestARecordIsReadAsItWasSaved(t *testing.T) {
	s := open(t)
	want := service(3)
	if err := s.Put(want); err != nil {
		t.Fatal(err)
	}
	have, err := s.Service("web")
	if err != nil || !reflect.DeepEqual(want, have) {
		t.Errorf("want %+v, have %+v, %v", want, have, err)
	}
	info, err := os.Stat(filepath.Join(s.Dir(), "services/web.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if unknown, err := s.Service("other"); err != nil || unknown.Generation != 0 || unknown.Name != "other" {
		t.Errorf("one that was never written is new: %+v, %v", unknown, err)
	}
}

// A damaged record never becomes a new service: that would forget what is refused and what is kept.
func TestADamagedRecordIsSetAsideAndNamed(t *testing.T) {
	whole := func(s *record.Store) []byte {
		if err := s.Put(service(3)); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(s.Dir(), "services/web.json"))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	for name, damage := range map[string]func([]byte) []byte{
		"empty": func([]byte) []byte { return nil },
		"NULs":  func(b []byte) []byte { return make([]byte, len(b)) },
		"half":  func(b []byte) []byte { return b[:len(b)/2] },
		"another service": func(b []byte) []byte {
			return []byte(strings.Replace(string(b), `"service": "web"`, `"service": "other"`, 1))
		},
		"no schema": func(b []byte) []byte { return []byte(strings.Replace(string(b), `"schema": 1`, `"x": 1`, 1)) },
		"not JSON":  func([]byte) []byte { return []byte("web") },
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			damaged := damage(whole(s))
			path := filepath.Join(s.Dir(), "services/web.json")
			if err := os.WriteFile(path, damaged, 0o600); err != nil {
				t.Fatal(err)
			}
			for range 2 { // and it stays damaged
				if _, err := s.Service("web"); !errors.Is(err, record.ErrDamaged) || !strings.Contains(err.Error(), "--repair web") {
					t.Fatalf("have %v", err)
				}
			}
			aside, _ := filepath.Glob(path + ".corrupt-*")
			if len(aside) != 1 {
				t.Fatalf("set aside: %v", aside)
			}
			if kept, _ := os.ReadFile(aside[0]); string(kept) != string(damaged) {
				t.Error("what was set aside is not what was there")
			}
			names, err := s.Names()
			if err != nil || !reflect.DeepEqual(names, []string{"web"}) {
				t.Errorf("names %v, %v", names, err)
			}
			if _, err := s.Service("other"); err != nil {
				t.Errorf("another service: %v", err)
			}
		})
	}
}

// A newer toad's record is whole: it waits for that toad, whoever looks at it meanwhile.
func TestANewerRecordIsLeftWhereItIs(t *testing.T) {
	s := open(t)
	if err := s.Put(service(3)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(s.Dir(), "services/web.json")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, newer := range map[string]string{
		"the same fields": strings.Replace(string(whole), `"schema": 1`, `"schema": 7`, 1),
		"other fields":    `{"schema": 7, "service": {"name": "web"}, "generation": "three"}`,
	} {
		if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := s.Service("web")
			if !errors.Is(err, record.ErrNewer) || !errors.Is(err, record.ErrDamaged) || !strings.Contains(err.Error(), "schema 7") || !strings.Contains(err.Error(), "--repair web") {
				t.Errorf("%s: have %v", what, err)
			}
		}
		if have, _ := os.ReadFile(path); string(have) != newer {
			t.Errorf("%s: it was changed: %s", what, have)
		}
	}
	if err := s.SetNewerAside("web"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Service("web"); !errors.Is(err, record.ErrDamaged) || errors.Is(err, record.ErrNewer) {
		t.Errorf("set aside it is %v", err)
	}
}

func TestAStateFolderThatOthersCanReadIsClosedToThem(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	if err := os.MkdirAll(filepath.Join(dir, "operations"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := record.Open(dir); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"", "services", "operations"} {
		if info, err := os.Stat(filepath.Join(dir, d)); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%q: %v, %v", d, info.Mode(), err)
		}
	}
}

func TestAHundredOperationsAreKeptWithTheirKeys(t *testing.T) {
	s := open(t)
	const n = 130
	for g := 1; g <= n; g++ {
		svc := service(g)
		if err := s.Log(svc.Operation.ID, record.Line{Message: "x"}); err != nil {
			t.Fatal(err)
		}
		if g > 1 {
			if err := s.Archive(*service(g - 1).Operation); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Put(svc); err != nil {
			t.Fatal(err)
		}
	}
	ops, err := s.Operations("web", 0, 1000)
	if err != nil || len(ops) != 100 || ops[0].Generation != n || ops[99].Generation != n-99 {
		t.Fatalf("%d operations, %v", len(ops), err)
	}
	page, err := s.Operations("web", 100, 5)
	if err != nil || len(page) != 5 || page[0].Generation != 99 {
		t.Errorf("a page before 100: %+v, %v", page, err)
	}
	if op, found, err := s.ByKey("web", "key 31"); err != nil || !found || op.Generation != 31 {
		t.Errorf("by key: %+v, %v, %v", op, found, err)
	}
	if _, found, _ := s.ByKey("web", "key 12"); found {
		t.Error("a key outlived its operation")
	}
	if _, err := s.Operation("web-g12"); !errors.Is(err, record.ErrUnknown) {
		t.Errorf("an operation of long ago: %v", err)
	}
	files, _ := os.ReadDir(filepath.Join(s.Dir(), "operations"))
	if len(files) > 210 {
		t.Errorf("%d files are left of %d operations", len(files), n)
	}
}

func TestALogIsReadInWholeLinesFromAnOffset(t *testing.T) {
	s := open(t)
	for _, m := range []string{"one", strings.Repeat("long ", 2000), "three\nwith a break"} {
		if err := s.Log("web-g1", record.Line{Event: "step", Message: m}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(filepath.Join(s.Dir(), "operations/web-g1.log"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"message":"torn`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	lines, next, err := s.ReadLog("web-g1", 0)
	if err != nil || len(lines) != 3 || len(lines[1]) > 4096 {
		t.Fatalf("%d lines, %v", len(lines), err)
	}
	if more, _, _ := s.ReadLog("web-g1", next); len(more) != 0 {
		t.Errorf("the torn line was read: %q", more)
	}
	if none, _, err := s.ReadLog("web-g9", 0); err != nil || none != nil {
		t.Errorf("an operation without a log: %v, %v", none, err)
	}
}

func TestALockIsHeldByOneAndWaitedFor(t *testing.T) {
	s := open(t)
	ctx := context.Background()
	unlock, err := s.Lock(ctx, "web")
	if err != nil {
		t.Fatal(err)
	}
	if other, err := s.Lock(ctx, "other"); err != nil {
		t.Errorf("another service: %v", err)
	} else {
		other()
	}
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(short, "web"); err == nil {
		t.Error("two hold one lock")
	}
	got := make(chan error, 1)
	go func() {
		again, err := s.Lock(ctx, "web")
		if err == nil {
			again()
		}
		got <- err
	}()
	unlock()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestASecondDaemonIsToldWhoHoldsTheState(t *testing.T) {
	s := open(t)
	unlock, err := s.LockServe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.LockServe(); !errors.Is(err, record.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("have %v", err)
	}
	unlock()
	if unlock, err = s.LockServe(); err != nil {
		t.Errorf("after it ended: %v", err)
	} else {
		unlock()
	}
}
