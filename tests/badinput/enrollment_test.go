//go:build e2e

package badinput

import (
	"encoding/json"
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

func TestEnrollment(t *testing.T) {
	t.Parallel()
	h := host.Up(t, host.Options{})
	t.Run("there is none", func(t *testing.T) { none(t, h) })

	w := &scene.Web{Host: h}
	w.Up(t, scene.Options{Ready: ready, Limits: limits})
	b := bed{w}
	b.MustDeploy(t, 0, "v2")
	b.Quiet(t)

	good := b.ReadFile(t, enrollment)
	for _, c := range []struct{ name, text, line, what, fix string }{
		{"an unknown key", strings.Replace(good, "deadline", "dead_line", 1), "enrollment.toml:11", "is not a known key", "known here: deadline"},
		{"a duration that is none", strings.Replace(good, `"60s"`, `"soon"`, 1), "enrollment.toml:11", "is not a duration", `"10s"`},
		{"a window that no release could pass", strings.Replace(good, `"500ms"`, `"59s"`, 1), "enrollment.toml:11", "no release could pass", "make it several times as long"},
		{"two services with one unit", good + strings.ReplaceAll(good, "service.web", "service.web2"), "enrollment.toml:15", "claimed by service web already", "let one service name it"},
		{"a password in an address", strings.Replace(good, "http://127", "http://somebody:S3NT1NEL@127", 1), "enrollment.toml:6", "holds a user name or password", "take it out"},
		{"an address that holds a webhook's secret", good + "[alerts]\nwebhook_file = \"https://hooks.example.org/S3NT1NEL\"\n", "enrollment.toml:15", "is an address", "name the file"},
		{"a template", strings.Replace(good, "web.container", "web@.container", 1), "enrollment.toml:2", "is a template", "link an instance"},
		{"an image with a tag", strings.Replace(good, `/app"`, `/app:v2"`, 1), "enrollment.toml:3", "has a tag", "each deployment names its digest"},
		{"no TOML", "[service.web\n", "enrollment.toml:1", "expect", "toml.io"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.text == good {
				t.Fatal("the text is the good one")
			}
			b.enroll(t, c.text)
			lastGoodStays(t, b, "the daemon that saw the edit", c.line, c.what, c.fix)
		})
	}
	t.Run("others may write it", func(t *testing.T) {
		b.MustUser(t, "chmod", "666", ".config/toad/enrollment.toml")
		defer b.MustUser(t, "chmod", "644", ".config/toad/enrollment.toml")
		lastGoodStays(t, b, "a new daemon", "enrollment.toml", "others may write it (mode 0666)", "chmod go-w")
	})
	t.Run("it belongs to somebody else", func(t *testing.T) {
		b.MustExec(t, "chown", "nobody", "/home/toad/.config/toad/enrollment.toml")
		defer b.MustExec(t, "chown", "toad", "/home/toad/.config/toad/enrollment.toml")
		lastGoodStays(t, b, "a new daemon", "enrollment.toml", "belongs to user", "chown it")
	})
	t.Run("nobody may read it", func(t *testing.T) {
		b.MustUser(t, "chmod", "0", ".config/toad/enrollment.toml")
		defer b.MustUser(t, "chmod", "644", ".config/toad/enrollment.toml")
		lastGoodStays(t, b, "a new daemon", "enrollment.toml", "cannot be read: permission denied", "make it readable")
	})
	for _, c := range []struct{ name, make string }{{"a pipe", "mkfifo"}, {"a folder", "mkdir"}} {
		t.Run("it is "+c.name, func(t *testing.T) {
			b.MustUser(t, "sh", "-c", "cd .config/toad && mv enrollment.toml aside && "+c.make+" enrollment.toml")
			defer b.MustUser(t, "sh", "-c", "cd .config/toad && rm -r enrollment.toml && mv aside enrollment.toml")
			lastGoodStays(t, b, "a new daemon", "enrollment.toml", "is not a regular file", "put the enrollment into a file")
		})
	}
	t.Run("it is gone", func(t *testing.T) {
		b.enroll(t, "")
		lastGoodStays(t, b, "a new daemon", "enrollment.toml", "there is no such file", "write it")
	})
	t.Run("a new service in an invalid edit", func(t *testing.T) {
		b.enroll(t, good+strings.ReplaceAll(good, "service.web", "service.web2"))
		b.refused(t, refusal{exit: 78, says: []string{`no service "web2" is enrolled`, "claimed by service web", "mend the enrollment"}},
			"toad", "deploy", "web2", b.Digest(t, "v3"))
	})
	t.Run("after all that", func(t *testing.T) {
		for _, argv := range [][]string{{"toad", "status"}, {"toad", "status", "web"}} {
			if out := b.MustUser(t, argv...); strings.Contains(out, "enrollment") {
				t.Errorf("%v:\n%s", argv, out)
			}
		}
		b.MustDeploy(t, 0, "v3")
		b.MustServe(t, "v3")
	})
}

