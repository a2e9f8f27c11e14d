package alert_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"toad/alert"
)

var began = time.Date(2026, 11, 29, 20, 0, 0, 0, time.UTC)

func anAlert(id string) alert.Alert {
	return alert.Alert{ID: id, Kind: "rolled_back", Severity: alert.Warning, Service: "web", Reason: "it crashed", At: began}
}

// hook is a webhook that answers what it is told to, and keeps what it got.
type hook struct {
	*httptest.Server
	status int
	got    []alert.Alert
}

func newHook(t *testing.T) (*hook, string) {
	h := &hook{status: 200}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var a alert.Alert
		if err := json.Unmarshal(body, &a); err != nil {
			t.Errorf("the webhook got %q", body)
		}
		if h.status == 200 {
			h.got = append(h.got, a)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(h.status)
	}))
	t.Cleanup(h.Close)
	file := filepath.Join(t.TempDir(), "webhook")
	if err := os.WriteFile(file, []byte(h.URL+"/S3NT1NEL\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return h, file
}

func TestAnIncidentIsToldOnceAndOnlyWhenItWasTaken(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "alerts")
	h, file := newHook(t)
	ctx := context.Background()
	for i, want := range []bool{true, false} {
		raised, err := alert.New(dir).Raise(anAlert("web-g7-rolled_back"))
		if err != nil || raised != want {
			t.Fatalf("raise %d: want %v, have %v, %v", i, want, raised, err)
		}
	}
	for _, status := range []int{500, 302} {
		h.status = status
		err := alert.New(dir).Deliver(ctx, alert.Targets{WebhookFile: file})
		if err == nil || strings.Contains(err.Error(), "S3NT1NEL") {
			t.Fatalf("answered %d: %v", status, err)
		}
	}
	h.status = 200
	for range 2 { // each by a spool of its own, as after a restart
		if err := alert.New(dir).Deliver(ctx, alert.Targets{WebhookFile: file}); err != nil {
			t.Fatal(err)
		}
	}
	if len(h.got) != 1 || h.got[0].Reason != "it crashed" {
		t.Errorf("told: %+v", h.got)
	}
	if raised, _ := alert.New(dir).Raise(anAlert("web-g7-rolled_back")); raised {
		t.Error("an incident that was told was raised again")
	}
}

func TestOneTargetDoesNotHoldUpTheOther(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "alerts")
	h, file := newHook(t)
	h.status = 503
	out := filepath.Join(t.TempDir(), "out")
	targets := alert.Targets{WebhookFile: file, Command: []string{"/bin/sh", "-c", "cat >>" + out}}
	s := alert.New(dir)
	if _, err := s.Raise(anAlert("a")); err != nil {
		t.Fatal(err)
	}
	if err := s.Deliver(context.Background(), targets); err == nil {
		t.Error("the webhook did not take it")
	}
	h.status = 200
	if err := s.Deliver(context.Background(), targets); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(out)
	if n := strings.Count(string(data), `"id":"a"`); n != 1 {
		t.Errorf("the command got it %d times", n)
	}
	if n, _ := s.Waiting(); n != 0 || len(h.got) != 1 {
		t.Errorf("%d wait, %d told", n, len(h.got))
	}
}

func TestTheAddressIsInNoError(t *testing.T) {
	dir := t.TempDir()
	s := alert.New(dir)
	if _, err := s.Raise(anAlert("a")); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"http://127.0.0.1:1/S3NT1NEL", "http://S3NT1NEL.invalid/", "S3NT1NEL", "ftp://S3NT1NEL/"} {
		file := filepath.Join(dir, "hook")
		if err := os.WriteFile(file, []byte(address), 0o600); err != nil {
			t.Fatal(err)
		}
		err := s.Deliver(context.Background(), alert.Targets{WebhookFile: file})
		if err == nil || strings.Contains(err.Error(), "S3NT1NEL") {
			t.Errorf("%s: %v", address, err)
		}
	}
	file := filepath.Join(dir, "open")
	if err := os.WriteFile(file, []byte("http://127.0.0.1:1/"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := s.Deliver(context.Background(), alert.Targets{WebhookFile: file}); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
}

func TestACrashLoopIsOneIncident(t *testing.T) {
	s := alert.New(t.TempDir())
	first, err := s.Incident("web.service", began)
	if err != nil {
		t.Fatal(err)
	}
	now := began
	for range 20 {
		now = now.Add(time.Minute)
		if have, _ := s.Incident("web.service", now); !have.Equal(first) {
			t.Fatalf("at %v another incident began", now)
		}
	}
	if have, _ := s.Incident("web.service", now.Add(time.Hour)); have.Equal(first) {
		t.Error("an hour later it is another incident")
	}
}
