//go:build e2e

package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"toad/tests/host"
)

var terminals atomic.Int32

// terminal is a real one, of a size, in which a command runs.
type terminal struct {
	t             *testing.T
	server        string
	columns, rows int
}

// open runs a command line of a shell in a terminal of its own.
func open(t *testing.T, columns, rows int, command string) *terminal {
	t.Helper()
	term := &terminal{t, fmt.Sprintf("toad-%d-%d", os.Getpid(), terminals.Add(1)), columns, rows}
	t.Cleanup(func() { _ = exec.Command("tmux", "-L", term.server, "kill-server").Run() })
	term.tmux("-f", "/dev/null", "new-session", "-d", "-s", "t", "-x", fmt.Sprint(columns), "-y", fmt.Sprint(rows), command)
	return term
}

// toadIn runs toad on a host in a terminal, and tells its exit status when it has ended.
func toadIn(t *testing.T, h *host.Host, columns, rows int, args string) *terminal {
	t.Helper()
	testhost, err := filepath.Abs("../../scripts/testhost")
	if err != nil {
		t.Fatal(err)
	}
	// Ctrl-C goes to all of them: the inner shell outlives it to tell, the outer one to show.
	return open(t, columns, rows, fmt.Sprintf("trap : INT; %s user %s env TERM=$TERM LANG=C.UTF-8 sh -c 'trap : INT; %s; echo \"(exit $?)\"'; exec sleep 600",
		testhost, h.Name, args))
}

