//go:build e2e

package badinput

import (
	"fmt"
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

const folder = "~/.config/containers/systemd/"

func TestUnits(t *testing.T) {
	t.Parallel()
	b := newBed(t, scene.Options{})
	operators := b.ReadFile(t, quadlet)
	edited := func(old, with string) map[string]string {
		text := strings.Replace(operators, old, with, 1)
		if text == operators {
			t.Fatalf("no %q in the operator's file", old)
		}
		return map[string]string{quadlet: text}
	}
	pinned := b.ReadFile(t, folder+"web.container.d/zz-toad.conf")

	for _, c := range []struct {
		name  string
		files map[string]string
		exit  int
		code  string
		says  []string
	}{
		{"a file the generator cannot read", edited("[Container]", "[Container"), 1, "binding_broken",
			[]string{"web.container:5", "neither a section", "mend the line"}},
		{"a key the generator does not know", edited("[Service]", "Imgae=x\n[Service]"), 1, "binding_broken",
			[]string{"has no unit: web.service is not-found", "--dryrun"}},
		{"a file that is gone", map[string]string{quadlet: ""}, 1, "binding_broken",
			[]string{"web.container: there is no such file where Podman's generator looks", "mend the name"}},
		{"no default dependencies", edited("[Unit]", "[Unit]\nDefaultDependencies=no"), 1, "binding_broken",
			[]string{"web.container:3", "DefaultDependencies", "could start before toad has decided", "take it out"}},
		{"an image that is built here", map[string]string{
			quadlet:              strings.Replace(operators, "Image="+host.Repository+":v1", "Image=web.build", 1),
			folder + "web.build": "[Build]\nImageTag=localhost/web\nSetWorkingDirectory=unit\n"}, 1, "binding_broken",
			[]string{"web.container:6", "is built on this host by web.build", "push the image"}},
		{"another repository", edited(host.Repository, "127.0.0.1:5000/other"), 1, "binding_broken",
			[]string{"web.container:6", "is of 127.0.0.1:5000/other, but " + host.Repository + " is enrolled", "make the two agree"}},
		{"a folder instead of an image", edited("Image="+host.Repository+":v1", "Rootfs=/srv/web"), 1, "binding_broken",
			[]string{"runs a folder, not an image", "use Image="}},
		{"a unit file in place of the Quadlet's", map[string]string{"~/.config/systemd/user/web.service": "[Service]\nExecStart=sleep infinity\n"}, 1, "binding_broken",
			[]string{"web.service", "is not made from a Quadlet file", "remove it"}},
		{"a command of systemd's own", map[string]string{"~/.config/systemd/user/web.service.d/10-exec.conf": "[Service]\nExecStart=\nExecStart=/usr/bin/podman run --rm " + host.Repository + ":v1\n"}, 1, "binding_broken",
			[]string{"10-exec.conf", "ExecStart", "a pin cannot reach it"}},
		{"a probe of another's port", map[string]string{enrollment: web(`http = "http://127.0.0.1:8081/healthz"`)}, 1, "probe_mismatch",
			[]string{"does not publish port 8081", "something else would answer", "add PublishPort="}},
		{"no health check", map[string]string{enrollment: web("health = true")}, 1, "no_healthcheck",
			[]string{"neither web.container nor the image has one", "add HealthCmd="}},

		// What wins over the pin shows when the pin is loaded: it is taken back before anything is stopped.
		{"a drop-in behind the pin", map[string]string{folder + "web.container.d/zzz-local.conf": "[Container]\nImage=" + host.Repository + ":never\n"}, 1, "binding_broken",
			[]string{"the image is", host.Repository + ":never", "web.container.d/zzz-local.conf:2 wins over the pin", "take the setting out there"}},
		{"a drop-in for all containers behind the pin", map[string]string{folder + "container.d/zzz-corp.conf": "[Container]\nPull=newer\n"}, 1, "binding_broken",
			[]string{"the pull policy is", "container.d/zzz-corp.conf:2 wins over the pin"}},
		{"a drop-in that takes the label away", map[string]string{folder + "web.container.d/zzz-label.conf": "[Container]\nLabel=\n"}, 1, "binding_broken",
			[]string{"the label io.toad.operation", "zzz-label.conf:2 wins over the pin"}},
		{"a drop-in of systemd that disarms the condition", map[string]string{"~/.config/systemd/user/web.service.d/x.conf": "[Unit]\nConditionEnvironment=\n"}, 1, "binding_broken",
			[]string{"ConditionEnvironment= is not there", "web.service.d/x.conf:2 wins over the pin"}},
		{"a drop-in of systemd that disarms the fence", map[string]string{"~/.config/systemd/user/web.service.d/x.conf": "[Service]\nExecCondition=\n"}, 1, "binding_broken",
			[]string{"ExecCondition= is not there", "web.service.d/x.conf:2 wins over the pin"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.with(t, c.files)
			b.refused(t, refusal{exit: c.exit, code: c.code, says: append(c.says, "toad: hint: ")}, "toad", "deploy", "web", b.Digest(t, "v3"))
			if have := b.ReadFile(t, folder+"web.container.d/zz-toad.conf"); have != pinned {
				t.Errorf("the pin is another one:\n%s", have)
			}
			for name, text := range c.files {
				if text != "" && b.ReadFile(t, name) != text {
					t.Errorf("%s has changed", name)
				}
			}
		})
	}
	t.Run("a masked unit", func(t *testing.T) {
		b.MustUser(t, "systemctl", "--user", "mask", "web.service")
		defer b.MustUser(t, "systemctl", "--user", "unmask", "web.service")
		b.refused(t, refusal{exit: 1, code: "binding_broken", says: []string{"web.service: is masked", "systemctl --user unmask web.service"}},
			"toad", "deploy", "web", b.Digest(t, "v3"))
	})
	t.Run("a template without an instance", func(t *testing.T) {
		b.with(t, map[string]string{
			enrollment:                b.ReadFile(t, enrollment) + fmt.Sprintf("[service.tpl]\nunits = [\"tpl@a.container\"]\nimage = %q\n", host.Repository),
			folder + "tpl@.container": "[Container]\nImage=" + host.Repository + ":v1\n",
		})
		before := b.look(t)
		said(t, refusal{exit: 1, says: []string{"tpl@.container", "is a template", "ln -s tpl@.container"}}, "deploy tpl",
			b.User(t, "toad", "deploy", "tpl", b.Digest(t, "v3")))
		b.Quiet(t)
		if after := b.look(t); before != after {
			t.Errorf("it changed something\nbefore %+v\nafter  %+v", before, after)
		}
		var rec struct {
			Refusals  []any
			Promoted  any
			Operation struct{ Phase, Code string }
		}
		record(t, b, "tpl", &rec)
		if rec.Operation.Phase != "failed" || rec.Operation.Code != "binding_broken" || rec.Refusals != nil || rec.Promoted != nil {
			t.Errorf("on record: %+v", rec)
		}
		if r := b.User(t, "systemctl", "--user", "is-active", "tpl@a.service"); r.Exit == 0 {
			t.Error("tpl@a.service runs")
		}
	})
	t.Run("a drop-in before the pin does no harm", func(t *testing.T) {
		b.with(t, map[string]string{folder + "container.d/90-corp.conf": "[Container]\nImage=" + host.Repository + ":never\nPull=always\n"})
		b.MustDeploy(t, 0, "v3")
		b.MustServe(t, "v3")
		b.Quiet(t)
	})
}
