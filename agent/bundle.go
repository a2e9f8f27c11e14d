package agent

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"toad/agent/protocol"
	"toad/probation"
	"toad/quadlet"
)

// What a bundle may be at most.
const (
	maxFiles    = 128
	maxFile     = 64 << 10 // bytes
	maxContent  = 1 << 20  // bytes of all files
	maxServices = 64
	mode        = 0o644 // of every file: there is nothing in a bundle to run, or to hide
)

// ManifestName is the file of a bundle that says what the others are.
const ManifestName = "manifest.json"

// Manifest says what a bundle is for and what it brings.
type Manifest struct {
	Schema    int       `json:"schema"` // 1
	EnvID     string    `json:"env_id"` // env-<tier>-<nn>
	Tier      string    `json:"tier"`
	Created   time.Time `json:"created"` // a bundle that is older than the one in force is a downgrade
	Services  []Service `json:"services"`
	Variables []string  `json:"variables,omitempty"` // that the texts name, as ${NAME}
	Secrets   []string  `json:"secrets,omitempty"`   // that the texts name, as Secret=NAME
}

// Service is one service of a bundle. What it leaves out is as in an enrollment.
type Service struct {
	Name      string   `json:"name"`
	Units     []string `json:"units"`  // .container files of the bundle; the first is the one whose readiness counts
	Image     string   `json:"image"`  // the repository
	Digest    string   `json:"digest"` // sha256:<64 hex>
	Ready     Ready    `json:"ready,omitzero"`
	Probation Limits   `json:"probation,omitzero"`
	// ProgramChange lets the image be another program than any that was in force.
	ProgramChange bool `json:"program_change,omitempty"`
}

// Ready is how readiness is found out; durations as in "500ms".
type Ready struct {
	HTTP     string   `json:"http,omitempty"`
	TCP      string   `json:"tcp,omitempty"`
	Unix     string   `json:"unix,omitempty"`
	Health   bool     `json:"health,omitempty"`
	Notify   bool     `json:"notify,omitempty"`
	Status   int      `json:"status,omitempty"`
	Interval Duration `json:"interval,omitzero"`
	Timeout  Duration `json:"timeout,omitzero"`
}

// Limits bounds a service's probation.
type Limits struct {
	Deadline Duration `json:"deadline,omitzero"`
	Stable   Duration `json:"stable,omitzero"`
	Restarts int      `json:"restarts,omitempty"`
	Pull     Duration `json:"pull,omitzero"`
	Keep     int      `json:"keep,omitempty"`
}

// Duration is written as text, e.g. "10s".
type Duration time.Duration

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.40q is not a duration; write e.g. \"10s\"", text)
	}
	*d = Duration(v)
	return nil
}

// enrollment is what the manifest says of a service, in the words of an enrollment.
func (s Service) enrollment() probation.Enrollment {
	r, l := s.Ready, s.Probation
	e := probation.Enrollment{Name: s.Name, Units: s.Units, Image: s.Image,
		Ready: probation.Ready{HTTP: r.HTTP, TCP: r.TCP, Unix: r.Unix, Health: r.Health, Notify: r.Notify, Status: r.Status,
			Interval: time.Duration(r.Interval), Timeout: time.Duration(r.Timeout)},
		Limit: probation.Limits{Deadline: time.Duration(l.Deadline), Stable: time.Duration(l.Stable), Restarts: l.Restarts,
			Pull: time.Duration(l.Pull), Keep: l.Keep}}
	quadlet.FillDefaults(&e)
	return e
}

// Bundle is a bundle that was read and is whole.
type Bundle struct {
	SHA      string // 64 hex digits, of what it holds
	Manifest Manifest
	Files    map[string][]byte // by name, the manifest among them
}

