// Package host gives a test a Debian host of its own, with systemd, a lingering user toad, rootless
// Podman, the toad binary, and a registry that holds the sample images. It needs root. It fails a
// test where it cannot give a host, and never skips one.
//
// Files of the suites that use it carry the build tag e2e; TOAD_E2E=1 go test -tags e2e ./tests/...
// runs them. TOAD_KEEP=1 leaves the hosts up to be looked at, with scripts/testhost.
package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	UID  = 1000
	Home = "/home/toad"

	// Limit is how long one command inside may take, and one boot.
	Limit = 2 * time.Minute

	path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)

// Options are what differs between hosts; the zero value is the usual one.
type Options struct {
	Net        string // joins the hosts of the same net; alone if empty
	NoToad     bool   // do without the toad binary
	NoRegistry bool   // do without the registry
}

// Host is one running host.
type Host struct {
	Name string
	Root string // its disk, as seen from here; /run and /tmp are not on it

	opts    Options
	pid     string // of its init; another one after every boot
	cgroup  string
	fixture *fixture
	pushed  map[string]Image
}

// Result is what a command left behind.
type Result struct {
	Stdout, Stderr string
	Exit           int // 128+n when signal n ended it
}

var (
	count   atomic.Int32
	sweep   sync.Once
	unnamed = regexp.MustCompile(`[^a-z0-9]+`)
)

// Up boots a host and takes it down when the test ends.
func Up(t testing.TB, opts Options) *Host {
	t.Helper()
	// A run that died left its hosts behind.
	sweep.Do(func() { testhost(t, "sweep") })

	h := &Host{opts: opts, pushed: map[string]Image{}}
	label := unnamed.ReplaceAllString(strings.ToLower(t.Name()), "-")
	h.Name = fmt.Sprintf("t%d-%d-%s", os.Getpid(), count.Add(1), strings.Trim(label[:min(len(label), 30)], "-"))
	args := []string{"up", "--owner", strconv.Itoa(os.Getpid())}
	if opts.Net != "" {
		args = append(args, "--net", opts.Net)
	}
	if !opts.NoRegistry {
		h.fixture = fixtures(t)
		args = append(args, "--files", h.fixture.tree)
	}
	if os.Getenv("TOAD_KEEP") != "1" {
		t.Cleanup(func() { testhost(t, "down", h.Name) })
	}
	testhost(t, append(args, h.Name)...)
	h.Root = testhost(t, "root", h.Name)
	h.cgroup = testhost(t, "cgroup", h.Name)
	h.booted(t)
	if !opts.NoToad {
		h.installToad(t)
	}
	return h
}

func (h *Host) installToad(t testing.TB) {
	t.Helper()
	bin := os.Getenv("TOAD_BIN")
	if bin == "" {
		bin = filepath.Join(repo(t), "bin/toad")
	}
	b, err := os.ReadFile(bin)
	if err != nil {
		t.Fatalf("no toad binary (set TOAD_BIN, or build it): %v", err)
	}
	h.WriteFile(t, "/usr/local/bin/toad", string(b), 0o755)
}

// booted takes note of the new init, and waits for the registry and its proxy.
func (h *Host) booted(t testing.TB) {
	t.Helper()
	h.pid = testhost(t, "pid", h.Name)
	if !h.opts.NoRegistry {
		h.MustExec(t, "systemctl", "start", "registry.service", "registry-proxy.service")
	}
}

// Reboot shuts the host down in order and boots it again.
func (h *Host) Reboot(t testing.TB) { t.Helper(); h.restart(t, "reboot") }

// Crash cuts the power and boots the host again.
func (h *Host) Crash(t testing.TB) { t.Helper(); h.restart(t, "crash") }

// Off cuts the power. What is under Root may then be changed, until Boot.
func (h *Host) Off(t testing.TB) { t.Helper(); testhost(t, "off", h.Name) }

// Boot boots a host that is off.
func (h *Host) Boot(t testing.TB) { t.Helper(); h.restart(t, "boot") }

func (h *Host) restart(t testing.TB, how string) {
	t.Helper()
	testhost(t, how, h.Name)
	h.booted(t)
}

// Pid of the host's init, as numbered out here; another one after every boot.
func (h *Host) Pid() string { return h.pid }

// Exec runs a command as root inside.
func (h *Host) Exec(t testing.TB, argv ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	return finish(ctx, t, h.Command(ctx, t, argv...))
}

// User runs a command as the user toad inside.
func (h *Host) User(t testing.TB, argv ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	defer cancel()
	return finish(ctx, t, h.UserCommand(ctx, t, argv...))
}

