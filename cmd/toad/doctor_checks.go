package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"toad/podmanc"
	"toad/probation"
	"toad/probation/rollout"
	"toad/quadlet"
	"toad/unitgen"
)

// examineToad looks at what setup installs, and at what lies around.
func (h *host) examineToad(ctx context.Context, f *findings) {
	h.checkUnits(ctx, f)
	h.checkBinary(f)
	switch err := h.enrolled.Invalid(); {
	case err == nil:
		f.ok("enrollment", "%s is valid; services: %s", h.enrolled.path, strings.Join(h.enrolled.Names(), ", "))
	case h.enrolled.current() == nil:
		f.add(levelFail, "enrollment", oneLine(err), "mend "+h.enrolled.path)
	default:
		f.add(levelWarn, "enrollment", oneLine(err), "mend "+h.enrolled.path)
	}
	strays, err := h.rollout.Strays(ctx)
	if err != nil {
		f.add(levelFail, "strays", err.Error(), "")
	}
	for _, s := range strays {
		f.add(levelWarn, "strays", s, "")
	}
	for _, file := range h.leftovers() {
		f.add(levelWarn, "strays", file+" is left over from a write that was cut short", "rm "+file)
	}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func (h *host) checkUnits(ctx context.Context, f *findings) {
	files, err := h.unitFiles()
	if err != nil {
		f.add(levelFail, "toad's units", err.Error(), "")
		return
	}
	good := true
	bad := func(level, why, mend string) {
		good = false
		f.add(level, "toad's units", why, mend)
	}
	for _, file := range files {
		switch {
		case !exists(file.Name):
			bad(levelFail, filepath.Base(file.Name)+" is not installed", "toad setup")
		case !sameText(file):
			bad(levelWarn, file.Name+" is not what this toad would write", "toad setup")
		}
	}
	if !good {
		return
	}
	for _, other := range h.otherShape() {
		bad(levelWarn, other+" is left of another shape of toad", "toad setup")
	}
	names := append([]string{quadlet.ReconcileUnit}, h.startedUnits()...)
	if len(h.rollout.Program.Listen) > 0 {
		names = append(names, unitgen.TCPSocket)
	}
	for _, name := range names {
		s, err := h.bus.State(ctx, name)
		switch {
		case err != nil:
			bad(levelFail, err.Error(), "")
		case s.LoadState == "masked":
			bad(levelFail, name+" is masked", "systemctl --user unmask "+name+" && toad setup")
		case s.NeedDaemonReload:
			bad(levelWarn, name+" is loaded as it was before its file changed", "systemctl --user daemon-reload")
		case s.UnitFileState != "enabled":
			bad(levelFail, fmt.Sprintf("%s is %s: it is not there after a boot", name, s.UnitFileState), "toad setup")
		case name != quadlet.ReconcileUnit && !s.Up():
			bad(levelFail, fmt.Sprintf("%s is %s", name, s.ActiveState), "systemctl --user start "+name)
		case name == quadlet.ReconcileUnit && s.ActiveState == "failed":
			bad(levelFail, name+" failed: candidates are held down", "journalctl --user -u toad-reconcile, then systemctl --user restart default.target")
		}
	}
	if good {
		f.ok("toad's units", "installed, enabled and as this toad writes them")
	}
}

func (h *host) checkBinary(f *findings) {
	exe := h.rollout.Program.Exe
	copied, err := os.ReadFile(exe)
	if err != nil {
		f.add(levelFail, "binary", err.Error()+": no unit could run", "toad setup")
		return
	}
	if c := h.rollout.Program.Container; c != nil {
		if inside, err := os.ReadFile(filepath.Join(c.Rootfs, "toad")); err != nil || !bytes.Equal(inside, copied) {
			f.add(levelFail, "binary", "the container's toad is not the one that the units run", "toad setup")
			return
		}
	}
	own, err := os.Executable()
	if err == nil && own != exe {
		if mine, err := os.ReadFile(own); err == nil && !bytes.Equal(mine, copied) {
			f.add(levelWarn, "binary", "the units run another build of toad than this one", "toad setup")
			return
		}
	}
	f.ok("binary", "the units run this one, %s", version)
}

// leftovers are temporary files that a write left where it was cut short, and that are old enough to be nobody's.
func (h *host) leftovers() []string {
	var old []string
	for _, pattern := range []string{
		filepath.Join(h.rollout.Quadlet.Config, "*.d", ".toad-tmp-*"), filepath.Join(h.records.Dir(), ".toad-tmp-*"),
		filepath.Join(h.records.Dir(), "*", ".toad-tmp-*"), filepath.Join(h.records.Dir(), "images", "blobs", ".toad-tmp-*"),
	} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > 10*time.Minute {
				old = append(old, path)
			}
		}
	}
	return old
}

