package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/peterbourgon/ff/v3/ffcli"

	"toad/internal/atomicfile"
	"toad/probation"
	"toad/quadlet"
)

// enrollment is what the command line asks for.
type enrollment struct {
	g     *globals
	unit  string
	name  string
	write bool
}

func enrollCmd(g *globals) *ffcli.Command {
	e := &enrollment{g: g}
	fs := flag.NewFlagSet("toad enroll", flag.ContinueOnError)
	fs.BoolVar(&e.write, "write", false, "add the stanza to the enrollment file; what is enrolled already is left as it is")
	fs.StringVar(&e.name, "name", "", "the `NAME` of the service; default: made of the unit's")
	return &ffcli.Command{
		Name: "enroll", ShortUsage: "toad enroll [flags] UNIT.container|UNIT.service", FlagSet: fs,
		ShortHelp: "derive what toad has to know of a service from its Quadlet",
		LongHelp: "Prints the stanza for the enrollment file: the unit, the repository of its image,\n" +
			"and how to find out that it is ready. Beside it, on stderr, stands what could not\n" +
			"be derived, what would be in the way of a deployment, and the data that its\n" +
			"releases will share. Of a plain unit, UNIT.service, it is that of a binary service:\n" +
			"the unit runs a link of toad's, which leads to the file in force.\n\n" +
			"Who enrolls an application accepts a rule: each release reads, and leaves behind,\n" +
			"data that the retained ones can use. toad puts programs back, not data.\n\n" +
			"Exit: 0 derived, 1 nothing was written, 78 there is no such unit.\n\n" +
			"Example: toad enroll web.container\n" +
			"Example: toad enroll web.container --write",
		Exec: func(ctx context.Context, args []string) error {
			if len(args) != 1 {
				return hint(usagef("enroll takes one unit, have %d arguments", len(args)), "toad enroll web.container")
			}
			e.unit = args[0]
			if filepath.Ext(e.unit) == "" {
				e.unit += ".container"
			}
			if strings.ContainsRune(e.unit, '/') {
				return hint(usagef("%s: name the file without its folder; it must lie where Podman's generator looks, or a plain unit in ~/.config/systemd/user", e.unit), "toad enroll %s", filepath.Base(e.unit))
			}
			return e.run(ctx)
		},
	}
}

func (e *enrollment) run(ctx context.Context) error {
	if err := notRoot(); err != nil {
		return err
	}
	runtimeDir, err := e.g.runtimeDir()
	if err != nil {
		return err
	}
	state, err := e.g.stateDir()
	if err != nil {
		return err
	}
	src, err := quadlet.Find(quadletDirs(runtimeDir, state), e.unit)
	if err != nil {
		return configError{err}
	}
	s := quadlet.Suggest(src)
	if e.name != "" {
		if err := probation.CheckServiceName(e.name); err != nil {
			return usagef("%w", err)
		}
		s.Service = e.name
	}
	if e.g.JSON && !e.write {
		return printJSON(e.g.Stdout, s)
	}
	if !e.write {
		fmt.Fprint(e.g.Stdout, s.Stanza())
	}
	e.remark(ctx, src, s)
	if e.write {
		return e.add(s)
	}
	return nil
}

// remark says beside the stanza what a person has to know.
func (e *enrollment) remark(ctx context.Context, src quadlet.Source, s quadlet.Suggestion) {
	columns := width(e.g.Stderr)
	list := func(title string, items []string) {
		if len(items) == 0 {
			return
		}
		fmt.Fprintf(e.g.Stderr, "%s:\n", title)
		for _, i := range items {
			fmt.Fprintf(e.g.Stderr, "  %s\n", wrap(clean(i), 2, columns))
		}
	}
	if !e.write {
		fmt.Fprintln(e.g.Stderr)
	}
	list("not derived", s.Missing)
	list("in the way of a deployment", e.problems(ctx, src, s))
	list("data that its releases share, by Volume=", s.Volumes)
	list("secrets that it is handed, by Secret=", s.Secrets)
	rule := "The rule of every enrolled application: each release reads, and leaves behind, data that the retained ones can use. " +
		"toad puts programs back, not data. See docs/enrolling.md."
	fmt.Fprintln(e.g.Stderr, wrap(rule, 0, columns))
}

// problems asks the user manager how the unit is loaded. Without one there is nothing to be said.
func (e *enrollment) problems(ctx context.Context, src quadlet.Source, s quadlet.Suggestion) (found []string) {
	h, err := wireUp(e.g)
	if err != nil {
		return nil
	}
	defer h.close()
	state, err := h.bus.State(ctx, src.ServiceUnit)
	if err != nil || s.Image == "" && s.Kind == "" {
		return nil
	}
	if err := h.rollout.CheckUnit(src, asGenerated(state), probation.Enrollment{Name: s.Service, Kind: s.Kind, Image: s.Image}); err != nil {
		found = strings.Split(err.Error(), "\n")
	}
	return found
}

// add puts the stanza at the end of the enrollment file, if all of it is valid then. What stands there is not touched.
func (e *enrollment) add(s quadlet.Suggestion) error {
	if s.Image == "" && s.Kind == "" {
		return hint(exitError{exitFailed, fmt.Errorf("the image of %s could not be derived, so nothing was written", s.Unit)},
			"toad enroll %s prints what there is, to be completed by hand", s.Unit)
	}
	path, err := e.g.enrollmentPath()
	if err != nil {
		return err
	}
	mode := fs.FileMode(0o600)
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return configError{err}
	}
	if file, err := quadlet.Parse(path, text); err == nil {
		for _, svc := range file.Services {
			if slices.Contains(svc.Units, s.Unit) {
				e.g.say("%s is enrolled already, as %s, in %s; nothing was written.", s.Unit, svc.Name, path)
				return nil
			}
			if svc.Name == s.Service {
				return hint(exitError{exitFailed, fmt.Errorf("there is a service %s already, of %s; nothing was written", svc.Name, strings.Join(svc.Units, ", "))},
					"toad enroll %s --write --name another", s.Unit)
			}
		}
	} else if len(text) > 0 {
		return hint(configError{fmt.Errorf("nothing was written: %s", oneLine(err))}, "mend %s first", path)
	}
	all := strings.TrimRight(string(text), "\n")
	if all != "" {
		all += "\n\n"
	}
	all += s.Stanza()
	if _, err := quadlet.Parse(path, []byte(all)); err != nil {
		return exitError{exitFailed, fmt.Errorf("nothing was written: %s", oneLine(err))}
	}
	if err := atomicfile.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(path, []byte(all), mode); err != nil {
		return err
	}
	e.g.say("%s is enrolled as %s, in %s. Next: toad doctor, then toad deploy %s DIGEST --dry-run.", s.Unit, s.Service, path, s.Service)
	return nil
}