// none is a host on which nobody has enrolled anything.
func none(t *testing.T, h *host.Host) {
	r := h.User(t, "toad", "setup")
	if r.Exit != 0 {
		t.Fatalf("toad setup: exit %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
	}
	says := []string{`no service "web" is enrolled`, "enrollment.toml", "there is no such file", "no enrollment is in force", "mend the enrollment"}
	said(t, refusal{exit: 78, says: says}, "deploy", h.User(t, "toad", "deploy", "web", absent))
	said(t, refusal{exit: 78, says: says}, "status web", h.User(t, "toad", "status", "web"))
	if out := h.MustUser(t, "toad", "status"); !strings.Contains(out, "no service is enrolled") || !strings.Contains(out, "enrollment.toml: there is no such file; write it") {
		t.Errorf("toad status:\n%s", out)
	}
	if left := h.MustUser(t, "sh", "-c", "ls .local/state/toad/services .local/state/toad/operations | grep -v :"); strings.Contains(left, "json") {
		t.Errorf("left behind: %s", left)
	}
	h.MustUser(t, "systemctl", "--user", "stop", "toad.service")
}

// lastGoodStays asserts that toad says what is wrong with the enrollment, everywhere one would look, and goes on by the
// last good one; so does a daemon that has never seen it.
func lastGoodStays(t *testing.T, b bed, daemon, line, what, fix string) {
	t.Helper()
	if daemon == "a new daemon" {
		b.MustUser(t, "systemctl", "--user", "restart", "toad.service")
	}
	for _, argv := range [][]string{{"toad", "status"}, {"toad", "status", "web"}} {
		out := b.MustUser(t, argv...)
		for _, want := range []string{line, what, fix, "the last good enrollment stays in force", "web"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %s does not say %q:\n%s", daemon, strings.Join(argv, " "), want, out)
			}
		}
		if strings.Contains(out, "S3NT1NEL") {
			t.Errorf("%v tells a secret:\n%s", argv, out)
		}
		t.Logf("%s: %s\n%s", daemon, strings.Join(argv, " "), out)
	}
	var s struct {
		Image   string
		Invalid string `json:"enrollment_invalid"`
	}
	if err := json.Unmarshal([]byte(b.MustUser(t, "toad", "status", "web", "--json")), &s); err != nil || !strings.Contains(s.Invalid, what) || s.Image != host.Repository {
		t.Errorf("%s: status --json: %+v, %v", daemon, s, err)
	}
	// It is the last good one that is asked: the image is looked for where that says.
	b.refused(t, refusal{exit: 1, code: "pull_failed", says: []string{host.Repository + "@" + absent}}, "toad", "deploy", "web", absent)
	if have := b.Journal(t, "toad.service"); !strings.Contains(have, "the enrollment is not in force as it is now") || !strings.Contains(have, what) || strings.Contains(have, "S3NT1NEL") {
		t.Errorf("the journal:\n%s", have)
	}
}
