package httpd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"toad/httpd/api"
	"toad/probation"
)

const (
	// sayLimit is how long one event may take to be written; who reads slower is not waited for.
	sayLimit = 30 * time.Second
	// mostLog is larger than any log, in bytes; the system refuses to look beyond some offset.
	mostLog = 1 << 40
	// lastWord is how long after its end an operation's last line is waited for: the record is saved before the line.
	lastWord = 2 * time.Second
	// look is how often the record is looked at even if nothing seems to have changed.
	look = time.Second
)

// log is GET /v1/operations/:id/log: the lines so far as a JSON array, or with Accept: text/event-stream all of them as
// events until the operation is decided.
func (s *Server) log(c *call) error {
	op, err := s.lookUp(c.param("id"))
	if err != nil {
		return err
	}
	if strings.Contains(c.r.Header.Get("Accept"), "text/event-stream") {
		return s.follow(c, op)
	}
	lines, _, err := s.Records.ReadLog(op.ID, 0)
	if err != nil {
		return err
	}
	for i := range lines {
		lines[i] = c.wireLine(lines[i])
	}
	c.Header().Set("Content-Type", "application/json")
	c.Header().Set("Cache-Control", "no-store")
	c.WriteHeader(http.StatusOK)
	_, _ = fmt.Fprintf(c, "[%s]\n", bytes.Join(lines, []byte(",\n")))
	return nil
}

// follower is one open stream.
type follower struct {
	s       *Server
	c       *call
	control *http.ResponseController
	id      string
	offset  int64           // after the last line sent
	event   probation.Phase // of which the lines sent told last
	told    []byte          // the operation as last told
	ended   time.Time       // when it was first seen decided
}

func (s *Server) follow(c *call, op probation.Operation) error {
	f := &follower{s: s, c: c, control: http.NewResponseController(c), id: op.ID}
	if last := c.r.Header.Get("Last-Event-ID"); last != "" {
		offset, err := strconv.ParseInt(last, 10, 64)
		if err != nil || offset < 0 || offset > mostLog {
			return invalid(fmt.Sprintf("Last-Event-ID %.40q is not one of this stream", last))
		}
		f.offset = offset
	}
	leave, err := s.settle(c)
	if err != nil {
		return err
	}
	defer leave()
	// The limit for reading a request would otherwise end the stream: the server goes on reading to notice a hang-up.
	if err := f.control.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	changed, stop := s.changes.follow(op.Service, op.ID)
	defer stop()
	c.Header().Set("Content-Type", "text/event-stream")
	c.Header().Set("Cache-Control", "no-store")
	c.Header().Set("X-Accel-Buffering", "no")
	c.WriteHeader(http.StatusOK)
	f.run(c.r, changed)
	return nil
}

// run sends what there is and waits for more, until the operation is decided, the caller is gone or the server ends.
// There is nobody left to tell an error to; the caller comes back with the id of the last line it got.
func (f *follower) run(r *http.Request, changed <-chan struct{}) {
	beat := time.NewTicker(f.s.beat)
	defer beat.Stop()
	again := time.NewTicker(look)
	defer again.Stop()
	for {
		if over, err := f.send(); over || err != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-f.s.closing.Done():
			return
		case <-changed:
		case <-again.C:
		case <-beat.C:
			if f.say(": still here\n\n") != nil {
				return
			}
		}
	}
}

// send tells what is new. The record is read before the log: what is decided then has its last line in the log, or is
// about to.
func (f *follower) send() (over bool, err error) {
	op, err := f.s.Records.Operation(f.id)
	if err != nil {
		return false, err
	}
	lines, next, err := f.s.Records.ReadLog(f.id, f.offset)
	if err != nil {
		return false, err
	}
	if err := f.sayLines(lines, next); err != nil {
		return false, err
	}
	if !op.Phase.Terminal() {
		return false, f.sayOperation("operation", f.c.wireOperation(op))
	}
	if f.ended.IsZero() {
		f.ended = f.s.now()
	}
	if f.event != op.Phase && f.s.now().Sub(*op.EndedAt) <= lastWord && f.s.now().Sub(f.ended) <= lastWord {
		return false, nil
	}
	return true, f.sayOperation("end", f.c.wireOperation(op))
}

// sayLines sends log lines, each with the offset after it. Where some were left out as damaged, the offsets within the
// batch are not known: only its last line gets one, and who resumes there sees a few lines twice rather than none.
func (f *follower) sayLines(lines [][]byte, next int64) error {
	whole := int64(0)
	for _, line := range lines {
		whole += int64(len(line)) + 1
	}
	exact := f.offset+whole == next
	for i, line := range lines {
		f.offset += int64(len(line)) + 1
		event := fmt.Sprintf("data: %s\n\n", f.c.wireLine(line))
		switch {
		case i == len(lines)-1:
			event = fmt.Sprintf("id: %d\n%s", next, event)
		case exact:
			event = fmt.Sprintf("id: %d\n%s", f.offset, event)
		}
		if err := f.say(event); err != nil {
			return err
		}
		var l api.Line
		if json.Unmarshal(line, &l) == nil && slices.Contains(probation.Phases, probation.Phase(l.Event)) {
			f.event = probation.Phase(l.Event)
		}
	}
	f.offset = next
	return nil
}

// sayOperation tells how the operation stands, if that has changed.
func (f *follower) sayOperation(event string, op api.Operation) error {
	data, err := json.Marshal(op)
	if err != nil {
		return err
	}
	if event != "end" && bytes.Equal(data, f.told) {
		return nil
	}
	f.told = data
	return f.say(fmt.Sprintf("event: %s\ndata: %s\n\n", event, data))
}

func (f *follower) say(text string) error {
	if err := f.control.SetWriteDeadline(time.Now().Add(sayLimit)); err != nil {
		return err
	}
	if _, err := f.c.Write([]byte(text)); err != nil {
		return err
	}
	return f.control.Flush()
}
