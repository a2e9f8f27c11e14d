//go:build e2e

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"toad/tests/bench/table"
	"toad/tests/host"
)

const (
	pageServices = 100
	pageReaders  = 200
	webSocket    = "/run/user/1000/toad-web/web.sock"
)

// web measures the page: how soon it begins with many services, how soon it tells of a change, and what it costs to have
// it open many times.
func web(b *bench, l *lab) table.Section {
	s := table.Section{Name: "web", Systems: []string{table.Toad}}
	l.enroll(b, "60s", "1s")
	// The services are never deployed; what is read of each is its enrollment and the lack of a record.
	var more strings.Builder
	for i := range pageServices - 1 {
		fmt.Fprintf(&more, "\n[service.page-%02d]\nunits = [\"page-%02d.container\"]\nimage = \"%s\"\n", i, i, host.Repository)
	}
	path := "~/.config/toad/enrollment.toml"
	l.WriteFile(b, path, l.ReadFile(b, path)+more.String(), 0o644)
	version := "web-0"
	l.deployGood(b, version)
	l.copyRecords(b)
	time.Sleep(3 * time.Second) // services rest for days: a record of the last two seconds is read anew for each page

	var first, whole []float64
	for range 20 * l.rounds {
		f, w := l.page(b)
		first, whole = append(first, f), append(whole, w)
	}
	fig := table.Measured(table.Milliseconds, first)
	s.Add(fmt.Sprintf("first byte of the page, %d services", pageServices), fig).Want("< 10 ms", fig.Median < 10)
	s.Add("  its last byte", table.Measured(table.Milliseconds, whole))

	var told []float64
	for i := range l.rounds {
		told = append(told, l.told(b, fmt.Sprintf("web-%d", i+1))...)
	}
	fig = table.Measured(table.Milliseconds, told)
	s.Add("change of phase saved → told to an open page", fig).Want("< 500 ms", fig.Median < 500)

	before := l.daemonMemory(b)
	end := l.openPages(b, pageReaders)
	after := l.daemonMemory(b)
	end()
	fig = table.Measured(table.Megabytes, []float64{after - before})
	s.Add(fmt.Sprintf("memory of the daemon for %d open pages", pageReaders), fig).Want("< 30 MB", fig.Median < 30)
	s.Notes = []string{
		"Asked on the page's socket, within the host, each on a connection of its own.",
		"A change of phase: from the time in the operation's log to the arrival of the event, over all phases of the deployments.",
		fmt.Sprintf("Memory: the anonymous memory of toad.service's process, after and before %d streams of the first page with %d services.", pageReaders, pageServices),
	}
	return s
}

// copyRecords gives each of the services a record, as if it had been deployed like web.
func (l *lab) copyRecords(b *bench) {
	text := l.ReadFile(b, "~/.local/state/toad/services/web.json")
	for i := range pageServices - 1 {
		name := fmt.Sprintf("page-%02d", i)
		l.WriteFile(b, "~/.local/state/toad/services/"+name+".json", strings.ReplaceAll(text, `"web`, `"`+name), 0o600)
	}
}

// pageClient asks on the page's socket.
func (l *lab) pageClient() *http.Client {
	path := "/proc/" + l.Pid() + "/root" + webSocket
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
}

// page asks for the first page once.
func (l *lab) page(b *bench) (first, whole float64) {
	began := time.Now()
	resp, err := l.pageClient().Get("http://toad/")
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()
	body := bufio.NewReader(resp.Body)
	if _, err := body.ReadByte(); err != nil {
		b.Fatal(err)
	}
	first = ms(time.Since(began))
	n, err := io.Copy(io.Discard, body)
	if err != nil || n < 10_000 {
		b.Fatalf("the page has %d bytes: %v", n, err)
	}
	return first, ms(time.Since(began))
}

// told deploys a release while its page is open, and returns how long after each phase's line in the log its event came.
func (l *lab) told(b *bench, version string) []float64 {
	img := l.Push(b, version, "good", version)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://toad/services/web/events", nil)
	if err != nil {
		b.Fatal(err)
	}
	resp, err := l.pageClient().Do(req)
	if err != nil {
		b.Fatal(err)
	}
	type arrival struct {
		word string
		at   time.Time
	}
	arrivals := make(chan arrival, 100)
	go func() {
		defer close(arrivals)
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			if _, rest, ok := strings.Cut(lines.Text(), `id="stand" data-tone="`); ok {
				_, word, _ := strings.Cut(rest, ": ")
				arrivals <- arrival{strings.TrimRight(word, `">`), time.Now()}
			}
		}
	}()
	<-arrivals // the page as it was
	l.MustUser(b, "toad", "deploy", "web", img.Digest)
	l.settle(b)
	l.good = version
	log := l.moments(b, l.record(b).Operation.ID)
	cancel()
	words := map[string]string{"Preparing": "preparing", "Switching": "switching", "On probation": "probation", "Promoting": "promoting", "In force": "promoted"}
	seen := map[string]bool{}
	var took []float64
	for a := range arrivals {
		if at, ok := log[words[a.word]]; ok && !seen[a.word] {
			seen[a.word] = true
			took = append(took, ms(a.at.Sub(at)))
		}
	}
	if !seen["On probation"] || !seen["In force"] {
		b.Fatalf("the page told of %v only", seen)
	}
	return took
}

// openPages opens streams of the first page, and returns when all have been told of everything.
func (l *lab) openPages(b *bench, n int) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	client := l.pageClient()
	ready := make(chan error, n)
	for range n {
		go func() {
			req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://toad/events", nil)
			resp, err := client.Do(req)
			if err != nil {
				ready <- err
				return
			}
			defer resp.Body.Close()
			lines, told := bufio.NewReader(resp.Body), false
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					if !told {
						ready <- err
					}
					return
				}
				if strings.HasPrefix(line, "event: whole") && !told {
					told = true
					ready <- nil
				}
			}
		}()
	}
	for range n {
		if err := <-ready; err != nil {
			cancel()
			b.Fatal(err)
		}
	}
	return cancel
}

// daemonMemory is what the daemon's process holds of its own, in MB.
func (l *lab) daemonMemory(b *bench) float64 {
	_, _ = l.page(b) // it is there
	_, own := l.memory(b, "toad.service")
	return own
}
