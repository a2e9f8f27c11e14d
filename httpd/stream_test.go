package httpd

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/httpd/api"
	"toad/probation"
)

// events reads a stream as a browser would, without the client's help.
func (f *fixture) events(id, last string) (next func() string, hangUp func()) {
	f.Helper()
	conn, err := net.Dial("unix", f.socket)
	if err != nil {
		f.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	head := "GET /v1/operations/" + id + "/log HTTP/1.1\r\nHost: toad\r\nAccept: text/event-stream\r\n"
	if last != "" {
		head += "Last-Event-ID: " + last + "\r\n"
	}
	if _, err := conn.Write([]byte(head + "\r\n")); err != nil {
		f.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		f.Fatal(resp, err)
	}
	in := bufio.NewReader(resp.Body)
	return func() string {
		var event strings.Builder
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return "<" + err.Error() + ">"
			}
			if line == "\n" {
				return event.String()
			}
			event.WriteString(line)
		}
	}, func() { _ = conn.Close() }
}

// nextLine skips to the next event that is a line of the log.
func nextLine(t *testing.T, next func() string) (id, data string) {
	t.Helper()
	for {
		event := next()
		if strings.HasPrefix(event, "<") {
			t.Fatal(event)
		}
		if strings.HasPrefix(event, "id: ") {
			id, data, _ := strings.Cut(strings.TrimPrefix(event, "id: "), "\ndata: ")
			return id, data
		}
	}
}

