// Package proof holds the gates before a switch: which program an image really runs, and whether it is proven to run well
// elsewhere. They are against mistakes, not against a hostile publisher.
package proof

import (
	"debug/buildinfo"
	"io"
	"path"
	"slices"
	"strings"
)

// Config is what of an image's configuration says which file it runs.
type Config struct {
	Entrypoint []string
	Cmd        []string
	Path       string // of its environment's PATH; empty when it sets none
	WorkingDir string
	Labels     map[string]string
}

// defaultPath is what a runtime searches when the image sets no PATH.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Candidates lists the absolute paths at which the program of an image may lie, in the order in which they are searched.
// It is empty where the command is not plain: a script of its own, an expansion, a wrapper that is not known.
func (c Config) Candidates() []string {
	args := append(append([]string(nil), c.Entrypoint...), c.Cmd...)
	name := program(args)
	switch {
	case name == "" || name == "." || name == "..":
		return nil
	case strings.HasPrefix(name, "/"):
		return []string{path.Clean(name)}
	case strings.Contains(name, "/"):
		return []string{path.Join("/", c.WorkingDir, name)}
	}
	dirs := c.Path
	if dirs == "" {
		dirs = defaultPath
	}
	var all []string
	for _, dir := range strings.Split(dirs, ":") {
		if strings.HasPrefix(dir, "/") {
			all = append(all, path.Join(dir, name))
		}
	}
	return all
}

// program looks through a shell and through the small first processes that only start another.
func program(args []string) string {
	for range 4 { // nobody nests deeper, and an image must not keep us here
		if len(args) == 0 {
			return ""
		}
		switch path.Base(args[0]) {
		case "sh", "bash", "ash", "dash":
			if len(args) < 3 || args[1] != "-c" {
				return ""
			}
			words, plain := words(args[2])
			if !plain {
				return ""
			}
			args = words
		case "tini", "dumb-init", "catatonit":
			args = args[1:]
			if i := slices.Index(args, "--"); i >= 0 {
				args = args[i+1:]
			} else if len(args) > 0 && strings.HasPrefix(args[0], "-") {
				return "" // flags without an end, some of which take a value
			}
		case "exec", "env":
			if len(args) > 1 && (strings.HasPrefix(args[1], "-") || strings.Contains(args[1], "=")) {
				return ""
			}
			args = args[1:]
		default:
			return args[0]
		}
	}
	return ""
}

// words splits a shell command that needs no shell; plain is false for one that does.
func words(command string) (list []string, plain bool) {
	if strings.ContainsAny(command, ";&|<>$`(){}*?[]~\\\"'#!\n\r=") {
		return nil, false
	}
	return strings.Fields(command), true
}

// Kinds of identity, as they begin one.
const (
	KindGo    = "go:"    // the main package's path, from the build information that Go links in
	KindLabel = "label:" // what the image's labels say of its source
)

// FromBinary reads the identity of a program from its bytes: "go:" and its main package's path, for any architecture,
// stripped or not. It is empty for what is not a Go program, or was built from a list of files and so has no such path.
func FromBinary(r io.ReaderAt) string {
	info, err := buildinfo.Read(r)
	if err != nil || !plainPath(info.Path) || info.Path == "command-line-arguments" {
		return ""
	}
	return KindGo + info.Path
}

// plainPath keeps out what would not print; the bytes are the publisher's.
func plainPath(s string) bool {
	return s != "" && len(s) <= 256 && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

const (
	sourceLabel = "org.opencontainers.image.source"
	titleLabel  = "org.opencontainers.image.title"
)

// FromLabels makes an identity of what the image says of itself: "label:<source>#<title>". It is empty when it says
// neither.
func FromLabels(labels map[string]string) string {
	source, title := tidy(labels[sourceLabel]), tidy(labels[titleLabel])
	switch {
	case source == "" && title == "":
		return ""
	case title == "":
		return KindLabel + source
	}
	return KindLabel + source + "#" + title
}

func tidy(s string) string {
	s = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSpace(s), "/"), ".git")
	if _, rest, ok := strings.Cut(s, "@"); ok && strings.Contains(s, "://") {
		scheme, _, _ := strings.Cut(s, "://")
		s = scheme + "://" + rest // a user or a token in an address is none of ours
	}
	if !plainPath(strings.ReplaceAll(s, " ", "_")) {
		return ""
	}
	return s
}
