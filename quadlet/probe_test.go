package quadlet

import (
	"testing"

	"toad/probation"
)

func TestAProbeMustPointAtAPortOfTheUnit(t *testing.T) {
	web := []string{"/usr/bin/podman", "run", "--name", "systemd-web", "--publish", "127.0.0.1:8080:80", "-p", "[::1]:9000-9010:9000-9010",
		"--publish", "5353:53/udp", "--publish", "7000", "127.0.0.1:5000/app:v1"}
	for _, c := range []struct {
		ready probation.Ready
		argv  []string
		hold  string
		ok    bool
	}{
		{ready: probation.Ready{HTTP: "http://127.0.0.1:8080/healthz"}, argv: web, ok: true},
		{ready: probation.Ready{TCP: "[::1]:9005"}, argv: web, ok: true},
		{ready: probation.Ready{HTTP: "http://127.0.0.1:8081/"}, argv: web},
		{ready: probation.Ready{HTTP: "http://127.0.0.1/"}, argv: web},
		{ready: probation.Ready{TCP: "127.0.0.1:5353"}, argv: web},
		{ready: probation.Ready{TCP: "127.0.0.1:7000"}, argv: web},
		{ready: probation.Ready{TCP: "127.0.0.1:7000"}, argv: web, hold: "web.socket", ok: true},
		{ready: probation.Ready{HTTP: "http+unix:///run/x.sock:/"}, argv: web, ok: true},
		{ready: probation.Ready{}, argv: web, ok: true},
		{ready: probation.Ready{HTTP: "http://localhost:8080/"}, argv: web, ok: true},
		{ready: probation.Ready{HTTP: "http://web.example.org:8080/"}, argv: web, ok: true},
		{ready: probation.Ready{HTTP: "http://192.0.2.7:8080/"}, argv: web},
		{ready: probation.Ready{TCP: "127.0.0.1:9005"}, argv: web},
		{ready: probation.Ready{TCP: "127.0.0.1:7"}, argv: []string{"podman", "run", "-p", "0.0.0.0:7:7", "a/b"}, ok: true},
		{ready: probation.Ready{TCP: "127.0.0.1:7"}, argv: []string{"podman", "run", "-p", "127.0.0.1::7", "a/b"}},
		{ready: probation.Ready{TCP: "127.0.0.1:7"}, argv: []string{"podman", "run", "--network", "web", "a/b"}},
		{ready: probation.Ready{TCP: "127.0.0.1:7"}, argv: []string{"podman", "run", "--network", "pasta", "a/b"}},
		{ready: probation.Ready{TCP: "127.0.0.1:7"}, argv: []string{"podman", "run", "--network", "pasta:-t,7:7", "a/b"}, ok: true},
		{ready: probation.Ready{TCP: "127.0.0.1:7"}, argv: []string{"podman", "run", "--network", "container:db", "a/b"}, ok: true},
		{ready: probation.Ready{TCP: "127.0.0.1:7"}, argv: []string{"podman", "run", "--network=host", "a/b"}, ok: true},
		{ready: probation.Ready{TCP: "127.0.0.1:7"}, argv: []string{"podman", "run", "--pod-id-file", "x", "a/b"}, ok: true},
	} {
		err := CheckProbe(probation.Enrollment{Ready: c.ready, Hold: c.hold}, Generated{Unit: "web.service", ExecStart: [][]string{c.argv}})
		if (err == nil) != c.ok {
			t.Errorf("%+v over %v: want ok %v, have %v", c.ready, c.argv, c.ok, err)
		}
	}
}

func TestAHealthcheckIsOnTheCommandLineOrLeftToTheImage(t *testing.T) {
	for _, c := range []struct {
		args         []string
		has, decided bool
	}{
		{[]string{"--health-cmd", "/app health"}, true, true},
		{[]string{"--health-cmd", "none"}, false, true},
		{[]string{"--no-healthcheck"}, false, true},
		{nil, false, false},
	} {
		argv := append(append([]string{"podman", "run"}, c.args...), "127.0.0.1:5000/app:v1", "--health-cmd", "of the command")
		has, decided := HasHealthcheck(Generated{ExecStart: [][]string{argv}})
		if has != c.has || decided != c.decided {
			t.Errorf("%q: want %v, %v, have %v, %v", c.args, c.has, c.decided, has, decided)
		}
	}
}
