package probation

import "time"

// Enrollment is what the operator says of one service: which units run it, what "ready" means and how long a release
// may take. An operation carries its own copy, so an edit takes effect with the next operation.
type Enrollment struct {
	Name  string   `json:"name"`
	Kind  string   `json:"kind,omitempty"` // "" for containers, or KindBinary
	Units []string `json:"units"`          // Quadlet file names, e.g. "web.container"; the first is the one whose readiness counts
	// Image is the repository without tag or digest, e.g. "registry.example.org/team/web". A binary service may have none:
	// then its releases are shipped.
	Image string `json:"image"`
	Ready Ready  `json:"ready"`
	Limit Limits `json:"limits"`
	Hold  string `json:"hold,omitempty"` // a socket unit that keeps the port while the service is replaced
	Door  *Door  `json:"door,omitempty"` // Units are two sides then
	// Definition is what the next release brings beside its image. An operation has it in its candidate.
	Definition *Definition `json:"definition,omitempty"`
}

// KindBinary is the kind of a service whose releases are files: one plain unit runs the link that leads to the file in
// force.
const KindBinary = "binary"

// Binary reports whether the service's releases are files.
func (e Enrollment) Binary() bool { return e.Kind == KindBinary }

// Artefact is what its releases are called before people.
func (e Enrollment) Artefact() string {
	if e.Binary() {
		return "file"
	}
	return "image"
}

// Ready says how readiness is found out. At most one of HTTP, TCP, Unix, Health and Notify is set; none means that the
// unit stays active.
type Ready struct {
	HTTP     string        `json:"http,omitempty"`   // http://host:port/path or http+unix:///run/x.sock:/path
	TCP      string        `json:"tcp,omitempty"`    // host:port
	Unix     string        `json:"unix,omitempty"`   // path of a Unix socket
	Health   bool          `json:"health,omitempty"` // Podman's health check
	Notify   bool          `json:"notify,omitempty"` // the application's own READY=1
	Status   int           `json:"status,omitempty"` // HTTP status; 0 = any 2xx
	Interval time.Duration `json:"interval"`         // nanoseconds in JSON, as all durations of a record
	Timeout  time.Duration `json:"timeout"`
}

// Limits bounds an operation. Deadline is of the switch; Pull is of the preparation.
type Limits struct {
	Deadline time.Duration `json:"deadline"`
	Stable   time.Duration `json:"stable"`
	Restarts int           `json:"restarts"`
	Pull     time.Duration `json:"pull"`
	Keep     int           `json:"keep"` // releases kept on the host to go back to
}

// Defaults of DESIGN.md, used where the enrollment is silent.
const (
	DefaultInterval = 500 * time.Millisecond
	DefaultTimeout  = 2 * time.Second
	DefaultDeadline = 5 * time.Minute
	DefaultStable   = 10 * time.Second
	DefaultPull     = 10 * time.Minute
	DefaultKeep     = 2
	DefaultDrain    = 30 * time.Second
)
