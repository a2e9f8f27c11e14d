//go:build e2e

package browser

import (
	"context"
	"fmt"
	"sync"

	cdpbrowser "github.com/chromedp/cdproto/browser"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// faults gathers what a browser says in its console, and every address that a page asks for.
type faults struct {
	mu    sync.Mutex
	said  []string
	asked []string
}

func watch(ctx context.Context) *faults {
	f := &faults{}
	chromedp.ListenTarget(ctx, func(ev any) {
		f.mu.Lock()
		defer f.mu.Unlock()
		switch ev := ev.(type) {
		case *runtime.EventExceptionThrown:
			f.said = append(f.said, ev.ExceptionDetails.Error())
		case *log.EventEntryAdded:
			if ev.Entry.Level == log.LevelError || ev.Entry.Level == log.LevelWarning {
				f.said = append(f.said, fmt.Sprintf("%s %s", ev.Entry.Text, ev.Entry.URL))
			}
		case *network.EventRequestWillBeSent:
			f.asked = append(f.asked, ev.Request.URL)
		}
	})
	return f
}

func awaitPromise(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }

// Faults are what the browser complained of so far.
func (p *Page) Faults() []string {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	return append([]string(nil), p.faults.said...)
}

// Asked are the addresses that the page asked for so far.
func (p *Page) Asked() []string {
	p.faults.mu.Lock()
	defer p.faults.mu.Unlock()
	return append([]string(nil), p.faults.asked...)
}

// Allow grants the pages of an origin what a person would be asked for.
func (p *Page) Allow(origin string, what ...string) {
	p.t.Helper()
	p.do(chromedp.ActionFunc(func(ctx context.Context) error {
		ctx = cdp.WithExecutor(ctx, chromedp.FromContext(ctx).Browser)
		for _, w := range what {
			set := cdpbrowser.SetPermission(&cdpbrowser.PermissionDescriptor{Name: w}, cdpbrowser.PermissionSettingGranted)
			if err := set.WithOrigin(origin).Do(ctx); err != nil {
				return err
			}
		}
		return nil
	}))
}
