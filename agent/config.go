package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"toad/agent/protocol"
	"toad/agent/transport"
	"toad/internal/atomicfile"
)

// Config says to whom a box belongs. It stands in agent.toml, written by toad agent bootstrap, 0600: via may hold a proxy's password.
type Config struct {
	Control string   `toml:"control"`          // https://host:port of the control plane
	Bao     string   `toml:"bao"`              // https://host:port of OpenBao
	EnvID   string   `toml:"env_id"`           // env-<tier>-<nn>
	Box     string   `toml:"box"`              // which of the environment's boxes this is
	Role    string   `toml:"role"`             // of the auth mount, for the first login
	KV      string   `toml:"kv,omitempty"`     // mount of the secrets
	CA      string   `toml:"ca,omitempty"`     // file with the certificates that are trusted in the place of the system's
	Via     string   `toml:"via,omitempty"`    // direct, unix:/path, http://proxy:port, socks5://proxy:port
	Mounts  []string `toml:"mounts,omitempty"` // folders of the host below which a bundle may mount
}

// Folder holds the configuration and the grant, in the user's configuration folder.
type Folder string

// ConfigFile, GrantFile and the folder's other names.
func (f Folder) ConfigFile() string { return filepath.Join(string(f), "agent.toml") }

// GrantFile holds the deploy grant of a box that has no token yet. It is consumed, then removed.
func (f Folder) GrantFile() string { return filepath.Join(string(f), "bootstrap.jwt") }

// ErrNoConfig says that the box belongs to no environment.
var ErrNoConfig = errors.New("this box belongs to no environment; bring it into one with: toad agent bootstrap")

// Load reads the configuration. Whatever keeps it from being right is an error for an operator.
func (f Folder) Load() (Config, error) {
	var c Config
	data, err := os.ReadFile(f.ConfigFile())
	if errors.Is(err, fs.ErrNotExist) {
		return c, ErrNoConfig
	}
	if err != nil {
		return c, err
	}
	d := toml.NewDecoder(strings.NewReader(string(data)))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %w", f.ConfigFile(), err)
	}
	return c, c.Check()
}

// Check refuses what cannot be right.
func (c Config) Check() error {
	if _, err := protocol.ParseEnv(c.EnvID); err != nil {
		return fmt.Errorf("env_id: %w", err)
	}
	if !protocol.ValidBox(c.Box) {
		return fmt.Errorf("box: %.80q is no name; it has 1 to 64 of A-Z, a-z, 0-9, dot, dash and underscore", c.Box)
	}
	if c.Role == "" {
		return errors.New("role is missing; it is the role of the auth mount that the grant is for")
	}
	if _, err := transport.Parse(c.Via); err != nil {
		return fmt.Errorf("via: %w", err)
	}
	for name, address := range map[string]string{"control": c.Control, "bao": c.Bao} {
		if _, err := protocol.ParseAddress(address, c.Plain()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, m := range c.Mounts {
		if !filepath.IsAbs(m) || filepath.Clean(m) != m {
			return fmt.Errorf("mounts: %.80q is not the absolute path of a folder", m)
		}
	}
	return nil
}

// Plain says whether http is allowed: only over a Unix socket of this host.
func (c Config) Plain() bool { return strings.HasPrefix(c.Via, "unix:") }

// Tier is the environment's.
func (c Config) Tier() string {
	tier, _ := protocol.ParseEnv(c.EnvID)
	return tier
}

// Save writes the configuration.
func (f Folder) Save(c Config) error {
	data, err := toml.Marshal(c)
	if err != nil {
		return err
	}
	if err := atomicfile.MkdirAll(string(f), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(f.ConfigFile(), data, 0o600)
}

// Fingerprint tells one configuration from another, the grant and the trusted certificates among it: what ended for good
// is tried again when it changes.
func (f Folder) Fingerprint(c Config) string {
	sum := sha256.New()
	for _, path := range []string{f.ConfigFile(), c.CA, f.GrantFile()} {
		info, err := os.Stat(path)
		if path == "" || err != nil {
			fmt.Fprintln(sum, "none")
			continue
		}
		if path != f.GrantFile() { // of a grant nothing is kept that could be guessed at
			data, err := os.ReadFile(path)
			fmt.Fprintln(sum, string(data), err)
			continue
		}
		fmt.Fprintln(sum, info.Size(), info.ModTime().UnixNano())
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// Grant reads the deploy grant of the first login; "" if there is none. One that others could read is refused.
func (f Folder) Grant() (string, error) {
	info, err := os.Lstat(f.GrantFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("%s is a secret and has mode %v; chmod 600 it, or have a new grant made if others could read it", f.GrantFile(), info.Mode())
	}
	data, err := os.ReadFile(f.GrantFile())
	return strings.TrimSpace(string(data)), err
}

// Consume takes the grant away. Where it cannot be removed it is emptied.
func (f Folder) Consume() error {
	err := atomicfile.Remove(f.GrantFile())
	if err != nil {
		if atomicfile.Write(f.GrantFile(), nil, 0o600) == nil {
			return nil
		}
	}
	return err
}
