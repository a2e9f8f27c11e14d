//go:build e2e

package main

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"
)

// bench lends a program what tests/host asks of a test: to end what went wrong, and to clean up.
type bench struct {
	testing.TB // for the methods that nobody calls here
	log        io.Writer

	cleaning sync.Mutex
	mu       sync.Mutex
	cleanups []func()
}

// broken ends a section.
type broken string

func (b *bench) Helper()      {}
func (b *bench) Name() string { return "bench" }

func (b *bench) Fatal(args ...any)                 { panic(broken(fmt.Sprint(args...))) }
func (b *bench) Fatalf(format string, args ...any) { panic(broken(fmt.Sprintf(format, args...))) }

func (b *bench) Cleanup(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cleanups = append(b.cleanups, f)
}

// cleanup runs what was put down, last first, once; a second caller waits for the first.
func (b *bench) cleanup() {
	b.cleaning.Lock()
	defer b.cleaning.Unlock()
	b.mu.Lock()
	all := b.cleanups
	b.cleanups = nil
	b.mu.Unlock()
	for i := len(all) - 1; i >= 0; i-- {
		_ = b.try("clean up", all[i])
	}
}

// try runs f and returns what broke it.
func (b *bench) try(what string, f func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case broken:
			err = fmt.Errorf("%s: %s", what, string(r))
			b.say("%v", err)
		default:
			panic(r)
		}
	}()
	f()
	return nil
}

// say tells a person how far it is.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.log, time.Now().Format("15:04:05 ")+format+"\n", args...)
}
