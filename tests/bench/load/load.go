// Package load asks a service at a fixed rate, whatever becomes of the answers, over a new connection each time: what
// people behind a switch would have seen.
package load

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Limits of any load, so that a mistake cannot become an attack on the machine.
const (
	MaxRate = 500
	MaxTime = 3 * time.Minute
	// Patience is when a client gives up, as browsers, proxies and libraries commonly do.
	Patience = 30 * time.Second
)

// Answer is one request and what came of it.
type Answer struct {
	At      time.Time     `json:"at"` // when it was due
	Took    time.Duration `json:"took"`
	Status  int           `json:"status"` // 0: no answer
	Version string        `json:"version,omitempty"`
	Err     string        `json:"err,omitempty"`
}

// End is when the answer was there, or was given up.
func (a Answer) End() time.Time { return a.At.Add(a.Took) }

// Run asks until the context ends or MaxTime is over, and returns when every answer is there.
func Run(ctx context.Context, url string, rate int) []Answer {
	return RunBy(ctx, &http.Client{Timeout: Patience, Transport: &http.Transport{DisableKeepAlives: true}}, url, rate)
}

// RunBy is Run with a client of the caller's, which makes a new connection each time.
func RunBy(ctx context.Context, client *http.Client, url string, rate int) []Answer {
	rate = min(max(rate, 1), MaxRate)
	period := time.Second / time.Duration(rate)
	var (
		all  []Answer
		mu   sync.Mutex
		wait sync.WaitGroup
	)
	begin := time.Now()
	for n := 0; ; n++ {
		due := begin.Add(time.Duration(n) * period)
		if due.Sub(begin) > MaxTime || !sleepUntil(ctx, due) {
			break
		}
		wait.Go(func() {
			a := ask(client, url, due)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
		})
	}
	wait.Wait()
	return all
}

func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// ask counts the time from when the request was due: a generator that is late would else hide a slow service.
func ask(client *http.Client, url string, due time.Time) Answer {
	a := Answer{At: due}
	resp, err := client.Get(url)
	if err == nil {
		var body []byte
		body, err = io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		_ = resp.Body.Close()
		a.Status = resp.StatusCode
		a.Version, _ = strings.CutPrefix(strings.TrimSpace(string(body)), "version ")
	}
	if err != nil {
		a.Status, a.Version, a.Err = 0, "", err.Error()
	}
	a.Took = time.Since(due)
	return a
}

// Sum is what matters of many answers.
type Sum struct {
	Sent    int
	Lost    int           // no answer
	Wrong   int           // an answer other than 2xx
	Slowest time.Duration // of those that were answered
}

// Summarise adds up.
func Summarise(all []Answer) Sum {
	s := Sum{Sent: len(all)}
	for _, a := range all {
		switch {
		case a.Status == 0:
			s.Lost++
			continue
		case a.Status/100 != 2:
			s.Wrong++
		}
		s.Slowest = max(s.Slowest, a.Took)
	}
	return s
}

// Served is when a version first answered well after an instant.
func Served(all []Answer, version string, after time.Time) (time.Time, bool) {
	var first time.Time
	for _, a := range all {
		end := a.End()
		if a.Status/100 == 2 && a.Version == version && end.After(after) && (first.IsZero() || end.Before(first)) {
			first = end
		}
	}
	return first, !first.IsZero()
}

// Last is the answer that was due last.
func Last(all []Answer) Answer {
	var last Answer
	for _, a := range all {
		if a.At.After(last.At) {
			last = a
		}
	}
	return last
}
