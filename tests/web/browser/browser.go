//go:build e2e

// Package browser drives a real Chromium, on this machine or in the network of a test host.
package browser

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// Limit is how long one thing asked of a page may take; a busy machine is slow.
const Limit = 60 * time.Second

// Browser is a running Chromium.
type Browser struct {
	ctx context.Context
}

// Options are where it runs. Enter is put in front of its command line; Dial reaches its loopback, if that is not ours.
type Options struct {
	Enter []string
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Args  []string
}

var devtools = regexp.MustCompile(`DevTools listening on ws://([^/]+)(/\S+)`)

// Start starts a Chromium with an empty profile; it ends with the test.
func Start(t testing.TB, o Options) *Browser {
	t.Helper()
	profile, err := os.MkdirTemp("", "toad-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	argv := append(append([]string{}, o.Enter...), "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
		"--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
		"--disable-dev-shm-usage", "--remote-debugging-port=0", "--user-data-dir="+profile)
	cmd := exec.Command(argv[0], append(append(argv[1:], o.Args...), "about:blank")...)
	cmd.Env = append(os.Environ(), "HOME="+profile) // nothing of the user's is read or left
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("chromium: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for end := time.Now().Add(5 * time.Second); os.RemoveAll(profile) != nil && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond) // its children may still write
		}
	})
	address, path := listening(t, stderr)
	if o.Dial != nil {
		address = forward(t, address, o.Dial)
	}
	ctx, cancel := chromedp.NewRemoteAllocator(context.Background(), "ws://"+address+path, chromedp.NoModifyURL)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithBrowserOption(chromedp.WithDialTimeout(Limit)))
	t.Cleanup(cancel)
	if err := chromedp.Run(ctx); err != nil {
		t.Fatalf("chromium: %v", err)
	}
	return &Browser{ctx}
}

// listening waits until the browser says where it can be reached.
func listening(t testing.TB, stderr io.Reader) (address, path string) {
	t.Helper()
	found := make(chan []string, 1)
	go func() {
		lines := bufio.NewScanner(stderr)
		for lines.Scan() {
			if m := devtools.FindStringSubmatch(lines.Text()); m != nil {
				found <- m
			}
		}
		close(found)
	}()
	select {
	case m, ok := <-found:
		if ok {
			return m[1], m[2]
		}
		t.Fatal("chromium ended at once")
	case <-time.After(Limit):
		t.Fatal("chromium does not start")
	}
	return "", ""
}

// forward makes an address of another network reachable here.
func forward(t testing.TB, address string, dial func(ctx context.Context, network, address string) (net.Conn, error)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			here, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer here.Close()
				there, err := dial(context.Background(), "tcp", address)
				if err != nil {
					return
				}
				defer there.Close()
				go func() { _, _ = io.Copy(there, here); _ = there.Close() }()
				_, _ = io.Copy(here, there)
			}()
		}
	}()
	return l.Addr().String()
}

// Page is a tab.
type Page struct {
	t    testing.TB
	ctx  context.Context
	view View
	// Faults are what the browser complained of: errors of scripts, and what the page's policy forbade.
	faults *faults
}

// View is how a page is looked at.
type View struct {
	Width, Height int
	Dark          bool
	Scriptless    bool
}

// Open opens a tab. It is closed with the test.
func (b *Browser) Open(t testing.TB, v View) *Page {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	// The first run makes the tab, which ends with the context that it was given.
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	p := &Page{t: t, ctx: ctx, faults: watch(ctx)}
	p.do(network.Enable(), log.Enable(),
		emulation.SetFocusEmulationEnabled(true)) // else only one tab counts as looked at
	p.Look(v)
	return p
}

// Look changes how the page is looked at: scripts count from the next address on.
func (p *Page) Look(v View) {
	p.t.Helper()
	p.view = v
	scheme := "light"
	if v.Dark {
		scheme = "dark"
	}
	p.do(chromedp.EmulateViewport(int64(v.Width), int64(v.Height)), emulation.SetScriptExecutionDisabled(v.Scriptless),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}))
}

func (p *Page) do(actions ...chromedp.Action) {
	p.t.Helper()
	if err := p.try(actions...); err != nil {
		p.t.Fatal(err)
	}
}

func (p *Page) try(actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(p.ctx, Limit)
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

// Go loads an address.
func (p *Page) Go(url string) {
	p.t.Helper()
	p.do(chromedp.Navigate(url))
}

// Eval runs a script and decodes what it comes to.
func (p *Page) Eval(script string, into any) {
	p.t.Helper()
	p.do(chromedp.Evaluate(script, into))
}

// Await is Eval of a promise.
func (p *Page) Await(script string, into any) {
	p.t.Helper()
	p.do(chromedp.Evaluate(script, into, chromedp.EvalAsValue, awaitPromise))
}

// Until waits until a script says true.
func (p *Page) Until(what, script string) {
	p.t.Helper()
	var have bool
	for end := time.Now().Add(Limit); ; time.Sleep(20 * time.Millisecond) {
		if err := p.try(chromedp.Evaluate(script, &have)); err == nil && have {
			return
		}
		if time.Now().After(end) {
			var text string
			_ = p.try(chromedp.Evaluate("document.body.innerText", &text))
			p.t.Fatalf("the page does not show %s:\n%.4000s\n%s", what, text, strings.Join(p.Faults(), "\n"))
		}
	}
}

// Text is what a reader sees of an element.
func (p *Page) Text(selector string) string {
	p.t.Helper()
	var text string
	p.Eval(fmt.Sprintf("document.querySelector(%q).innerText", selector), &text)
	return text
}

// Click clicks on an element.
func (p *Page) Click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(selector, chromedp.ByQuery))
}

// Press sends a key to the page.
func (p *Page) Press(key string) {
	p.t.Helper()
	p.do(chromedp.KeyEvent(key))
}

// Shot keeps a picture of the whole page in the folder TOAD_SHOTS, or where temporary files lie.
func (p *Page) Shot(name string) {
	p.t.Helper()
	dir := os.Getenv("TOAD_SHOTS")
	if dir == "" {
		dir = filepath.Join(os.TempDir(), "toad-shots")
	}
	var height int64
	// Of a page that stands still Chromium may wait for the next frame for ever.
	p.Eval(`(() => {
		let n = 0;
		const t = setInterval(() => { document.body.style.opacity = n++ % 2 && n < 100 ? "0.999" : "1"; if (n > 100) clearInterval(t); }, 50);
		return document.documentElement.scrollHeight;
	})()`, &height)
	var png []byte
	ctx, cancel := context.WithTimeout(p.ctx, Limit/2)
	defer cancel()
	err := chromedp.Run(ctx, chromedp.EmulateViewport(int64(p.view.Width), max(height, int64(p.view.Height)+1)), chromedp.CaptureScreenshot(&png))
	p.Look(p.view)
	if err == nil {
		err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644))
	}
	if err != nil {
		p.t.Logf("no picture of %s: %v", name, err) // what the page says has been asserted
	}
}

// Leave ends what the page does.
func (p *Page) Leave() {
	p.t.Helper()
	p.Go("about:blank")
}
