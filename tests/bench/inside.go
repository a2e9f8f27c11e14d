//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"time"

	"toad/tests/bench/load"
)

// inside is the part of this program that runs within a host.
func inside(args []string, stdin io.Reader, stdout io.Writer) error {
	switch {
	case len(args) == 3 && args[0] == "load":
		rate, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(context.Background())
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			cancel()
		}()
		return json.NewEncoder(stdout).Encode(load.Run(ctx, args[1], rate))
	case len(args) == 5 && args[0] == "ask":
		rate, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		length, err := time.ParseDuration(args[4])
		if err != nil {
			return err
		}
		return askInside(args[1], args[2], rate, length, stdout)
	case len(args) == 4 && args[0] == "follow":
		n, err := strconv.Atoi(args[3])
		if err != nil {
			return err
		}
		return followInside(args[1], args[2], n, stdin, stdout)
	case len(args) == 3 && args[0] == "durable":
		return durableInside(args[1], args[2], stdout)
	case len(args) > 2 && args[0] == "time":
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		return timed(n, args[2:], stdout)
	}
	return errors.New("usage: bench inside load URL RATE | bench inside ask SOCKET PATH RATE TIME | bench inside follow SOCKET ID N | bench inside durable KIND RECORD | bench inside time N COMMAND…")
}

// timed runs a command n times and prints how long each took, in milliseconds.
func timed(n int, argv []string, stdout io.Writer) error {
	var took []float64
	for range n {
		begin := time.Now()
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%v: %w\n%s", argv, err, out)
		}
		took = append(took, ms(time.Since(begin)))
	}
	return json.NewEncoder(stdout).Encode(took)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