// MustExec is Exec for a command that has to succeed; it returns its trimmed output.
func (h *Host) MustExec(t testing.TB, argv ...string) string {
	t.Helper()
	return must(t, h.Exec(t, argv...), argv)
}

// MustUser is User for a command that has to succeed; it returns its trimmed output.
func (h *Host) MustUser(t testing.TB, argv ...string) string {
	t.Helper()
	return must(t, h.User(t, argv...), argv)
}

func must(t testing.TB, r Result, argv []string) string {
	t.Helper()
	if r.Exit != 0 {
		t.Fatalf("%s: exit %d\n%s%s", strings.Join(argv, " "), r.Exit, r.Stdout, r.Stderr)
	}
	return strings.TrimSpace(r.Stdout)
}

// Command prepares a command that runs as root inside, for those who want to start or feed it themselves.
func (h *Host) Command(ctx context.Context, t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	return h.enter(ctx, t, "system.slice/lab-exec.scope",
		append([]string{"setpriv", "--pdeathsig", "KILL", "env", "-i", "-C", "/root",
			"HOME=/root", "USER=root", "LOGNAME=root", "LANG=C.UTF-8", "PATH=" + path}, argv...))
}

// UserCommand is Command for the user toad.
func (h *Host) UserCommand(ctx context.Context, t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	return h.enter(ctx, t, fmt.Sprintf("user.slice/user-%d.slice/session-lab.scope", UID),
		append([]string{"setpriv", "--reuid", "1000", "--regid", "1000", "--init-groups", "--inh-caps=-all",
			"--pdeathsig", "KILL", "env", "-i", "-C", Home,
			"HOME=" + Home, "USER=toad", "LOGNAME=toad", "SHELL=/bin/bash", "LANG=C.UTF-8",
			"PATH=" + Home + "/.local/bin:" + path, "XDG_RUNTIME_DIR=/run/user/1000",
			"DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/1000/bus"}, argv...))
}

// enter is what scripts/testhost does for its exec and user, without a shell: the process is born in
// the host's cgroup and goes from there into its namespaces.
func (h *Host) enter(ctx context.Context, t testing.TB, slice string, argv []string) *exec.Cmd {
	t.Helper()
	dir := filepath.Join(h.cgroup, slice)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cgroup, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-t", h.pid, "-m", "-p", "-C", "-i", "-u", "-n"}
	if _, err := os.Stat("/proc/self/ns/time"); err == nil {
		args = append(args, "-T")
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(append(args, "--"), argv...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(cgroup.Fd())}
	// A process left running inside would else hold the output open for ever.
	cmd.WaitDelay = time.Second
	runtime.AddCleanup(cmd, func(f *os.File) { f.Close() }, cgroup)
	return cmd
}

func finish(ctx context.Context, t testing.TB, cmd *exec.Cmd) Result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s: no end after %s\n%s%s", strings.Join(cmd.Args, " "), Limit, &stdout, &stderr)
	}
	r := Result{Stdout: stdout.String(), Stderr: stderr.String()}
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
	case errors.As(err, &exit):
		r.Exit = exit.ExitCode()
		if ws := exit.Sys().(syscall.WaitStatus); ws.Signaled() {
			r.Exit = 128 + int(ws.Signal())
		}
	default:
		t.Fatalf("%s: %v", strings.Join(cmd.Args, " "), err)
	}
	return r
}

// ReadFile reads a file of the running host; ~/ is toad's home.
func (h *Host) ReadFile(t testing.TB, name string) string {
	t.Helper()
	root, rel := h.inside(t, name)
	defer root.Close()
	b, err := root.ReadFile(rel)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Look is ReadFile for polling: a file that is not there, or not now, is empty. What the host keeps from everybody but toad,
// such as a mount of its own, is read as toad.
func (h *Host) Look(t testing.TB, name string) string {
	t.Helper()
	name = strings.Replace(name, "~/", Home+"/", 1)
	if root, err := os.OpenRoot("/proc/" + h.pid + "/root"); err == nil {
		defer root.Close()
		b, err := root.ReadFile(strings.TrimPrefix(name, "/"))
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return string(b)
		}
	}
	return h.User(t, "cat", name).Stdout
}

