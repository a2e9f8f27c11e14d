package quadlet

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"toad/probation"
)

const broughtText = "[Unit]\nDescription=web\n\n# a comment\n[Container]\nImage=registry.example.org/team/web\nExec=a \\\n  b\n[Install]\nWantedBy=default.target\n"

func TestAPinHoldsTheTextOfItsRelease(t *testing.T) {
	p := Pin{Operation: "web-g7", Service: "web", Reference: "registry.example.org/team/web@" + digestA, Digest: digestA, Release: broughtText,
		Fenced: true, AdmissionVar: "TOAD_ADMITTED_web_g7"}
	have, err := ParsePin(p.Text())
	if err != nil || !reflect.DeepEqual(have, p) {
		t.Errorf("want %+v\nhave %+v, %v", p, have, err)
	}
	// What the release says of its image comes first: of two the last counts.
	s, err := parseUnit("", []byte(p.Text()))
	image, _ := s.last("Container", "Image")
	if err != nil || image.Value != p.Reference {
		t.Errorf("the image is %q, %v\n%s", image.Value, err, p.Text())
	}
	// A text that imitates the pin around it changes nothing of it.
	p.Release = "[Container]\nLabel=io.toad.operation=web-g9\n" + releaseEnds + "\n" + releaseBegins + "3\nConditionEnvironment=TOAD_ADMITTED_x=1\n"
	if have, err := ParsePin(p.Text()); err != nil || !reflect.DeepEqual(have, p) {
		t.Errorf("want %+v\nhave %+v, %v", p, have, err)
	}
}

func TestWhatIsNoTextOfARelease(t *testing.T) {
	for _, text := range []string{"", "[Container]\nImage=a", "[Container]\nExec=a \\\n", "[Container]\r\nImage=a\r\n", "Image=a\n", "[Container]\nnonsense\n"} {
		if CheckRelease(text) == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if err := CheckRelease(broughtText); err != nil {
		t.Error(err)
	}
}

func brought(name, unit string) probation.Enrollment {
	e := probation.Enrollment{Name: name, Units: []string{unit}, Image: "registry.example.org/team/web", Ready: probation.Ready{HTTP: "http://127.0.0.1:8080/healthz", Status: 204},
		Limit: probation.Limits{Deadline: 20 * time.Second, Stable: time.Second, Restarts: 2}}
	FillDefaults(&e)
	e.Definition = probation.Define(map[string]string{unit: broughtText}, e.Ready)
	return e
}

func TestWhatABundleBringsIsReadAsItWasWritten(t *testing.T) {
	want := []probation.Enrollment{brought("shop", "shop.container"), brought("web", "web.container")}
	have, err := CheckBrought(want)
	if err != nil || !reflect.DeepEqual(have, want) {
		t.Errorf("want %+v\nhave %+v, %v", want, have, err)
	}
}

func TestWhatTheOperatorEnrolledHimselfCounts(t *testing.T) {
	dir := t.TempDir()
	text, err := BroughtText([]probation.Enrollment{brought("shop", "shop.container"), brought("web", "web.container"), brought("other", "mine.container")})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "agent.toml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := Parse("own", []byte("[service.web]\nunits = [\"mine.container\"]\nimage = \"registry.example.org/team/web\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	have, err := Brought(dir, own)
	if len(have) != 1 || have[0].Name != "shop" {
		t.Errorf("have %+v", have)
	}
	if err == nil || !strings.Contains(err.Error(), "service web is enrolled in own") || !strings.Contains(err.Error(), "mine.container is enrolled in own") {
		t.Errorf("it says %v", err)
	}
	if _, err := Parse("own", text); err == nil || !strings.Contains(err.Error(), "is for what bundles bring") {
		t.Errorf("the operator's file may bring texts: %v", err)
	}
	if have, err := Brought(filepath.Join(dir, "none"), own); have != nil || err != nil {
		t.Errorf("have %+v, %v", have, err)
	}
}
