package agent

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"toad/agent/protocol"
	"toad/probation"
	"toad/quadlet"
)

var (
	variable   = regexp.MustCompile(`\$\{([A-Z][A-Z0-9_]{0,63})\}`)
	secretLine = regexp.MustCompile(`(?m)^([ \t]*Secret[ \t]*=[ \t]*)([a-z0-9][a-z0-9_.-]{0,99})((?:,[A-Za-z0-9_=.,/-]*)?)[ \t]*$`)
	anySecret  = regexp.MustCompile(`(?m)^[ \t]*Secret[ \t]*=.*$`)
	// plain is what a variable may stand for: nothing in it can end a value or a line, or is expanded once more.
	plain = regexp.MustCompile(`^[A-Za-z0-9 ._:/@+,=~-]*$`)
)

// longest is how many bytes a variable may stand for. A count of a thousand in the expression would cost each start of toad 2 ms.
const longest = 1000

// given are the variables that every box has.
var given = map[string]bool{"TOAD_ENV_ID": true, "TOAD_TIER": true, "TOAD_BOX": true}

// Plan is a bundle with its variables and the versions of its secrets filled in: what is installed, and what is deployed.
type Plan struct {
	Bundle    string            `json:"bundle"`
	Services  []Planned         `json:"services"`
	Support   map[string]string `json:"support,omitempty"`   // .volume and .network files, under the name they are installed by
	Secrets   map[string]string `json:"secrets,omitempty"`   // version by name
	Variables map[string]string `json:"variables,omitempty"` // as they were filled in: plain values, no secrets
}

// Planned is one service: its enrollment with the texts, and what is deployed.
type Planned struct {
	Enrollment probation.Enrollment `json:"enrollment"`
	Digest     string               `json:"digest"`
	// ProgramChange says that the image may be another program than any that was in force.
	ProgramChange bool `json:"program_change,omitempty"`
}

func (p *Plan) bytes() []byte {
	data, err := json.Marshal(p)
	if err != nil {
		panic(err) // texts
	}
	return data
}

// SHA tells one plan from another: by what is installed and deployed.
func (p *Plan) SHA() string {
	brief := *p
	brief.Secrets, brief.Variables = nil, nil // they stand in the texts
	sum := sha256.Sum256(brief.bytes())
	return hex.EncodeToString(sum[:])
}

// service is the one of that name, or nil.
func (p *Plan) service(name string) *Planned {
	for i := range p.Services {
		if p.Services[i].Enrollment.Name == name {
			return &p.Services[i]
		}
	}
	return nil
}

// render fills in the variables, names the secrets by version, and gives the supporting files names that change with
// their text: what a release in force uses is never changed under it.
func (b *Bundle) render(variables map[string]string, version func(secret string) string, mounts []string) (*Plan, error) {
	p := &Plan{Bundle: b.SHA, Support: map[string]string{}, Secrets: map[string]string{}, Variables: variables}
	rename, names := map[string]string{}, map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		ext := filepath.Ext(name)
		stem := strings.TrimSuffix(name, ext)
		if ext == ".container" {
			names[name], names[stem+".service"] = true, true
			continue
		}
		if name == ManifestName {
			continue
		}
		text, err := fill(name, b.Files[name], variables)
		if err != nil {
			return nil, err
		}
		if err := checkRendered(name, text, nil, nil); err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		as := stem + "-" + hex.EncodeToString(sum[:4]) + ext
		if ext == ".volume" { // what it holds stays, whatever its file says
			text = append(bytes.Clone(text), "[Volume]\nVolumeName=systemd-"+stem+"\n"...)
		}
		rename[name], p.Support[as], names[as] = as, string(text), true
	}
	secrets := map[string]bool{}
	for _, s := range b.Manifest.Services {
		e := s.enrollment()
		texts := map[string]string{}
		for _, unit := range s.Units {
			text, err := b.unit(unit, s, variables, version, rename, secrets)
			if err != nil {
				return nil, err
			}
			if err := checkRendered(unit, text, names, mounts); err != nil {
				return nil, err
			}
			texts[unit] = string(text)
		}
		e.Definition = probation.Define(texts, e.Ready)
		p.Services = append(p.Services, Planned{e, s.Digest, s.ProgramChange})
	}
	for name := range secrets {
		p.Secrets[name] = version(name)
		if !slices.Contains(b.Manifest.Secrets, name) {
			return nil, refuse(CodeUnresolved, ManifestName, "does not list the secret %s, which a unit names", name)
		}
	}
	return p, p.check()
}

