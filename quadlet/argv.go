package quadlet

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
)

// podmanRun is a generated ExecStart= taken apart: podman [global options] run [options] image [command].
type podmanRun struct {
	global  []option // of podman itself
	options []option // of run, in order
	image   string
}

// option is one option of podman run; value is "" for a switch.
type option struct{ name, value string }

// switches are the options that take no value, and so do not swallow the image behind them: those of podman itself,
// then those of podman run, versions 5.0 to 6.0. All other options take one.
var switches = strings.Fields(`
	D debug h help noout r remote syslog trace transient-store v version
	d detach disable-content-trust env-host help http-proxy i init interactive no-healthcheck no-hostname no-hosts
	oom-kill-disable P passwd privileged publish-all q quiet read-only read-only-tmpfs replace rm rmi rootfs sig-proxy
	t tls-verify tty unsetenv-all`)

// runSwitches leaves out the letters that mean another thing for run: -h, -r and -v take values there.
var runSwitches = slices.DeleteFunc(slices.Clone(switches), func(s string) bool { return s == "h" || s == "v" || s == "r" || s == "D" })

// aliases are other spellings of the options that toad looks for.
var aliases = map[string]string{"l": "label", "p": "publish", "P": "publish-all", "net": "network"}

// parseRun finds the image in the argv of a unit's ExecStart=: the first word behind the options of run. A switch that
// this list does not know yet would swallow the image, so the wanted image is never taken for an option's value.
func parseRun(argv []string, wanted string) (podmanRun, error) {
	if len(argv) == 0 || filepath.Base(argv[0]) != "podman" {
		return podmanRun{}, errors.New("does not start podman")
	}
	run := podmanRun{}
	var rest []string
	run.global, rest = options(argv[1:], switches, "run")
	if len(rest) == 0 || rest[0] != "run" {
		return podmanRun{}, errors.New("is not a podman run")
	}
	run.options, rest = options(rest[1:], runSwitches, wanted)
	if len(rest) == 0 {
		return podmanRun{}, errors.New("has no image")
	}
	run.image = rest[0]
	return run, nil
}

// options reads options as Podman's flag library does, up to the first word that is none.
func options(args []string, switches []string, wanted string) (found []option, rest []string) {
	for len(args) > 0 {
		arg := args[0]
		if arg == "--" {
			return found, args[1:]
		}
		if len(arg) < 2 || arg[0] != '-' {
			return found, args
		}
		args = args[1:]
		var flags []option
		var open bool
		if long, ok := strings.CutPrefix(arg, "--"); ok {
			flags, open = longOption(long, switches)
		} else {
			flags, open = letters(arg[1:], switches)
		}
		if open && len(args) > 0 && (args[0] != wanted || wanted == "") {
			flags[len(flags)-1].value, args = args[0], args[1:]
		}
		for _, f := range flags {
			if long, ok := aliases[f.name]; ok {
				f.name = long
			}
			found = append(found, f)
		}
	}
	return found, nil
}

// longOption reads --name or --name=value; open says that its value is the next word.
func longOption(text string, switches []string) (flags []option, open bool) {
	name, value, hasValue := strings.Cut(text, "=")
	return []option{{name, value}}, !hasValue && !slices.Contains(switches, name)
}

// letters reads -d, -it, -v/a:/b or -v=/a:/b; open says that the value of the last letter is the next word.
func letters(text string, switches []string) (flags []option, open bool) {
	for i := range len(text) {
		name, rest := text[i:i+1], text[i+1:]
		if slices.Contains(switches, name) {
			flags = append(flags, option{name: name})
			if strings.HasPrefix(rest, "=") {
				return flags, false // -d=false
			}
			continue
		}
		return append(flags, option{name, strings.TrimPrefix(rest, "=")}), rest == ""
	}
	return flags, false
}

// last returns the value of the option's last use, which is the one that counts.
func (r podmanRun) last(name string) (string, bool) {
	all := r.all(name)
	if len(all) == 0 {
		return "", false
	}
	return all[len(all)-1], true
}

func (r podmanRun) all(name string) []string {
	var values []string
	for _, o := range r.options {
		if o.name == name {
			values = append(values, o.value)
		}
	}
	return values
}

// label returns the value that the container gets for a label: of two the later one.
func (r podmanRun) label(key string) (string, bool) {
	value, found := "", false
	for _, label := range r.all("label") {
		if k, v, _ := strings.Cut(label, "="); k == key {
			value, found = v, true
		}
	}
	return value, found
}
