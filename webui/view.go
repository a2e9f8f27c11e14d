package webui

import (
	"context"
	"errors"
	"time"
)

// ErrUnknown is returned by a Source for what there is not.
var ErrUnknown = errors.New("not known")

// Source tells what is to be seen. It returns views only: what has no field there cannot be shown.
type Source interface {
	// Overview is every service, sorted by name.
	Overview(ctx context.Context) (Overview, error)
	// Service is one service with one of its operations; the latest if none is named.
	Service(ctx context.Context, name, operation string) (Detail, error)
	// Follow tells when to look again at a service, or at all of them if no name is given.
	Follow(name string) (changed <-chan struct{}, stop func())
}

// Overview is the first page.
type Overview struct {
	Services []Card
	Invalid  []Text // why the enrollment file as it is now is not in force
}

// Card is a service at a glance.
type Card struct {
	Name       Name
	State      State
	Since      time.Time // of the state; zero if it began with nothing
	InForce    *Release
	Generation int
	Ready      Readiness
	Trial      *Trial // while an operation is under way
	Reason     Text   // why the state is what it is
	Unenrolled bool
	Side       Term // of a service with two sides, the one in force
}

// Release is what a generation put in force.
type Release struct {
	Digest     ID
	Generation int
	PromotedAt time.Time // zero for what ran before toad's first deployment
}

// Readiness is what the probe says now.
type Readiness struct {
	Known bool
	OK    bool
	Why   Text
}

// Trial is an operation under way.
type Trial struct {
	Candidate ID
	From      time.Time // the limit in force began
	Until     time.Time // and is over
	Bound     Term      // preparation, deadline or restore
	Stable    time.Duration
	ReadyFrom time.Time // zero while not ready
	Budget    int
}

// Detail is the page of one service.
type Detail struct {
	Card
	Invalid    []Text
	Operation  *Operation // the one whose log is shown
	Latest     bool       // it is the latest
	Log        []Line
	Config     *Config
	Units      []Unit
	Containers []Container
	Refusals   []Refusal
	History    []Operation // newest first
}

// Operation is one attempt to change a service's release.
type Operation struct {
	ID         Term
	Generation int
	Rollback   bool
	State      State
	Code       Term
	Reason     Text
	Candidate  ID
	By         Text
	AcceptedAt time.Time
	EndedAt    time.Time     // zero while it is under way
	Gap        time.Duration // how long nothing was ready because of it
}

// Line is one line of an operation's log. What the application itself said is not in it, only that it said something.
type Line struct {
	At      time.Time
	Level   Term
	Event   Term
	Message Text
}

// Config is what the enrollment says.
type Config struct {
	File       bool // its releases are files, and no container runs
	Repository Text // of a file it may have none
	Units      []Term
	Probe      Term // http, tcp, unix, health, notify or none
	Port       int  // of the probe; 0 if it has none
	Status     int  // that is expected; 0 = any 2xx
	Interval   time.Duration
	Timeout    time.Duration
	Deadline   time.Duration
	Stable     time.Duration
	Pull       time.Duration
	Restarts   int
	Keep       int
	Hold       Term
	Door       Term // the socket unit that leads to one of two sides
}

// Unit is a unit as the user manager tells of it.
type Unit struct {
	Name       Term
	Known      bool
	Active     Term
	Sub        Term
	Invocation ID
	Restarts   int
	Since      time.Time
}

// Container is a container as Podman tells of it, or the process of a unit that runs a file.
type Container struct {
	Unit    Term
	File    bool // a process; Image is the sha256 of the file, and there is nothing else to tell but when it started
	ID      ID
	Image   ID
	Status  Term
	Health  Term
	Started time.Time
}

// Refusal is a release that failed here and is not taken again.
type Refusal struct {
	Digest    ID
	Operation Term
	Code      Term
	Reason    Text
	At        time.Time
}
