package quadlet

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"toad/probation"
)

// CheckProbe refuses a probe over TCP whose port the unit does not hold: whatever answers there, it is not the service.
// A port is the unit's when it publishes it, when a held socket passes it in, or when it shares the host's network.
func CheckProbe(e probation.Enrollment, g Generated) error {
	address := e.Ready.TCP
	if strings.HasPrefix(e.Ready.HTTP, "http://") {
		u, err := url.Parse(e.Ready.HTTP)
		if err != nil {
			return Problem{Key: "ready.http", What: "is not an address", Fix: "write e.g. http://127.0.0.1:8080/healthz"}
		}
		if address = u.Host; u.Port() == "" {
			address = net.JoinHostPort(u.Hostname(), "80")
		}
	}
	if address == "" || e.Hold != "" {
		return nil
	}
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return Problem{Key: "ready", What: err.Error(), Fix: "write host:port"}
	}
	port, _ := strconv.Atoi(text)
	run, err := theRun(g, "")
	if err != nil {
		return Problem{Key: g.Unit, What: "runs " + err.Error(), Fix: "look at systemctl --user cat " + g.Unit}
	}
	if run.holds(port) {
		return nil
	}
	return Problem{File: g.SourcePath, Key: "[Container] PublishPort",
		What: fmt.Sprintf("does not publish port %d, which the readiness probe %s asks: something else would answer", port, address),
		Fix:  fmt.Sprintf("add PublishPort=127.0.0.1:%d:<port of the application>, or mend the probe", port)}
}

// holds reports whether a port of the host leads into the container, as far as its command line tells.
func (r podmanRun) holds(port int) bool {
	if len(r.all("publish-all")) > 0 || len(r.all("pod")) > 0 || len(r.all("pod-id-file")) > 0 {
		return true // Podman chooses the port, or the pod publishes it
	}
	if slices.Contains(r.all("network"), "host") {
		return true
	}
	return slices.ContainsFunc(r.all("publish"), func(p string) bool { return publishes(p, port) })
}

// publishes reads [[ip:]hostPort:]containerPort[/protocol], where a port may be a range.
func publishes(spec string, port int) bool {
	spec, protocol, _ := strings.Cut(spec, "/")
	if protocol != "" && protocol != "tcp" {
		return false
	}
	parts := strings.Split(spec, ":")
	if len(parts) < 2 {
		return false // a host port that Podman chooses
	}
	first, last, isRange := strings.Cut(parts[len(parts)-2], "-")
	if !isRange {
		last = first
	}
	low, errLow := strconv.Atoi(first)
	high, errHigh := strconv.Atoi(last)
	return errLow == nil && errHigh == nil && low <= port && port <= high
}

// HasHealthcheck says whether a unit's command line gives the container a health check; decided is false when it leaves
// that to the image.
func HasHealthcheck(g Generated) (has, decided bool) {
	run, err := theRun(g, "")
	if err != nil {
		return false, false
	}
	if len(run.all("no-healthcheck")) > 0 {
		return false, true
	}
	command, ok := run.last("health-cmd")
	return ok && command != "none", ok
}