// fileName is what a file of a bundle may be called: no folder, nothing hidden, no second dot that would make a drop-in
// or a copy of it.
var fileName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,99}\.(container|volume|network)$`)

// SHA is the name of a bundle: the SHA-256 over the sorted lines "<sha256> <mode> <path>", each ended by a newline.
func SHA(files map[string][]byte) string {
	var lines []string
	for name, data := range files {
		sum := sha256.Sum256(data)
		lines = append(lines, fmt.Sprintf("%s %04o %s\n", hex.EncodeToString(sum[:]), mode, name))
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "")))
	return hex.EncodeToString(sum[:])
}

// Read reads a bundle's tar and makes sure that it is the one of that sha. What cannot be one is a *Refusal; the error of
// the reader is returned as it is.
func Read(r io.Reader, sha string) (*Bundle, error) {
	files, err := readTar(r)
	if err != nil {
		return nil, err
	}
	if have := SHA(files); have != sha {
		return nil, refuse(CodeSHA, "", "the tar holds %.12s and was published as %.12s; publish what toad agent bundle made, under the sha it printed", have, sha)
	}
	return open(sha, files)
}

// readTar takes nothing but plain files with names that a bundle's may have.
func readTar(r io.Reader) (map[string][]byte, error) {
	in := &limitedReader{r: io.LimitReader(r, protocol.MaxBundle+1)}
	archive, files, total := tar.NewReader(in), map[string][]byte{}, int64(0)
	for {
		h, err := archive.Next()
		switch {
		case err == io.EOF:
			_, err := io.Copy(io.Discard, in) // what a publisher puts behind the end is not looked at, but it is bounded
			return files, in.cause(err)
		case errors.Is(err, tar.ErrInsecurePath):
			return nil, refuse(CodePath, h.Name, "is no plain name; a bundle has no folders")
		case err != nil:
			if in.err != nil {
				return nil, in.err
			}
			return nil, refuse(CodeSHA, "", "it is no tar: %v; make it with toad agent bundle", err)
		}
		if err := checkHeader(h, files); err != nil {
			return nil, err
		}
		if total += h.Size; h.Size > maxFile || total > maxContent {
			return nil, refuse(CodePath, h.Name, "is too large: a file has at most %d bytes, all of them %d", maxFile, maxContent)
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			if in.err != nil {
				return nil, in.err
			}
			return nil, refuse(CodeSHA, h.Name, "is cut short")
		}
		files[h.Name] = data
	}
}

// limitedReader tells an error of the network from one of the tar.
type limitedReader struct {
	r   io.Reader
	n   int64
	err error
}

func (l *limitedReader) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	if l.n += int64(n); l.n > protocol.MaxBundle {
		err = refuse(CodeSHA, "", "it is larger than %d bytes", protocol.MaxBundle)
	}
	if err != nil && err != io.EOF {
		l.err = err
	}
	return n, err
}

func (l *limitedReader) cause(err error) error {
	if l.err != nil {
		return l.err
	}
	return err
}

func checkHeader(h *tar.Header, files map[string][]byte) error {
	switch {
	case h.Typeflag != tar.TypeReg || h.Linkname != "":
		return refuse(CodePath, h.Name, "is not a plain file; a bundle has no folders, links or devices")
	case h.Name != ManifestName && !fileName.MatchString(h.Name):
		return refuse(CodePath, h.Name, "is not a name that a bundle takes; write NAME.container, NAME.volume or NAME.network, with letters, digits, _ and -, and no folder")
	case h.Name == "toad" || strings.HasPrefix(h.Name, "toad.") || strings.HasPrefix(h.Name, "toad-"):
		return refuse(CodePath, h.Name, "would make a unit of toad's own name")
	case h.Mode != mode:
		return refuse(CodePath, h.Name, "has mode %04o; the files of a bundle have %04o", h.Mode&0o7777, mode)
	case files[h.Name] != nil:
		return refuse(CodePath, h.Name, "is there twice")
	case len(files) == maxFiles:
		return refuse(CodePath, h.Name, "is one file too many; a bundle has at most %d", maxFiles)
	}
	return nil
}

// open reads the manifest and holds the files against it.
func open(sha string, files map[string][]byte) (*Bundle, error) {
	b := &Bundle{SHA: sha, Files: files}
	d := json.NewDecoder(bytes.NewReader(files[ManifestName]))
	d.DisallowUnknownFields()
	if err := d.Decode(&b.Manifest); err != nil {
		return nil, refuse(CodeSHA, ManifestName, "is no manifest: %v", err)
	}
	m := b.Manifest
	tier, err := protocol.ParseEnv(m.EnvID)
	switch {
	case m.Schema != 1:
		return nil, refuse(CodeSHA, ManifestName, "has the schema %d; this toad reads 1", m.Schema)
	case err != nil:
		return nil, refuse(CodeEnvMismatch, ManifestName, "%v", err)
	case m.Tier != tier:
		return nil, refuse(CodeEnvMismatch, ManifestName, "says tier %.40q of %s", m.Tier, m.EnvID)
	case m.Created.IsZero():
		return nil, refuse(CodeSHA, ManifestName, "does not say when it was created")
	case len(m.Services) == 0 || len(m.Services) > maxServices:
		return nil, refuse(CodeSHA, ManifestName, "has %d services; a bundle has 1 to %d", len(m.Services), maxServices)
	}
	return b, b.units()
}

// units makes sure that each .container file belongs to one service.
func (b *Bundle) units() error {
	owner := map[string]string{}
	for _, s := range b.Manifest.Services {
		if err := probation.CheckDigest(s.Digest); err != nil {
			return refuse(CodeSHA, ManifestName, "%s: %v", s.Name, err)
		}
		for _, unit := range s.Units {
			if b.Files[unit] == nil || !strings.HasSuffix(unit, ".container") {
				return refuse(CodePath, ManifestName, "%s: %.100q is no .container file of the bundle", s.Name, unit)
			}
			if owner[unit] != "" {
				return refuse(CodePath, unit, "belongs to %s and to %s", owner[unit], s.Name)
			}
			owner[unit] = s.Name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		if strings.HasSuffix(name, ".container") && owner[name] == "" {
			return refuse(CodePath, name, "belongs to no service of the manifest, and would be loaded all the same")
		}
	}
	return nil
}

// Make makes a bundle of a folder: manifest.json and the Quadlet files that stand in it. The manifest gets what can be
// derived: schema, tier, created (now, where it says nothing), and the names of variables and secrets. What a box would
// refuse whoever it is, is refused here.
func Make(dir string, now time.Time) (*Bundle, []byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	files := map[string][]byte{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, nil, refuse(CodePath, e.Name(), "is not a plain file; a bundle has no folders and no links")
		}
		h := &tar.Header{Name: e.Name(), Typeflag: tar.TypeReg, Mode: mode, Size: info.Size()}
		if err := checkHeader(h, files); err != nil {
			return nil, nil, err
		}
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, nil, err
		}
	}
	if files[ManifestName] == nil {
		return nil, nil, fmt.Errorf("%s: %w; it names env_id and services", filepath.Join(dir, ManifestName), fs.ErrNotExist)
	}
	if err := complete(files, now); err != nil {
		return nil, nil, err
	}
	sha := SHA(files)
	data := pack(files)
	b, err := Read(bytes.NewReader(data), sha) // by the very rules of the one who gets it
	if err != nil {
		return nil, nil, err
	}
	return b, data, b.checkTexts()
}

// complete writes into the manifest what can be derived.
func complete(files map[string][]byte, now time.Time) error {
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(files[ManifestName]))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return refuse(CodeSHA, ManifestName, "is no manifest: %v", err)
	}
	if m.Schema == 0 {
		m.Schema = 1
	}
	if m.Created.IsZero() {
		m.Created = now.UTC().Truncate(time.Second)
	}
	if tier, err := protocol.ParseEnv(m.EnvID); err == nil && m.Tier == "" {
		m.Tier = tier
	}
	variables, secrets := map[string]bool{}, map[string]bool{}
	for name, text := range files {
		if name == ManifestName {
			continue
		}
		for _, v := range variable.FindAllSubmatch(text, -1) {
			if !given[string(v[1])] {
				variables[string(v[1])] = true
			}
		}
		for _, s := range secretLine.FindAllSubmatch(text, -1) {
			secrets[string(s[2])] = true
		}
	}
	m.Variables, m.Secrets = slices.Sorted(maps.Keys(variables)), slices.Sorted(maps.Keys(secrets))
	data, err := json.MarshalIndent(m, "", "  ")
	files[ManifestName] = append(data, '\n')
	return err
}

// pack makes the same tar of the same files, always.
func pack(files map[string][]byte) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(files[name])), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(h); err != nil {
			panic(err) // names and sizes were looked at
		}
		if _, err := w.Write(files[name]); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return out.Bytes()
}
