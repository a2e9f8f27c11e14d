package quadlet

import (
	"strings"
	"testing"
)

var (
	hexA    = strings.Repeat("a", 64)
	hexB    = strings.Repeat("b", 64)
	digestA = "sha256:" + hexA
	digestB = "sha256:" + hexB
)

func TestRepositorySplitsReferences(t *testing.T) {
	for _, c := range []struct{ ref, repo, tag, digest string }{
		{"127.0.0.1:5000/app", "127.0.0.1:5000/app", "", ""},
		{"127.0.0.1:5000/app:good1", "127.0.0.1:5000/app", "good1", ""},
		{"127.0.0.1:5000/app:1.2@" + digestA, "127.0.0.1:5000/app", "1.2", digestA},
		{"registry.example.org/team/web@" + digestA, "registry.example.org/team/web", "", digestA},
		{"[::1]:5000/app@" + digestA, "[::1]:5000/app", "", digestA},
		{"[2001:db8::7]/team/app:v1", "[2001:db8::7]/team/app", "v1", ""},
		{"localhost/app", "localhost/app", "", ""},
		{"localhost:5000/app:latest", "localhost:5000/app", "latest", ""},
		{"Registry.Example.org/a.b/c_d/e__f/g--h", "Registry.Example.org/a.b/c_d/e__f/g--h", "", ""},
	} {
		repo, tag, digest, err := Repository(c.ref)
		if err != nil || repo != c.repo || tag != c.tag || digest != c.digest {
			t.Errorf("%s: want %q %q %q, have %q %q %q, %v", c.ref, c.repo, c.tag, c.digest, repo, tag, digest, err)
		}
	}
}

func TestRepositoryRefusesWithTheReason(t *testing.T) {
	for _, c := range []struct{ ref, want string }{
		{"", "names no registry"},
		{"nginx", "names no registry"},
		{"nginx:1.27", "names no registry"},
		{"library/nginx", "names no registry"},
		{"docker://docker.io/library/nginx", "transport"},
		{"127.0.0.1:5000/app@sha256:" + strings.ToUpper(hexA), "lower case"},
		{"127.0.0.1:5000/app@sha256:" + hexA[1:], "64 hex digits, this one 63"},
		{"127.0.0.1:5000/app@sha256:" + hexA + "a", "64 hex digits"},
		{"127.0.0.1:5000/app@sha256:" + strings.Repeat("g", 64), "64 hex digits"},
		{"127.0.0.1:5000/app@sha512:" + hexA + hexA, "only sha256"},
		{"127.0.0.1:5000/app:tag@" + digestA + "@" + digestB, "not one digest"},
		{"127.0.0.1:5000/app@", "not one digest"},
		{"127.0.0.1:5000/app:", "not a tag"},
		{"127.0.0.1:5000/app:-x", "not a tag"},
		{"127.0.0.1:5000/app:" + strings.Repeat("t", 129), "not a tag"},
		{"127.0.0.1:99999/app", "not a port"},
		{"127.0.0.1:080/app", "not a port"},
		{"127.0.0.1:/app", "not a port"},
		{"[::1/app", "IPv6"},
		{"[127.0.0.1]/app", "IPv6"},
		{"[::1]5000/app", "registry host"},
		{"reg_istry.org/app", "registry host"},
		{"-bad.org/app", "registry host"},
		{"example.org/Team/app", "upper-case"},
		{"example.org/team//app", "not a part"},
		{"example.org/team/app/", "not a part"},
		{"example.org/a..b", "not a part"},
		{"example.org/a b", "not a part"},
		{"example.org/" + strings.Repeat("a", 256), "longer than"},
	} {
		repo, tag, digest, err := Repository(c.ref)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want an error with %q, have %v", c.ref, c.want, err)
		}
		if repo+tag+digest != "" {
			t.Errorf("%s: have %q %q %q beside the error", c.ref, repo, tag, digest)
		}
	}
}

func TestRepositoryDoesNotRepeatCredentials(t *testing.T) {
	for _, ref := range []string{"rob:S3NT1NEL-pw@example.org/app", "S3NT1NEL-tok@example.org/app@" + digestA} {
		_, _, _, err := Repository(ref)
		if err == nil || strings.Contains(err.Error(), "S3NT1NEL") {
			t.Errorf("have %v", err)
		}
	}
}

func TestSameRepository(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"docker.io/nginx", "docker.io/library/nginx", true},
		{"index.docker.io/library/nginx", "docker.io/nginx", true},
		{"Registry.example.org/app", "registry.example.org/app", true},
		{"registry.example.org/app", "registry.example.org:5000/app", false},
		{"docker.io/team/nginx", "docker.io/library/nginx", false},
		{"quay.io/nginx", "quay.io/library/nginx", false},
	} {
		if have := SameRepository(c.a, c.b); have != c.want {
			t.Errorf("%s, %s: want %v, have %v", c.a, c.b, c.want, have)
		}
	}
}

func FuzzRepository(f *testing.F) {
	for _, s := range []string{"127.0.0.1:5000/app:1.2@" + digestA, "[::1]:5000/app", "a:b@c/d", "docker.io/nginx"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, ref string) {
		repo, tag, digest, err := Repository(ref)
		if err != nil {
			return
		}
		again := repo
		if tag != "" {
			again += ":" + tag
		}
		if digest != "" {
			again += "@" + digest
		}
		if again != ref {
			t.Errorf("%q came back as %q", ref, again)
		}
		if strings.ContainsAny(ref, " \t\r\n%\"'\\") {
			t.Errorf("%q would not survive a unit file", ref)
		}
	})
}
