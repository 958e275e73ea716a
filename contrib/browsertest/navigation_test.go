package browsertest

import (
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/conclave-go/conclave/conclavehttp"
)

// A click at a member, or at a client behind a lock, leads to what it holds, and on to its other holds.
func TestConsole_FromProcessToHolds(t *testing.T) {
	s, b := stage(t, &conclavehttp.ConsoleOptions{ShowKeys: true}), start(t)
	s.lock(s.node, "orders/1", "checkout")
	s.lock(s.other(), "orders/2", "checkout")
	s.keys()
	s.porter()
	b.do(chromedp.Navigate(s.url), chromedp.Click(chromedp.CSS(`#members a[href*="`+s.other().Status().ID.String()+`"]`)))
	b.awaitText("#state h2", "What "+s.other().Status().Name+" holds")
	b.awaitText("#listing", "orders/2")
	b.await(`!document.querySelector("#listing").textContent.includes("orders/1")`)
	b.do(chromedp.Click(chromedp.CSS(`nav a[href*="show=keys"]`)))
	b.awaitText("#listing", "config/rollout")
	b.await(`!document.querySelector("#listing").textContent.includes("config/motd")`)
	b.do(chromedp.Click(chromedp.CSS(`#state h2 a.close`)))
	b.awaitText("#listing", "carts/")
	b.do(chromedp.Navigate(s.url), chromedp.Click(chromedp.CSS(`#listing a[href*="of=`+s.client.String()+`"]`)))
	b.awaitText("#state h2", s.client.String())
	b.awaitText("#listing", "gates/7")
	b.do(chromedp.Click(chromedp.CSS(`nav a[href*="show=semaphores"]`)))
	b.awaitText("#listing", "render-slots")
	b.do(chromedp.Click(chromedp.CSS(`nav a[href*="show=elections"]`)))
	b.awaitText("#listing", "foreman")
	b.wantNoFaults()
}

// Folders of keys lead to the keys in them, and back; a changed value shows without a reload.
func TestConsole_BrowseKeys(t *testing.T) {
	s, b := stage(t, &conclavehttp.ConsoleOptions{ShowKeys: true}), start(t)
	s.keys()
	b.do(chromedp.Navigate(s.url), chromedp.Click(chromedp.CSS(`nav a[href*="show=keys"]`)))
	b.awaitText("#listing", "config/")
	b.do(chromedp.Click(chromedp.CSS(`#listing a[href*="prefix=config"]`)))
	b.awaitText("#listing", "binary 89 50 4e 47")
	b.await(`document.querySelector('#live').className === 'on'`)
	evaluate[bool](b, `window.loaded = true`) // until a reload
	_, err := s.other().KV().Put(t.Context(), "config/motd", []byte("All is <b>well</b>"))
	must(t, err)
	b.awaitText("#listing", "All is <b>well</b>")
	b.await(`window.loaded === true`)
	b.do(chromedp.Click(chromedp.CSS(`#listing a.folder`)))
	b.awaitText("#listing", "config/flags/dark-mode")
	b.do(chromedp.Click(chromedp.CSS(`.path a[href*="prefix=config"]`)))
	b.awaitText("#listing", "config/motd")
	b.do(chromedp.Click(chromedp.CSS(`.path a`)))
	b.awaitText("#listing", "carts/")
	b.wantNoFaults()
}

// The locks that are waited for come first, and one whose wait has ended leaves them without a reload.
func TestConsole_WaitedFirst(t *testing.T) {
	s, b := stage(t, nil), start(t)
	s.awaitLabels()
	first := s.lock(s.node, "z/first", "")
	s.wait(s.other(), "z/first", "")
	s.lock(s.node, "a/second", "")
	s.wait(s.other(), "a/second", "")
	b.do(chromedp.Navigate(s.url))
	b.awaitText("#waiting", "a/second")
	b.await(`[...document.querySelectorAll("#waiting a.name")].map((a) => a.textContent).join() === "z/first,a/second"`)
	must(t, first.Unlock(t.Context()))
	b.await(`[...document.querySelectorAll("#waiting a.name")].map((a) => a.textContent).join() === "a/second"`)
	b.wantNoFaults()
}
