//go:build e2e

// Package fetched takes from elsewhere what the tests need, once for this machine.
package fetched

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gofrs/flock"
)

// axeVersion is the release of axe-core that judges whether everybody can use the page.
const axeVersion = "4.14.1"

// Axe is the source of axe-core, from the npm registry.
func Axe(t testing.TB) string {
	t.Helper()
	dir := Cached(t, "axe-core-"+axeVersion, func(dir string) [][]string {
		return [][]string{
			{"npm", "pack", "--silent", "--pack-destination", dir, "axe-core@" + axeVersion},
			{"tar", "-C", dir, "--strip-components=1", "-xzf", fmt.Sprintf("%s/axe-core-%s.tgz", dir, axeVersion), "package/axe.min.js", "package/LICENSE"},
		}
	})
	source, err := os.ReadFile(filepath.Join(dir, "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}

// Caddy is the path of Debian's, unpacked and not installed: its package would start a server.
func Caddy(t testing.TB) string {
	t.Helper()
	dir := Cached(t, "caddy", func(dir string) [][]string {
		return [][]string{
			{"sh", "-c", `cd "$0" && { apt-get -qq download caddy || { apt-get -qq update && apt-get -qq download caddy; }; }`, dir},
			{"sh", "-c", `dpkg -x "$0"/caddy_*.deb "$0"`, dir},
		}
	})
	return filepath.Join(dir, "usr/bin/caddy")
}

// Cached makes a folder once for this machine, by commands that fill dir.
func Cached(t testing.TB, name string, commands func(dir string) [][]string) string {
	t.Helper()
	cache := os.Getenv("TOAD_CACHE")
	if cache == "" {
		cache = "/var/cache/toad"
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	lock := flock.New(filepath.Join(cache, name+".lock"))
	if err := lock.Lock(); err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	dir := filepath.Join(cache, name)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	tmp, err := os.MkdirTemp(cache, name+"-*.tmp")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(tmp)
	for _, argv := range commands(tmp) {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
