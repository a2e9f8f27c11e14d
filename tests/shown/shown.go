// Package shown takes out of a document the files and commands that it shows, so that what is tested is what is read.
package shown

import (
	"fmt"
	"os"
	"regexp"
	"strings"
)

// Set is what one section shows.
type Set struct {
	Files    map[string]string // by the name that stands above them, ~/…
	Commands string            // what is to be typed
}

var (
	heading = regexp.MustCompile(`(?m)^##+ (.*)$`)
	block   = regexp.MustCompile("(?ms)^(?:`(~/[^`]+)`\n\n)?```([a-z]+)\n(.*?)^```$")
)

// Section reads the section of a title.
func Section(document, title string) (Set, error) {
	data, err := os.ReadFile(document)
	if err != nil {
		return Set{}, err
	}
	text := string(data)
	for _, m := range heading.FindAllStringSubmatchIndex(text, -1) {
		if text[m[2]:m[3]] != title {
			continue
		}
		text = text[m[1]:]
		if next := heading.FindStringIndex(text); next != nil {
			text = text[:next[0]]
		}
		s := Set{Files: map[string]string{}}
		for _, b := range block.FindAllStringSubmatch(text, -1) {
			switch {
			case b[1] != "":
				s.Files[b[1]] = b[3]
			case b[2] == "sh":
				s.Commands += b[3]
			}
		}
		if len(s.Files) < 2 || s.Commands == "" {
			return s, fmt.Errorf("%s: the section %q is not complete: %d files", document, title, len(s.Files))
		}
		return s, nil
	}
	return Set{}, fmt.Errorf("%s has no section %q", document, title)
}

// Put gives the files another image, and the enrollment more lines: of readiness behind its address, and at its end.
func (s Set) Put(image, tag, ready, end string) map[string]string {
	files := map[string]string{}
	for name, text := range s.Files {
		text = strings.ReplaceAll(text, "registry.example.org/team/web:latest", image+":"+tag)
		text = strings.ReplaceAll(text, "registry.example.org/team/web", image)
		if strings.HasSuffix(name, ".toml") {
			text = strings.Replace(text, "/healthz\"\n", "/healthz\"\n"+ready+"\n", 1) + end
		}
		files[name] = text
	}
	return files
}
