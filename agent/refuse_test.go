package agent

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"toad/agent/protocol"
	"toad/tests/control"
)

// refusals are a case for each code, and more where a code has many faces. Each changes a box that has converged to one, or
// what is published for it, so that the bundle two is refused.
var refusals = []struct {
	code   Code
	what   string
	change func(l *lab)
	leases int // that it costs
}{
	{CodeSHA, "published under another sha", func(l *lab) {
		_, data := two.make(l.t)
		l.world.Publish(env, strings.Repeat("ab", 32), data)
	}, 0},
	{CodeSHA, "no tar", func(l *lab) { l.world.Publish(env, strings.Repeat("ab", 32), []byte("<html>")) }, 0},
	{CodeSHA, "an unknown key in the manifest", func(l *lab) {
		l.raw(two.with(ManifestName, `{"schema":1,"env_id":"env-dev-01","tier":"dev","created":"2026-12-01T00:00:00Z","more":1,"services":[]}`))
	}, 0},
	{CodeEnvMismatch, "another environment", func(l *lab) { l.publish(two.with(ManifestName, manifest("env-dev-02", day, "web="+digestB))) }, 0},
	{CodeEnvMismatch, "another tier", func(l *lab) {
		b, _ := two.make(l.t)
		l.raw(two.with(ManifestName, strings.Replace(string(b.Files[ManifestName]), `"tier": "dev"`, `"tier": "prod"`, 1)))
	}, 0},
	{CodeUnresolved, "a variable without a value", func(l *lab) {
		l.world.Set(env, func(e *control.Env) { e.Variables = nil })
		l.publish(two)
	}, 0},
	{CodeUnresolved, "a value that ends its line", func(l *lab) {
		l.world.Set(env, func(e *control.Env) { e.Variables = map[string]string{"NAME": "a\nPodmanArgs=--privileged"} })
		l.publish(two)
	}, 0},
	{CodeUnresolved, "a value that is too long", func(l *lab) {
		l.world.Set(env, func(e *control.Env) { e.Variables = map[string]string{"NAME": strings.Repeat("a", longest+1)} })
		l.publish(two)
	}, 0},
	{CodeUnresolved, "a secret that the environment does not have", func(l *lab) {
		l.publish(two.with("web.container", unit("Secret=other,type=env\n")))
	}, 1},
	{CodePath, "a name with a folder", func(l *lab) { l.tarred(tar.Header{Name: "sub/web.container", Mode: mode}) }, 0},
	{CodePrivileged, "PodmanArgs=", func(l *lab) { l.completed(two.with("web.container", unit("PodmanArgs=--privileged\n"))) }, 0},
	{CodeDowngrade, "older than the one in force", func(l *lab) { l.publish(two.with(ManifestName, manifest(env, day.Add(-time.Hour), "web="+digestB))) }, 0},
	{CodeDisk, "no room", func(l *lab) { l.free = 10 << 20; l.publish(two) }, 0},
	{CodeLeaseShape, "a lease like AppRole's", func(l *lab) {
		l.world.Set(env, func(e *control.Env) {
			e.LeaseBody = `{"kind":"approle","env_id":"env-dev-01","role_id":"r","secret_id":"s"}`
		})
		l.publish(two)
	}, 1},
	{CodeTaken, "a unit of the operator's", func(l *lab) { l.taken = []string{"the operator has web.container himself"}; l.publish(two) }, 0},
	{CodeTaken, "a secret of the operator's", func(l *lab) {
		l.foreign["other-v1"] = "his own"
		l.world.PutSecret(env, "other", "another-secret-value")
		l.publish(two.with("web.container", unit("Secret=other,type=env\n")))
	}, 1},
}

// raw publishes what toad agent bundle would not make.
func (l *lab) raw(s source) {
	sha, data := s.raw()
	l.world.Publish(env, sha, data)
}

