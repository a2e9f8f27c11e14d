package proof

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

func TestCandidates(t *testing.T) {
	tests := []struct {
		name string
		c    Config
		want []string
	}{
		{"absolute", Config{Entrypoint: []string{"/app/web"}, Cmd: []string{"serve"}}, []string{"/app/web"}},
		{"by the command alone", Config{Cmd: []string{"/web"}}, []string{"/web"}},
		{"not clean", Config{Cmd: []string{"//app/../web"}}, []string{"/web"}},
		{"relative", Config{Cmd: []string{"./web"}, WorkingDir: "/srv"}, []string{"/srv/web"}},
		{"relative without a folder", Config{Cmd: []string{"bin/web"}}, []string{"/bin/web"}},
		{"in its PATH", Config{Cmd: []string{"web"}, Path: "/opt/bin:/bin"}, []string{"/opt/bin/web", "/bin/web"}},
		{"in an odd PATH", Config{Cmd: []string{"web"}, Path: ":.:/bin"}, []string{"/bin/web"}},
		{"shell form", Config{Entrypoint: []string{"/bin/sh", "-c", "/app/web --port 8080"}}, []string{"/app/web"}},
		{"exec in a shell", Config{Entrypoint: []string{"sh", "-c"}, Cmd: []string{"exec /app/web"}}, []string{"/app/web"}},
		{"a real script", Config{Entrypoint: []string{"sh", "-c", "migrate && exec /app/web"}}, nil},
		{"an expansion", Config{Entrypoint: []string{"sh", "-c", "$APP"}}, nil},
		{"a script file", Config{Entrypoint: []string{"sh", "/entry.sh"}}, nil},
		{"behind tini", Config{Entrypoint: []string{"/sbin/tini", "--"}, Cmd: []string{"/app/web"}}, []string{"/app/web"}},
		{"behind tini with flags", Config{Entrypoint: []string{"tini", "-g", "--", "/app/web"}}, []string{"/app/web"}},
		{"behind tini, flags without an end", Config{Entrypoint: []string{"tini", "-p", "SIGTERM", "/app/web"}}, nil},
		{"behind tini, plainly", Config{Entrypoint: []string{"tini", "/app/web"}}, []string{"/app/web"}},
		{"env with a variable", Config{Cmd: []string{"env", "A=b", "/app/web"}}, nil},
		{"nested without an end", Config{Cmd: []string{"exec", "exec", "exec", "exec", "exec", "/a"}}, nil},
		{"nothing", Config{}, nil},
		{"an empty shell", Config{Cmd: []string{"sh", "-c", " "}}, nil},
		{"a dot", Config{Cmd: []string{".."}}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := tt.c.Candidates(); !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFromLabels(t *testing.T) {
	label := func(source, title string) map[string]string {
		return map[string]string{sourceLabel: source, titleLabel: title}
	}
	tests := []struct {
		labels map[string]string
		want   string
	}{
		{nil, ""},
		{label("https://git.example.org/team/shop.git", ""), "label:https://git.example.org/team/shop"},
		{label("https://git.example.org/team/shop/", "web"), "label:https://git.example.org/team/shop#web"},
		{label("https://ci:hunter2@git.example.org/shop", "web"), "label:https://git.example.org/shop#web"},
		{label("", "My shop"), "label:#My shop"},
		{label("\x1b[2J", "\n"), ""},
	}
	for _, tt := range tests {
		if got := FromLabels(tt.labels); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.labels, got, tt.want)
		}
	}
}

func TestFromBinary(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"go.mod":           "module example.org/shop\n\ngo 1.21\n",
		"cmd/web/main.go":  "package main\n\nfunc main() {}\n",
		"cmd/tool/main.go": "package main\n\nfunc main() {}\n",
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tests := []struct {
		name, arch, flags, pkg, want string
	}{
		{"this platform", "amd64", "", "./cmd/web", "go:example.org/shop/cmd/web"},
		{"another program of the module", "amd64", "", "./cmd/tool", "go:example.org/shop/cmd/tool"},
		{"stripped", "amd64", "-s -w", "./cmd/web", "go:example.org/shop/cmd/web"},
		{"another platform", "arm64", "-s -w", "./cmd/web", "go:example.org/shop/cmd/web"},
		{"from a file", "amd64", "", "cmd/web/main.go", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			cmd := exec.Command("go", "build", "-trimpath", "-ldflags", tt.flags, "-o", out, tt.pkg)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+tt.arch, "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			f, err := os.Open(out)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if got := FromBinary(f); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	for _, text := range []string{"", "#!/bin/sh\n", "\x7fELF", string(make([]byte, 1<<16))} {
		if got := FromBinary(bytes.NewReader([]byte(text))); got != "" {
			t.Errorf("%.8q is %q", text, got)
		}
	}
}

func FuzzProgram(f *testing.F) {
	f.Add([]byte("\x7fELF"), "sh -c", "/app/web")
	f.Fuzz(func(t *testing.T, data []byte, entry, cmd string) {
		_ = FromBinary(bytes.NewReader(data))
		for _, p := range (Config{Entrypoint: []string{entry}, Cmd: []string{cmd}}).Candidates() {
			if !filepath.IsAbs(p) || filepath.Clean(p) != p {
				t.Errorf("%q", p)
			}
		}
	})
}
