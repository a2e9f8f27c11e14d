package quadlet

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"toad/probation"
)

// Suggestion is what a Quadlet file tells of the enrollment that it would have.
type Suggestion struct {
	Service string   `json:"service"`
	Unit    string   `json:"unit"`
	Kind    string   `json:"kind,omitempty"`
	Image   string   `json:"image"` // repository; "" if it cannot be told
	Ready   string   `json:"ready"` // a line of the table ready; "" if it cannot be told
	Port    string   `json:"port"`  // host:port, where Ready asks one
	Volumes []string `json:"volumes"`
	Secrets []string `json:"secrets"`
	Missing []string `json:"missing"` // what could not be told, and why
}

// Suggest reads an enrollment off a unit's own files.
func Suggest(src Source) Suggestion {
	if Plain(src.Unit) {
		return plainSuggestion(src)
	}
	s := Suggestion{Service: serviceOf(src.Unit), Unit: src.Unit, Volumes: src.values("Volume"), Secrets: src.values("Secret"), Missing: []string{}}
	for i, secret := range s.Secrets {
		s.Secrets[i], _, _ = strings.Cut(secret, ",")
	}
	missing := func(format string, args ...any) { s.Missing = append(s.Missing, fmt.Sprintf(format, args...)) }
	image, ok := src.Lookup("Container", "Image")
	if ok && strings.HasSuffix(image.Value, ".image") {
		if of, problem := src.imageUnit(image); problem == nil {
			image = of
		}
	}
	repo, _, _, err := Repository(image.Value)
	switch {
	case !ok || image.Value == "":
		missing("image: %s names none", src.Unit)
	case strings.HasSuffix(image.Value, ".build"):
		missing("image: %s builds it on this host; push it to a registry, and name it there", image.place())
	case err != nil:
		missing("image: %s: %v", image.place(), err)
	default:
		s.Image = repo
	}
	notify, _ := src.Lookup("Container", "Notify")
	health, hasHealth := src.Lookup("Container", "HealthCmd")
	switch port, ports := src.publishedPort(); {
	case strings.EqualFold(notify.Value, "healthy"), hasHealth && health.Value != "" && health.Value != "none":
		s.Ready = "health = true"
	case isYes(notify.Value):
		s.Ready = "notify = true"
	case port != "":
		s.Ready, s.Port = fmt.Sprintf("tcp = %q", port), port
	case len(ports) > 0:
		missing("readiness: of %s no port on the host is fixed and speaks tcp; without a probe it counts as ready while it stays active", strings.Join(ports, ", "))
	default:
		missing("readiness: the unit publishes no port and has no health check; without a probe it counts as ready while it stays active")
	}
	return s
}

// values are those of a key that may stand more than once; an empty one takes back all before it.
func (s Source) values(key string) []string {
	all := []string{}
	for _, each := range s.own() {
		switch {
		case each.Section != "Container" || each.Key != key:
		case each.Value == "":
			all = []string{}
		default:
			all = append(all, each.Value)
		}
	}
	return all
}

// publishedPort is the first port over tcp that is fixed, as one of the host would ask it.
func (s Source) publishedPort() (address string, all []string) {
	all = s.values("PublishPort")
	for _, spec := range all {
		spec, protocol, _ := strings.Cut(spec, "/")
		parts := strings.Split(spec, ":")
		if (protocol != "" && protocol != "tcp") || len(parts) < 2 || strings.Contains(spec, "%") {
			continue
		}
		port := parts[len(parts)-2]
		host := strings.Trim(strings.Join(parts[:len(parts)-2], ":"), "[]")
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || port == "0" {
			continue // a range, or one that Podman chooses
		}
		switch ip := net.ParseIP(host); {
		case host == "" || (ip != nil && ip.IsUnspecified()):
			host = "127.0.0.1"
		case ip == nil:
			continue
		}
		return net.JoinHostPort(host, port), all
	}
	return "", all
}

func isYes(value string) bool {
	switch strings.ToLower(value) {
	case "1", "yes", "y", "true", "t", "on":
		return true
	}
	return false
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

// serviceOf makes a service's name of a unit's.
func serviceOf(unit string) string {
	name := strings.TrimSuffix(unit, filepath.Ext(unit))
	name = strings.Trim(notInName.ReplaceAllString(strings.ToLower(name), "-"), "-")
	name = name[:min(len(name), 60)]
	if probation.CheckServiceName(name) != nil {
		name = "service-" + name
	}
	return name
}

// Stanza is the text to be put into the enrollment file.
func (s Suggestion) Stanza() string {
	var b strings.Builder
	image := s.Image
	if image == "" {
		image = "registry.example.org/team/" + s.Service
	}
	if s.Kind == probation.KindBinary {
		fmt.Fprintf(&b, "[service.%s]\nkind = %q\nunits = [%q]\n", s.Service, s.Kind, s.Unit)
	} else {
		fmt.Fprintf(&b, "[service.%s]\nunits = [%q]\nimage = %q\n", s.Service, s.Unit, image)
	}
	switch {
	case s.Port != "":
		fmt.Fprintf(&b, "\n[service.%s.ready]\n%s\n# better, if the application has such a page: it answers only when it can do its work\n# http = \"http://%s/healthz\"\n",
			s.Service, s.Ready, s.Port)
	case s.Ready != "":
		fmt.Fprintf(&b, "\n[service.%s.ready]\n%s\n", s.Service, s.Ready)
	}
	return b.String()
}
