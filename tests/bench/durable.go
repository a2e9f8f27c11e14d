//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	store "toad/probation/record"
	"toad/tests/bench/table"
	"toad/tests/host"
)

const durableWrites = 200

// writers are what is made durable one after the other, in a folder; each returns how long one took, in milliseconds.
var writers = []string{"a record, as toad saves it", "bare write, fsync, rename, fsync of the folder", "bare append of 512 bytes, fsync"}

// durable measures how many records toad can save in a second, against what the disk itself gives.
func durable(b *bench, l *lab) table.Section {
	s := table.Section{Name: "durable", Systems: []string{table.Toad, "rename, both fsynced", "append, fsynced"}}
	took, rate := make([][]float64, len(writers)), make([][]float64, len(writers))
	for range l.rounds {
		l.quiet(b)
		for i := range writers {
			var each []float64
			out := l.MustUser(b, "bench", "inside", "durable", fmt.Sprint(i), host.Home+"/.local/state/toad/services/web.json")
			if err := json.Unmarshal([]byte(out), &each); err != nil {
				b.Fatalf("%v: %.500s", err, out)
			}
			var sum float64
			for _, t := range each {
				sum += t
			}
			took[i] = append(took[i], table.Measured(table.Milliseconds, each).Median)
			rate[i] = append(rate[i], float64(len(each))/sum*1000)
		}
	}
	var one, many []table.Figure
	for i := range writers {
		one = append(one, table.Measured(table.Milliseconds, took[i]))
		many = append(many, table.Measured(table.Requests, rate[i]))
	}
	s.Add("one write", one...)
	s.Add("writes per second, one after the other", many...)
	s.Notes = []string{fmt.Sprintf("%d writes of the record of a promoted service, on the file system of the state folder. Toad: %s, with its encoding and checks; beside it: %s; %s.",
		durableWrites, writers[0], writers[1], writers[2])}
	return s
}

// durableInside writes in a new folder beside the record whose text it takes.
func durableInside(kind, path string, stdout io.Writer) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(filepath.Dir(filepath.Dir(path)), "bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	write, err := writer(kind, path, dir, text)
	if err != nil {
		return err
	}
	var took []float64
	for range durableWrites {
		began := time.Now()
		if err := write(); err != nil {
			return err
		}
		took = append(took, ms(time.Since(began)))
	}
	return json.NewEncoder(stdout).Encode(took)
}

func writer(kind, path, dir string, text []byte) (func() error, error) {
	switch kind {
	case "0":
		from, err := store.Open(filepath.Dir(filepath.Dir(path)))
		if err != nil {
			return nil, err
		}
		svc, err := from.Service("web")
		if err != nil {
			return nil, err
		}
		into, err := store.Open(dir)
		return func() error { return into.Put(svc) }, err
	case "1":
		folder, err := os.Open(dir)
		return func() error { return replace(folder, text) }, err
	}
	file, err := os.Create(filepath.Join(dir, "log"))
	return func() error {
		if _, err := file.Write(text[:512]); err != nil {
			return err
		}
		return file.Sync()
	}, err
}

// replace is what any durable replacement of a file costs.
func replace(folder *os.File, text []byte) error {
	file, err := os.Create(filepath.Join(folder.Name(), "new"))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if _, err := file.Write(text); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := os.Rename(file.Name(), filepath.Join(folder.Name(), "record")); err != nil {
		return err
	}
	return folder.Sync()
}
