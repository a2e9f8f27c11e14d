package httpd

import (
	"fmt"
	"net/http"
	"time"

	"toad/probation/record"
)

// refusalsTold is how many refused requests an operation's log tells of; the journal has all.
const refusalsTold = 20

// audit leaves a line of every request that was to change something: who, what, when, from where, and what came of it.
// What was accepted is in the operation's own log already, by the one who accepted it.
func (s *Server) audit(c *call, began time.Time) {
	s.Log.Info("request", "method", c.r.Method, "path", c.r.URL.Path, "by", c.by, "from", c.from, "status", c.status, "code", c.code,
		"service", c.param("service"), "operation", c.operation, "token", c.subject, "took", s.now().Sub(began).Round(time.Millisecond))
	if c.status < http.StatusBadRequest || c.operation == "" || c.by == "" {
		return
	}
	// One that has ended is history: a request that comes later says nothing of it.
	op, err := s.Records.Operation(c.operation)
	if err != nil || op.Phase.Terminal() || !s.tellRefusal(op.ID) {
		return
	}
	line := record.Line{At: s.now().UTC(), Level: "info", Event: "audit",
		Message: fmt.Sprintf("a request was refused: %s %.100q of %s from %s: %s", c.r.Method, c.r.URL.Path, c.by, c.from, c.code)}
	if err := s.Records.Log(op.ID, line); err != nil {
		s.Log.Warn("a refused request is in the journal only", "operation", op.ID, "err", err)
	}
}

// tellRefusal counts: a client that asks in a loop must not fill the log of the operation that is in its way.
func (s *Server) tellRefusal(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refused) > 1000 { // of operations that have ended long ago, most of them
		clear(s.refused)
	}
	s.refused[id]++
	return s.refused[id] <= refusalsTold
}
