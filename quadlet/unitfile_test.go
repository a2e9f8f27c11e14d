package quadlet

import (
	"strings"
	"testing"

	"github.com/containers/podman/v5/pkg/systemd/parser"
)

// Podman's own parser is the truth about what a file says; ours adds the lines.
func compareWithPodman(t *testing.T, text string) {
	t.Helper()
	have, err := parseUnit("x.container", []byte(text))
	theirs := parser.NewUnitFile()
	if theirErr := theirs.Parse(text); (err == nil) != (theirErr == nil) {
		t.Fatalf("Podman says %v, we say %v\n%q", theirErr, err, text)
	}
	if err != nil {
		return
	}
	keys := 0
	for _, section := range theirs.ListGroups() {
		for _, key := range theirs.ListKeys(section) {
			keys++
			want, _ := theirs.Lookup(section, key)
			if s, ok := have.last(section, key); !ok || s.Value != want {
				t.Errorf("[%s] %s: want %q, have %q, %v\n%q", section, key, want, s.Value, ok, text)
			}
		}
	}
	distinct := map[[2]string]bool{}
	for _, s := range have {
		distinct[[2]string{s.Section, s.Key}] = true
		if s.Line < 1 || s.Line > strings.Count(text, "\n")+1 {
			t.Errorf("%s is outside the file", s.place())
		}
	}
	if len(distinct) != keys {
		t.Errorf("want %d keys, have %d\n%q", keys, len(distinct), text)
	}
}

var unitTexts = []string{
	"",
	"[Container]\nImage=a",
	"[Container]\r\nImage=a\r\n",
	"\ufeff[Container]\nImage=a\n",
	"Image=a\n",
	"[Container]\nImage= \\\n  127.0.0.1:5000/app:good1\n",
	"[Container]\nImage=127.0.0.1:5000/\\\napp:good1\n",
	"[Container]\n# -e OLD=1 \\\n#Image=old\n;Image=older\nImage=new",
	"[Container]\nEnvironment=A=1 \\\n# a note\n\n  B=2\nImage=a",
	"[Container]\nImage=a\\",
	"[Container]\nImage=a\\\n",
	"[Container]\nImage=a\\\n# only a comment follows",
	"[Container]\nImage=a\nImage=b\n[Service]\nRestart=always\n[Container]\nImage=\"c\"\n",
	"[Container]\n Image = a b \t\n",
	"[Container] \t\nImage=\"\"\"a\n",
	"[Container]x\nImage=a\n",
	"[Con[tainer]\nImage=a\n",
	"[]\nImage=a\n",
	"[Container=]x\n",
	"[Container]\n=a\n",
	"[Container]\nImage\n",
	"[Container]\n\u0085Image\u00a0=\u00a0a\u00a0\n",
	"[Container]\n\\\nImage=a\n",
	"\\",
}

func TestUnitFilesReadAsPodmanReadsThem(t *testing.T) {
	for _, text := range unitTexts {
		compareWithPodman(t, text)
	}
	for _, c := range unitCases(t) {
		for _, f := range c.files {
			compareWithPodman(t, string(f.Data))
		}
	}
}

func TestSettingsKnowTheirLine(t *testing.T) {
	text := "# one\n[Container]\nImage= \\\n# three\n  a\n\n[Service]\nRestart=always\n[Container]\nPull=never"
	s, err := parseUnit("/x/web.container", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"Image": "/x/web.container:3", "Pull": "/x/web.container:10"} {
		if have, _ := s.last("Container", key); have.place() != want {
			t.Errorf("%s: want %s, have %s", key, want, have.place())
		}
	}
	if _, err := parseUnit("/x/web.container", []byte("[Unit]\nAfter=\\\nx\nnonsense\n")); err == nil || !strings.HasPrefix(err.Error(), "/x/web.container:4: ") {
		t.Errorf("have %v", err)
	}
}

func FuzzUnitFile(f *testing.F) {
	for _, text := range unitTexts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) { compareWithPodman(t, text) })
}

func podmanLevels(unit string) []string {
	f := parser.NewUnitFile()
	f.Filename = unit
	return f.GetUnitDropinPaths()
}
