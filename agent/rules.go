package agent

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"toad/quadlet"
)

// What a publisher's texts may say. It is a list of what is allowed: a key that a newer Podman brings is refused until
// somebody has looked at what it can reach. What keeps a container from the host is otherwise Podman's own doing.
var allowed = map[string]map[string][]string{
	".container": {
		"Unit": {"Description", "Documentation", "After", "Before", "Wants", "Requires", "BindsTo", "PartOf", "StartLimitIntervalSec", "StartLimitBurst"},
		"Container": {"Image", "Exec", "Entrypoint", "Environment", "PublishPort", "ExposeHostPort", "Volume", "Tmpfs", "Mount", "Network", "NetworkAlias",
			"HostName", "DNS", "DNSOption", "DNSSearch", "IP", "IP6", "Secret", "Label", "Annotation", "User", "Group", "UserNS", "WorkingDir",
			"ReadOnly", "ReadOnlyTmpfs", "NoNewPrivileges", "DropCapability", "RunInit", "Timezone", "StopSignal", "StopTimeout",
			"ShmSize", "PidsLimit", "Memory", "Ulimit", "Notify", "HealthCmd", "HealthInterval", "HealthTimeout", "HealthRetries",
			"HealthStartPeriod", "HealthStartupCmd", "HealthStartupInterval", "HealthStartupRetries", "HealthStartupSuccess",
			"HealthStartupTimeout", "HealthOnFailure", "HealthMaxLogCount", "HealthMaxLogSize"},
		"Service": {"Restart", "RestartSec", "RestartSteps", "RestartMaxDelaySec", "TimeoutStartSec", "TimeoutStopSec", "MemoryMax", "MemoryHigh",
			"MemoryLow", "MemorySwapMax", "CPUQuota", "CPUWeight", "TasksMax", "IOWeight"},
		"Install": {"WantedBy"},
	},
	".volume":  {"Unit": {"Description"}, "Volume": {"Label", "Copy"}},
	".network": {"Unit": {"Description"}, "Network": {"Label", "Subnet", "Gateway", "IPRange", "IPv6", "Internal", "DNS", "DisableDNS"}},
}

var (
	// ownUnit is a unit of systemd's that a bundle's may be ordered to.
	ownUnits  = []string{"default.target", "multi-user.target", "network-online.target"}
	ownLabel  = regexp.MustCompile(`(^|[\s"'])io\.toad\.`)
	userNS    = regexp.MustCompile(`^(auto|keep-id|nomap)(:[a-z0-9=,]*)?$`)
	mountOpts = []string{"ro", "rw", "z", "Z", "U", "nodev", "nosuid", "noexec"}
)

// checkRendered judges a file as it would be installed: mounts are the folders of the host below which a bundle may mount.
func checkRendered(file string, text []byte, support map[string]bool, mounts []string) error {
	settings, err := quadlet.Settings(file, text)
	if err != nil {
		return refuse(CodePath, file, "cannot be read as Podman's generator would: %v", err)
	}
	rules := allowed[filepath.Ext(file)]
	for _, s := range settings {
		if !slices.Contains(rules[s.Section], s.Key) {
			return refuse(CodePrivileged, file, "line %d: [%s] %s= is nothing that a bundle may set", s.Line, s.Section, s.Key)
		}
		if what := reaches(s, support, mounts); what != "" {
			return refuse(CodePrivileged, file, "line %d: [%s] %s= %s", s.Line, s.Section, s.Key, what)
		}
	}
	return nil
}

// reaches says how an allowed key reaches beyond the container; "" if it does not.
func reaches(s quadlet.Setting, support map[string]bool, mounts []string) string {
	switch s.Key {
	case "After", "Before", "Wants", "Requires", "BindsTo", "PartOf", "WantedBy":
		return foreignUnit(s, support)
	case "Volume":
		return volume(s.Value, support, mounts)
	case "Mount":
		if kind, _, _ := strings.Cut(s.Value, ","); kind != "type=tmpfs" {
			return "mounts what is not tmpfs; use Volume="
		}
	case "Network":
		name, _, _ := strings.Cut(s.Value, ":")
		if s.Value != "none" && s.Value != "pasta" && !(support[name] && strings.HasSuffix(name, ".network")) {
			return "is neither none, pasta nor a .network file of the bundle: no namespace of the host or of another container"
		}
	case "UserNS":
		if !userNS.MatchString(s.Value) {
			return "is neither auto, keep-id nor nomap"
		}
	case "User", "Group", "Tmpfs", "Secret", "HostName":
		if strings.HasPrefix(s.Value, "-") {
			return "begins with a dash"
		}
	case "Label", "Annotation":
		if ownLabel.MatchString(s.Value) {
			return "sets a label of toad's own"
		}
	case "NoNewPrivileges":
		if s.Value != "true" && s.Value != "yes" && s.Value != "1" && s.Value != "on" {
			return "takes a protection away"
		}
	case "Environment":
		if strings.Contains(s.Value, "TOAD_ADMITTED") {
			return "sets a variable of toad's own"
		}
	case "Image":
		if strings.HasSuffix(s.Value, ".build") || strings.HasSuffix(s.Value, ".image") || strings.ContainsAny(s.Value, "%") {
			return "is not the name of an image"
		}
	}
	return ""
}

// foreignUnit wants dependencies on what the bundle brings, and on a few targets, only: anything else would be started or
// stopped by a publisher.
func foreignUnit(s quadlet.Setting, support map[string]bool) string {
	for _, unit := range strings.Fields(s.Value) {
		target := slices.Contains(ownUnits, unit)
		if s.Key == "WantedBy" && (!target || unit == "network-online.target") {
			return "is not default.target"
		}
		if !target && !support[unit] {
			return "names " + quoted(unit) + ", which the bundle does not bring"
		}
	}
	return ""
}

func volume(value string, support map[string]bool, mounts []string) string {
	parts := strings.Split(value, ":")
	source := parts[0]
	if len(parts) > 3 || strings.ContainsAny(value, "%\"'\\") {
		return "is no SOURCE:PATH[:OPTIONS]"
	}
	if len(parts) == 3 {
		for _, o := range strings.Split(parts[2], ",") {
			if !slices.Contains(mountOpts, o) {
				return "has the option " + quoted(o)
			}
		}
	}
	switch {
	case len(parts) == 1 && filepath.IsAbs(source), support[source] && strings.HasSuffix(source, ".volume"):
		return ""
	case !filepath.IsAbs(source):
		return "is neither a .volume file of the bundle nor an absolute path"
	}
	// A link in an allowed folder may lead out of it.
	real, err := filepath.EvalSymlinks(source)
	if err != nil {
		real = source
	}
	for _, at := range []string{source, real} {
		if filepath.Clean(at) != at || !slices.ContainsFunc(mounts, func(m string) bool { return at == m || strings.HasPrefix(at, strings.TrimSuffix(m, "/")+"/") }) {
			return "mounts a folder of the host that the box does not allow; its operator may add it to mounts in agent.toml"
		}
	}
	return ""
}

func quoted(s string) string {
	if len(s) > 60 {
		s = s[:60]
	}
	return "\"" + strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, s) + "\""
}
