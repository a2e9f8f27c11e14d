package quadlet

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTheCompatibilityPageIsTrue makes the page's tables of what toad says of the units that were recorded on a host, and
// of nothing else; -update writes them.
func TestTheCompatibilityPageIsTrue(t *testing.T) {
	const path = "../docs/compatibility.md"
	var taken, refused, undone strings.Builder
	for _, c := range unitCases(t) {
		name := strings.ReplaceAll(c.name, "-", " ")
		form, early, late := c.said(t)
		switch {
		case early != "":
			fmt.Fprintf(&refused, "| %s | %s | `%s` |\n", name, form, early)
		case late != "":
			fmt.Fprintf(&undone, "| %s | %s | `%s` |\n", name, form, late)
		default:
			fmt.Fprintf(&taken, "| %s | %s |\n", name, form)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := string(have)
	for mark, rows := range map[string]string{
		"taken":   "| form | |\n|---|---|\n" + taken.String(),
		"refused": "| form | | toad says |\n|---|---|---|\n" + refused.String(),
		"undone":  "| form | | toad says |\n|---|---|---|\n" + undone.String(),
	} {
		begin, end := "<!-- "+mark+" -->\n", "<!-- end of "+mark+" -->"
		before, rest, ok := strings.Cut(page, begin)
		_, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no table %q", path, mark)
		}
		page = before + begin + "\n" + rows + "\n" + end + after
	}
	if page == string(have) {
		return
	}
	if *update {
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	wants, haves := strings.Split(page, "\n"), strings.Split(string(have), "\n")
	for i := range min(len(wants), len(haves)) {
		if wants[i] != haves[i] {
			t.Fatalf("%s:%d does not say what toad says; go test ./quadlet -run Compatibility -args -update\nwant %s\nhave %s", path, i+1, wants[i], haves[i])
		}
	}
	t.Fatalf("%s has %d lines, want %d", path, len(haves), len(wants))
}

// said is what a unit is, and what toad says of it: before anything is pulled, and when the pin is loaded.
func (c unitCase) said(t *testing.T) (form, early, late string) {
	t.Helper()
	root := t.TempDir()
	dirs, loaded := c.lay(t, root), c.loaded(t, root)
	plain := func(err error) string {
		if err == nil {
			return ""
		}
		text := strings.ReplaceAll(err.Error(), root+"/home/toad/", "~/")
		text = strings.ReplaceAll(strings.ReplaceAll(text, root, ""), "\n", "; ")
		return strings.ReplaceAll(strings.ReplaceAll(text, digestA, "sha256:…"), "|", "\\|")
	}
	src, err := Find(dirs, c.one("unit"))
	if err == nil {
		err = CheckEnrollable(src, *loaded.Plain, c.one("image"))
	}
	early = plain(err)
	if early == "" && c.one("verify") != "none" {
		pin := c.pin()
		if err := dirs.Pins().Write(pin.Unit, pin.Text()); err != nil {
			t.Fatal(err)
		}
		late = plain(Verify(dirs, pin, *loaded.Pinned))
	}
	return c.story, early, late
}
