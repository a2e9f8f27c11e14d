package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"toad/probation"
	"toad/quadlet"
)

// checkDoor looks at the way from where clients arrive to the side in force.
func (h *host) checkDoor(ctx context.Context, f *findings, e probation.Enrollment, svc probation.Service) {
	what, link := e.Name+", "+e.Door.Socket, h.rollout.DoorLink(e.Name)
	s, err := h.bus.State(ctx, e.Door.Socket)
	switch {
	case err != nil:
		f.add(levelFail, what, err.Error(), "")
		return
	case !s.Exists():
		f.add(levelFail, what, "it is "+s.LoadState+": clients have no door to arrive at", "write the socket unit, and a service of its name that runs systemd-socket-proxyd "+link)
		return
	case !s.Up():
		f.add(levelFail, what, "it is "+s.ActiveState+": nobody listens", "systemctl --user enable --now "+e.Door.Socket)
	case s.UnitFileState != "enabled":
		f.add(levelWarn, what, "it is "+s.UnitFileState+": it does not listen after a boot", "systemctl --user enable "+e.Door.Socket)
	}
	proxy, err := h.bus.State(ctx, strings.TrimSuffix(e.Door.Socket, ".socket")+".service")
	if strings.HasSuffix(e.Door.Socket, ".socket") && err == nil && !slices.ContainsFunc(proxy.ExecStart, func(argv []string) bool { return slices.Contains(argv, link) }) {
		f.add(levelWarn, what, fmt.Sprintf("%s does not name %s: a turn of the door would move nobody", proxy.Name, link), "let it run systemd-socket-proxyd "+link)
	}
	if err := h.rollout.CheckDoor(svc); err != nil {
		f.add(levelFail, what, err.Error(), "toad reconcile --look")
	}
	for _, unit := range e.Units {
		h.checkSideSocket(ctx, f, what, unit)
	}
}

// checkSideSocket wants the socket of a side enabled, where it has one: it is what starts the side after a boot.
func (h *host) checkSideSocket(ctx context.Context, f *findings, what, unit string) {
	src, err := quadlet.Find(h.rollout.Quadlet, unit)
	if err != nil {
		return
	}
	name := strings.TrimSuffix(src.ServiceUnit, ".service") + ".socket"
	s, err := h.bus.State(ctx, name)
	if err == nil && s.Exists() && s.UnitFileState != "enabled" {
		f.add(levelFail, what, fmt.Sprintf("%s is %s: after a boot nothing would start its side", name, s.UnitFileState), "systemctl --user enable --now "+name)
	}
}