// examineServices looks at every service that is enrolled or has a record.
func (h *host) examineServices(ctx context.Context, f *findings) {
	names := h.enrolled.Names()
	recorded, err := h.records.Names()
	if err != nil {
		f.add(levelFail, "records", err.Error(), "")
	}
	enrolled := map[string]bool{}
	for _, n := range names {
		enrolled[n] = true
	}
	for _, n := range recorded {
		if !enrolled[n] {
			names = append(names, n)
		}
	}
	for _, n := range names {
		svc, err := h.records.Service(n)
		if err != nil {
			f.add(levelFail, n, err.Error(), "toad doctor --repair "+n)
			continue
		}
		if !enrolled[n] {
			if svc.Promoted != nil {
				f.add(levelWarn, n, "is not enrolled any more, and its pins stay", "enroll it again, or toad unpin "+n)
			}
			continue
		}
		e, err := h.enrolled.Enrollment(n)
		if err != nil {
			continue
		}
		before := len(*f)
		h.checkService(ctx, f, e, svc)
		if len(*f) == before {
			f.ok(n, "%s", inForce(svc))
		}
	}
}

func inForce(svc probation.Service) string {
	switch {
	case svc.Active() != nil:
		return svc.Operation.ID + " is in " + string(svc.Operation.Phase)
	case svc.Promoted == nil:
		return "can be deployed; nothing of toad's is in force"
	}
	return fmt.Sprintf("%s (generation %d) is in force", short(digestOf(svc.Promoted)), svc.Promoted.Generation)
}

func (h *host) checkService(ctx context.Context, f *findings, e probation.Enrollment, svc probation.Service) {
	if op := svc.Operation; op != nil && op.Phase == probation.RollbackFailed {
		f.add(levelFail, e.Name, "the rollback of "+op.ID+" failed", "toad log "+e.Name+", then toad rollback "+e.Name)
	}
	for i, unit := range e.Units {
		h.checkUnit(ctx, f, e, svc, unit, i == 0 || e.Door != nil)
	}
	if e.Door != nil {
		h.checkDoor(ctx, f, e, svc)
	}
	if e.Binary() {
		if err := h.rollout.CheckDoor(svc); err != nil {
			f.add(levelFail, e.Name, err.Error(), "toad reconcile --look")
		}
	}
	for _, err := range h.rollout.CheckPins(ctx, svc) {
		var broken *quadlet.BindingError
		mend := "toad reconcile --look"
		if errors.As(err, &broken) {
			mend = "take the setting out, then systemctl --user daemon-reload"
		}
		f.add(levelFail, e.Name, err.Error(), mend)
	}
	if svc.Active() != nil {
		return
	}
	pins := h.rollout.Quadlet.Pins()
	for _, unit := range e.Units {
		if _, laid, _ := pins.Previous(unit); laid && svc.Operation != nil && svc.Operation.Released {
			f.add(levelWarn, e.Name, "a previous pin of "+unit+" is left over", "rm "+filepath.Join(filepath.Dir(pins.Path(unit)), "zz-toad.previous"))
		}
	}
	if svc.Promoted != nil {
		h.checkInForce(ctx, f, e, *svc.Promoted)
	}
}

func (h *host) checkUnit(ctx context.Context, f *findings, e probation.Enrollment, svc probation.Service, unit string, first bool) {
	what := e.Name + ", " + unit
	src, err := quadlet.Find(h.rollout.Quadlet, unit)
	if err != nil {
		f.add(levelFail, what, err.Error(), "")
		return
	}
	s, err := h.bus.State(ctx, src.ServiceUnit)
	if err != nil {
		f.add(levelFail, what, err.Error(), "")
		return
	}
	g := asGenerated(s)
	if err := h.rollout.CheckUnit(src, g, e); err != nil {
		f.add(levelFail, what, oneLine(err), "")
		return
	}
	if first {
		if err := quadlet.CheckProbe(rollout.SideOf(e, unit, h.rollout.Runtime), g); err != nil {
			f.add(levelFail, what, oneLine(err), "")
		}
	}
	if e.Door != nil {
		if err := quadlet.CheckSide(src); err != nil {
			f.add(levelFail, what, oneLine(err), "")
		}
	}
	if set, ok := src.Lookup("Container", "AutoUpdate"); ok && set.Value != "" {
		f.add(levelWarn, what, fmt.Sprintf("AutoUpdate=%s counts for nothing under a pin", set.Value), "take it out, so that nobody relies on it")
	}
	h.checkUnitLimits(ctx, f, what, src.ServiceUnit, e.Limit)
	if svc.Promoted == nil || svc.Promoted.Side == "" || svc.Promoted.Side == unit {
		h.checkRunning(ctx, f, what, s, svc)
	}
}

