package quadlet

import (
	"slices"
	"strings"
)

// elsewhere are what lead a unit's Podman to other images and containers than the ones that toad asks Podman for.
var elsewhere = struct{ global, run, environment []string }{
	global: strings.Fields("connection imagestore remote root runroot storage-driver tmpdir transient-store url"),
	run:    strings.Fields("rootfs"),
	environment: strings.Fields(`CONTAINERS_CONF CONTAINERS_CONF_OVERRIDE CONTAINERS_STORAGE_CONF CONTAINER_CONNECTION CONTAINER_HOST
		HOME STORAGE_DRIVER STORAGE_OPTS XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR`),
}

// leads finds what of a unit leads its Podman elsewhere: a pinned image that is here would not be there. what is empty
// where nothing does.
func leads(g Generated, run podmanRun) (what, fix string, undoes func(Setting) bool) {
	const take = "take it out: toad asks the user's own Podman for the image and the container"
	for _, o := range run.global {
		if long, ok := map[string]string{"c": "connection", "r": "remote"}[o.name]; ok {
			o.name = long
		}
		if slices.Contains(elsewhere.global, o.name) {
			return "Podman is given --" + o.name, take, either(sets("Service/ExecStart"), passes("--"+o.name))
		}
	}
	for _, o := range run.options {
		if slices.Contains(elsewhere.run, o.name) {
			return "it runs a folder, not an image (--" + o.name + ")", "take it out", either(sets("Service/ExecStart"), passes("--"+o.name))
		}
		if o.name == "cgroups" && o.value != "split" {
			return "Podman is given --cgroups=" + o.value, "take it out: toad finds the container in the unit's own control group", passes("--cgroups")
		}
	}
	for _, name := range g.EnvNames {
		if slices.Contains(elsewhere.environment, name) {
			return "Podman is given " + name + " in its environment", take, func(s Setting) bool {
				return s.Section == "Service" && s.Key == "Environment" && strings.Contains(s.Value, name+"=")
			}
		}
	}
	return "", "", nil
}
