package httpd

import (
	"context"
	"net/http"
	"sync"
	"time"

	"toad/httpd/api"
	"toad/probation"
)

// Host is looked at for what no record tells.
type Host interface {
	// Ready probes what runs of services and tells of each as soon as it knows, side by side; of those for which there was no
	// time it tells nothing.
	Ready(ctx context.Context, all []probation.Enrollment, tell func(i int, ready bool, why string))
	// Config tells how a release would run; one that is not on the host is looked up in its registry.
	Config(ctx context.Context, e probation.Enrollment, r probation.Release) (api.ImageConfig, error)
	// LastAlerts are the newest alerts about each service.
	LastAlerts() map[string]api.Alert
}

// lookLimit is how long all probes together may take.
const lookLimit = 5 * time.Second

// sights are how services stand at this moment, and the last alert about each.
type sights struct {
	live   map[string]*api.Live
	alerts map[string]api.Alert
}

// look looks at services, which are sorted by name. Each is probed at most once per interval of its own, whoever asks.
func (s *Server) look(c *call, all []probation.Enrollment) sights {
	if s.Host == nil {
		return sights{}
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), lookLimit)
	defer cancel()
	n := sights{map[string]*api.Live{}, s.Host.LastAlerts()}
	for i, live := range s.live.look(ctx, all, s.Host, s.now) {
		n.live[all[i].Name] = live
	}
	return n
}

// tell adds to a service what was seen of it.
func (n sights) tell(c *call, svc *api.Service) {
	if svc.Damaged == "" {
		svc.Live = n.live[svc.Service]
	}
	if a, ok := n.alerts[svc.Service]; ok {
		a.Reason = c.say(a.Reason)
		svc.LastAlert = &a
	}
}

// lookouts keep what was seen last of each service.
type lookouts struct {
	mu   sync.Mutex
	seen map[string]*lookout
}

type lookout struct {
	mu   sync.Mutex // held while it is probed: who comes meanwhile waits for what is found
	last api.Live
}

func (l *lookouts) of(service string) *lookout {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen == nil {
		l.seen = map[string]*lookout{}
	}
	if l.seen[service] == nil {
		l.seen[service] = &lookout{}
	}
	return l.seen[service]
}

// look tells of each service what was seen last; nil where it was never seen.
func (l *lookouts) look(ctx context.Context, all []probation.Enrollment, host Host, now func() time.Time) []*api.Live {
	found := make([]*api.Live, len(all))
	var due []probation.Enrollment
	var free []func() // of each that is due: notes how it stands, and lets others look at it
	// They are taken in the order of their names, by everybody, so that no two wait for each other.
	for i := range all {
		e := &all[i]
		one := l.of(e.Name)
		one.mu.Lock()
		done := sync.OnceFunc(func() {
			if live := one.last; !live.At.IsZero() {
				found[i] = &live
			}
			one.mu.Unlock()
		})
		if now().Sub(one.last.At) < max(e.Ready.Interval, 100*time.Millisecond) {
			done()
			continue
		}
		defer done()
		due, free = append(due, *e), append(free, done)
	}
	if len(due) > 0 {
		host.Ready(ctx, due, func(i int, ready bool, why string) {
			l.of(due[i].Name).last = api.Live{Ready: ready, Why: withoutPaths(why), At: now().UTC()}
			free[i]()
		})
	}
	return found
}

// diff is GET /v1/services/:service/diff?to=DIGEST.
func (s *Server) diff(c *call) error {
	name := c.param("service")
	if err := s.known(name); err != nil {
		return err
	}
	svc, err := s.Records.Service(name)
	if err != nil {
		return err
	}
	e, err := s.Enrolled.Enrollment(name)
	if err != nil && svc.Operation != nil {
		e = svc.Operation.Enrollment
	}
	to, err := compared(svc, c.r.URL.Query().Get("to"))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.r.Context(), tagLimit)
	defer cancel()
	out := api.Diff{Service: name, Changes: []api.Change{}}
	if out.To, err = s.Host.Config(ctx, e, to); err != nil {
		return err
	}
	if svc.Promoted != nil {
		from, err := s.Host.Config(ctx, e, *svc.Promoted)
		if err != nil {
			return err
		}
		if op := svc.Operation; op != nil && op.Program != "" && op.Candidate.Same(to) && len(svc.Programs) > 0 {
			from.Program, out.To.Program = svc.Programs[len(svc.Programs)-1], op.Program
		}
		out.From, out.Changes = &from, api.Compare(from, out.To)
	}
	writeJSON(c, http.StatusOK, out)
	return nil
}

// compared is the release of that digest; without one the latest candidate, or else the release before the one in force.
func compared(svc probation.Service, digest string) (probation.Release, error) {
	known := svc.Retained
	if op := svc.Operation; op != nil {
		known = append([]probation.Release{op.Candidate}, known...)
	}
	for _, r := range known {
		inForce := svc.Promoted != nil && r.Same(*svc.Promoted)
		if r.Names(digest) || (digest == "" && !inForce) {
			return r, nil
		}
	}
	if digest == "" {
		p := refuse(http.StatusConflict, CodeNoOther, svc.Name+" has no other release on record")
		p.Hint = "name a digest: toad diff " + svc.Name + " sha256:…"
		return probation.Release{}, p
	}
	if err := probation.CheckDigest(digest); err != nil {
		return probation.Release{}, invalid(err.Error())
	}
	return probation.Release{Digest: digest}, nil
}