// completed is raw with the manifest that toad would write.
func (l *lab) completed(s source) {
	files := map[string][]byte{}
	for name, text := range s {
		files[name] = []byte(text)
	}
	if err := complete(files, day); err != nil {
		l.t.Fatal(err)
	}
	l.world.Publish(env, SHA(files), pack(files))
}

// tarred publishes a tar with one more entry.
func (l *lab) tarred(h tar.Header) {
	sha, data := two.raw()
	l.world.Publish(env, sha, withEntry(l.t, data, h, nil))
}

func withEntry(t testing.TB, data []byte, h tar.Header, content []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	r := tar.NewReader(bytes.NewReader(data))
	for {
		each, err := r.Next()
		if err == io.EOF {
			break
		}
		text, _ := io.ReadAll(r)
		if err := errors.Join(err, w.WriteHeader(each), second(w.Write(text))); err != nil {
			t.Fatal(err)
		}
	}
	h.Size = int64(len(content))
	if err := errors.Join(w.WriteHeader(&h), second(w.Write(content)), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func second(_ int, err error) error { return err }

func TestEveryRefusalChangesNothingAndIsReportedOnce(t *testing.T) {
	for _, c := range refusals {
		t.Run(string(c.code)+" "+c.what, func(t *testing.T) {
			t.Parallel()
			l := ready(t)
			leases, logins := len(l.world.Leases(env, "")), len(l.world.Requests("/login"))
			c.change(l)
			in, files := l.saved().InForce, len(l.files)
			for range 2 {
				err := l.must(Refused)
				if err == nil || !strings.Contains(err.Error(), string(c.code)) && !errors.Is(err, protocol.ErrLeaseShape) {
					t.Errorf("it says %v", err)
				}
			}
			if cost := len(l.world.Leases(env, "")) - leases; cost > 2*c.leases || c.leases == 0 && cost > 0 {
				t.Errorf("it cost %d leases", cost)
			}
			if n := len(l.world.Requests("/login")) - logins; c.leases == 0 && n > 0 {
				t.Errorf("it cost %d logins", n)
			}
			if len(l.deploys) != 1 || len(l.files) != files || l.saved().InForce.Plan != in.Plan || !l.running["web.container"] {
				t.Errorf("something was changed: %v, %+v", l.deploys, l.saved())
			}
			r, n := l.reported(), len(l.world.Reports(env, ""))
			if r.Result != protocol.ResultFailed || r.Code != string(c.code) || r.InForce != in.Bundle || n != 2 {
				t.Errorf("%d reports, the last %+v", n, r.Report)
			}
			l.noSecret()
		})
	}
}

func TestEveryCodeHasACase(t *testing.T) {
	for _, code := range Codes {
		has := false
		for _, c := range refusals {
			has = has || c.code == code
		}
		if !has {
			t.Errorf("%s has no case", code)
		}
	}
}

func TestWhatATarOfABundleMayNotHold(t *testing.T) {
	sha, good := two.raw()
	for what, h := range map[string]tar.Header{
		"a folder":                 {Name: "sub/", Typeflag: tar.TypeDir, Mode: 0o755},
		"an absolute name":         {Name: "/web.container", Mode: mode},
		"a way up":                 {Name: "../web.container", Mode: mode},
		"a link":                   {Name: "other.container", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd", Mode: 0o777},
		"a hard link":              {Name: "other.container", Typeflag: tar.TypeLink, Linkname: "web.container", Mode: mode},
		"a device":                 {Name: "other.container", Typeflag: tar.TypeChar, Mode: mode},
		"a pipe":                   {Name: "other.container", Typeflag: tar.TypeFifo, Mode: mode},
		"a hidden file":            {Name: ".web.container", Mode: mode},
		"a copy":                   {Name: "web.bak.container", Mode: mode},
		"a kube file":              {Name: "web.kube", Mode: mode},
		"a pod":                    {Name: "web.pod", Mode: mode},
		"a build":                  {Name: "web.build", Mode: mode},
		"a drop-in":                {Name: "web.container.d/x.conf", Mode: mode},
		"a unit of systemd":        {Name: "web.service", Mode: mode},
		"a template":               {Name: "web@.container", Mode: mode},
		"a name twice":             {Name: "web.container", Mode: mode},
		"a unit of toad's own":     {Name: "toad-tick.container", Mode: mode},
		"a file to run":            {Name: "other.container", Mode: 0o755},
		"a unit without a service": {Name: "other.container", Mode: mode},
	} {
		data := withEntry(t, good, h, nil)
		_, err := Read(bytes.NewReader(data), sha)
		if r := refusalOf(err); r == nil || r.Code != CodePath && !(what == "a unit without a service" && r.Code == CodeSHA) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := Read(bytes.NewReader(good), sha); err == nil {
		t.Error("a manifest without a schema is taken")
	}
}

func TestWhatAUnitOfABundleMayNotSay(t *testing.T) {
	for _, line := range []string{
		"PodmanArgs=--privileged", "GlobalArgs=--root=/", "AddCapability=CAP_SYS_ADMIN", "AddDevice=/dev/kvm", "SecurityLabelDisable=true", "SeccompProfile=unconfined",
		"Unmask=ALL", "Network=host", "Network=ns:/proc/1/ns/net", "Network=container:other", "Network=web.container", "UserNS=host", "UserNS=ns:/x",
		"Volume=%h/.ssh:/ssh", "Volume=other:/data", "Volume=../x:/x", "Volume=/srv/../etc:/x", "Volume=/srv/ok/../../etc:/x",
		"Volume=data.volume:/data:suid", "Mount=type=bind,source=/,target=/x", "Mount=type=devpts,destination=/x", "EnvironmentFile=/etc/shadow", "EnvironmentHost=true", "Rootfs=/", "Pod=a.pod",
		"ServiceName=toad", "ContainerName=other", "Label=io.toad.operation=web-g9", "Label=a=b io.toad.digest=x", "NoNewPrivileges=false", "LogOpt=path=/home/x",
		"LogDriver=k8s-file", "AutoUpdate=registry", "ContainersConfModule=/x", "UIDMap=0:0:1", "SubUIDMap=x", "CgroupsMode=disabled", "Sysctl=kernel.x=1", "Privileged=true",
		"[Service]\nExecStartPre=/bin/sh -c id", "[Service]\nExecStop=/bin/id", "[Service]\nEnvironment=LD_PRELOAD=x", "[Service]\nUser=root", "[Service]\nType=oneshot",
		"[Unit]\nOnFailure=poweroff.target", "[Unit]\nWants=poweroff.target", "[Unit]\nRequires=toad.service", "[Unit]\nConflicts=toad.service", "[Unit]\nBefore=other.service",
		"[Unit]\nDefaultDependencies=no", "[Unit]\nConditionPathExists=", "[Install]\nWantedBy=toad.service", "[Install]\nAlias=dbus.service", "[Quadlet]\nDefaultDependencies=false",
		"[X-Foo]\nA=b", "[Kube]\nYaml=/x", "Environment=TOAD_ADMITTED_web_g1=1",
	} {
		s := two.with("web.container", "[Container]\nImage="+image+"\nVolume=data.volume:/data\n"+line+"\n")
		_, _, err := Make(s.write(t), day)
		if r := refusalOf(err); r == nil || r.Code != CodePrivileged {
			t.Errorf("%q: %v", line, err)
		}
	}
}

func TestMountsBelowWhatTheBoxAllows(t *testing.T) {
	allowed := t.TempDir()
	names := map[string]bool{}
	for value, ok := range map[string]bool{
		allowed + ":/data": true, allowed + "/sub:/data:ro": true, "/etc:/data": false, allowed + "x:/data": false, allowed + "/../..:/data": false, "/data": true, "/:/x": false,
	} {
		err := checkRendered("web.container", []byte("[Container]\nVolume="+value+"\n"), names, []string{allowed})
		if (err == nil) != ok {
			t.Errorf("Volume=%s: %v", value, err)
		}
	}
}

// What a publisher makes is what a box reads, and the same folder always makes the same bundle.
func TestABundleIsMadeAndReadAlike(t *testing.T) {
	b, data := two.make(t)
	again, same := two.make(t)
	if b.SHA != again.SHA || !bytes.Equal(data, same) {
		t.Error("the same folder made another bundle")
	}
	have, err := Read(bytes.NewReader(data), b.SHA)
	if err != nil || have.Manifest.Tier != "dev" || !slices.Equal(have.Manifest.Secrets, []string{"key"}) || !slices.Equal(have.Manifest.Variables, []string{"NAME"}) {
		t.Errorf("%+v, %v", have, err)
	}
	// By the words of the protocol: sha256 over the sorted lines "<sha256> <mode> <path>".
	lines := fmt.Sprintf("%x 0644 b\n", sha256.Sum256([]byte("1"))) + fmt.Sprintf("%x 0644 a\n", sha256.Sum256([]byte("2")))
	if lines[0] > 'c' {
		t.Fatal("the lines are not sorted") // 6b… and d4…
	}
	if sha := SHA(map[string][]byte{"b": []byte("1"), "a": []byte("2")}); sha != fmt.Sprintf("%x", sha256.Sum256([]byte(lines))) {
		t.Errorf("sha %s", sha)
	}
}

func FuzzRead(f *testing.F) {
	_, data := two.raw()
	f.Add(data)
	f.Add([]byte("<html>"))
	f.Add(withEntry(f, data, tar.Header{Name: "../x", Mode: mode}, []byte("x")))
	f.Fuzz(func(t *testing.T, data []byte) {
		files, err := readTar(bytes.NewReader(data))
		if err != nil {
			return
		}
		for name := range files {
			if name != ManifestName && !fileName.MatchString(name) {
				t.Errorf("the name %q is taken", name)
			}
		}
		b, err := open(SHA(files), files)
		if err != nil {
			return
		}
		p, err := b.render(b.values(map[string]string{"NAME": "x"}, "box"), func(string) string { return "1" }, nil)
		if err == nil {
			for _, s := range p.Services {
				for _, text := range s.Enrollment.Definition.Texts {
					for _, word := range []string{"PodmanArgs", "GlobalArgs", "ExecStartPre", "AddCapability"} {
						if strings.Contains(text, "\n"+word+"=") && !strings.Contains(text, "\\\n"+word+"=") {
							t.Errorf("%s= is taken:\n%s", word, text)
						}
					}
				}
			}
		}
	})
}

// What a text of a bundle says is what the checks have seen, with any value of a variable.
func FuzzRender(f *testing.F) {
	f.Add("Environment=NAME=${NAME}\n", "box")
	f.Add("Secret=key,type=env\nExec=a \\\n b\n", "a\nPodmanArgs=x")
	f.Fuzz(func(t *testing.T, more, value string) {
		files := map[string][]byte{"web.container": []byte("[Container]\nImage=" + image + "\n" + more), ManifestName: []byte(manifest(env, day, "web="+digestA))}
		if complete(files, day) != nil {
			return
		}
		b, err := open(SHA(files), files)
		if err != nil {
			t.Fatal(err)
		}
		p, err := b.render(b.values(map[string]string{"NAME": value}, "box"), func(string) string { return "1" }, nil)
		if err != nil {
			if strings.Contains(err.Error(), "s3cret") {
				t.Error("an error repeats a value")
			}
			return
		}
		text := p.Services[0].Enrollment.Definition.Text("web.container")
		if err := checkRendered("web.container", []byte(text), map[string]bool{"web.container": true, "web.service": true}, nil); err != nil {
			t.Errorf("%v\n%s", err, text)
		}
	})
}
