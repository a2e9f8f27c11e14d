//go:build e2e

package release

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"toad/tests/host"
	"toad/tests/scene"
)

const (
	tag  = "v0.9.1"
	root = "../.."
)

// tree is a copy of the working tree in a folder of that name, committed at one and the same time, and tagged.
func tree(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	sh(t, root, `git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' f; do [ ! -e "$f" ] || printf '%s\0' "$f"; done |
		tar -c --null -T - | tar -x -C '`+dir+`'`)
	changelog := filepath.Join(dir, "CHANGELOG.md")
	text, err := os.ReadFile(changelog)
	if err != nil {
		t.Fatal(err)
	}
	named := strings.Replace(string(text), "## Unreleased", "## "+tag+" - 2026-01-02", 1)
	if err := os.WriteFile(changelog, []byte(named), 0o644); err != nil {
		t.Fatal(err)
	}
	sh(t, dir, "git init -q . && git add -A && git commit -qm release && git tag "+tag)
	return dir
}

// sh runs a line of bash, with git told who it is and what time it is.
func sh(t *testing.T, dir, line string) string {
	t.Helper()
	out, err := try(dir, line)
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return out
}

func try(dir, line string) (string, error) {
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", line)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.org", "GIT_AUTHOR_DATE=2026-01-02T03:04:05Z",
		"GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.org", "GIT_COMMITTER_DATE=2026-01-02T03:04:05Z")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// key is one that toad made.
func key(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "release.key")
	sh(t, ".", os.Getenv("TOAD_BIN")+" proof keygen "+path)
	return path
}

func arches() string {
	if os.Getenv("TOAD_ALL") == "1" {
		return "amd64,arm64"
	}
	return runtime.GOARCH
}

func TestAReleaseIsMadeTwiceAndUsed(t *testing.T) {
	t.Parallel()
	signer := key(t)
	one, two := tree(t, "one"), tree(t, "another folder")
	sh(t, one, fmt.Sprintf("make -s release TAG=%s KEY=%s ARCH=%s", tag, signer, arches()))
	sh(t, two, fmt.Sprintf("umask 077; find . -name '*.md' -exec touch {} +; TZ=Asia/Tokyo LANG=C.UTF-8 scripts/release --arch %s --out 'an other' --key %s %s", arches(), signer, tag))
	dist := filepath.Join(one, "dist")
	sh(t, two, "diff -r "+dist+" 'an other'")

	t.Run("it is checked as the documents say", func(t *testing.T) { checked(t, dist, signer) })
	t.Run("its list of contents is that of the binary", func(t *testing.T) { contents(t, dist) })
	t.Run("the rpm holds the same program", func(t *testing.T) { rpm(t, dist) })
	t.Run("the deb is all that a host needs", func(t *testing.T) { deb(t, dist) })
}

// checked runs the commands of the documents on what was made, and then on what somebody has changed.
func checked(t *testing.T, dist, signer string) {
	doc, err := os.ReadFile(filepath.Join(root, "docs/releasing.md"))
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile("(?s)```sh\n(.*?)```").FindStringSubmatch(string(doc))
	if said == nil {
		t.Fatal("the documents do not say how to check a release")
	}
	fetched := filepath.Join(t.TempDir(), "fetched")
	sh(t, ".", fmt.Sprintf("cp -r %s %s && openssl pkey -in %s -pubout -out %s/toad.pub", dist, fetched, signer, fetched))
	sh(t, fetched, said[1])
	for what, change := range map[string]string{
		"another file":      "echo >>toad_*_" + runtime.GOARCH + ".deb",
		"another sum":       "sed -i 1s/^./x/ SHA256SUMS",
		"another signature": "head -c 64 /dev/zero >SHA256SUMS.sig",
		"another key":       "openssl genpkey -algorithm ed25519 | openssl pkey -pubout -out toad.pub",
	} {
		sh(t, ".", fmt.Sprintf("rm -r %s && cp -r %s %s && openssl pkey -in %s -pubout -out %s/toad.pub", fetched, dist, fetched, signer, fetched))
		sh(t, fetched, change)
		if out, err := try(fetched, said[1]); err == nil {
			t.Errorf("%s: it passes:\n%s", what, out)
		}
	}
}

