package browsertest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a tab of a browser.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu     sync.Mutex
	faults []string // guarded by mu; what the browser's console would show as an error
}

// start starts a browser that ends with the test, or skips the test.
func start(t *testing.T) *browser {
	t.Helper()
	path := chromium()
	if path == "" {
		t.Skip("skipped: no Chromium is installed, so the console is not tested in a browser; on Debian: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.WSURLReadTimeout(3*time.Minute))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // it does not run as root otherwise
	}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocator)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		t.Fatalf("starting %s: %v", path, err)
	}
	b.ctx, cancel = context.WithTimeout(ctx, 10*time.Minute) // a limit before would end the browser
	t.Cleanup(cancel)
	return b
}

func chromium() string {
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// listen collects exceptions, errors and violations of the page's policy.
func (b *browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			b.faults = append(b.faults, "a script logged an error")
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			b.faults = append(b.faults, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// wantNoFaults checks what the browser complained about.
func (b *browser) wantNoFaults() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.faults) > 0 {
		b.t.Errorf("the browser complains:\n%s", strings.Join(b.faults, "\n"))
	}
}

// forget drops the complaints so far, which the test has caused on purpose.
func (b *browser) forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults = nil
}

// do takes steps. One whose element an update of the page has replaced, after it was found and before it
// was used, begins again: nothing has happened to the page then.
func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 3*time.Minute)
	defer cancel()
	for _, step := range steps {
		err := chromedp.Do(ctx, step)
		for err != nil && strings.Contains(err.Error(), "Could not find node with given id") {
			err = chromedp.Do(ctx, step)
		}
		if err != nil {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.t.Fatalf("%v\n%s", err, strings.Join(b.faults, "\n"))
		}
	}
}

// await blocks until an expression of JavaScript is true, also across navigations.
func (b *browser) await(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		if is {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			b.t.Fatalf("%s: %v\n%s", expression, err, b.text("body"))
		}
	}
}

// awaitText blocks until an element has a text.
func (b *browser) awaitText(selector, text string) {
	b.t.Helper()
	b.await(`(document.querySelector(` + quote(selector) + `)?.textContent ?? '').includes(` + quote(text) + `)`)
}

func quote(s string) string { return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"` }

func (b *browser) text(selector string) string {
	b.t.Helper()
	return evaluate[string](b, `document.querySelector(`+quote(selector)+`)?.innerText ?? ""`)
}

func evaluate[T any](b *browser, expression string) T {
	b.t.Helper()
	result, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return result
}

// colours has the browser prefer the scheme "light" or "dark".
func (b *browser) colours(scheme string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	must(b.t, err)
}