// check has the enrollment read as the daemon will read it.
func (p *Plan) check() error {
	_, err := quadlet.CheckBrought(p.enrollments())
	if err != nil {
		return refuse(CodePath, ManifestName, "cannot be enrolled: %v", err)
	}
	return nil
}

func (p *Plan) enrollments() (all []probation.Enrollment) {
	for _, s := range p.Services {
		all = append(all, s.Enrollment)
	}
	return all
}

// unit is the text of one .container file.
func (b *Bundle) unit(unit string, s Service, variables map[string]string, version func(string) string, rename map[string]string, secrets map[string]bool) ([]byte, error) {
	text, err := fill(unit, b.Files[unit], variables)
	if err != nil {
		return nil, err
	}
	if err := quadlet.CheckRelease(string(text)); err != nil {
		return nil, refuse(CodePath, unit, "cannot stand in a pin: %v", err)
	}
	settings, err := quadlet.Settings(unit, text)
	if err != nil {
		return nil, refuse(CodePath, unit, "%v", err)
	}
	image := ""
	for _, each := range settings {
		if each.Section == "Container" && each.Key == "Image" {
			image = each.Value
		}
	}
	if repository, _, digest, err := quadlet.Repository(image); err != nil || repository != s.Image || digest != "" && digest != s.Digest {
		return nil, refuse(CodeSHA, unit, "has the image %s, and the manifest %s@%s", quoted(image), s.Image, s.Digest)
	}
	for _, line := range anySecret.FindAll(text, -1) {
		if !secretLine.Match(line) {
			return nil, refuse(CodeUnresolved, unit, "has a Secret= that is no NAME[,OPTIONS] with a name of a-z, 0-9, dot, dash and underscore")
		}
	}
	text = secretLine.ReplaceAllFunc(text, func(line []byte) []byte {
		m := secretLine.FindSubmatch(line)
		name, options := string(m[2]), string(m[3])
		secrets[name] = true
		if !strings.Contains(options, ",target=") {
			options += ",target=" + name // else the version would be part of the name inside
		}
		return []byte(string(m[1]) + SecretName(name, version(name)) + options)
	})
	for from, to := range rename {
		use := regexp.MustCompile(`(?m)^([ \t]*(?:Volume|Network)[ \t]*=[ \t]*)` + regexp.QuoteMeta(from) + `(:|[ \t]*$)`)
		text = use.ReplaceAll(text, []byte("${1}"+to+"${2}"))
	}
	return text, nil
}

// SecretName is a secret's name in Podman's store: one name for each version.
func SecretName(name, version string) string { return name + "-v" + version }

// fill puts the variables' values in. No error repeats one.
func fill(file string, text []byte, variables map[string]string) ([]byte, error) {
	var err error
	out := variable.ReplaceAllFunc(text, func(m []byte) []byte {
		name := string(variable.FindSubmatch(m)[1])
		value, ok := variables[name]
		switch {
		case !ok && err == nil:
			err = refuse(CodeUnresolved, file, "names the variable %s, which has no value here", name)
		case (len(value) > longest || !plain.MatchString(value)) && err == nil:
			err = refuse(CodeUnresolved, file, "names the variable %s, whose value is longer than %d bytes or has characters that a unit file would read as its own", name, longest)
		}
		return []byte(value)
	})
	if err == nil && bytes.Contains(out, []byte("${")) {
		err = refuse(CodeUnresolved, file, "holds a ${ that begins no variable; their names are A-Z, 0-9 and underscore")
	}
	return out, err
}

// checkTexts judges the texts by what is the same on every box, with values that stand for all.
func (b *Bundle) checkTexts() error {
	values := map[string]string{}
	for _, name := range b.Manifest.Variables {
		values[name] = "1"
	}
	_, err := b.render(b.values(values, "box"), func(string) string { return "1" }, []string{"/"})
	return err
}

// values are the variables of a box in its environment.
func (b *Bundle) values(published map[string]string, box string) map[string]string {
	all := maps.Clone(published)
	if all == nil {
		all = map[string]string{}
	}
	tier, _ := protocol.ParseEnv(b.Manifest.EnvID)
	all["TOAD_ENV_ID"], all["TOAD_TIER"], all["TOAD_BOX"] = b.Manifest.EnvID, tier, box
	return all
}

// resolved wants a value for each variable that the manifest requires, also for one that no text names.
func (b *Bundle) resolved(values map[string]string) error {
	for _, name := range b.Manifest.Variables {
		if _, ok := values[name]; !ok {
			return refuse(CodeUnresolved, ManifestName, "requires the variable %s, which has no value here", name)
		}
	}
	return nil
}
