package quadlet

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAnEnrollmentIsReadOffAUnit(t *testing.T) {
	for _, c := range []struct {
		name, unit, text string
		image, ready     string
		missing          string
		volumes, secrets []string
		service          string
	}{
		{name: "a port", unit: "web.container", text: "Image=registry.example.org:5000/team/web:v1\nPublishPort=127.0.0.1:8080:80", service: "web",
			image: "registry.example.org:5000/team/web", ready: `tcp = "127.0.0.1:8080"`},
		{name: "a port of all addresses", unit: "a.container", text: "Image=r.example.org/a\nPublishPort=9000:80/tcp", service: "a",
			image: "r.example.org/a", ready: `tcp = "127.0.0.1:9000"`},
		{name: "a port of IPv6", unit: "a.container", text: "Image=r.example.org/a\nPublishPort=[::1]:9000:80", service: "a",
			image: "r.example.org/a", ready: `tcp = "[::1]:9000"`},
		{name: "ports that do not do", unit: "a.container", text: "Image=r.example.org/a\nPublishPort=53:53/udp\nPublishPort=80\nPublishPort=8000-8010:80", service: "a",
			image: "r.example.org/a", missing: "readiness: of 53:53/udp, 80, 8000-8010:80 no port"},
		{name: "a health check", unit: "My_App.container", text: "Image=r.example.org/a@sha256:" + strings.Repeat("1", 64) + "\nHealthCmd=/check\nPublishPort=80:80",
			service: "my-app", image: "r.example.org/a", ready: "health = true"},
		{name: "readiness of its own", unit: "a.container", text: "Image=r.example.org/a\nNotify=yes", service: "a", image: "r.example.org/a", ready: "notify = true"},
		{name: "nothing", unit: "1.container", text: "Image=a.build", service: "service-1", missing: "readiness: the unit publishes no port"},
		{name: "a short name", unit: "a.container", text: "Image=nginx\nNotify=true", service: "a", ready: "notify = true", missing: "image: "},
		{name: "data", unit: "db.container", text: "Image=r.example.org/a\nNotify=true\nVolume=gone:/x\nVolume=\nVolume=db.volume:/data\nVolume=/srv:/srv:ro\nSecret=key,type=env",
			service: "db", image: "r.example.org/a", ready: "notify = true", volumes: []string{"db.volume:/data", "/srv:/srv:ro"}, secrets: []string{"key"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.unit), []byte("[Container]\n"+c.text+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			src, err := Find(Dirs{Config: dir, Roots: []string{dir}}, c.unit)
			if err != nil {
				t.Fatal(err)
			}
			s := Suggest(src)
			if s.Service != c.service || s.Image != c.image || s.Ready != c.ready || !strings.Contains(strings.Join(s.Missing, "\n"), c.missing) ||
				(c.missing == "") != (len(s.Missing) == 0) || !slices.Equal(s.Volumes, c.volumes) || !slices.Equal(s.Secrets, c.secrets) {
				t.Errorf("have %+v", s)
			}
			if _, err := Parse("enrollment.toml", []byte(s.Stanza())); err != nil {
				t.Errorf("%v in\n%s", err, s.Stanza())
			}
		})
	}
}
