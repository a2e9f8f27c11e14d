//go:build e2e

package failure

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"toad/tests/host"
	"toad/tests/scene"
)

// The way back survives what hosts do to images that nothing runs just then, without a registry.
func TestTheWayBackSurvivesAPruneWithoutARegistry(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	w.MustDeploy(t, 0, "v2")
	w.MustDeploy(t, 0, "docker")
	w.Enroll(t, ready, "deadline = \"15s\"\nstable = \"1s\"") // time enough for the prunes
	w.MustDeploy(t, 0, "never", "--detach")
	host.Eventually(t, "the candidate to run", time.Minute, func() bool {
		status, _ := w.Get("http://127.0.0.1:8080/healthz")
		return status == 503
	})
	w.MustExec(t, "systemctl", "stop", "registry.service", "registry-proxy.service")
	w.MustUser(t, "podman", "system", "prune", "-af")
	w.MustUser(t, "podman", "image", "prune", "-af")
	if r := w.User(t, "podman", "image", "exists", strings.TrimPrefix(w.Image(t, "docker").ID, "sha256:")); r.Exit == 0 {
		t.Fatal("the prune has left the image; the test shows nothing")
	}
	if phase := w.WaitPhase(t, "rolled_back", "promoted", "withdrawn", "rollback_failed"); phase != "rolled_back" {
		t.Fatalf("want rolled_back, have %s\n%s", phase, w.Log(t))
	}
	w.MustServe(t, "docker")
	if have := w.ImageID(t); have != w.Image(t, "docker").ID {
		t.Errorf("the running image is %s, want %s", have, w.Image(t, "docker").ID)
	}
	w.Quiet(t)
	w.Untouched(t)

	// Back once more, to a release that has long stopped running, with its image gone.
	w.Enroll(t, ready, limits)
	if r := w.User(t, "toad", "rollback", "web"); r.Exit != 0 {
		t.Fatalf("toad rollback: exit %d\n%s%s\n%s", r.Exit, r.Stdout, r.Stderr, w.Log(t))
	}
	w.MustServe(t, "v2")
	if have := w.ImageID(t); have != w.Image(t, "v2").ID {
		t.Errorf("the running image is %s, want %s", have, w.Image(t, "v2").ID)
	}
	w.Quiet(t)

	// A digest that the registry has deleted is deployed from what is here.
	w.MustExec(t, "systemctl", "start", "registry.service")
	w.MustExec(t, "curl", "-fsS", "--retry", "20", "--retry-connrefused", "-X", "DELETE", "http://127.0.0.1:5000/v2/app/manifests/"+w.Digest(t, "docker"))
	if r := w.User(t, "toad", "rollback", "web"); r.Exit != 0 {
		t.Fatalf("toad rollback: exit %d\n%s%s\n%s", r.Exit, r.Stdout, r.Stderr, w.Log(t))
	}
	w.MustServe(t, "docker")
	w.Quiet(t)
	w.Reboot(t)
	w.Serves(t, "docker")
}

func TestAnAutoUpdateMovesNothing(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits,
		Quadlet: strings.Replace(scene.Quadlet, "Image={image}", "Image="+host.Repository+":moving\nAutoUpdate=registry", 1), Stopped: true})
	w.Push(t, "moving", "good", "v1")
	w.MustUser(t, "systemctl", "--user", "start", "--no-block", "web.service")
	w.Serves(t, "v1")
	w.MustDeploy(t, 0, "v2")
	invocation := w.Invocation(t)
	w.Push(t, "moving", "good", "v9")
	w.MustUser(t, "podman", "auto-update")
	if w.Invocation(t) != invocation {
		t.Error("podman auto-update restarted a pinned unit")
	}
	w.MustServe(t, "v2")
}

// sink is a webhook inside the host.
type sink struct {
	mu     sync.Mutex
	status atomic.Int32
	got    []map[string]any
}

func (s *sink) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var a map[string]any
	_ = json.Unmarshal(body, &a)
	s.mu.Lock()
	defer s.mu.Unlock()
	status := int(s.status.Load())
	if status == 200 {
		s.got = append(s.got, a)
	}
	rw.Header().Set("Location", "/elsewhere")
	rw.WriteHeader(status)
}

// kinds are the kinds of alerts that were taken, in order.
func (s *sink) kinds() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, a := range s.got {
		kind, _ := a["kind"].(string)
		all = append(all, kind)
	}
	return strings.Join(all, " ")
}

