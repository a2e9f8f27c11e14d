package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"toad/probation"
)

func TestWhatUndoesToadsWorkIsToldFromWhatDoesNot(t *testing.T) {
	h := menaced{services: []string{"web.service", "store-a@1.service"}}
	for command, want := range map[string]string{
		"/usr/bin/podman system prune -af":                           "prune",
		"/usr/bin/podman image prune --all --force":                  "prune",
		"/bin/sh -c podman system prune -f && true":                  "prune",
		"/usr/bin/podman image prune -af --filter until=48h":         "prune", // by when an image was built
		"/usr/bin/podman image prune -af --filter label!=keep":       "prune",
		"/usr/bin/podman image prune -af --filter label=disposable":  "",
		"/usr/bin/podman system prune -af --filter=label=disposable": "",
		"/usr/bin/podman container prune -f":                         "",
		"/usr/bin/podman ps ; /usr/bin/git prune":                    "",
		"/usr/bin/podman auto-update":                                "auto-update",
		"/usr/bin/podman rm -fa":                                     "containers",
		"/usr/bin/podman restart --all":                              "restart",
		"/usr/bin/podman restart other":                              "",
		"/usr/bin/systemctl --user restart web.service":              "restart",
		"/usr/bin/systemctl --user try-restart web":                  "restart",
		"/usr/bin/systemctl --user restart store-*":                  "restart",
		"/usr/bin/systemctl --user restart default.target":           "restart",
		"/usr/bin/systemctl --user restart other.service":            "",
		"/usr/bin/systemctl --user reload web.service":               "",
		"/usr/bin/rsync -a --delete q/ .config/containers/systemd/":  "rsync",
		"/usr/bin/rsync -a --del q/ .config/containers/systemd":      "rsync",
		"/usr/bin/rsync -a q/ .config/containers/systemd/":           "",
		"/usr/bin/rsync -a --delete --exclude zz-toad.conf --exclude=zz-toad.previous --exclude .toad-made q/ .config/containers/systemd/": "",
		"/usr/bin/rsync -a --delete --exclude zz-toad.conf q/ .config/containers/systemd/":                                                 "rsync",
	} {
		have := ""
		for _, m := range menaces {
			if m.is(h, command) {
				have += m.what
			}
		}
		if have != want {
			t.Errorf("%s: want %q, have %q", command, want, have)
		}
	}
}

func TestSystemdSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"10s": 10 * time.Second, "1min 30s": 90 * time.Second, "100ms": 100 * time.Millisecond, "1h 5.5s": time.Hour + 5500*time.Millisecond,
		"infinity": math.MaxInt64, "0": 0, "": 0, "1w 2d": 9 * 24 * time.Hour,
	} {
		if have := systemdSpan(text); have != want {
			t.Errorf("%q: want %v, have %v", text, want, have)
		}
	}
}

func TestLimitWarnings(t *testing.T) {
	limits := probation.Limits{Deadline: time.Minute, Stable: 10 * time.Second}
	usual := map[string]string{"StartLimitIntervalUSec": "10s", "StartLimitBurst": "5", "RestartUSec": "100ms",
		"TimeoutStartUSec": "1min 30s", "TimeoutStopUSec": "10s"}
	for _, c := range []struct {
		key, value string
		restarts   int
		says       string
	}{
		{"RestartUSec", "100ms", 0, ""},
		{"RestartUSec", "100ms", 4, ""},
		{"RestartUSec", "100ms", 5, "start limit of 5 starts"},
		{"RestartUSec", "3s", 9, ""}, // never five in ten seconds
		{"RestartUSec", "2min", 0, "no restart is ever seen"},
		{"TimeoutStopUSec", "infinity", 0, "TimeoutStopSec=infinity"},
		{"TimeoutStartUSec", "5s", 0, "shorter than the stable window"},
		{"TimeoutStartUSec", "infinity", 0, ""},
	} {
		p := map[string]string{}
		for k, v := range usual {
			p[k] = v
		}
		p[c.key], limits.Restarts = c.value, c.restarts
		var all []string
		for _, w := range limitWarnings(p, limits) {
			all = append(all, w[0])
		}
		have := strings.Join(all, "; ")
		if (c.says == "" && have != "") || !strings.Contains(have, c.says) {
			t.Errorf("%s=%s, %d restarts: want %q, have %q", c.key, c.value, c.restarts, c.says, have)
		}
	}
}

func TestFindingsAreOneLineAndWhatMendsThem(t *testing.T) {
	var f findings
	f.ok("linger", "on")
	if f.worst() != levelOK {
		t.Error(f.worst())
	}
	f.add(levelWarn, "prune", "a\nb", "")
	f.add(levelFail, "podman", "away", "start it")
	if f.worst() != levelFail || f[1].text() != "warn  prune: a b" || f[2].text() != "fail  podman: away\n      mend: start it" {
		t.Errorf("%s %q", f.worst(), f)
	}
}
