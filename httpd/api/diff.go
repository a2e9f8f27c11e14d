package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// ImageConfig is how an image would run, or what is known of the file of a binary service. Of its environment only the names are told: values may be secrets.
type ImageConfig struct {
	Digest      string            `json:"digest"`
	Generation  int               `json:"generation,omitempty"` // of a release that is or was in force
	Program     string            `json:"program,omitempty"`
	File        string            `json:"file,omitempty"` // sha256:… of the file of a binary service
	Entrypoint  []string          `json:"entrypoint"`
	Command     []string          `json:"command"`
	User        string            `json:"user"`
	Ports       []string          `json:"ports"`
	Env         []string          `json:"env"`
	Labels      map[string]string `json:"labels"`
	Healthcheck bool              `json:"healthcheck"` // told of an image that is on the host
	Platform    string            `json:"platform"`
	Size        int64             `json:"size"` // bytes on the host, or of the compressed layers in the registry
	Created     *time.Time        `json:"created"`
	OnHost      bool              `json:"on_host"`
}

// Diff is the answer of GET /v1/services/:service/diff: what another release would change.
type Diff struct {
	Service string       `json:"service"`
	From    *ImageConfig `json:"from"` // in force; null if nothing is
	To      ImageConfig  `json:"to"`
	Changes []Change     `json:"changes"`
}

// Change is one thing that differs. Empty From is what is new, empty To is what is gone.
type Change struct {
	What string `json:"what"` // program, file, entrypoint, command, user, port, variable, label NAME, health check, platform, size
	From string `json:"from"`
	To   string `json:"to"`
}

// Compare lists what differs, the most telling first.
func Compare(from, to ImageConfig) []Change {
	changes := []Change{}
	value := func(what, a, b string) {
		if a != b {
			changes = append(changes, Change{what, a, b})
		}
	}
	set := func(what string, a, b []string) {
		for _, s := range a {
			if !slices.Contains(b, s) {
				changes = append(changes, Change{what, s, ""})
			}
		}
		for _, s := range b {
			if !slices.Contains(a, s) {
				changes = append(changes, Change{what, "", s})
			}
		}
	}
	value("program", from.Program, to.Program)
	if from.File != from.Digest || to.File != to.Digest { // else it is told already
		value("file", from.File, to.File)
	}
	value("entrypoint", words(from.Entrypoint), words(to.Entrypoint))
	value("command", words(from.Command), words(to.Command))
	value("user", from.User, to.User)
	set("port", from.Ports, to.Ports)
	set("variable", from.Env, to.Env)
	for _, name := range slices.Sorted(maps.Keys(union(from.Labels, to.Labels))) {
		value("label "+name, from.Labels[name], to.Labels[name])
	}
	if from.OnHost && to.OnHost { // a registry does not tell
		value("health check", yes(from.Healthcheck), yes(to.Healthcheck))
		value("size", size(from.Size), size(to.Size))
	}
	if from.Platform != "" && to.Platform != "" { // an artifact does not tell
		value("platform", from.Platform, to.Platform)
	}
	return changes
}

func union(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, b)
	return all
}

// words is an argv as a person would type it.
func words(argv []string) string {
	var out []string
	for _, w := range argv {
		if w == "" || strings.ContainsAny(w, " \t\n\"'\\") {
			w = fmt.Sprintf("%q", w)
		}
		out = append(out, w)
	}
	return strings.Join(out, " ")
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// size is a number of bytes as people say it.
func size(n int64) string {
	const unit = 1024
	switch {
	case n < unit:
		return fmt.Sprintf("%d B", n)
	case n < unit*unit:
		return fmt.Sprintf("%.1f KiB", float64(n)/unit)
	case n < unit*unit*unit:
		return fmt.Sprintf("%.1f MiB", float64(n)/(unit*unit))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(unit*unit*unit))
}

// SizeText is the size of an image as people say it.
func (c ImageConfig) SizeText() string { return size(c.Size) }