func TestAlertsReachAWebhookAndACommandOnce(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits})
	s := &sink{}
	s.status.Store(503)
	server := &http.Server{Handler: s}
	go server.Serve(w.Listen(t, "127.0.0.1:9009"))
	defer server.Close()
	w.WriteFile(t, "~/.config/toad/webhook", "http://127.0.0.1:9009/S3NT1NEL\n", 0o600)
	w.WriteFile(t, "/usr/local/bin/notify", "#!/bin/sh\ncat >> /home/toad/told\necho >> /home/toad/told\n", 0o755)
	enrollment := w.ReadFile(t, "~/.config/toad/enrollment.toml")
	w.WriteFile(t, "~/.config/toad/enrollment.toml", enrollment+"\n[alerts]\nwebhook_file = \"webhook\"\ncommand = [\"/usr/local/bin/notify\"]\n", 0o644)

	w.MustDeploy(t, 3, "crash")
	told := func() string { return w.User(t, "cat", "told").Stdout }
	host.Eventually(t, "the command to be told", time.Minute, func() bool { return strings.Contains(told(), "rolled_back") })
	// The webhook is down. Neither the end of the daemon nor of the delivery loses the alert.
	w.User(t, "systemctl", "--user", "kill", "-s", "KILL", "toad.service", "toad-deliver.service")
	s.status.Store(302)
	time.Sleep(time.Second) // a try that meets a redirect
	s.status.Store(200)
	host.Eventually(t, "the webhook to be told", time.Minute, func() bool { return s.kinds() == "rolled_back" })
	a := s.got[0]
	if a["service"] != "web" || a["candidate"] != w.Digest(t, "crash") || a["in_force"] != w.Digest(t, "v1") || !strings.Contains(a["reason"].(string), "status 2") {
		t.Errorf("the alert: %v", a)
	}
	if n := strings.Count(told(), `"id":`); n != 1 {
		t.Errorf("the command was told %d times:\n%s", n, told())
	}

	// A promoted release that fails later raises one alert, however often it restarts; nothing is rolled back.
	w.MustDeploy(t, 0, "v2")
	invocation := w.Invocation(t)
	for range 3 {
		w.User(t, "podman", "kill", "-s", "KILL", "systemd-web")
		host.Eventually(t, "the unit to restart", time.Minute, func() bool {
			now := w.Invocation(t)
			again := now != invocation && now != ""
			if again {
				invocation = now
			}
			return again
		})
		w.Serves(t, "v2")
	}
	host.Eventually(t, "the webhook to be told of the failure", time.Minute, func() bool { return s.kinds() == "rolled_back failed_after_promotion" })
	w.Quiet(t)
	if have := w.MustExec(t, "sh", "-c", "journalctl --no-pager | grep -c S3NT1NEL || true"); have != "0" {
		t.Errorf("the webhook's address is in the journal, %s times", have)
	}
	if have := w.Exec(t, "grep", "-rl", "S3NT1NEL", host.Home+"/.local/state/toad").Stdout; have != "" {
		t.Errorf("the webhook's address is in %s", have)
	}
}

// What the application logs before it dies is kept, but not what it was given to keep.
func TestLastWordsHoldNoSecret(t *testing.T) {
	t.Parallel()
	w := scene.New(t, scene.Options{Ready: ready, Limits: limits, Files: map[string]string{
		"~/.config/containers/systemd/web.container.d/20-secrets.conf": "[Container]\nEnvironment=DB_PW=S3NT1NEL-env\nEnvironmentFile=%h/web.env\nSecret=apikey,type=env,target=API_KEY\n",
		"~/web.env": "FILE_PW=S3NT1NEL-file\n",
	}, Stopped: true})
	w.MustUser(t, "sh", "-c", "printf S3NT1NEL-store | podman secret create apikey -")
	w.MustUser(t, "systemctl", "--user", "start", "--no-block", "web.service")
	w.Serves(t, "v1")
	w.MustDeploy(t, 3, "leak")
	log := w.MustUser(t, "toad", "log", "web")
	if !strings.Contains(log, "DB_PW=") {
		t.Errorf("the last words are not in the log:\n%s", log)
	}
	if have := w.Exec(t, "grep", "-rl", "S3NT1NEL", host.Home+"/.local/state/toad").Stdout; have != "" {
		t.Errorf("a secret is in %s:\n%s", have, log)
	}
	for _, argv := range [][]string{{"toad", "log", "web"}, {"toad", "status", "web", "--json"}, {"toad", "status"}} {
		if out := w.User(t, argv...); strings.Contains(out.Stdout+out.Stderr, "S3NT1NEL") {
			t.Errorf("%v tells a secret:\n%s", argv, out.Stdout)
		}
	}
	// toad's own lines in the journal; the application's are its own affair.
	if have := w.MustExec(t, "sh", "-c", "journalctl --no-pager -o cat | grep operation= | grep -c S3NT1NEL || true"); have != "0" {
		t.Errorf("toad told a secret to the journal, %s times", have)
	}
}