// WriteFile writes a file of the running host, and makes the folders it needs. What lies under toad's
// home or runtime folder belongs to toad, all else to root.
func (h *Host) WriteFile(t testing.TB, name, content string, mode os.FileMode) {
	t.Helper()
	root, rel := h.inside(t, name)
	defer root.Close()
	owner := 0
	for _, own := range []string{Home, fmt.Sprintf("/run/user/%d", UID)} {
		if strings.HasPrefix("/"+rel, own+"/") {
			owner = UID
		}
	}
	var missing []string
	for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
		if _, err := root.Stat(dir); err == nil {
			break
		}
		missing = append(missing, dir)
	}
	err := root.MkdirAll(filepath.Dir(rel), 0o755)
	for _, dir := range missing {
		err = errors.Join(err, root.Chown(dir, owner, owner))
	}
	err = errors.Join(err, root.WriteFile(rel, []byte(content), mode), root.Chown(rel, owner, owner), root.Chmod(rel, mode))
	if err != nil {
		t.Fatalf("write %s: %v", name, err)
	}
}

// inside opens the host's own view of its files. It refuses absolute links, which would lead out of it.
func (h *Host) inside(t testing.TB, name string) (*os.Root, string) {
	t.Helper()
	if rest, ok := strings.CutPrefix(name, "~/"); ok {
		name = filepath.Join(Home, rest)
	}
	root, err := os.OpenRoot("/proc/" + h.pid + "/root")
	if err != nil {
		t.Fatalf("host %s: %v", h.Name, err)
	}
	return root, strings.TrimPrefix(filepath.Clean(name), "/")
}

// Pids are the processes of toad's units whose name matches a glob, as numbered out here; those of a unit's container too.
func (h *Host) Pids(t testing.TB, units string) []int {
	t.Helper()
	var files []string
	for _, in := range []string{"", "*"} {
		found, err := filepath.Glob(filepath.Join(h.cgroup, fmt.Sprintf("user.slice/user-%d.slice/user@%d.service/app.slice", UID, UID), units, in, "cgroup.procs"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	var pids []int
	for _, f := range files {
		b, _ := os.ReadFile(f)
		for _, field := range strings.Fields(string(b)) {
			if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// Journal returns the lines of one of toad's units since the last boot, messages only.
func (h *Host) Journal(t testing.TB, unit string) string {
	t.Helper()
	h.Exec(t, "journalctl", "--sync")
	return h.Exec(t, "journalctl", "-b", "-o", "cat", "--no-pager",
		"_SYSTEMD_USER_UNIT="+unit, "+", "USER_UNIT="+unit).Stdout
}

// Show returns one property of one of toad's units.
func (h *Host) Show(t testing.TB, unit, property string) string {
	t.Helper()
	return h.MustUser(t, "systemctl", "--user", "show", "-P", property, unit)
}

// Client speaks HTTP as a process inside would; addresses are IP literals. It makes a new connection
// for every request, which is what a service behind a switch has to bear.
func (h *Host) Client() *http.Client {
	return &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{DialContext: h.Dial, DisableKeepAlives: true},
	}
}

// Get returns the status and body of a GET inside, or 0 and the error's text.
func (h *Host) Get(url string) (int, string) {
	resp, err := h.Client().Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	body.ReadFrom(resp.Body)
	return resp.StatusCode, body.String()
}

// Net is put in front of a command line that is to use the host's network and nothing else of it.
func (h *Host) Net(t testing.TB) []string {
	t.Helper()
	return []string{"nsenter", "-t", h.pid, "-n", "--"}
}

// Dial connects as a process inside would. A Unix socket is reached below /proc/<Pid>/root.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return inNetwork(h, func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, network, address) })
}

// Listen opens a listener inside, so that a test can play a server there. It ends with the test, or with the host.
func (h *Host) Listen(t testing.TB, address string) net.Listener {
	t.Helper()
	l, err := inNetwork(h, func() (net.Listener, error) { return net.Listen("tcp", address) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// inNetwork runs f in the host's network; the socket that it makes stays there.
func inNetwork[T any](h *Host, f func() (T, error)) (made T, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Never unlocked: the thread has moved to the host's network and ends with this goroutine.
		runtime.LockOSThread()
		var ns *os.File
		if ns, err = os.Open("/proc/" + h.pid + "/ns/net"); err != nil {
			return
		}
		defer ns.Close()
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			made, err = f()
		}
	}()
	<-done
	return made, err
}

// Eventually polls until f holds, and fails the test where that takes longer than the deadline.
func Eventually(t testing.TB, what string, deadline time.Duration, f func() bool) {
	t.Helper()
	if !Within(deadline, f) {
		t.Fatalf("not within %s: %s", deadline, what)
	}
}

// Within polls until f holds, and tells whether it did by the deadline. It rests twice as long as f took: commands on a host
// are work for it, and what is waited for needs the processor, too.
func Within(deadline time.Duration, f func() bool) bool {
	for end := time.Now().Add(deadline); ; {
		began := time.Now()
		if f() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(max(50*time.Millisecond, 2*time.Since(began)))
	}
}
