// Package httpd is the door of toad: it lets in only who may come in, refuses what is not well formed before anything is
// touched, and answers with what is on record.
package httpd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"toad/probation"
	"toad/probation/record"
)

// ErrUnknownService is returned by Enrolled for a name that is not enrolled.
var ErrUnknownService = errors.New("no such service")

// Deployments takes what changes a service. Errors are *probation.Rejection, record.ErrDamaged, or the host's trouble.
type Deployments interface {
	Accept(ctx context.Context, e probation.Enrollment, req probation.Request) (op probation.Operation, replay bool, err error)
	// Abort gives up one operation; one that has ended is returned as it ended.
	Abort(ctx context.Context, id, by string) (probation.Operation, error)
	// Again starts what carries an operation on, where nothing does; it is safe to repeat.
	Again(ctx context.Context, op probation.Operation) error
}

// States is what is on record of services and operations.
type States interface {
	Names() ([]string, error)
	Service(name string) (probation.Service, error)
	Operation(id string) (probation.Operation, error)
	Operations(name string, before, limit int) ([]probation.Operation, error)
}

// Trails is what lies beside an operation's record: its log, and who asked for it to be given up.
type Trails interface {
	ReadLog(id string, offset int64) (lines [][]byte, next int64, err error)
	Log(id string, line record.Line) error
	Aborted(id string) (by string, ok bool)
}

// Records is all that is read.
type Records interface {
	States
	Trails
}

// Enrolled is the operator's enrollment as it is in force now.
type Enrolled interface {
	Enrollment(name string) (probation.Enrollment, error) // ErrUnknownService
	All() []probation.Enrollment                          // sorted by name; not to be changed
	// Invalid says why the enrollment as it is now is not in force, a line for each fault; nil if it is.
	Invalid() error
}

// Registry knows what is published. Errors are *TagError, or the host's trouble.
type Registry interface {
	Resolve(ctx context.Context, repository, tag string) (digest string, err error)
}

// TagError says by its code why a tag could not be resolved.
type TagError struct {
	Code probation.Code // unknown_tag, pull_failed or pull_unavailable
	Err  error
}

func (e *TagError) Error() string { return e.Err.Error() }
func (e *TagError) Unwrap() error { return e.Err }

// Options are what a Server is made of. Idle and StateDir may be left out.
type Options struct {
	Deployments Deployments
	Records     Records
	Enrolled    Enrolled
	Registry    Registry
	Tokens      Tokens
	Proofs      Proofs
	Files       Files
	MaxFile     int64 // how large one of them may be, in bytes
	// Hosts are the names by which the API is asked over TCP, beside those of the loopback, in lower case.
	Hosts   []string
	Planner Planner
	Host    Host
	Health  func(context.Context) error
	Alerts  func() (waiting int, err error)
	Version string
	Log     *slog.Logger
	// StateDir is the folder whose records are watched for those who follow; without it they are looked at every 200 ms.
	StateDir string
	// Page is what is answered on listeners of type Page.
	Page http.Handler
	// Idle ends Serve when nothing was asked for so long; 0 = never.
	Idle time.Duration
}

// Server answers the HTTP API.
type Server struct {
	Options
	allowed func(uid uint32) bool
	changes *changes
	live    lookouts
	closing context.Context // ends the event streams
	now     func() time.Time
	beat    time.Duration // between two signs of life on a stream
	arrival time.Duration // how long a request may take to arrive
	stands  time.Duration // how long an answer about the host's health stands

	around func(http.Handler) http.Handler // for tests that look at every answer

	shipping sync.Mutex // one file at a time is taken in

	mu        sync.Mutex
	unix, tcp load
	pages     int       // requests for the page under way
	rested    time.Time // when the last request ended

	refused map[string]int // refused requests that an operation's log tells of

	looking  sync.Mutex
	looked   time.Time // when the host's health was looked at
	lastLook error
}

// New makes a server. A caller on the Unix socket must be of the daemon's own user, or the host's root.
func New(o Options) *Server {
	return &Server{Options: o, allowed: ownUser(), changes: newChanges(o.StateDir), refused: map[string]int{}, closing: context.Background(),
		now: time.Now, beat: 15 * time.Second, arrival: 10 * time.Second, stands: time.Second,
		around: func(h http.Handler) http.Handler { return h }}
}

// headBytes is how much a request's header may hold; an Idempotency-Key and a token take a fraction of it.
const headBytes = 16 << 10

// Serve answers on all listeners until the context ends or nothing was asked for Options.Idle; both return nil. Event
// streams are ended, and whoever was let in is answered. It is called once.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.closing = ctx
	s.rested = s.now()
	server := &http.Server{
		Handler:           s.around(s.handler()),
		ConnContext:       withPeer,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       s.arrival,
		WriteTimeout:      answerLimit + 10*time.Second, // a stream sets its own
		IdleTimeout:       10 * time.Second,
		MaxHeaderBytes:    headBytes,
		// Every method is toad's to answer.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
	}
	pages := s.pageServer()
	failed := make(chan error, len(listeners))
	var doors []*limited
	for _, l := range listeners {
		srv, door := server, limit(l)
		if _, ok := l.(Page); ok {
			srv = pages
		}
		doors = append(doors, door)
		go func() { failed <- srv.Serve(door) }()
	}
	var err error
	select {
	case <-ctx.Done():
	case <-s.idle(ctx):
	case err = <-failed:
		err = fmt.Errorf("serve: %w", err)
	}
	cancel()
	end(endLimit, []*http.Server{server, pages}, doors)
	return err
}

// idle is closed when nothing was asked for Options.Idle.
func (s *Server) idle(ctx context.Context) <-chan struct{} {
	if s.Idle <= 0 {
		return nil
	}
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(max(s.Idle/10, 10*time.Millisecond))
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			s.mu.Lock()
			rested := s.unix == load{} && s.tcp == load{} && s.pages == 0 && s.now().Sub(s.rested) >= s.Idle
			s.mu.Unlock()
			if rested {
				close(over)
				return
			}
		}
	}()
	return over
}

// Stay puts the end at rest off, as a request does.
func (s *Server) Stay() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rested = s.now()
}