func TestFollowersGetEachLineOnceAndThenTheEnd(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	var lines, phases []string
	var end *api.Operation
	go func() {
		time.Sleep(50 * time.Millisecond)
		f.promote()
	}()
	err := f.client().Follow(context.Background(), "web-g1", "", func(ev api.Event) error {
		switch {
		case ev.End:
			end = ev.Operation
		case ev.Operation != nil:
			phases = append(phases, ev.Operation.Phase)
		default:
			lines = append(lines, ev.Line.Event)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want, have := "accepted preparing switching probation promoting promoted", strings.Join(lines, " "); want != have {
		t.Errorf("want lines %s, have %s", want, have)
	}
	if phases[0] != "accepted" {
		t.Errorf("want the phase told at first, have %v", phases)
	}
	if end == nil || end.Phase != "promoted" || end.EndedAt == nil {
		t.Errorf("want the operation at the end, have %+v", end)
	}
}

func TestAStreamIsTakenUpAfterTheLastLineSeen(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	f.line("web-g1", "pull", "1")
	f.line("web-g1", "pull", "2")
	next, hangUp := f.events("web-g1", "")
	nextLine(t, next)
	id, _ := nextLine(t, next)
	hangUp()
	next, hangUp = f.events("web-g1", id)
	defer hangUp()
	if _, data := nextLine(t, next); !strings.Contains(data, `"message":"2"`) {
		t.Errorf("want line 2, have %s", data)
	}
	f.line("web-g1", "pull", "3")
	last, data := nextLine(t, next)
	if !strings.Contains(data, `"message":"3"`) {
		t.Errorf("want line 3, have %s", data)
	}
	info, err := os.Stat(filepath.Join(f.store.Dir(), "operations", "web-g1.log"))
	if err != nil || last != fmt.Sprint(info.Size()) {
		t.Errorf("want the offset after the line, %d, have %s", info.Size(), last)
	}
}

func TestDamagedLinesAreLeftOutAndTornOnesWaitedFor(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	path := filepath.Join(f.store.Dir(), "operations", "web-g1.log")
	appendTo := func(text string) {
		t.Helper()
		file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	appendTo("\x00\x00 not JSON\n" + `{"message":"whole"}` + "\n" + `{"message":`)
	next, hangUp := f.events("web-g1", "")
	defer hangUp()
	var id, data string
	for !strings.Contains(data, "whole") {
		id, data = nextLine(t, next)
	}
	appendTo(`"torn"}` + "\n")
	if _, data = nextLine(t, next); !strings.Contains(data, "torn") {
		t.Errorf("want the torn line when it is whole, have %s", data)
	}
	again, hangUpAgain := f.events("web-g1", id)
	defer hangUpAgain()
	if _, data = nextLine(t, again); !strings.Contains(data, "torn") {
		t.Errorf("want to resume after the damaged line, have %s", data)
	}
}

func TestAnOperationThatHasEndedIsTheEndAtOnce(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	svc, _ := f.store.Service("web")
	next, _ := svc.Apply(probation.Event{Kind: probation.PrepareFailed, Code: probation.CodePullFailed,
		At: probation.Instant{Wall: time.Now().Add(-time.Hour)}})
	if err := f.store.Put(next); err != nil { // and its last line was never written
		t.Fatal(err)
	}
	began := time.Now()
	events, hangUp := f.events("web-g1", "")
	defer hangUp()
	event := events()
	for strings.HasPrefix(event, "id: ") {
		event = events()
	}
	if !strings.HasPrefix(event, "event: end\ndata: {\"id\":\"web-g1\"") || time.Since(began) > time.Second {
		t.Errorf("want the end at once, have %s after %v", event, time.Since(began))
	}
	if over := events(); over != "<EOF>" {
		t.Errorf("want nothing after the end, have %s", over)
	}
}

func TestTheLastLineIsWaitedForButNotForEver(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	svc, _ := f.store.Service("web")
	next, _ := svc.Apply(probation.Event{Kind: probation.PrepareFailed, At: probation.Instant{Wall: time.Now().Add(time.Hour)}})
	if err := f.store.Put(next); err != nil { // ended in the future: the clock was set back
		t.Fatal(err)
	}
	began, seen := time.Now(), false
	err := f.client().Follow(context.Background(), "web-g1", "", func(ev api.Event) error {
		seen = seen || ev.End
		return nil
	})
	if took := time.Since(began); err != nil || !seen || took < lastWord || took > lastWord+3*time.Second {
		t.Errorf("want the end after %v, have %v after %v (%v)", lastWord, seen, took, err)
	}
}

func TestASilentStreamShowsThatItLives(t *testing.T) {
	f := start(t, func(s *Server) { s.beat = 20 * time.Millisecond })
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	next, hangUp := f.events("web-g1", "")
	defer hangUp()
	for range 10 {
		if event := next(); strings.HasPrefix(event, ":") {
			return
		}
	}
	t.Error("no sign of life")
}

func TestAStreamOutlivesTheLimitForReadingARequest(t *testing.T) {
	f := start(t, func(s *Server) { s.arrival = 50 * time.Millisecond })
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	next, hangUp := f.events("web-g1", "")
	defer hangUp()
	nextLine(t, next)
	time.Sleep(150 * time.Millisecond)
	f.line("web-g1", "pull", "late")
	if _, data := nextLine(t, next); !strings.Contains(data, "late") {
		t.Errorf("want the line, have %s", data)
	}
}

func TestAShutdownEndsStreamsAndTheClientComesBack(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	first, ended := make(chan bool, 8), make(chan error, 1)
	var seen []string
	go func() {
		ended <- f.client().Follow(context.Background(), "web-g1", "", func(ev api.Event) error {
			if ev.Line != nil {
				seen = append(seen, ev.Line.Message)
				first <- true
			}
			return nil
		})
	}()
	<-first
	began := time.Now()
	if err := f.stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("the shutdown took %v", took)
	}
	f.line("web-g1", "pull", "while nobody served")
	f.server = New(f.server.Options)
	f.serve()
	f.event(probation.Event{Kind: probation.PrepareFailed, Code: probation.CodePullFailed})
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if len(seen) != 3 || seen[1] != "while nobody served" {
		t.Errorf("want each line once, have %q", seen)
	}
}

func TestFollowersAreWokenWithoutInotifyToo(t *testing.T) {
	f := start(t, func(s *Server) { s.changes = newChanges("") })
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	next, hangUp := f.events("web-g1", "")
	defer hangUp()
	nextLine(t, next)
	began := time.Now()
	f.line("web-g1", "pull", "1")
	nextLine(t, next)
	if took := time.Since(began); took > 2*poll {
		t.Errorf("the line took %v", took)
	}
}

func TestTheWatcherIsThereOnlyForFollowers(t *testing.T) {
	f := start(t)
	c := f.server.changes
	_, stop := c.follow("web", "web-g1")
	_, stopOther := c.follow("db", "db-g1")
	stop()
	if c.stop == nil {
		t.Error("want a watcher while somebody follows")
	}
	stopOther()
	if c.stop != nil {
		t.Error("want no watcher when nobody follows")
	}
	woken, stop := c.follow("web", "web-g1")
	defer stop()
	f.line("web-g2", "pull", "of another")
	select {
	case <-woken:
		t.Error("woken for another's line")
	case <-time.After(50 * time.Millisecond):
	}
	f.line("web-g1", "pull", "mine")
	select {
	case <-woken:
	case <-time.After(5 * time.Second):
		t.Error("not woken")
	}
}

func TestNonsenseToResumeFromIsRefused(t *testing.T) {
	f := start(t)
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	for _, id := range []string{"-1", "x", "99999999999999999999"} {
		f.do(request{"GET", "/v1/operations/web-g1/log", "", http.Header{"Accept": {"text/event-stream"}, "Last-Event-Id": {id}}}).
			problem(t, 422, "invalid_request")
	}
}
