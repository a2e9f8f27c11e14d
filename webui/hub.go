package webui

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	// mostStreams bounds what open pages may cost; who comes later has to load the page again to see more.
	mostStreams = 512
	// mostKnown is how many frames a reader who comes back can carry on from.
	mostKnown = 256
	// settle gathers changes that come together.
	settle = 40 * time.Millisecond
	// beat is between two signs of life, which also find out that a reader has gone.
	beat = 15 * time.Second
	// sayLimit is how long one event may take to be written; who reads slower is not waited for.
	sayLimit = 30 * time.Second
)

// hub looks once for all who have the same page open. There is nothing of it while nobody looks.
type hub struct {
	site *Site
	// pace is how often is looked if nothing seems to have changed: readiness and units tell of nothing by themselves.
	pace time.Duration

	mu     sync.Mutex
	topics map[string]*topic
	open   int
}

// topic is a page that somebody has open.
type topic struct {
	readers map[chan struct{}]bool
	end     context.CancelFunc

	mu    sync.Mutex
	frame frame
}

// frame is a page as it was last seen, in pieces that know when they last changed.
type frame struct {
	number int // 0 before the first look
	seen   string
	pieces []piece
	gone   map[string]int // ids that are no more, and since when
	known  map[string]int // frames by what was seen in them, to carry on from
	err    error
}

type piece struct {
	id, sum string
	html    []byte
	changed int
}

func newHub(s *Site) *hub { return &hub{site: s, pace: 3 * time.Second, topics: map[string]*topic{}} }

var errFull = errors.New("too many pages are open")

// join begins to read a topic; the first reader starts the look, and the last one ends it.
func (h *hub) join(key string, look func(context.Context) ([]part, error), follow string) (t *topic, wake chan struct{}, leave func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open >= mostStreams {
		return nil, nil, nil, errFull
	}
	h.open++
	t = h.topics[key]
	if t == nil {
		ctx, cancel := context.WithCancel(context.Background())
		t = &topic{readers: map[chan struct{}]bool{}, end: cancel}
		h.topics[key] = t
		go h.run(ctx, t, look, follow)
	}
	wake = make(chan struct{}, 1)
	t.readers[wake] = true
	return t, wake, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.open--
		delete(t.readers, wake)
		if len(t.readers) == 0 {
			t.end()
			delete(h.topics, key)
		}
	}, nil
}

func (h *hub) run(ctx context.Context, t *topic, look func(context.Context) ([]part, error), follow string) {
	changed, stop := h.site.source.Follow(follow)
	defer stop()
	tick := time.NewTicker(h.pace)
	defer tick.Stop()
	for {
		parts, err := look(ctx)
		if ctx.Err() != nil {
			return
		}
		if t.take(parts, err, h.site.now()) {
			h.mu.Lock()
			for wake := range t.readers {
				select {
				case wake <- struct{}{}:
				default: // it has not looked since the last time
				}
			}
			h.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changed:
			time.Sleep(settle)
		}
	}
}

// take makes the next frame of what was seen, and says whether it differs.
func (t *topic) take(parts []part, err error, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.frame.err = err
		return true
	}
	old := map[string]piece{}
	for _, p := range t.frame.pieces {
		old[p.id] = p
	}
	next := frame{number: t.frame.number + 1, seen: seen(parts), gone: t.frame.gone, known: t.frame.known}
	if next.gone == nil {
		next.gone = map[string]int{}
	}
	if next.known == nil || len(next.known) > mostKnown {
		next.known = map[string]int{}
	}
	if next.seen == t.frame.seen {
		t.frame.err = nil
		return false
	}
	for _, p := range parts {
		one := piece{id: p.id, sum: p.sum(), changed: next.number}
		had, there := old[p.id]
		delete(old, p.id)
		delete(next.gone, p.id)
		if there && had.sum == one.sum {
			one = had
		} else if one.html, err = p.render(now); err != nil {
			t.frame.err = err
			return true
		}
		next.pieces = append(next.pieces, one)
	}
	for id := range old {
		next.gone[id] = next.number
	}
	next.known[next.seen] = next.number
	t.frame = next
	return true
}

// news is what a reader of frame number last has not got yet.
func (t *topic) news(last int, has string) (events []byte, number int, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.frame
	if f.err != nil || f.number == 0 || f.number == last {
		return nil, last, f.err
	}
	if last == 0 && has != "" {
		last = f.known[has]
	}
	if f.number == last {
		return nil, last, nil
	}
	var b bytes.Buffer
	if last == 0 {
		event(&b, "all", nil) // what is not in what follows is no more
	}
	for id, since := range f.gone {
		if since > last && last > 0 {
			event(&b, "gone", []byte(id))
		}
	}
	for _, p := range f.pieces {
		if p.changed > last {
			event(&b, "part", p.html)
		}
	}
	_, _ = fmt.Fprintf(&b, "id: %s\nevent: whole\ndata: %s\n\n", f.seen, f.seen)
	return b.Bytes(), f.number, nil
}

func event(b *bytes.Buffer, kind string, data []byte) {
	_, _ = fmt.Fprintf(b, "event: %s\n", kind)
	if len(data) == 0 {
		b.WriteString("data:\n")
	}
	for line := range bytes.Lines(data) {
		_, _ = fmt.Fprintf(b, "data: %s\n", bytes.TrimRight(line, "\r\n"))
	}
	b.WriteByte('\n')
}

func (s *Site) overviewEvents(w http.ResponseWriter, r *http.Request) {
	s.stream(w, r, "", "", func(ctx context.Context) ([]part, error) {
		o, err := s.source.Overview(ctx)
		return overviewParts(o), err
	})
}

func (s *Site) serviceEvents(w http.ResponseWriter, r *http.Request) {
	name, op := r.PathValue("service"), r.PathValue("operation")
	if _, err := s.source.Service(r.Context(), name, op); err != nil {
		s.fail(w, r, err)
		return
	}
	s.stream(w, r, name+" "+op, name, func(ctx context.Context) ([]part, error) {
		d, err := s.source.Service(ctx, name, op)
		return detailParts(d), err
	})
}

// stream sends the parts of a page as they change, until the reader or the daemon ends it. What the reader has already
// got it says itself, so that nothing is missed between the page and its stream, or between two streams.
func (s *Site) stream(w http.ResponseWriter, r *http.Request, key, follow string, look func(context.Context) ([]part, error)) {
	has := r.Header.Get("Last-Event-ID")
	if has == "" {
		has = r.URL.Query().Get("seen")
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead {
		return
	}
	t, wake, leave, err := s.hub.join(key, look, follow)
	if err != nil {
		w.Header().Set("Retry-After", "30")
		s.apology(w, r, http.StatusServiceUnavailable)
		return
	}
	defer leave()
	// The limit for reading a request would otherwise end the stream: the server goes on reading to notice a hang-up.
	_ = out.SetReadDeadline(time.Time{})
	say := func(text []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(sayLimit))
		_, err := w.Write(text)
		return err == nil && out.Flush() == nil
	}
	if !say([]byte("retry: 2000\nevent: hello\ndata: " + build() + "\n\n")) {
		return
	}
	sign := time.NewTicker(beat)
	defer sign.Stop()
	last := 0
	for {
		events, number, err := t.news(last, has)
		if err != nil || (len(events) > 0 && !say(events)) {
			return // the browser comes again
		}
		if number > 0 {
			last, has = number, ""
		}
		select {
		case <-r.Context().Done():
			return
		case <-wake:
		case <-sign.C:
			if !say([]byte(": still here\n\n")) {
				return
			}
		}
	}
}
