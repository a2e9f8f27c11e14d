//go:build e2e

package agent

import (
	"slices"
	"strings"
	"testing"
	"time"

	"toad/agent/protocol"
	"toad/tests/control"
	"toad/tests/host"
)

func TestThreeBoxesConverge(t *testing.T) {
	t.Parallel()
	s := newSite()
	all := s.boxes(t, 3, false)
	first, last := all[0], all[2]
	digest := func(tag string) string { return first.Digest(t, tag) }
	s.PutSecret(env, "key", "the-first-value-of-the-key")
	web := part{"web", digest("v1"), 8080, secret + volume}
	one := s.publish(t, web)
	each(all, func(b *box) { b.bootstrap(t) })
	each(all, func(b *box) {
		b.Serves(t, "v1")
		if r := b.reported(t); r.Result != protocol.ResultApplied || r.BundleSHA != one {
			t.Errorf("%s: %+v\n%s", b.name, r, b.Journal(t, "toad-agent.service"))
		}
		if have := b.inside(t); have != "the-first-value-of-the-key" {
			t.Errorf("%s: the application has another secret", b.name)
		}
		b.MustUser(t, "test", "!", "-e", ".config/toad/agent/bootstrap.jwt")
		b.Quiet(t)
	})

	t.Run("a bad bundle is put back on all and reported", func(t *testing.T) {
		bad := s.publish(t, part{"shop", digest("v2"), 8081, ""}, part{"web", digest("crash"), 8080, secret + volume})
		each(all, func(b *box) { b.tick(t, 1) })
		each(all, func(b *box) {
			b.MustServe(t, "v1")
			r := b.reported(t)
			if r.Result != protocol.ResultFailed || r.BundleSHA != bad || r.InForce != one || r.Code != "candidate_exited" ||
				!slices.ContainsFunc(r.LogTail, func(l string) bool { return strings.Contains(l, "fatal: cannot read configuration") }) {
				t.Errorf("%s: %+v", b.name, r)
			}
			if left := b.User(t, "sh", "-c", "ls .config/containers/systemd/toad; systemctl --user is-active shop.service; ls .config/containers/systemd").Stdout; strings.Contains(left, "shop") || strings.Contains(left, "\nactive") {
				t.Errorf("%s: the service that went well is left:\n%s", b.name, left)
			}
			b.tick(t, 1) // it is not tried again
			if n := len(s.Reports(env, b.name)); n != 2 {
				t.Errorf("%s: %d reports", b.name, n)
			}
			b.Quiet(t)
		})
	})

	t.Run("a text that fails is put back, the digest being the same", func(t *testing.T) {
		s.publish(t, part{"web", digest("v1"), 8080, secret + volume + "Exec=crash\n"})
		first.tick(t, 1)
		first.MustServe(t, "v1")
		if have := first.inside(t); have != "the-first-value-of-the-key" {
			t.Error("the application has another secret")
		}
		first.Quiet(t)
	})

	// The last box is off for all that follows. Its timer is quick, so that it need not be waited for.
	last.WriteFile(t, "~/.config/systemd/user/toad-agent.timer.d/quick.conf", "[Timer]\nOnCalendar=\nOnCalendar=*:*:0/5\nRandomizedDelaySec=1s\n", 0o644)
	last.Off(t)
	on := all[:2]
	t.Run("a changed secret is rolled out under probation", func(t *testing.T) {
		s.publish(t, part{"web", digest("v1"), 8080, secret + volume + "Environment=A=b\n"})
		each(on, func(b *box) { b.tick(t, 0) })
		s.PutSecret(env, "key", "the-second-value-of-the-key")
		each(on, func(b *box) {
			before := b.Status(t).Generation
			b.tick(t, 0)
			if have := b.inside(t); have != "the-second-value-of-the-key" {
				t.Errorf("%s: the application has the old secret", b.name)
			}
			if g := b.Status(t).Generation; g != before+1 {
				t.Errorf("%s: generation %d, then %d", b.name, before, g)
			}
			if log := b.MustUser(t, "toad", "log", "web"); !strings.Contains(log, "probation") || !strings.Contains(log, "promoted") {
				t.Errorf("%s: no probation is told of:\n%s", b.name, log)
			}
			// Back to the version before, with nobody to ask for it.
			b.MustUser(t, "toad", "rollback", "web")
			if have := b.inside(t); have != "the-first-value-of-the-key" {
				t.Errorf("%s: the way back has another secret", b.name)
			}
			b.noSecret(t)
		})
	})

	t.Run("a spent lease budget", func(t *testing.T) {
		s.publish(t, part{"web", digest("v2"), 8080, secret + volume})
		s.Set(env, func(e *control.Env) { e.Leases = 1 })
		first.tick(t, 75)
		first.MustServe(t, "v1")
		// Its own deadlines hold all the same.
		if r := first.User(t, "toad", "deploy", "web", digest("never")); r.Exit != 3 {
			t.Errorf("a release that never gets ready ended %d\n%s%s", r.Exit, r.Stdout, r.Stderr)
		}
		first.MustServe(t, "v1")
		s.Set(env, func(e *control.Env) { e.Leases = 100 })
		first.MustUser(t, "toad", "agent", "run", "--retry")
		first.Serves(t, "v2")
	})

	t.Run("a box that was off converges when it is back", func(t *testing.T) {
		last.Boot(t)
		host.Eventually(t, "the last box to apply", 90*time.Second, func() bool {
			r := s.Reports(env, last.name)
			return r[len(r)-1].Result == protocol.ResultApplied && r[len(r)-1].BundleSHA != one
		})
		last.Serves(t, "v2")
		if have := last.inside(t); have != "the-second-value-of-the-key" {
			t.Error("it has the old secret")
		}
		last.MustUser(t, "systemctl", "--user", "stop", "toad-agent.timer")
		last.settled(t)
		last.noSecret(t)
	})

	t.Run("prod refuses to purge", func(t *testing.T) {
		s.Set(env, func(e *control.Env) { e.Action, e.Purge = protocol.ActionDown, true })
		first.tick(t, 0)
		if r := first.reported(t); r.Result != protocol.ResultDown || !strings.Contains(r.Detail, "volumes of tier prod are kept") {
			t.Errorf("%+v", r)
		}
		left := first.MustUser(t, "sh", "-c", "podman volume ls -q; podman ps -q; podman secret ls -q; ls .config/containers/systemd .config/containers/systemd/toad; systemctl --user is-active web.service || true; cat .local/state/toad/agent/bearer 2>&1 || true")
		if !strings.Contains(left, "systemd-data") || strings.Contains(left, "web") || strings.Contains(left, "\nactive") || !strings.Contains(left, "No such file") {
			t.Errorf("left:\n%s", left)
		}
		if n := s.Live(env, first.name); n != 0 {
			t.Errorf("%d tokens are still accepted", n)
		}
		first.noSecret(t)
	})
}
