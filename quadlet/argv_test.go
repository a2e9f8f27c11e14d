package quadlet

import (
	"slices"
	"strings"
	"testing"
)

const wantedRef = "127.0.0.1:5000/app@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func TestTheImageIsFoundAmongOptions(t *testing.T) {
	for _, c := range []struct{ argv, image string }{
		{"/usr/bin/podman run IMAGE", wantedRef},
		{"/usr/bin/podman run IMAGE other:1 IMAGE", wantedRef},
		{"/usr/bin/podman run other:1 IMAGE", "other:1"},
		{"/usr/bin/podman --log-level debug --syslog -r run --rm IMAGE", wantedRef},
		{"/usr/bin/podman --module=m.conf run -d -it -v /a:/b -v/c:/d -e=X=1 IMAGE", wantedRef},
		{"/usr/bin/podman run -dv /a:/b -h web IMAGE", wantedRef},
		{"/usr/bin/podman run -d=false --init=true --label a IMAGE cmd", wantedRef},
		{"/usr/bin/podman run --label other:1 IMAGE", wantedRef},
		{"/usr/bin/podman run --init other:1 IMAGE", "other:1"},
		{"/usr/bin/podman run --name -- -- IMAGE", wantedRef},
		{"/usr/bin/podman run -- IMAGE", wantedRef},
		{"/usr/bin/podman run --new-switch IMAGE cmd", wantedRef},
		{"/usr/bin/podman run --new-option value IMAGE", wantedRef},
		{"/usr/bin/podman run --rootfs /srv/root IMAGE", "/srv/root"},
		{"/usr/bin/podman run - IMAGE", "-"},
	} {
		argv := strings.Fields(strings.ReplaceAll(c.argv, "IMAGE", wantedRef))
		run, err := parseRun(argv, wantedRef)
		if err != nil || run.image != c.image {
			t.Errorf("%s: want %s, have %s, %v", c.argv, c.image, run.image, err)
		}
	}
	for _, argv := range []string{"", "/usr/bin/docker run x", "/usr/bin/podman", "/usr/bin/podman create x", "/usr/bin/podman run", "/usr/bin/podman run --rm", "/usr/bin/podman run --name"} {
		if run, err := parseRun(strings.Fields(argv), ""); err == nil {
			t.Errorf("%q: have %+v", argv, run)
		}
	}
}

func TestTheLastOfSeveralOptionsCounts(t *testing.T) {
	run, err := parseRun(strings.Fields("/usr/bin/podman run --pull never -l a=1 --label b=2 --label=a=3 --pull=always --net host -p 80:80 x"), "x")
	if err != nil {
		t.Fatal(err)
	}
	if pull, ok := run.last("pull"); pull != "always" || !ok {
		t.Errorf("pull: have %q, %v", pull, ok)
	}
	if a, ok := run.label("a"); a != "3" || !ok {
		t.Errorf("label a: have %q, %v", a, ok)
	}
	if _, ok := run.label("c"); ok {
		t.Error("found a label that is not there")
	}
	if have := append(run.all("network"), run.all("publish")...); !slices.Equal(have, []string{"host", "80:80"}) {
		t.Errorf("have %q", have)
	}
}

// A Podman that looks elsewhere would not find the image that toad has pulled, nor toad the container.
func TestWhatLeadsElsewhere(t *testing.T) {
	for _, c := range []struct{ argv, env, says string }{
		{"podman --root /x run IMAGE", "", "--root"},
		{"podman --root=/x run IMAGE", "", "--root"},
		{"podman -r run IMAGE", "", "--remote"},
		{"podman -c other run IMAGE", "", "--connection"},
		{"podman --url tcp://x run IMAGE", "", "--url"},
		{"podman run --rootfs IMAGE", "", "folder"},
		{"podman run --cgroups=split --cgroups no-conmon IMAGE", "", "--cgroups=no-conmon"},
		{"podman run IMAGE", "CONTAINER_HOST", "CONTAINER_HOST"},
		{"podman run IMAGE --root", "PODMAN_SYSTEMD_UNIT", ""},
		{"podman --module=m.conf --log-level debug run --cgroups=split --root x IMAGE", "", ""},
	} {
		run, err := parseRun(strings.Fields(strings.ReplaceAll(c.argv, "IMAGE", wantedRef)), wantedRef)
		if err != nil {
			t.Fatal(err)
		}
		what, fix, _ := leads(Generated{EnvNames: strings.Fields(c.env)}, run)
		if !strings.Contains(what, c.says) || (what == "") != (c.says == "") || (what == "") != (fix == "") {
			t.Errorf("%s %s: have %q, want %q", c.env, c.argv, what, c.says)
		}
	}
}

func FuzzParseRun(f *testing.F) {
	f.Add("/usr/bin/podman\nrun\n-dit\n--name\nx\n--\nIMAGE")
	f.Add("podman\n-\nrun\n--=\n-=\n-")
	f.Fuzz(func(t *testing.T, text string) {
		argv := strings.Split(text, "\n")
		run, err := parseRun(argv, "IMAGE")
		if err == nil && !slices.Contains(argv, run.image) {
			t.Errorf("%q: the image %q is not a word of it", argv, run.image)
		}
	})
}
