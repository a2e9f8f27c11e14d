package quadlet

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestThePinIsWhatTheDesignSays(t *testing.T) {
	fenced := Pin{Operation: "web-g7", Service: "web", Unit: "web.container", Reference: "registry.example.org/team/web@" + digestA,
		Digest: digestA, Fenced: true, AdmissionVar: "TOAD_ADMITTED_web_g7"}
	promoted := fenced
	promoted.Fenced, promoted.AdmissionVar = false, ""
	byID := promoted
	byID.Operation, byID.Reference = "web-g0", hexB
	bare := byID
	bare.Digest = ""
	for name, c := range map[string]struct {
		pin  Pin
		want string
	}{
		"fenced": {fenced, `# Written by toad for web-g7. Remove with: toad unpin web
[Unit]
After=toad-reconcile.service
OnFailure=toad-alert@%N.service
ConditionEnvironment=TOAD_ADMITTED_web_g7=1
[Container]
Image=registry.example.org/team/web@` + digestA + `
Pull=never
AutoUpdate=
Label=io.toad.operation=web-g7
[Service]
ExecCondition=/usr/bin/test -n ${TOAD_ADMITTED_web_g7}
`},
		"promoted": {promoted, `# Written by toad for web-g7. Remove with: toad unpin web
[Unit]
After=toad-reconcile.service
OnFailure=toad-alert@%N.service
[Container]
Image=registry.example.org/team/web@` + digestA + `
Pull=never
AutoUpdate=
Label=io.toad.operation=web-g7
`},
		"by id": {byID, `# Written by toad for web-g0. Remove with: toad unpin web
# The image is ` + digestA + `, named by its id: an image that was kept on this host comes back without its digest.
[Unit]
After=toad-reconcile.service
OnFailure=toad-alert@%N.service
[Container]
Image=` + hexB + `
Pull=never
AutoUpdate=
Label=io.toad.operation=web-g0
Label=io.toad.digest=` + digestA + `
`},
		"by id alone": {bare, `# Written by toad for web-g0. Remove with: toad unpin web
[Unit]
After=toad-reconcile.service
OnFailure=toad-alert@%N.service
[Container]
Image=` + hexB + `
Pull=never
AutoUpdate=
Label=io.toad.operation=web-g0
`},
	} {
		if have := c.pin.Text(); have != c.want {
			t.Errorf("%s: want\n%s\nhave\n%s", name, c.want, have)
		}
		have, err := ParsePin(c.pin.Text())
		have.Unit = c.pin.Unit
		if err != nil || !reflect.DeepEqual(have, c.pin) {
			t.Errorf("%s: want %+v\nhave %+v, %v", name, c.pin, have, err)
		}
	}
}

func TestParsePinRefusesWhatToadDidNotWrite(t *testing.T) {
	for _, text := range []string{"", "[Container]\nImage=a\n", "[Container]\nLabel=io.toad.operation=web-g7\n",
		"[Container]\nImage=a\nLabel=io.toad.operation=web\n", "nonsense"} {
		if p, err := ParsePin(text); err == nil {
			t.Errorf("%q: have %+v", text, p)
		}
	}
}

func FuzzParsePin(f *testing.F) {
	f.Add(Pin{Operation: "web-g7", Service: "web", Reference: "r.example.org/a@" + digestA, Fenced: true, AdmissionVar: "TOAD_ADMITTED_web_g7"}.Text())
	f.Add(Pin{Operation: "web-g0", Service: "web", Reference: hexA, Digest: digestB}.Text())
	f.Fuzz(func(t *testing.T, text string) {
		p, err := ParsePin(text)
		if err != nil {
			return
		}
		again, err := ParsePin(p.Text())
		if imageID.MatchString(p.Reference) || strings.Contains(p.Reference, "@") {
			if err != nil || !reflect.DeepEqual(again, p) {
				t.Errorf("%+v came back as %+v, %v", p, again, err)
			}
		}
	})
}

// tree lists what lies below dir, with the bytes of the files.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if e.IsDir() {
			all[rel+"/"] = ""
			return nil
		}
		data, err := os.ReadFile(path)
		all[rel] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func wantTree(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	if have := tree(t, dir); !reflect.DeepEqual(want, have) {
		t.Errorf("want %q\nhave %q", want, have)
	}
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestAPinComesAndGoesWithoutATrace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "containers/systemd")
	must(t, os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "web.container"), []byte("mine"), 0o644))
	before := tree(t, dir)
	p := Pins{Dir: dir}
	if text, ok, err := p.Read("web.container"); text != "" || ok || err != nil {
		t.Errorf("have %q, %v, %v", text, ok, err)
	}
	must(t, p.LayPrevious("web.container", ""), p.Write("web.container", "candidate"))
	if text, ok, err := p.Read("web.container"); text != "candidate" || !ok || err != nil {
		t.Errorf("have %q, %v, %v", text, ok, err)
	}
	for path, mode := range map[string]fs.FileMode{p.Path("web.container"): 0o644, filepath.Dir(p.Path("web.container")): 0o755} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: have %v, %v", path, info.Mode(), err)
		}
	}
	must(t, p.Restore("web.container", ""))
	wantTree(t, dir, before)

	must(t, p.Write("web.container", "candidate"), p.Remove("web.container"), p.Remove("web.container"))
	wantTree(t, dir, before)
}

