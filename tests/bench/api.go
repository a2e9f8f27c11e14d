//go:build e2e

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"toad/tests/bench/load"
	"toad/tests/bench/table"
	"toad/tests/host"
)

const (
	apiSocket    = "/run/user/1000/toad/toad.sock"
	apiRate      = 500 // requests per second
	apiTime      = 5 * time.Second
	followers    = 1000
	statusGoal   = 20.0 // ms
	followerGoal = 60.0 // MB
)

// answers measures the API: how soon it answers under load, and what those cost that follow an operation.
func answers(b *bench, l *lab) table.Section {
	l.MustUser(b, "toad", "status")
	var half, most, lost, before, after []float64
	for range l.rounds {
		l.quiet(b)
		rss, _ := l.memory(b, "toad.service")
		before = append(before, rss)
		var all []load.Answer
		out := l.MustUser(b, "bench", "inside", "ask", apiSocket, "/v1/services/web", fmt.Sprint(apiRate), apiTime.String())
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			b.Fatal(err)
		}
		sum := load.Summarise(all)
		lost = append(lost, float64(sum.Lost+sum.Wrong))
		half, most = append(half, percentile(all, 50)), append(most, percentile(all, 99))
		b.say("status: p50 %.1f ms, p99 %.1f ms, %d sent, %d lost", half[len(half)-1], most[len(most)-1], sum.Sent, sum.Lost+sum.Wrong)
	}
	l.enroll(b, "5m", "40s") // long enough to be followed by all
	for i := range l.rounds {
		version := fmt.Sprintf("followed-%d", i)
		img := l.Push(b, version, "good", version)
		l.MustUser(b, "toad", "deploy", "--detach", "web", img.Digest)
		l.waitPhase(b, "probation")
		l.MustUser(b, "systemctl", "--user", "stop", "toad.service") // what the load left behind is not theirs
		_, own := l.memoryNow(b)
		stop := l.follow(b, l.record(b).Operation.ID)
		_, then := l.memoryNow(b)
		after = append(after, then-own)
		stop()
		host.Eventually(b, "the operation to end", 5*time.Minute, func() bool { return l.record(b).Operation.Phase == "promoted" })
		l.settle(b)
		l.good = version
	}

	s := table.Section{Name: "api", Systems: []string{table.Toad}}
	s.Add("status of a service, p50", table.Measured(table.Milliseconds, half))
	p99 := table.Measured(table.Milliseconds, most)
	s.Add("status of a service, p99", p99).Want(fmt.Sprintf("< %.0f ms", statusGoal), p99.Median < statusGoal)
	s.Add("  requests without a good answer", table.Measured(table.Requests, lost))
	s.Add("resident memory of the daemon, peak so far", table.Measured(table.Megabytes, before))
	cost := table.Measured(table.Megabytes, after)
	s.Add(fmt.Sprintf("memory of %d followers of an operation, all together", followers), cost).Want(fmt.Sprintf("< %.0f MB", followerGoal), cost.Median < followerGoal)
	s.Notes = []string{fmt.Sprintf("Status: %d requests/s to the Unix socket, each on a new connection, open loop, for %v; the time counts from when a request was due. "+
		"Followers: event streams of an operation on probation; the daemon's own memory (not pages of the program file) with all of them, less that without.", apiRate, apiTime)}
	return s
}

// percentile of the answers' times, in milliseconds; one without an answer took as long as it was waited for.
func percentile(all []load.Answer, p int) float64 {
	var took []float64
	for _, a := range all {
		took = append(took, ms(a.Took))
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[min(len(took)-1, len(took)*p/100)]
}

// memoryNow is the daemon's resident set and the part of it that is not of files, in MB. It may have to be started.
func (l *lab) memoryNow(b *bench) (resident, own float64) {
	l.MustUser(b, "toad", "status")
	return l.memory(b, "toad.service")
}

// follow opens all event streams, and returns when each has brought something.
func (l *lab) follow(b *bench, id string) (stop func()) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	cmd := l.UserCommand(ctx, b, "bench", "inside", "follow", apiSocket, id, fmt.Sprint(followers))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "all follow\n" {
		_ = cmd.Wait()
		b.Fatalf("followers: %q, %v: %.500s", line, err, said.String())
	}
	return func() {
		defer cancel()
		_ = stdin.Close()
		_ = cmd.Wait()
	}
}

// askInside asks a Unix socket at a rate for a while.
func askInside(socket, path string, rate int, length time.Duration, stdout io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), min(length, load.MaxTime))
	defer cancel()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
	return json.NewEncoder(stdout).Encode(load.RunBy(ctx, client, "http://toad"+path, rate))
}

// followInside holds n event streams open until stdin ends.
func followInside(socket, id string, n int, stdin io.Reader, stdout io.Writer) error {
	var begun sync.WaitGroup
	gate := make(chan struct{}, 100) // the daemon bears more followers than it takes requests at the same instant
	var mu sync.Mutex
	var failed error
	for range min(n, followers) {
		begun.Add(1)
		go func() {
			gate <- struct{}{}
			err := oneFollower(socket, id, sync.OnceFunc(func() { <-gate; begun.Done() }))
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
		}()
	}
	begun.Wait()
	mu.Lock()
	err := failed
	mu.Unlock()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(stdout, "all follow"); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	return err
}

func oneFollower(socket, id string, begun func()) error {
	defer begun()
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if _, err := fmt.Fprintf(conn, "GET /v1/operations/%s/log HTTP/1.1\r\nHost: toad\r\nAccept: text/event-stream\r\n\r\n", id); err != nil {
		return err
	}
	in := bufio.NewReaderSize(conn, 512)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		if strings.HasPrefix(line, "data: ") {
			begun()
		}
	}
}
