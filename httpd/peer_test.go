package httpd

import (
	"context"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAnotherUserIsRefused(t *testing.T) {
	f := start(t, func(s *Server) { s.allowed = func(uint32) bool { return false } })
	for _, r := range []request{{"GET", "/v1/services", "", nil}, {"POST", "/v1/services/web/deployments", "{}", nil}, {"GET", "/healthz", "", nil}} {
		f.do(r).problem(t, 403, "forbidden")
	}
}

// TestAskAsAnotherUser is the other side of the test below: it runs as nobody.
func TestAskAsAnotherUser(t *testing.T) {
	socket := os.Getenv("TOAD_TEST_SOCKET")
	if socket == "" {
		return // it is started by TestTheKernelTellsWhoAsks alone
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Write([]byte("GET /v1/services HTTP/1.0\r\n\r\n"))
	answer := make([]byte, 1024)
	n, _ := conn.Read(answer)
	t.Logf("ANSWER %s", answer[:n])
}

func TestTheKernelTellsWhoAsks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can start a process of another user")
	}
	f := start(t)
	// The folder and the socket let nobody else near; here they do, so that the look at the peer alone decides.
	exe := filepath.Join(filepath.Dir(f.socket), "test")
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, self, 0o755); err != nil {
		t.Fatal(err)
	}
	for dir := filepath.Dir(f.socket); dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(f.socket, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestAskAsAnotherUser$", "-test.v")
	cmd.Dir, cmd.Env = "/", []string{"TOAD_TEST_SOCKET=" + f.socket}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "403 Forbidden") || !strings.Contains(string(out), "uid 65534 may not use") {
		t.Errorf("want 403, have %s (%v)", out, err)
	}
}

func TestAHostNameMeansNothingOnTheSocket(t *testing.T) {
	f := start(t)
	if r := f.do(request{"GET", "/v1/services", "", http.Header{"Host": {"evil.example"}}}); r.status != 200 {
		t.Errorf("have %d", r.status)
	}
}

func TestAServerAtRestEnds(t *testing.T) {
	f := start(t, func(s *Server) { s.Idle = 100 * time.Millisecond })
	f.deploy(one, "k1").operation(t, http.StatusAccepted)
	_, hangUp := f.events("web-g1", "")
	time.Sleep(300 * time.Millisecond)
	if r := f.get("/healthz"); r.status != 200 {
		t.Errorf("it ended while somebody followed: %d", r.status)
	}
	hangUp()
	select {
	case <-f.ended:
		if err := f.stop(); err != nil {
			t.Error(err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it did not end")
	}
}

func TestAListenerThatFailsEndsServe(t *testing.T) {
	f := start(t)
	server := New(f.server.Options)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := server.Serve(context.Background(), l); err == nil {
		t.Error("want an error")
	}
}