// checkRunning looks at what runs as a unit.
func (h *host) checkRunning(ctx context.Context, f *findings, what string, s unitgen.State, svc probation.Service) {
	id := runsAs(s)
	switch {
	case s.ActiveState != "active" || svc.Active() != nil:
		return
	case id == "":
		f.add(levelFail, what, "it is active, but nothing is found that runs as it", "look at systemctl --user status "+s.Name+"; cgroups=split must not be changed")
		return
	case svc.Promoted == nil:
		return
	}
	c, err := containers{h.podman}.Container(ctx, id)
	if err == nil && c.ImageID != svc.Promoted.ImageID && svc.Promoted.ImageID != "" {
		f.add(levelWarn, what, fmt.Sprintf("it runs %s, and %s is in force", short(c.ImageID), short(svc.Promoted.ImageID)), "systemctl --user restart "+s.Name)
	}
}

// checkInForce looks at the image of the release in force and at its archive, which is the way back.
func (h *host) checkInForce(ctx context.Context, f *findings, e probation.Enrollment, r probation.Release) {
	if e.Binary() {
		h.checkFileInForce(f, e, r)
		return
	}
	store := filepath.Join(h.records.Dir(), "images")
	kept := podmanc.VerifyRetained(store, r.ImageID)
	_, err := h.podman.Image(ctx, r.ImageID)
	gone := errors.Is(err, podmanc.ErrNoImage)
	pull := ""
	if r.Digest != "" {
		pull = "podman pull " + e.Image + "@" + r.Digest
	}
	switch {
	case err != nil && !gone:
		return // Podman's own trouble is told already
	case gone && kept != nil:
		f.add(levelFail, e.Name, fmt.Sprintf("the image of %s is not in Podman, and its archive is not whole: %v", short(digestOf(&r)), kept), pull)
	case gone:
		f.add(levelWarn, e.Name, "the image of "+short(digestOf(&r))+" is not in Podman, so the unit cannot start; a rollback to it loads it from its archive", pull)
	case kept != nil:
		f.add(levelWarn, e.Name, fmt.Sprintf("the archive of %s, which is in force, is not whole (%v); the next deployment makes it anew", short(digestOf(&r)), kept), "")
	}
}

// checkFileInForce looks at the file of the release in force and at its copy, which is the way back.
func (h *host) checkFileInForce(f *findings, e probation.Enrollment, r probation.Release) {
	kept, _ := h.releases.Kept(r.ImageID)
	err := h.releases.Check(r.ImageID, e.Name)
	switch {
	case err != nil && kept:
		f.add(levelWarn, e.Name, err.Error()+"; it comes back from its copy", "systemctl --user start toad-tick.service")
	case err != nil:
		f.add(levelFail, e.Name, err.Error()+", and there is no copy of it", "toad ship "+e.Name+" FILE")
	case !kept:
		f.add(levelWarn, e.Name, "no whole copy is kept of "+short(digestOf(&r))+", which is in force; the next deployment makes it", "")
	}
}

func asGenerated(s unitgen.State) quadlet.Generated {
	g := quadlet.Generated{Unit: s.Name, LoadState: s.LoadState, SourcePath: s.SourcePath, FragmentPath: s.FragmentPath,
		DropInPaths: s.DropInPaths, ExecStart: s.ExecStart, ExecPaths: s.ExecPaths, Type: s.Type, Operation: s.Operation,
		ExecCondition: s.ExecCondition, After: s.After, OnFailure: s.OnFailure,
		DefaultDependencies: s.DefaultDependencies, NeedDaemonReload: s.NeedDaemonReload, UnitFileState: s.UnitFileState}
	return g
}
