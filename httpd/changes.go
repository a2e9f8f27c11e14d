package httpd

import (
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"toad/probation"
)

// changes wakes those who follow an operation when a file of it, or of its service, has changed. One watcher serves
// all of them; it is there only while there is somebody to wake, as a daemon at rest should hold nothing.
type changes struct {
	dir string

	mu      sync.Mutex
	waiting map[*waiter]bool
	stop    func() // ends the watcher; nil when there is none
}

type waiter struct {
	service, operation string
	wake               chan struct{}
}

// poll is how often followers look when the folder cannot be watched.
const poll = 200 * time.Millisecond

func newChanges(dir string) *changes {
	return &changes{dir: dir, waiting: map[*waiter]bool{}}
}

// Follow tells those who show a service when to look at it again, or at all services if no name is given.
func (s *Server) Follow(service string) (changed <-chan struct{}, stop func()) {
	return s.changes.follow(service, "")
}

// follow returns a channel that says when to look again; stop ends it. What changed before follow is for the caller to
// have looked at after it. Without an operation all of the service's are followed, and without a service all there are.
func (c *changes) follow(service, operation string) (changed <-chan struct{}, stop func()) {
	w := &waiter{service, operation, make(chan struct{}, 1)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[w] = true
	if c.stop == nil {
		c.stop = c.begin()
	}
	return w.wake, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, w)
		if len(c.waiting) == 0 {
			c.stop()
			c.stop = nil
		}
	}
}

// begin watches the folders. A host may be out of inotify instances; then all are woken now and again.
func (c *changes) begin() (stop func()) {
	done := make(chan struct{})
	if watcher := c.watch(); watcher != nil {
		go c.listen(watcher, done)
	} else {
		go c.tick(done)
	}
	return sync.OnceFunc(func() { close(done) })
}

func (c *changes) watch() *fsnotify.Watcher {
	if c.dir == "" {
		return nil
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil
	}
	for _, folder := range []string{"services", "operations"} {
		if watcher.Add(filepath.Join(c.dir, folder)) != nil {
			_ = watcher.Close()
			return nil
		}
	}
	return watcher
}

func (c *changes) listen(watcher *fsnotify.Watcher, done <-chan struct{}) {
	defer func() { _ = watcher.Close() }()
	for {
		select {
		case <-done:
			return
		case ev, ok := <-watcher.Events:
			if !ok {
				return
			}
			folder, file := filepath.Split(ev.Name)
			name, _, _ := strings.Cut(file, ".")
			c.tell(func(w *waiter) bool {
				service, operation := name, ""
				if filepath.Base(folder) != "services" {
					service, _, _ = probation.ParseOperationID(name)
					operation = name
				}
				switch {
				case w.service == "":
					return true
				case w.operation == "" || operation == "":
					return w.service == service
				}
				return w.operation == operation
			})
		case <-watcher.Errors: // events were lost
			c.tell(func(*waiter) bool { return true })
		}
	}
}

func (c *changes) tick(done <-chan struct{}) {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			c.tell(func(*waiter) bool { return true })
		}
	}
}

func (c *changes) tell(whom func(*waiter) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for w := range c.waiting {
		if whom(w) {
			select {
			case w.wake <- struct{}{}:
			default: // it has not looked since the last time
			}
		}
	}
}
