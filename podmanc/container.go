package podmanc

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containers/podman/v5/libpod/define"
)

// Container is what Podman knows of a container, running or not.
type Container struct {
	ID          string // 64 hex digits
	Name        string
	ImageID     string // 64 hex digits
	ImageRef    string // as it was named when the container was made
	Labels      map[string]string
	Unit        string // the systemd unit that made it, of label PODMAN_SYSTEMD_UNIT; "" if none did
	Running     bool
	Status      string    // Podman's word: created, running, paused, exited, …
	ExitCode    int       // of the last run
	Health      string    // "" without a health check, else starting, healthy, unhealthy; "" from Containers
	Pid         int       // of its first process, 0 when not running
	StartedAt   time.Time // zero if it never was
	Ports       []Port    // published ones, by container port; none from Containers
	HostNetwork bool      // it uses the host's network; false from Containers
}

// Port is one published port.
type Port struct {
	HostIP        string // "0.0.0.0" or "" for all addresses
	HostPort      int
	ContainerPort int
	Proto         string // "tcp", "udp", "sctp"
}

const unitLabel = "PODMAN_SYSTEMD_UNIT"

// Container looks up one container by name or id. The error is ErrNoContainer if there is none.
func (c *Client) Container(ctx context.Context, nameOrID string) (Container, error) {
	data, err := get[define.InspectContainerData](ctx, c, "/containers/%s/json", nil, nameOrID)
	switch {
	case status(err) == http.StatusNotFound:
		return Container{}, fmt.Errorf("%w: %s", ErrNoContainer, nameOrID)
	case err != nil:
		return Container{}, fmt.Errorf("inspect container %s: %w", nameOrID, err)
	}
	return containerOf(&data), nil
}

func containerOf(d *define.InspectContainerData) Container {
	c := Container{ID: d.ID, Name: strings.TrimPrefix(d.Name, "/"), ImageID: d.Image, ImageRef: d.ImageName}
	if d.Config != nil {
		c.Labels, c.Unit = d.Config.Labels, d.Config.Labels[unitLabel]
	}
	if s := d.State; s != nil {
		c.Running, c.Status, c.ExitCode, c.Pid = s.Running, s.Status, int(s.ExitCode), s.Pid
		c.StartedAt = started(s.StartedAt)
		if s.Health != nil {
			c.Health = s.Health.Status
		}
	}
	if d.HostConfig != nil {
		c.HostNetwork = d.HostConfig.NetworkMode == "host"
	}
	if d.NetworkSettings != nil {
		c.Ports = ports(d.NetworkSettings.Ports)
	}
	return c
}

// started undoes Podman's two ways to write "never".
func started(t time.Time) time.Time {
	if t.Unix() <= 0 {
		return time.Time{}
	}
	return t
}

// ports turns {"8080/tcp": [{"127.0.0.1", "18080"}]} into a list; exposed ports that are not published have no bindings.
func ports(bindings map[string][]define.InspectHostPort) []Port {
	var list []Port
	for inside, outside := range bindings {
		number, proto, _ := strings.Cut(inside, "/")
		container, err := strconv.Atoi(number)
		if err != nil {
			continue
		}
		for _, o := range outside {
			if host, err := strconv.Atoi(o.HostPort); err == nil {
				list = append(list, Port{HostIP: o.HostIP, HostPort: host, ContainerPort: container, Proto: proto})
			}
		}
	}
	slices.SortFunc(list, func(a, b Port) int {
		return cmp.Or(cmp.Compare(a.ContainerPort, b.ContainerPort), cmp.Compare(a.Proto, b.Proto),
			cmp.Compare(a.HostIP, b.HostIP), cmp.Compare(a.HostPort, b.HostPort))
	})
	return list
}

// Containers lists the containers with this label ("key" or "key=value"), running and not; empty lists all. Fields that
// only an inspection gives are left out; see Container.
func (c *Client) Containers(ctx context.Context, label string) ([]Container, error) {
	query := url.Values{"all": {"true"}}
	if label != "" {
		filters, err := json.Marshal(map[string][]string{"label": {label}})
		if err != nil {
			return nil, err
		}
		query.Set("filters", string(filters))
	}
	all, err := get[[]listed](ctx, c, "/containers/json", query)
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	list := make([]Container, 0, len(all))
	for _, l := range all {
		found := Container{
			ID: l.ID, ImageID: l.ImageID, ImageRef: l.Image, Labels: l.Labels, Unit: l.Labels[unitLabel],
			Running: l.State == "running", Status: l.State, ExitCode: int(l.ExitCode), Pid: l.Pid,
			StartedAt: started(time.Unix(l.StartedAt, 0)),
		}
		if len(l.Names) > 0 {
			found.Name = l.Names[0]
		}
		list = append(list, found)
	}
	return list, nil
}

// listed is an entry of Podman's list of containers.
type listed struct {
	ID        string
	Names     []string
	Image     string
	ImageID   string
	Labels    map[string]string
	State     string
	ExitCode  int32
	Pid       int
	StartedAt int64 // seconds since 1970
}

const (
	maxTail  = 1000
	maxLine  = 16 << 10
	maxFrame = 16 << 20
)

// Logs gives the last lines, at most tail (0 to 1000) of them, that a container wrote to stdout and stderr, in the order
// in which Podman kept them, without line ends. They are the application's words as they are: neither redacted nor
// escaped. A line beyond 16 KiB is cut. The error is ErrNoContainer if there is no such container.
func (c *Client) Logs(ctx context.Context, id string, tail int) ([]string, error) {
	tail = min(max(tail, 0), maxTail)
	query := url.Values{"stdout": {"true"}, "stderr": {"true"}, "tail": {strconv.Itoa(tail)}}
	resp, err := c.do(ctx, http.MethodGet, "/containers/"+url.PathEscape(id)+"/logs", query, nil, nil)
	var lines []string
	if err == nil {
		lines, err = readLogs(resp.Body, tail)
		_ = resp.Body.Close()
	}
	switch {
	case status(err) == http.StatusNotFound:
		return nil, fmt.Errorf("%w: %s", ErrNoContainer, id)
	case err != nil:
		return nil, fmt.Errorf("logs of container %s: %w", id, err)
	}
	return lines, nil
}

// readLogs takes Podman's frames apart: a byte that names the stream, three of zero, the length in four, and the text. A
// line may go on in the next frame.
func readLogs(r io.Reader, tail int) ([]string, error) {
	var lines []string
	open := false // the last line has no end yet
	for {
		var head struct {
			Stream [4]byte
			Length uint32
		}
		switch err := binary.Read(r, binary.BigEndian, &head); {
		case errors.Is(err, io.EOF):
			return lines, nil
		case err != nil:
			return nil, err
		case head.Length > maxFrame:
			return nil, fmt.Errorf("podman answers with a frame of %d bytes", head.Length)
		}
		frame := make([]byte, head.Length)
		if _, err := io.ReadFull(r, frame); err != nil {
			return nil, err
		}
		for piece := range strings.Lines(string(frame)) {
			text := strings.TrimSuffix(piece, "\n")
			if open {
				lines[len(lines)-1] += text
			} else {
				lines = append(lines, text)
			}
			last := &lines[len(lines)-1]
			*last = (*last)[:min(len(*last), maxLine)]
			open = len(text) == len(piece)
			if len(lines) > tail {
				lines = slices.Delete(lines, 0, len(lines)-tail)
			}
		}
	}
}
