//go:build e2e

package scene

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"toad/tests/host"
)

// Artifacts is the repository of what Push pushes.
const Artifacts = "127.0.0.1:5000/tool"

// PlainUnit is the usual web.service of a binary service.
const PlainUnit = `# the operator's unit
[Unit]
Description=web

[Service]
ExecStart=%h/.local/state/toad/live/web
Restart=always
RestartSec=1
TimeoutStopSec=3

[Install]
WantedBy=default.target
`

// Binary is what is enrolled of a binary service.
type Binary struct {
	Host   host.Options
	Faults bool
	Pulled bool   // enrolled with the repository of its artifacts
	More   string // more lines of [service.web]
	Unit   string // text of web.service
	Limits string // lines of [service.web.probation]
	Ready  string // lines of [service.web.ready]
	Before func(*Web)
}

// NewBinary boots a host on which the plain unit web.service runs v1 by the operator's own link.
func NewBinary(t *testing.T, o Binary) *Web {
	t.Helper()
	w := &Web{Host: host.Up(t, o.Host), source: "~/.config/systemd/user/web.service", quadlet: PlainUnit,
		is: "kind = \"binary\"\nunits = [\"web.service\"]\n" + o.More}
	if o.Faults {
		w.Faults(t)
	}
	if o.Unit != "" {
		w.quadlet = o.Unit
	}
	if o.Pulled {
		w.is += "\nimage = \"" + Artifacts + "\""
	}
	w.WriteFile(t, w.source, w.quadlet, 0o644)
	w.Enroll(t, o.Ready, o.Limits)
	w.Put(t, "v1")
	if o.Before != nil {
		o.Before(w)
	}
	w.MustUser(t, "sh", "-c", "mkdir -p .local/state/toad/live && chmod 700 .local/state/toad .local/state/toad/live && ln -s ~/files/v1 .local/state/toad/live/web && systemctl --user daemon-reload && systemctl --user enable --now web.service")
	w.Serves(t, "v1")
	w.MustUser(t, "toad", "setup")
	return w
}

// Program is a file that a binary service can run.
type Program struct {
	Data []byte
	ID   string // its sha256
}

// Program makes the program of a name, always the same: v1, v2 … are good samples, "other" is another program, and else
// the name is the sample's behaviour.
func (w *Web) Program(t *testing.T, name string) Program {
	t.Helper()
	of, behaviour := "sample", name
	switch {
	case name == "other":
		of = "other"
	case name[0] == 'v':
		behaviour = "good"
	}
	data := []byte(w.ReadFile(t, "/usr/local/lib/toad-tests/"+of) + "\n#sample " + name + " " + behaviour + "\n")
	sum := sha256.Sum256(data)
	return Program{data, hex.EncodeToString(sum[:])}
}

// Put lays a program on the host, as ~/files/NAME.
func (w *Web) Put(t *testing.T, name string) Program {
	t.Helper()
	p := w.Program(t, name)
	w.WriteFile(t, "~/files/"+name, string(p.Data), 0o755)
	return p
}

// PushFile makes an artifact of one program, as oras does, and pushes it to the host's registry, under a tag if there is one.
func (w *Web) PushFile(t *testing.T, program, tag string) (digest string) {
	t.Helper()
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), "application/vnd.oci.empty.v1+json")
	img, err := mutate.AppendLayers(img, static.NewLayer(w.Program(t, program).Data, "application/octet-stream"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	refs := []string{Artifacts + "@" + sum.String()}
	if tag != "" {
		refs = append(refs, Artifacts+":"+tag)
	}
	for _, ref := range refs {
		w.push(t, ref, img)
	}
	return sum.String()
}

// Attach stores data beside what has this digest in the host's registry.
func (w *Web) Attach(t *testing.T, repository, digest, artifactType string, data []byte) {
	t.Helper()
	subject, err := name.NewDigest(repository+"@"+digest, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	desc, err := remote.Head(subject, w.way(t)...)
	if err != nil {
		t.Fatal(err)
	}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.MediaType(artifactType))
	if img, err = mutate.AppendLayers(img, static.NewLayer(data, types.MediaType(artifactType))); err != nil {
		t.Fatal(err)
	}
	img = mutate.Subject(img, *desc).(v1.Image)
	sum, err := img.Digest()
	if err != nil {
		t.Fatal(err)
	}
	w.push(t, repository+"@"+sum.String(), img)
}

func (w *Web) push(t *testing.T, ref string, img v1.Image) {
	t.Helper()
	to, err := name.ParseReference(ref, name.Insecure)
	if err == nil {
		err = remote.Write(to, img, w.way(t)...)
	}
	if err != nil {
		t.Fatalf("push %s: %v", ref, err)
	}
}

// way leads to the host's registry.
func (w *Web) way(t *testing.T) []remote.Option {
	return []remote.Option{remote.WithContext(t.Context()), remote.WithTransport(&http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return w.Dial(ctx, network, address)
		}})}
}
