package quadlet

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"toad/probation"
)

// CheckProbe refuses a probe over TCP whose port the unit does not hold: whatever answers there, it is not the service.
// A port is the unit's when it publishes it, when a held socket passes it in, or when it shares the host's network.
func CheckProbe(e probation.Enrollment, g Generated) error {
	address, host, port, err := probed(e.Ready)
	if err != nil {
		return err
	}
	if address == "" || e.Hold != "" || e.Binary() { // a plain unit listens on the host itself
		return nil
	}
	run, err := theRun(g, "")
	if err != nil {
		return Problem{Key: g.Unit, What: "runs " + err.Error(), Fix: "look at systemctl --user cat " + g.Unit}
	}
	if run.holds(host, port) {
		return nil
	}
	return Problem{File: g.SourcePath, Key: "[Container] PublishPort",
		What: fmt.Sprintf("does not publish port %d, which the readiness probe %s asks: something else would answer", port, address),
		Fix:  fmt.Sprintf("add PublishPort=127.0.0.1:%d:<port of the application>, or mend the probe", port)}
}

// probed is the address over TCP that a probe asks; "" if it asks none.
func probed(r probation.Ready) (address, host string, port int, err error) {
	address = r.TCP
	if strings.HasPrefix(r.HTTP, "http://") {
		u, err := url.Parse(r.HTTP)
		if err != nil {
			return "", "", 0, Problem{Key: "ready.http", What: "is not an address", Fix: "write e.g. http://127.0.0.1:8080/healthz"}
		}
		if address = u.Host; u.Port() == "" {
			address = net.JoinHostPort(u.Hostname(), "80")
		}
	}
	if address == "" {
		return "", "", 0, nil
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return "", "", 0, Problem{Key: "ready", What: err.Error(), Fix: "write host:port"}
	}
	port, _ = strconv.Atoi(text)
	return address, host, port, nil
}

// HostPort is where a probe over TCP asks a plain unit, or a container that shares the host's network: there anybody may be the one who
// answers. ok is false for all others.
func HostPort(r probation.Ready, g Generated) (host string, port int, ok bool) {
	address, host, port, err := probed(r)
	if err != nil || address == "" {
		return "", 0, false
	}
	if g.SourcePath == "" && len(g.ExecPaths) == 1 {
		return host, port, true // a plain unit
	}
	run, err := theRun(g, "")
	if err != nil {
		return "", 0, false
	}
	network, _ := run.last("network")
	return host, port, network == "host"
}

// holds reports whether a port of the host leads into the container, as far as its command line tells.
func (r podmanRun) holds(host string, port int) bool {
	if len(r.all("publish-all")) > 0 || len(r.all("pod")) > 0 || len(r.all("pod-id-file")) > 0 {
		return true // Podman chooses the port, or the pod publishes it
	}
	if slices.ContainsFunc(r.all("network"), sharesPorts) {
		return true
	}
	return slices.ContainsFunc(r.all("publish"), func(p string) bool { return publishes(p, host, port) })
}

// sharesPorts says of a network that ports reach the container through it without being published by the unit.
func sharesPorts(network string) bool {
	switch mode, options, _ := strings.Cut(network, ":"); mode {
	case "host", "container", "ns":
		return true
	case "pasta", "slirp4netns":
		return options != "" // which may forward ports by themselves
	}
	return false
}

// publishes reads [[ip:]hostPort:]containerPort[/protocol], where a port may be a range, and the address of IPv6 stands
// in brackets.
func publishes(spec, host string, port int) bool {
	spec, protocol, _ := strings.Cut(spec, "/")
	if protocol != "" && protocol != "tcp" {
		return false
	}
	colon := strings.LastIndexByte(spec, ':')
	if colon < 0 {
		return false // a host port that Podman chooses
	}
	address, ports := "", spec[:colon]
	if colon = strings.LastIndexByte(ports, ':'); colon >= 0 {
		address, ports = ports[:colon], ports[colon+1:]
	}
	first, last, isRange := strings.Cut(ports, "-")
	if !isRange {
		last = first
	}
	low, errLow := strconv.Atoi(first)
	high, errHigh := strconv.Atoi(last)
	return errLow == nil && errHigh == nil && low <= port && port <= high && reaches(strings.Trim(address, "[]"), host)
}

// reaches compares the address at which a port is published with the host of a probe. A name could stand for any.
func reaches(address, host string) bool {
	at, err := netip.ParseAddr(address)
	if err != nil || at.IsUnspecified() {
		return true
	}
	if host == "localhost" {
		return at.IsLoopback()
	}
	asked, err := netip.ParseAddr(host)
	return err != nil || asked == at
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