func TestAFolderOfTheOperatorStays(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "web.container.d")
	must(t, os.Mkdir(folder, 0o700))
	p := Pins{Dir: dir}
	must(t, p.Write("web.container", "x"), p.Remove("web.container"))
	wantTree(t, dir, map[string]string{"web.container.d/": ""})
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("have %v, %v", info.Mode(), err)
	}

	// Also one that toad made and the operator uses since.
	must(t, p.Write("api.container", "x"), os.WriteFile(filepath.Join(dir, "api.container.d/90-local.conf"), nil, 0o644), p.Remove("api.container"))
	wantTree(t, dir, map[string]string{"web.container.d/": "", "api.container.d/": "", "api.container.d/.toad-made": "", "api.container.d/90-local.conf": ""})
	must(t, os.Remove(filepath.Join(dir, "api.container.d/90-local.conf")), p.Remove("api.container"))
	wantTree(t, dir, map[string]string{"web.container.d/": ""})
}

func TestARestorePutsBackWhatWasLaid(t *testing.T) {
	p := Pins{Dir: t.TempDir()}
	const unit = "web.container"
	must(t, p.Write(unit, "old"), p.LayPrevious(unit, "old"), p.Write(unit, "candidate"))
	laid, err := os.Stat(p.previousPath(unit))
	must(t, err)
	// A switch that is carried on after a crash lays again; the candidate's pin is in place then.
	must(t, p.LayPrevious(unit, "old"), p.Write(unit, "candidate"), p.Restore(unit, "old"))
	restored, err := os.Stat(p.Path(unit))
	must(t, err)
	if !os.SameFile(laid, restored) {
		t.Error("the restore wrote a file, which a full disk would not have allowed")
	}
	// Repeated, and with what was laid lost, it does the same.
	must(t, p.Restore(unit, "old"), p.Write(unit, "candidate"), p.Restore(unit, "old"))
	wantTree(t, p.Dir, map[string]string{"web.container.d/": "", "web.container.d/.toad-made": "", "web.container.d/zz-toad.conf": "old"})
}

func TestARestoreTrustsTheRecordNotWhatLies(t *testing.T) {
	p := Pins{Dir: t.TempDir()}
	const unit = "web.container"
	must(t, p.LayPrevious(unit, "of an earlier operation"), p.Write(unit, "candidate"), p.Restore(unit, "old"))
	if text, _, err := p.Read(unit); text != "old" || err != nil {
		t.Errorf("have %q, %v", text, err)
	}
	if _, err := os.Stat(p.previousPath(unit)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still laid: %v", err)
	}
	must(t, p.LayPrevious(unit, "x"), p.DropPrevious(unit), p.DropPrevious(unit))
	if text, ok, _ := p.Read(unit); !ok || text != "old" {
		t.Errorf("dropping what was laid touched the pin: %q, %v", text, ok)
	}
}

func TestAPinThatCannotBeWrittenSaysSo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "systemd")
	must(t, os.WriteFile(dir, nil, 0o600))
	p := Pins{Dir: dir}
	for name, err := range map[string]error{
		"write": p.Write("web.container", "x"), "lay": p.LayPrevious("web.container", "x"), "restore": p.Restore("web.container", "x"),
	} {
		if !errors.Is(err, ErrWrite) || !strings.Contains(err.Error(), "web.container: the pin could not be changed: ") {
			t.Errorf("%s: have %v", name, err)
		}
	}
}

// Nothing that lies in a pin's folder at any moment may be read by a generator, but for the pin.
func TestOnlyThePinIsReadByGenerators(t *testing.T) {
	p := Pins{Dir: t.TempDir()}
	must(t, p.LayPrevious("web.container", "x"), p.Write("web.container", "y"))
	for name := range tree(t, p.Dir) {
		ext := filepath.Ext(name)
		if filepath.Base(name) != pinName && slices.Contains([]string{".conf", ".container", ".service", ".image"}, ext) {
			t.Errorf("%s would be read", name)
		}
	}
}
