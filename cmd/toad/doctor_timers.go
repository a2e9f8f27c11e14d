package main

import (
	"context"
	"path"
	"regexp"
	"slices"
	"strings"

	"toad/quadlet"
)

// What else is automated on the host: docs/fences.md says how to keep it out of a deployment's way.

// fence is the condition under which a job that gets in the way does not run: toad's timers are there while anything is
// undecided.
const fence = `ExecCondition=/bin/sh -c '! systemctl --user -q is-active "toad-prepare-*" "toad-probation-*" "toad-restore-*"'`

// menaced is what a job may get in the way of.
type menaced struct {
	services []string // the systemd units of all that is enrolled
}

// menaces are the commands that undo what toad keeps in force, and what to do about them.
var menaces = []struct {
	what, why, mend string
	fenced          bool // the condition is enough
	is              func(m menaced, command string) bool
}{
	{"prune", "runs a podman prune that takes any image; toad brings back what it needs from its archives, but a deployment may meet the prune",
		"let it take only what is labelled for it, --filter label=disposable, or give its service " + fence, true, prunesAll},
	{"auto-update", "runs podman auto-update; it passes over pinned units", "disable the timer", false, matches(`podman\b[^;]*\bauto-update\b`)},
	{"rsync", "runs rsync --delete over the Quadlet folder, which takes the pins away; toad puts them back",
		"add --exclude zz-toad.conf --exclude zz-toad.previous --exclude .toad-made to it", false, deletesPins},
	{"containers", "removes containers; one that is on probation ends its deployment",
		"take the units' containers out of it, or give its service " + fence, true, matches(`podman\b[^;]*\b(rm|kill|stop)\b[^;]*\s(-[a-z]*a|--all)\b`)},
	{"restart", "restarts units that are enrolled; a release that is on probation then has to begin its stable window anew, or is given up",
		"give its service " + fence, true, restartsEnrolled},
}

// checkTimers looks for what takes images, containers or pins away on a schedule, restarts what is on trial, or moves tags.
func (h *host) checkTimers(ctx context.Context, f *findings) {
	before := len(*f)
	if s, err := h.bus.State(ctx, "podman-auto-update.timer"); err == nil && s.Up() {
		f.add(levelWarn, "auto-update", "podman-auto-update.timer is active; it passes over pinned units", "systemctl --user disable --now podman-auto-update.timer")
	}
	of := menaced{h.enrolledServices()}
	for _, scope := range []string{"--user", "--system"} {
		scheduled(ctx, scope, func(timer, command, condition string) {
			for _, m := range menaces {
				fenced := m.fenced && strings.Contains(condition, "toad-probation-")
				if timer != "podman-auto-update.timer" && m.is(of, command) && !fenced {
					f.add(levelWarn, m.what, timer+" "+m.why, m.mend)
				}
			}
		})
	}
	if len(*f) == before {
		f.ok("timers", "none prunes any image, moves tags, restarts what is enrolled, or takes containers or pins away")
	}
}

// enrolledServices are the systemd units of all that is enrolled.
func (h *host) enrolledServices() (services []string) {
	units, _ := h.enrolledUnits()
	for _, unit := range units {
		if src, err := quadlet.Find(h.rollout.Quadlet, unit); err == nil {
			services = append(services, src.ServiceUnit)
		}
	}
	return services
}

// scheduled visits the active timers of a manager with the commands that they start, and the conditions of these.
func scheduled(ctx context.Context, scope string, visit func(timer, command, condition string)) {
	timers, err := output(ctx, "systemctl", scope, "show", "*.timer", "-p", "Id", "-p", "Triggers", "-p", "ActiveState")
	if err != nil {
		return
	}
	for block := range strings.SplitSeq(timers, "\n\n") {
		p := properties(block)
		if p["ActiveState"] != "active" || p["Triggers"] == "" {
			continue
		}
		starts, err := output(ctx, "systemctl", scope, "show", p["Triggers"], "-p", "ExecStart", "--value")
		if err != nil {
			continue
		}
		condition, _ := output(ctx, "systemctl", scope, "show", p["Triggers"], "-p", "ExecCondition", "--value")
		var commands []string
		for _, argv := range argvOf.FindAllStringSubmatch(starts, -1) {
			commands = append(commands, argv[1])
		}
		visit(p["Id"], strings.Join(commands, " ; "), condition)
	}
}

// argvOf finds the commands in an ExecStart= as systemctl shows it.
var argvOf = regexp.MustCompile(`argv\[\]=(.*?) ; `)

func matches(pattern string) func(menaced, string) bool {
	is := regexp.MustCompile(pattern)
	return func(_ menaced, command string) bool { return is.MatchString(command) }
}

var (
	pruning    = regexp.MustCompile(`podman\b[^;]*\bprune\b[^;]*`)
	labelled   = regexp.MustCompile(`--filter[ =]label=`)
	copying    = regexp.MustCompile(`rsync\b[^;]*--del[^;]*containers/systemd[^;]*`)
	podmanAll  = regexp.MustCompile(`podman\b[^;]*\brestart\b[^;]*\s(-[a-z]*a|--all)\b`)
	restarting = regexp.MustCompile(`systemctl\b[^;]*?\b(?:try-)?restart\b([^;&|]*)`)
)

// prunesAll reports whether a command prunes images, or all of Podman, without naming what may go. A filter by age does not
// help: it goes by when an image was built.
func prunesAll(_ menaced, command string) bool {
	for _, run := range pruning.FindAllString(command, -1) {
		other := strings.Contains(run, "container prune") || strings.Contains(run, "volume prune") || strings.Contains(run, "network prune")
		if !other && !labelled.MatchString(run) {
			return true
		}
	}
	return false
}

// deletesPins reports whether a copy of the Quadlet folder takes away what is toad's there.
func deletesPins(_ menaced, command string) bool {
	return slices.ContainsFunc(copying.FindAllString(command, -1), func(run string) bool {
		for _, own := range []string{"zz-toad.conf", "zz-toad.previous", ".toad-made"} {
			if !regexp.MustCompile(`--exclude[ =]['"]?` + regexp.QuoteMeta(own)).MatchString(run) {
				return true
			}
		}
		return false
	})
}

// restartsEnrolled reports whether a command restarts a unit that is enrolled, alone or in a group.
func restartsEnrolled(m menaced, command string) bool {
	if podmanAll.MatchString(command) {
		return true
	}
	for _, run := range restarting.FindAllStringSubmatch(command, -1) {
		for _, name := range strings.Fields(run[1]) {
			name = strings.Trim(name, `'"`)
			if strings.HasPrefix(name, "-") {
				continue
			}
			if strings.HasSuffix(name, ".target") {
				return true // whatever is part of it
			}
			if slices.ContainsFunc(m.services, func(service string) bool {
				plain, _ := path.Match(name, service)
				short, _ := path.Match(name+".service", service)
				return plain || short
			}) {
				return true
			}
		}
	}
	return false
}
