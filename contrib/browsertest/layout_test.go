package browsertest

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
)

// everything has the page show all that it can.
func everything() *conclavehttp.ConsoleOptions {
	certificates := func() (time.Time, time.Time) { return time.Now().Add(12 * 24 * time.Hour), time.Now().Add(-time.Hour) }
	return &conclavehttp.ConsoleOptions{
		Authorize: allow, Audit: slog.New(slog.NewTextHandler(io.Discard, nil)), ShowKeys: true, Certificates: certificates,
	}
}

// invoiced has a browser show the lock of the invoices, and the next one acquire it: the last holder is known then.
func (s *scene) invoiced(b *browser) {
	s.t.Helper()
	b.do(chromedp.Navigate(s.url + "?lock=invoices%2F2026-11"))
	b.awaitText("#lock", "Queue: 3 waiting")
	b.await(`document.querySelector('#live').className === 'on'`)
	must(s.t, s.invoices.Unlock(s.t.Context()))
	b.awaitText("#lock", "Queue: 2 waiting")
	b.await(`document.querySelector('#lock').textContent.match(/Last holders\s+Holder[^]*invoice run 2026-11/) !== null`)
}

// faults of a layout: what is wider than the screen, text that is cut at its side or at its box, and text that is hard to read
// on its ground (less than 4.5 to 1, as WCAG 2 asks for).
const faultsOfLayout = `(() => {
  const faults = [], wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) faults.push('the page is ' + wide + ' pixels wider than the screen');
  const rgb = (c) => c.match(/[\d.]+/g).map(Number);
  const luminance = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; } return [255, 255, 255]; };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const text = node.data.trim(), parent = node.parentElement;
    if (text === '' || parent.closest('script') || !parent.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const r of range.getClientRects()) {
      if (r.width === 0) continue;
      if (r.left < -.5 || r.right > innerWidth + .5) faults.push('beyond the screen: ' + text);
      for (let box = parent; box; box = box.parentElement) {
        const b = box.getBoundingClientRect(), clips = getComputedStyle(box).overflow !== 'visible';
        if (clips && (r.right > b.right + .5 || r.bottom > b.bottom + 3 || r.left < b.left - .5)) faults.push('cut: ' + text);
        if (box.matches('section, .tile, header, td') && (r.right > b.right + .5 || r.left < b.left - .5)) faults.push('out of its ' + box.tagName + ': ' + text);
      }
    }
    const [x, y] = [luminance(rgb(getComputedStyle(parent).color)), luminance(ground(parent))].sort((a, b) => b - a);
    if ((x + .05) / (y + .05) < 4.5) faults.push('contrast ' + ((x + .05) / (y + .05)).toFixed(1) + ': ' + text);
  }
  return [...new Set(faults)].join('\n');
})()`

// Every view of the page fits a desktop and a phone, in both themes: nothing is wider than the screen, no text is cut, and each
// is legible.
func TestConsole_Layout(t *testing.T) {
	s := stage(t, everything())
	s.furnish()
	s.invoiced(start(t))
	for _, n := range s.group.Nodes() {
		_, err := n.RWLock("prices", conclave.WithLabel("price list of the shop")).RLock(t.Context())
		must(t, err)
	}
	s.works("warehouse")
	views := map[string]string{ // with what it has when it is complete
		"?": "Waited for, the longest first", "?lock=invoices%2F2026-11": "Queue: 2 waiting", "?lock=stock%2F7": "in a cycle", "?prefix=orders%2F": "orders/1000",
		"?show=semaphores": "render-slots", "?lock=prices&prefix=prices": "by 3 holders", "?show=elections": "foreman", "?show=sessions": "deployer", "?show=checks": "queue depth", "?show=shards": "0–11", "?show=jobs": "no paper",
		"?show=keys": "carts/", "?show=keys&prefix=config%2F": "rollout", "?of=" + s.client.String(): "gates/7",
		"?show=keys&of=" + s.other().Status().ID.String(): "rollout", "?show=semaphores&of=" + s.client.String(): "render-slots",
	}
	for _, width := range []int64{1300, 400} {
		for _, scheme := range []string{"light", "dark"} {
			t.Run(fmt.Sprint(width, " ", scheme), func(t *testing.T) {
				b := start(t)
				b.colours(scheme)
				b.do(chromedp.EmulateViewport(width, 900))
				for view, has := range views { // order: each is loaded by itself
					b.do(chromedp.Navigate(s.url + view))
					b.awaitText("main", has)
					b.awaitText("#cycles", "Possible deadlocks")
					b.await(`document.querySelector('#live').className === 'on'`)
					evaluate[bool](b, `document.querySelectorAll('details').forEach((d) => d.open = true) === undefined`)
					if faults := evaluate[string](b, faultsOfLayout); faults != "" {
						t.Errorf("%s:\n%s", view, faults)
					}
				}
				b.wantNoFaults()
			})
		}
	}
}

// The layout's faults are found.
func TestFaultsOfLayout(t *testing.T) {
	b := start(t)
	for want, body := range map[string]string{
		"":                "<section>fits</section>",
		"wider":           "<section style='width: 5000px'>x</section>",
		"beyond":          "<section style='white-space: nowrap'>" + strings.Repeat("x", 2000) + "</section>",
		"cut: long":       "<p style='width: 3em; overflow: hidden; white-space: nowrap'>long text that does not fit</p>",
		"cut: tall":       "<p style='width: 9em; height: 2em; overflow: hidden'>tall text that does not fit into two lines of so few letters</p>",
		"out of its":      "<section style='width: 3em; white-space: nowrap'>long text that does not fit</section>",
		"contrast 1.0: x": "<section style='color: white'>x</section>",
	} {
		b.do(chromedp.Navigate("data:text/html,<body style='background: white'>" + body))
		if got := evaluate[string](b, faultsOfLayout); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%.50s: %q, want %q", body, got, want)
		}
	}
}
