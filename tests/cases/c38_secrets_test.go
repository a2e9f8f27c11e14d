//go:build e2e

package cases

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

// C38: a password of the registry, a token or a value of the environment is in the error of something that failed, and
// travels from there to logs, records and mails.
func TestC38Secrets(t *testing.T) {
	const password, secret, value = "S3NT1NEL-p+w/", "S3NT1NEL-tok", "S3NT1NEL-env"
	basic := base64.StdEncoding.EncodeToString([]byte("rob:" + password))
	sentinels := []string{"S3NT1NEL", basic, strings.TrimRight(basic, "="), base64.StdEncoding.EncodeToString([]byte(password)), url.QueryEscape(password)}

	b := lay(t, scene.Options{Quadlet: strings.Replace(image(host.Proxied+":v1"), "[Container]\n", "[Container]\nEnvironment=DB_PW="+value+"\n", 1)})
	b.WriteFile(t, enrollment, strings.Replace(b.ReadFile(t, enrollment), host.Repository, host.Proxied, 1), 0o644)
	b.WriteFile(t, "~/.config/containers/auth.json", fmt.Sprintf(`{"auths":{"127.0.0.1:5001":{"auth":%q}}}`, basic), 0o600)
	b.WriteFile(t, "~/token.env", "t1."+secret+"\n", 0o600)
	var told strings.Builder
	run := func(argv ...string) host.Result {
		r := b.User(t, argv...)
		fmt.Fprintln(&told, r.Stdout, r.Stderr)
		return r
	}

	argv := watchArgv(b, sentinels[0], basic)
	b.forget(t, "v2")
	for _, arg := range []string{
		"401 WWW-Authenticate=Basic realm=\"{authorization}\"",
		"401 WWW-Authenticate=Bearer realm=\"http://127.0.0.1:5001/token?account=rob&secret=" + url.QueryEscape(password) + "\",service=\"{authorization}\"",
		"403 X-Said={authorization}",
		"302 Location=http://rob:" + url.QueryEscape(password) + "@127.0.0.1:1/",
		"302 Location=http://rob:" + url.QueryEscape(password) + "@127.0.0.1:1/?token={authorization}",
	} {
		b.Fault(t, "status", "/v2/", 0, arg)
		if r := run("toad", "deploy", "web", b.Digest(t, "v2")); r.Exit != 1 && r.Exit != 75 {
			t.Errorf("%s: exit %d\n%s", arg, r.Exit, r.Stderr)
		}
	}
	b.Fault(t, "", "", 0, "")
	if r := run("toad", "deploy", "web", b.Digest(t, "leak")); r.Exit != 3 {
		t.Errorf("leak: exit %d\n%s", r.Exit, r.Stderr)
	}

	// A server that repeats the token, and one that sends it elsewhere.
	stub := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Location", "http://127.0.0.1:9911/?"+r.Header.Get("Authorization"))
		status := http.StatusUnauthorized
		if strings.HasSuffix(r.URL.Path, "/web2") {
			status = http.StatusFound
		}
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"status":%d,"code":"unauthorized","detail":"you sent %s","hint":"not %s"}`, status, r.Header.Get("Authorization"), r.Header.Get("Authorization"))
	})}
	go stub.Serve(b.Listen(t, "127.0.0.1:9911"))
	defer stub.Close()
	for _, argv := range [][]string{{"status", "web"}, {"status", "web2"}, {"deploy", "web", b.Digest(t, "v2")}, {"log", "web", "--json"}, {"rollback", "web"}} {
		run(append([]string{"toad", "--endpoint", "http://127.0.0.1:9911", "--token-file", "/home/toad/token.env"}, argv...)...)
	}
	run("toad", "--endpoint", "http://t1."+secret+"@127.0.0.1:9911", "status")
	run("toad", "--endpoint", "http://127.0.0.1:1", "--token-file", "/home/toad/token.env", "status")

	for _, argv := range [][]string{{"status"}, {"status", "web", "--json"}, {"log", "web"}, {"log", "web-g1", "--json"}, {"doctor"}} {
		run(append([]string{"toad"}, argv...)...)
	}
	b.Quiet(t)
	places := map[string]string{
		"what toad said":    told.String(),
		"toad's journal":    b.MustExec(t, "sh", "-c", "journalctl -b --no-pager -o cat _SYSTEMD_USER_UNIT=toad.service + _COMM=toad"),
		"toad's state":      b.Exec(t, "sh", "-c", "find /home/toad/.local/state/toad -name images -prune -o -type f -print0 | xargs -0 cat").Stdout,
		"a command's words": argv(),
	}
	for place, text := range places {
		for _, s := range sentinels {
			if i := strings.Index(text, s); i >= 0 {
				t.Errorf("%s holds a secret: …%s…", place, text[max(0, i-300):min(len(text), i+60)])
			}
		}
	}
	if !strings.Contains(places["toad's state"], "DB_PW=") || !strings.Contains(told.String(), "you sent Bearer t1.") {
		t.Error("the secrets were never near; the test shows nothing")
	}
	if open := b.MustExec(t, "sh", "-c", "find /home/toad/.local/state/toad -type f -perm /077 ! -path '*/libexec/*'"); open != "" {
		t.Errorf("open to others: %s", open)
	}
}

// watchArgv notes the command lines of toad's own processes that hold one of the words, until it is asked.
func watchArgv(b bed, words ...string) (found func() string) {
	var mu sync.Mutex
	var all strings.Builder
	stop := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
			for _, f := range files {
				line, err := os.ReadFile(f)
				text := strings.ReplaceAll(string(line), "\x00", " ")
				// Podman's own command line is the Quadlet's, with the environment in it; an endpoint is what the user wrote.
				if err != nil || !strings.Contains(text, "toad") || strings.Contains(text, "podman") || strings.Contains(text, "--endpoint") || strings.Contains(text, "conmon") {
					continue
				}
				for _, w := range words {
					if strings.Contains(text, w) {
						mu.Lock()
						all.WriteString(text + "\n")
						mu.Unlock()
					}
				}
			}
		}
	})
	return func() string {
		close(stop)
		done.Wait()
		return all.String()
	}
}