func contents(t *testing.T, dist string) {
	text, err := os.ReadFile(filepath.Join(dist, fmt.Sprintf("toad_%s_linux_%s.cdx.json", tag[1:], runtime.GOARCH)))
	if err != nil {
		t.Fatal(err)
	}
	var sbom struct {
		BOMFormat string
		Metadata  struct {
			Timestamp string
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(text, &sbom); err != nil {
		t.Fatal(err)
	}
	if sbom.BOMFormat != "CycloneDX" || sbom.Metadata.Component.Version != tag || sbom.Metadata.Timestamp != "2026-01-02T03:04:05Z" {
		t.Errorf("it is of %+v, %s", sbom.Metadata, sbom.BOMFormat)
	}
	for _, c := range sbom.Components {
		if c.PURL == "" {
			t.Errorf("%s has no address", c.Name)
		}
	}
	dir := t.TempDir()
	sh(t, dir, fmt.Sprintf("tar -xzf %s/toad_%s_linux_%s.tar.gz && zcat usr/share/doc/toad/third-party-licences.gz >licences", dist, tag[1:], runtime.GOARCH))
	licences, err := os.ReadFile(filepath.Join(dir, "licences"))
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(sh(t, dir, `go version -m usr/bin/toad | awk '$1 == "dep" { print $2 "@" $3 }'`))
	if len(modules) < 20 {
		t.Errorf("the binary tells of %d modules", len(modules))
	}
	for _, m := range modules {
		name, version, _ := strings.Cut(m, "@")
		if !slices.ContainsFunc(sbom.Components, func(c struct{ Name, Version, PURL string }) bool { return c.Name == name && c.Version == version }) {
			t.Errorf("the list of contents misses %s", m)
		}
		if !strings.Contains(string(licences), "\n==== "+name+" "+version+": ") {
			t.Errorf("the licence of %s is missing", m)
		}
	}
}

func rpm(t *testing.T, dist string) {
	dir := t.TempDir()
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	sh(t, dir, fmt.Sprintf("bsdtar -xf %s/toad-%s-1.%s.rpm && mkdir deb && cd deb && dpkg-deb -x %s/toad_%s-1_%s.deb .", dist, tag[1:], arch, dist, tag[1:], runtime.GOARCH))
	if out := sh(t, dir, "usr/bin/toad version"); out != "toad "+tag+"\n" {
		t.Errorf("it says %q", out)
	}
	sh(t, dir, "cmp usr/bin/toad deb/usr/bin/toad")
	for _, name := range []string{"usr/bin/toad-as", "usr/share/man/man1/toad.1.gz", "usr/share/man/man1/toad-deploy.1.gz",
		"usr/share/bash-completion/completions/toad", "usr/share/zsh/site-functions/_toad", "usr/share/fish/vendor_completions.d/toad.fish",
		"usr/share/licenses/toad/LICENSE", "usr/share/doc/toad/third-party-licences.gz", "usr/share/doc/toad/docs/upgrading.md"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("it does not hold %s", name)
		}
	}
}

// deb goes the way of somebody who has a host with Podman, and fetched the package. Nothing else of toad's is there.
func deb(t *testing.T, dist string) {
	w := &scene.Web{Host: host.Up(t, host.Options{NoToad: true})}
	w.MustExec(t, "systemctl", "--global", "disable", "podman.socket")
	w.MustUser(t, "systemctl", "--user", "stop", "podman.socket")
	text, err := os.ReadFile(filepath.Join(dist, fmt.Sprintf("toad_%s-1_%s.deb", tag[1:], runtime.GOARCH)))
	if err != nil {
		t.Fatal(err)
	}
	w.WriteFile(t, "/root/toad.deb", string(text), 0o644)
	w.MustExec(t, "dpkg", "-i", "/root/toad.deb")
	if out := w.MustExec(t, "dpkg", "--verify", "toad"); out != "" {
		t.Errorf("installed it is another than packed:\n%s", out)
	}
	if out := w.MustUser(t, "toad", "version"); out != "toad "+tag {
		t.Errorf("it says %q", out)
	}
	if out := w.MustUser(t, "bash", "-c", ". /usr/share/bash-completion/completions/toad && complete -p toad"); !strings.HasSuffix(out, " toad") {
		t.Errorf("completion: %s", out)
	}
	w.Up(t, scene.Options{Limits: "deadline = \"30s\"\nstable = \"4s\""}) // runs toad setup
	if have := w.Show(t, "podman.socket", "UnitFileState"); have != "enabled" {
		t.Errorf("podman.socket is %s after the set-up", have)
	}
	w.MustDeploy(t, 3, "crash")
	w.MustDeploy(t, 0, "v2", "--detach")
	w.WaitPhase(t, "probation")
	w.MustExec(t, "dpkg", "-r", "toad") // takes the command away, and no deployment
	if phase := w.WaitPhase(t, "promoted", "rolled_back", "rollback_failed", "failed"); phase != "promoted" {
		t.Errorf("the package removed, it ended %s\n%s", phase, w.Log(t))
	}
	w.Serves(t, "v2")
	w.MustExec(t, "dpkg", "-i", "/root/toad.deb")
	w.MustUser(t, "toad", "setup")
	w.MustDeploy(t, 0, "v3")
	w.MustUser(t, "toad", "setup", "--uninstall")
}

// What is refused leaves nothing behind, and an earlier release as it was.
func TestWhatIsNoReleaseIsRefused(t *testing.T) {
	t.Parallel()
	dir, signer := tree(t, "tree"), key(t)
	sh(t, dir, "mkdir dist && echo kept >dist/earlier && printf /dist/ >>.git/info/exclude")
	rsa, others := filepath.Join(t.TempDir(), "rsa.key"), filepath.Join(t.TempDir(), "others.key")
	sh(t, dir, fmt.Sprintf("openssl genpkey -quiet -algorithm rsa -out %s; chmod 600 %s; cp %s %s; chmod 644 %s", rsa, rsa, signer, others, others))
	for _, c := range []struct{ name, change, args, says string }{
		{"no key", "", tag, "usage"},
		{"no tag", "", "--key " + signer, "usage"},
		{"a key that is not there", "", "--key /nowhere " + tag, "toad proof keygen"},
		{"a key of another kind", "", "--key " + rsa + " " + tag, "no ed25519 key"},
		{"a key that others may read", "", "--key " + others + " " + tag, "chmod 600"},
		{"no version", "", "--key " + signer + " latest", "no tag of a release"},
		{"another tag", "", "--key " + signer + " v0.9.2", "calls itself v0.9.1, not v0.9.2"},
		{"a changed file", "echo >>README.md", "--key " + signer + " " + tag, "calls itself v0.9.1-dirty"},
		{"a later commit", "git commit -qam later", "--key " + signer + " " + tag, "calls itself v0.9.1-1-g"},
		{"a tag of which the changelog does not tell", "git tag v0.9.3", "--key " + signer + " v0.9.3", "CHANGELOG.md"},
		{"a binary that calls itself otherwise", "sed -i 's/main.version=/main.other=/' Makefile && git commit -qam odd && git tag -f " + tag,
			"--key " + signer + " " + tag, `calls itself "toad devel"`},
	} {
		sh(t, dir, c.change)
		out, err := try(dir, "scripts/release --arch "+runtime.GOARCH+" "+c.args)
		if err == nil || !strings.Contains(out, c.says) {
			t.Errorf("%s: want %q, have %v:\n%s", c.name, c.says, err, out)
		}
		if have := sh(t, dir, "cat dist/*"); have != "kept\n" {
			t.Errorf("%s: dist holds %q", c.name, have)
		}
	}
}
