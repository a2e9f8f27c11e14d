package httpd

import (
	"net/http"
	"time"
)

// endLimit is how long those who were let in may take to ask and to be answered once the server ends.
const endLimit = 5 * time.Second

// end lets nobody in any more, and waits until all who were let in are answered, or for the limit. http.Server.Shutdown
// does not: it hangs up on whoever's request it has not read yet. Who was not let in is left to whom systemd gives the
// socket next.
func end(limit time.Duration, servers []*http.Server, doors []*limited) {
	for _, s := range servers {
		s.SetKeepAlivesEnabled(false) // which also closes what is idle
	}
	for _, d := range doors {
		_ = d.Close()
	}
	late := time.NewTimer(limit)
	defer late.Stop()
	for _, d := range doors {
		if !d.empty(late.C) {
			break
		}
	}
	for _, s := range servers {
		_ = s.Close()
	}
}

// empty waits until all connections are closed, by taking the place of each. The listener is closed before.
func (l *limited) empty(late <-chan time.Time) bool {
	for range cap(l.free) {
		select {
		case l.free <- struct{}{}:
		case <-late:
			return false
		}
	}
	return true
}