func (term *terminal) tmux(args ...string) string {
	term.t.Helper()
	out, err := exec.Command("tmux", append([]string{"-L", term.server}, args...)...).CombinedOutput()
	if err != nil {
		term.t.Fatalf("tmux %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// screen is what the terminal shows, or with "-e" also how.
func (term *terminal) screen(more ...string) string {
	term.t.Helper()
	var lines []string
	for line := range strings.Lines(term.tmux(append([]string{"capture-pane", "-p", "-t", "t"}, more...)...)) {
		lines = append(lines, strings.TrimRight(line, " \n"))
	}
	return strings.TrimRight(strings.Join(lines, "\n"), "\n")
}

// until waits for a screen on which all of this stands.
func (term *terminal) until(wants ...string) string {
	term.t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(100 * time.Millisecond) {
		screen, missing := term.screen(), ""
		for _, want := range wants {
			if !strings.Contains(screen, want) {
				missing = want
			}
		}
		if missing == "" {
			return screen
		}
		if time.Now().After(end) {
			term.t.Fatalf("%q does not come to stand in\n%s", missing, screen)
		}
	}
}

func (term *terminal) keys(keys ...string) {
	term.tmux(append([]string{"send-keys", "-t", "t"}, keys...)...)
}

func TestWhatATerminalShows(t *testing.T) {
	t.Parallel()
	h := bed(t, service{name: "web", port: 8080, stable: "4s"}, service{name: "a-service-with-a-very-long-name-for-a-terminal", port: 8081, stable: "4s"})
	small, large := [2]int{80, 24}, [2]int{200, 50}

	// A deployment, live: the window fills, and nothing of that stays.
	tag := "v2"
	for _, size := range [][2]int{small, large} {
		term := toadIn(t, h, size[0], size[1], "toad deploy web "+tag)
		live := term.until("┄", "of 4s, ", " left")
		t.Logf("%d×%d, on the way:\n%s", size[0], size[1], live)
		last := live[strings.LastIndexByte(live, '\n')+1:]
		if !strings.Contains(last, "of 4s, ") || len([]rune(last)) >= size[0] {
			t.Errorf("the live line is to be the last one, and to leave a column free: %q", last)
		}
		end := term.until("(exit 0)")
		t.Logf("%d×%d, at the end:\n%s", size[0], size[1], end)
		if strings.Contains(end, "┄") || strings.Contains(end, "of 4s, ") || !strings.Contains(end, "web runs sha256:") ||
			!strings.Contains(strings.Join(strings.Fields(end), " "), "it did not serve for ") {
			t.Error("at the end a sentence stands, and nothing of what was live")
		}
		if !strings.Contains(term.screen("-e"), "\x1b[32mready") {
			t.Errorf("no colour:\n%q", term.screen("-e"))
		}
		tag = "v3"
	}

	// Ctrl-C ends the following, not the deployment.
	term := toadIn(t, h, 80, 24, "toad deploy web v4")
	term.until("probation", " left")
	term.keys("C-c")
	t.Logf("80×24, after Ctrl-C:\n%s", term.until("no longer followed; it goes on without this command", "toad log web --follow", "(exit 75)"))

	// The screen of all services, as it changes.
	for _, size := range [][2]int{small, large} {
		term := toadIn(t, h, size[0], size[1], "toad status --watch")
		t.Logf("%d×%d, watched:\n%s", size[0], size[1], term.until("SERVICE", "web", "promoted", "yes"))
		term.keys("C-c")
		term.until("(exit 0)")
	}
	term = toadIn(t, h, 80, 24, "toad deploy web crash")
	t.Logf("80×24, a failure:\n%s", term.until("(exit 3)", "web-g4 was rolled back", "what sha256:"))
	for _, args := range []string{"toad status", "toad status web", "toad log web", "toad diff web", "toad --help"} {
		for _, size := range [][2]int{small, large} {
			t.Logf("%d×%d, %s:\n%s", size[0], size[1], args, toadIn(t, h, size[0], size[1], args).until("(exit 0)"))
		}
	}

	// Colour is never needed, and can be refused.
	term = toadIn(t, h, 80, 24, "env NO_COLOR=1 toad status")
	term.until("(exit 0)", "rolled_back")
	if screen := term.screen("-e"); strings.Contains(screen, "\x1b[") {
		t.Errorf("NO_COLOR is set, and it shows %q", screen)
	}
	completes(t, h)
}

// completes presses Tab in every shell for which there is a completion, on this machine, against the daemon of the host.
func completes(t *testing.T, h *host.Host) {
	bin, err := filepath.Abs(os.Getenv("TOAD_BIN"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := exec.Command("../../scripts/testhost", "pid", h.Name).Output()
	if err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp("", "toad-shells-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) }) // a shell that ends may still write there
	env := fmt.Sprintf("env HOME=%s XDG_CONFIG_HOME=/nonexistent PS1='$ ' LANG=C.UTF-8 PATH=%s:$PATH TOAD_ENDPOINT=unix:///proc/%s/root/run/user/1000/toad/toad.sock ",
		home, filepath.Dir(bin), strings.TrimSpace(string(pid)))
	v2 := h.Digest(t, "v2")
	for shell, start := range map[string][3]string{ // how it is started, what its prompt has, and what is typed first
		"bash": {"bash --norc --noprofile -i", "$", "source <(toad completion bash); clear"},
		"zsh":  {"zsh -f -i", "$", "autoload -Uz compinit; compinit -u -D; source <(toad completion zsh); clear"},
		"fish": {"fish --no-config -i", "#", "set -g fish_autosuggestion_enabled 0; function fish_prompt; echo '$ '; end; toad completion fish | source; clear"},
	} {
		term := open(t, 200, 50, env+start[0])
		term.until(start[1])
		term.keys("-l", start[2]+"; echo re''ady")
		term.keys("Enter")
		term.until("ready")
		for _, c := range [][2]string{ // what is typed before each Tab, and what stands then
			{"toad rollb", "toad rollback "},
			{"toad rollback w", "toad rollback web"},
			{"toad deploy web " + v2[:14], "toad deploy web " + v2},
			{"toad log web-g4", "toad log web-g4"},
			{"toad deploy web --dr", "toad deploy web --dry-run"},
			{"toad enroll --wr", "toad enroll --write"},
		} {
			term.keys("C-u")
			term.keys("-l", c[0])
			term.until("$ " + c[0])
			term.keys("Tab")
			t.Logf("%s: %s<Tab>\n%s", shell, c[0], lastLine(term.until("$ "+strings.TrimSpace(c[1]))))
		}
	}
}

func lastLine(screen string) string { return screen[strings.LastIndexByte(screen, '\n')+1:] }
