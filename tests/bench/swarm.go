//go:build e2e

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"toad/tests/host"
)

// swarm is docker service update on a single node, on a host of its own: dockerd beside rootless Podman changes both.
type swarm struct {
	*host.Host
	version string
	image   string
}

// peerPackages make another base for hosts.
const peerPackages = "docker.io,docker-cli,caddy,nats-server"

// newPeers is a host with what toad is compared with, as Debian has it.
func newPeers(b *bench) *host.Host {
	old, had := os.LookupEnv("TOAD_HOST_PACKAGES")
	defer func() {
		if _ = os.Unsetenv("TOAD_HOST_PACKAGES"); had {
			_ = os.Setenv("TOAD_HOST_PACKAGES", old)
		}
	}()
	_ = os.Setenv("TOAD_HOST_PACKAGES", peerPackages)
	return host.Up(b, host.Options{NoToad: true})
}

// giveUp is how long its command may take; swarm gives up only then.
const giveUp = 100 * time.Second

// dockerfile adds the health check that swarm judges by; the program and its layers stay the same.
const dockerfile = `FROM 127.0.0.1:5000/app@%s
HEALTHCHECK --interval=2s --timeout=2s --retries=2 CMD ["/app","health"]
`

func newSwarm(b *bench) (s *swarm, err error) {
	b.say("a host with Docker")
	err = b.try("docker", func() {
		s = &swarm{Host: newPeers(b), version: "first"}
		s.MustExec(b, "systemctl", "stop", "caddy.service", "nats-server.service")
		installSelf(b, s.Host)
		// Docker cannot stack its overlay on the host's own; this folder is a plain one.
		s.WriteFile(b, "/etc/docker/daemon.json", `{"data-root": "/var/lib/containers/docker", "insecure-registries": ["127.0.0.1:5000"]}`, 0o644)
		s.MustExec(b, "systemctl", "restart", "docker.service")
		s.MustExec(b, "docker", "swarm", "init", "--advertise-addr", "127.0.0.1")
		s.offer(b, s.version, "good")
		s.MustExec(b, "docker", "service", "create", "--name", "web", "--detach", "--publish", "mode=host,published=8080,target=8080",
			"--update-failure-action", "rollback", "--update-monitor", fmt.Sprint(watched), "--rollback-monitor", fmt.Sprint(watched),
			"--restart-delay", "1s", "--stop-grace-period", "3s", s.image)
		serves(b, s.Host, s.port(), s.version)
	})
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(err.Error(), "\n", " "))
	}
	return s, nil
}

func (s *swarm) name() string           { return "docker service update" }
func (s *swarm) port() int              { return 8080 }
func (s *swarm) good() string           { return s.version }
func (s *swarm) promote(version string) { s.version = version }

func (s *swarm) offer(b *bench, version, behaviour string) {
	digest := s.Push(b, "plain", behaviour, version).Digest
	s.image = "127.0.0.1:5000/app:" + version
	s.WriteFile(b, "/root/Dockerfile", fmt.Sprintf(dockerfile, digest), 0o644)
	s.MustExec(b, "sh", "-c", "DOCKER_BUILDKIT=0 docker build -q -t "+s.image+" - < /root/Dockerfile")
	s.MustExec(b, "docker", "push", "-q", s.image)
}

func (s *swarm) update(b *bench) (string, int) {
	ctx, cancel := context.WithTimeout(context.Background(), giveUp)
	defer cancel()
	exit := 0
	if err := s.Command(ctx, b, "docker", "service", "update", "--quiet", "--image", s.image, "web").Run(); err != nil {
		exit = 1
	}
	if ctx.Err() != nil {
		return fmt.Sprintf("no end after %v", giveUp), exit
	}
	state := s.MustExec(b, "docker", "service", "inspect", "--format", "{{if .UpdateStatus}}{{.UpdateStatus.State}}{{end}}", "web")
	return strings.ReplaceAll(state, "_", " "), exit
}

func (s *swarm) reset(b *bench) {
	status, body := s.Get("http://127.0.0.1:8080/healthz")
	if status != 200 || body != "version "+s.version+"\n" {
		b.say("swarm did not come back by itself")
		s.MustExec(b, "docker", "service", "update", "--quiet", "--force", "--image", "127.0.0.1:5000/app:"+s.version, "web")
	}
	serves(b, s.Host, s.port(), s.version)
	time.Sleep(time.Second)
}
