package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Event is one event of an operation's stream: a line of its log, or the operation as it stands now. Exactly one of
// Line and Operation is set.
type Event struct {
	ID        string // of the last line, to resume after it
	Line      *Line
	Raw       json.RawMessage // the line as it is
	Operation *Operation
	End       bool // the operation is decided; nothing follows
}

// silence is how long a stream may bring nothing before it counts as broken; the daemon sends a sign of life every 15 s.
const silence = 45 * time.Second

// Follow brings an operation's events to on until the operation is decided. A stream that breaks is taken up again
// after the last line seen, for as long as Patience allows; from is the id of such a line, or empty for the whole log.
// It returns nil at the end, on's error, a *Problem, ErrUnreachable, or the context's error.
func (c *Client) Follow(ctx context.Context, id, from string, on func(Event) error) error {
	s := stream{client: c, id: id, last: from, on: on, alive: time.Now()}
	for pause := retryPause; ; pause = min(2*pause, 5*time.Second) {
		before := s.alive
		err := s.run(ctx)
		var final finalError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.As(err, &final):
			return final.error
		case time.Since(s.alive) > c.Patience:
			return err
		}
		if s.alive != before {
			pause = retryPause
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// finalError is one that another try would not mend.
type finalError struct{ error }

type stream struct {
	client *Client
	id     string
	last   string
	on     func(Event) error
	alive  time.Time // when the daemon was heard last
}

// run reads one connection's worth of events; nil means that the end was reached.
func (s *stream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := s.client.request(ctx, http.MethodGet, "/v1/operations/"+url.PathEscape(s.id)+"/log", nil)
	if err != nil {
		return finalError{err}
	}
	req.Header.Set("Accept", "text/event-stream")
	if s.last != "" {
		req.Header.Set("Last-Event-ID", s.last)
	}
	resp, err := s.client.http.Do(req)
	if err != nil {
		return &UnreachableError{s.client.endpoint, err}
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		data, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		p := s.client.problem(resp, data)
		if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
			return p
		}
		return finalError{p}
	}
	if mediaType(resp) != "text/event-stream" {
		return finalError{s.client.instead(resp, "events")}
	}
	quiet := time.AfterFunc(silence, cancel)
	defer quiet.Stop()
	return s.read(resp.Body, func() { s.alive = time.Now(); quiet.Reset(silence) })
}

func (s *stream) read(body io.Reader, heard func()) error {
	in := bufio.NewScanner(body)
	in.Buffer(nil, 1<<20)
	var id, name string
	var data []string
	for in.Scan() {
		heard()
		field, value, _ := strings.Cut(in.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			id = value
		case "event":
			name = value
		case "data":
			data = append(data, value)
		case "":
			if in.Text() != "" || data == nil {
				continue // a comment, or nothing to tell
			}
			end, err := s.tell(id, name, strings.Join(data, "\n"))
			if end || err != nil {
				return err
			}
			id, name, data = "", "", nil
		}
	}
	err := in.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return &UnreachableError{s.client.endpoint, err}
}

func (s *stream) tell(id, name, data string) (end bool, err error) {
	if id != "" {
		s.last = id
	}
	ev := Event{ID: s.last, End: name == "end"}
	switch name {
	case "", "message":
		ev.Line, ev.Raw = new(Line), json.RawMessage(data)
		err = json.Unmarshal(ev.Raw, ev.Line)
	case "operation", "end":
		ev.Operation = new(Operation)
		err = json.Unmarshal([]byte(data), ev.Operation)
	default:
		return false, nil // of a newer daemon
	}
	if err != nil {
		return false, finalError{fmt.Errorf("event of %s: %w", s.id, err)}
	}
	if err := s.on(ev); err != nil {
		return false, finalError{err}
	}
	return ev.End, nil
}
