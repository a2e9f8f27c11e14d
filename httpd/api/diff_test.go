package api

import (
	"slices"
	"testing"
)

func TestComparingTwoImages(t *testing.T) {
	from := ImageConfig{Entrypoint: []string{"/app"}, Command: []string{"serve"}, Ports: []string{"8080/tcp"}, Env: []string{"A", "B"},
		Labels: map[string]string{"version": "1", "gone": "x"}, Platform: "linux/amd64", Size: 1 << 20, OnHost: true}
	to := ImageConfig{Entrypoint: []string{"/app"}, Command: []string{"serve", "a b"}, User: "65532", Ports: []string{"9090/tcp"}, Env: []string{"B", "C"},
		Labels: map[string]string{"version": "2"}, Platform: "linux/amd64", Size: 3 << 19, OnHost: true}
	want := []Change{{"command", "serve", `serve "a b"`}, {"user", "", "65532"}, {"port", "8080/tcp", ""}, {"port", "", "9090/tcp"},
		{"variable", "A", ""}, {"variable", "", "C"}, {"label gone", "x", ""}, {"label version", "1", "2"}, {"size", "1.0 MiB", "1.5 MiB"}}
	if have := Compare(from, to); !slices.Equal(want, have) {
		t.Errorf("want %q\nhave %q", want, have)
	}
	to.OnHost = false
	if have := Compare(from, to); !slices.Equal(want[:len(want)-1], have) {
		t.Errorf("a size in a registry is another measure: have %q", have)
	}
	if have := Compare(from, from); len(have) != 0 {
		t.Errorf("of the same: have %q", have)
	}
}
