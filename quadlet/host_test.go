//go:build e2e

package quadlet

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"toad/tests/host"
)

// TestOnAHost lays every tree of testdata/units on a host, lets Podman's own generator and systemd read it without and
// with toad's pin, and compares what they loaded with what is recorded; -update records it.
//
//	TOAD_E2E=1 go test -tags e2e -run TestOnAHost ./quadlet [-update]
func TestOnAHost(t *testing.T) {
	h := host.Up(t, host.Options{NoToad: true, NoRegistry: true})
	for _, c := range unitCases(t) {
		t.Run(c.name, func(t *testing.T) {
			h.MustExec(t, "sh", "-c", `cd / && rm -rf home/toad/.config/containers/systemd `+
				`home/toad/.config/systemd/user home/toad/src etc/containers/systemd run/user/1000/containers/systemd`)
			layOnHost(t, h, c)
			service := c.serviceOnHost()
			have := loadedUnit{Plain: loadedOnHost(t, h, service)}
			if c.one("verify") != "none" {
				pin := c.pin()
				h.WriteFile(t, "~/.config/containers/systemd/"+pin.Unit+".d/"+pinName, pin.Text(), 0o644)
				have.Pinned = loadedOnHost(t, h, service)
			}
			data, err := json.MarshalIndent(have, "", "\t")
			if err != nil {
				t.Fatal(err)
			}
			data = append(data, '\n')
			if *update {
				if err := os.WriteFile(c.loadedFile(), data, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(c.loadedFile())
			if err != nil {
				t.Fatal(err)
			}
			wantLines, haveLines := strings.Split(string(want), "\n"), strings.Split(string(data), "\n")
			for i := range max(len(wantLines), len(haveLines)) {
				if i >= len(wantLines) || i >= len(haveLines) || wantLines[i] != haveLines[i] {
					t.Fatalf("from line %d on want\n%s\nhave\n%s", i+1, strings.Join(wantLines[min(i, len(wantLines)):], "\n"),
						strings.Join(haveLines[min(i, len(haveLines)):], "\n"))
				}
			}
		})
	}
}

func (c unitCase) serviceOnHost() string {
	if s := c.one("service"); s != "" {
		return s
	}
	return strings.TrimSuffix(c.one("unit"), ".container") + ".service"
}

func layOnHost(t *testing.T, h *host.Host, c unitCase) {
	t.Helper()
	for _, link := range c.head["link"] {
		name, target, _ := strings.Cut(link, " -> ")
		h.MustExec(t, "sh", "-c", `mkdir -p "$(dirname "/$1")" && ln -s "$2" "/$1" && chown -hR toad:toad /home/toad/.config`, "sh", name, target)
	}
	for _, f := range c.files {
		h.WriteFile(t, "/"+f.Name, string(f.Data), 0o644)
	}
	h.MustUser(t, "systemctl", "--user", "daemon-reload")
	for _, unit := range c.head["mask"] {
		h.MustUser(t, "systemctl", "--user", "mask", unit)
	}
}

// loadedOnHost reloads and reads the unit's properties over D-Bus, as toad does.
func loadedOnHost(t *testing.T, h *host.Host, unit string) *Generated {
	t.Helper()
	h.MustUser(t, "systemctl", "--user", "daemon-reload")
	g := &Generated{Unit: unit}
	const manager, unitInterface, serviceInterface = "org.freedesktop.systemd1.Manager", "org.freedesktop.systemd1.Unit", "org.freedesktop.systemd1.Service"
	reply := busctl(t, h, "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1", manager, "LoadUnit", "s", unit)
	var paths []string
	decode(t, reply, &paths)
	all := map[string]json.RawMessage{}
	for _, iface := range []string{unitInterface, serviceInterface} {
		var props []map[string]struct{ Data json.RawMessage }
		decode(t, busctl(t, h, "call", "org.freedesktop.systemd1", paths[0], "org.freedesktop.DBus.Properties", "GetAll", "s", iface), &props)
		for name, value := range props[0] {
			all[name] = value.Data
		}
	}
	for name, field := range map[string]any{
		"LoadState": &g.LoadState, "SourcePath": &g.SourcePath, "FragmentPath": &g.FragmentPath, "DropInPaths": &g.DropInPaths,
		"After": &g.After, "OnFailure": &g.OnFailure, "DefaultDependencies": &g.DefaultDependencies,
		"NeedDaemonReload": &g.NeedDaemonReload, "UnitFileState": &g.UnitFileState,
	} {
		decode(t, all[name], field)
	}
	g.ExecStart, g.ExecCondition = commands(t, all["ExecStart"]), commands(t, all["ExecCondition"])
	var environment []string
	decode(t, all["Environment"], &environment)
	for _, e := range environment {
		if name, _, _ := strings.Cut(e, "="); name != "PODMAN_SYSTEMD_UNIT" { // which every Quadlet has
			g.EnvNames = append(g.EnvNames, name)
		}
	}
	var conditions [][]any
	decode(t, all["Conditions"], &conditions)
	for _, c := range conditions {
		g.Conditions = append(g.Conditions, Condition{Type: c[0].(string), Trigger: c[1].(bool), Negate: c[2].(bool), Parameter: c[3].(string)})
	}
	slices.Sort(g.After)
	return g
}

func commands(t *testing.T, data json.RawMessage) [][]string {
	t.Helper()
	var raw [][]any
	decode(t, data, &raw)
	var all [][]string
	for _, command := range raw {
		var argv []string
		for _, word := range command[1].([]any) {
			argv = append(argv, word.(string))
		}
		all = append(all, argv)
	}
	return all
}

func busctl(t *testing.T, h *host.Host, args ...string) json.RawMessage {
	t.Helper()
	var reply struct{ Data json.RawMessage }
	decode(t, json.RawMessage(h.MustUser(t, append([]string{"busctl", "--user", "--json=short"}, args...)...)), &reply)
	return reply.Data
}

func decode(t *testing.T, data json.RawMessage, into any) {
	t.Helper()
	if data == nil {
		return
	}
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

// The search order is Podman's: the folders that its generator says it loads from are ours, in order.
func TestSearchOrderOnAHost(t *testing.T) {
	h := host.Up(t, host.Options{NoToad: true, NoRegistry: true})
	for _, dir := range []string{"/run/user/1000/containers/systemd", "/home/toad/.config/containers/systemd/b", "/home/toad/.config/containers/systemd/a",
		"/home/toad/.config/containers/systemd/a/x.container.d", "/etc/containers/systemd/users/1000/q", "/etc/containers/systemd/users/1001", "/etc/containers/systemd/users/all"} {
		h.WriteFile(t, filepath.Join(dir, "u"+strings.ReplaceAll(dir, "/", "_")+".container"), "[Container]\nImage=docker.io/library/x\n", 0o644)
	}
	r := h.User(t, "/usr/lib/systemd/user-generators/podman-user-generator", "--user", "--dryrun")
	var want []string
	for line := range strings.Lines(r.Stderr) {
		if _, path, ok := strings.Cut(strings.TrimSpace(line), "Loading source unit file "); ok {
			want = append(want, filepath.Dir(path))
		}
	}
	// The tree is read through the host's root; the user's own folder cannot be, being on a tmpfs of the host.
	var have []string
	d := UserDirs("/home/toad/.config", "/run/user/1000", 1000)
	have = append(have, d.Roots[0])
	for i := range d.Roots {
		d.Roots[i] = h.Root + d.Roots[i]
	}
	for _, f := range walk(d.Roots) {
		path := strings.TrimPrefix(f.path, h.Root)
		if slices.Contains(want, path) {
			have = append(have, path)
		}
	}
	if !slices.Equal(want, have) || len(want) != 5 {
		t.Errorf("want %q\nhave %q", want, have)
	}
}
