package quadlet

import "strings"

// Secrets are the values that a unit hands to its container, and where more of them are. None of it may be told.
type Secrets struct {
	Environment map[string]string // --env NAME=value
	Files       []string          // --env-file paths
	Names       []string          // --secret, of Podman's store
}

// MemoryLimited reports whether a loaded unit gives its container a limit of memory.
func MemoryLimited(g Generated) bool {
	run, err := theRun(g, "")
	if err != nil {
		return false
	}
	return len(append(run.all("memory"), run.all("m")...)) > 0
}

// SecretsOf reads what a loaded unit passes on its command line.
func SecretsOf(g Generated) Secrets {
	s := Secrets{Environment: map[string]string{}}
	run, err := theRun(g, "")
	if err != nil {
		return s
	}
	for _, assignment := range append(run.all("env"), run.all("e")...) {
		if name, value, ok := strings.Cut(assignment, "="); ok {
			s.Environment[name] = value
		}
	}
	s.Files = run.all("env-file")
	for _, secret := range run.all("secret") {
		name, _, _ := strings.Cut(secret, ",")
		s.Names = append(s.Names, name)
	}
	return s
}
