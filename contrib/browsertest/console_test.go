package browsertest

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
)

// A lock, its holder and what waits for it appear without a reload, in a page that complains
// about nothing.
func TestConsole_Live(t *testing.T) {
	s, b := stage(t, nil), start(t)
	s.awaitLabels()
	b.do(chromedp.Navigate(s.url))
	b.awaitText("#live", "live")
	b.awaitText("#listing", "None")
	b.awaitText("#members", conclave.Version())
	b.awaitText("#members", "feature level")
	evaluate[bool](b, `window.loaded = true`) // until a reload

	first := s.lock(s.node, "orders/1", "first")
	b.awaitText("#listing", "first on "+s.node.Status().Name)
	s.wait(s.other(), "orders/1", "second")
	b.awaitText("#summary", "1 waiting")
	must(t, first.Unlock(t.Context()))
	b.awaitText("#listing", "second on "+s.other().Status().Name)
	s.lead(s.other())
	b.awaitText("#timeline", s.other().Status().Name+" leads")
	if !evaluate[bool](b, `window.loaded === true`) {
		t.Error("the page was loaded again")
	}
	b.do(chromedp.Click(chromedp.CSS(`#listing a.name`)))
	b.awaitText("#lock", "held")
	b.awaitText("#lock", "second")
	b.awaitText("#live", "live")
	b.wantNoFaults()
}

// A search lists what begins with a text, and goes on to be live.
func TestConsole_Search(t *testing.T) {
	s, b := stage(t, nil), start(t)
	const hostile = `orders/<script>alert(1)</script>"'&` + "\u202e"
	s.lock(s.node, hostile, "")
	s.lock(s.node, "accounts/1", "")
	b.do(
		chromedp.Navigate(s.url),
		chromedp.SendKeys(chromedp.CSS(`input[type=search]`), "orders/"),
		chromedp.Submit(chromedp.CSS(`input[type=search]`)),
	)
	b.await(`location.search.includes('prefix=orders')`)
	b.awaitText("#listing", `orders/<script>alert(1)</script>"'&\u202e`)
	if text := b.text("#listing"); strings.Contains(text, "accounts") {
		t.Errorf("the search lists %s", text)
	}
	s.lock(s.other(), "orders/later", "")
	b.awaitText("#listing", "orders/later")
	b.wantNoFaults()
}

// On a phone nothing is wider than the screen, whatever names there are. In the dark the page
// is dark.
func TestConsole_PhoneInTheDark(t *testing.T) {
	s, b := stage(t, &conclavehttp.ConsoleOptions{Authorize: allow, Audit: slog.New(slog.NewTextHandler(io.Discard, nil))}), start(t)
	s.furnish()
	long := strings.Repeat("w", 512)
	s.lock(s.node, long, strings.Repeat("l", 60))
	_, err := s.node.NewSession(t.Context(), &conclave.SessionConfig{Name: long})
	must(t, err)
	s.works(strings.Repeat("w", 500))
	const brightness = `getComputedStyle(document.body).backgroundColor.match(/\d+/g).slice(0, 3).reduce((sum, c) => sum + Number(c), 0)`
	b.do(chromedp.EmulateViewport(360, 740, chromedp.EmulateScale(2)))
	for _, path := range []string{"", "?prefix=w", "?lock=" + long, "?show=semaphores", "?show=elections", "?show=sessions", "?show=checks", "?show=shards", "?show=jobs"} {
		b.do(chromedp.Navigate(s.url + path))
		b.awaitText("#live", "live")
		if wide := evaluate[int](b, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
			t.Errorf("%.20s: %d pixels wider than the screen", path, wide)
		}
	}
	b.colours("light")
	if n := evaluate[int](b, brightness); n < 600 {
		t.Errorf("a light page has brightness %d", n)
	}
	b.colours("dark")
	if n := evaluate[int](b, brightness); n > 150 {
		t.Errorf("a dark page has brightness %d", n)
	}
	b.wantNoFaults()
}

func allow(*http.Request, conclavehttp.Act) (string, error) { return "olga", nil }

// record is a log that the server writes and the test reads.
type record struct {
	mu  sync.Mutex
	log bytes.Buffer // guarded by mu
}

func (r *record) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *record) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.String()
}

// An act is refused without authorization and carried out with it; both are recorded.
func TestConsole_Acts(t *testing.T) {
	var operator atomic.Bool
	var audit record
	s := stage(t, &conclavehttp.ConsoleOptions{
		Audit: slog.New(slog.NewTextHandler(&audit, nil)),
		Authorize: func(_ *http.Request, act conclavehttp.Act) (string, error) {
			if act.Kind == conclavehttp.ActView || operator.Load() {
				return "olga", nil
			}
			return "", errors.New("only operators may do this")
		},
	})
	b := start(t)
	session, err := s.other().NewSession(t.Context(), &conclave.SessionConfig{Name: "importer"})
	must(t, err)
	_, err = session.FencedLock("x").Lock(t.Context())
	must(t, err)
	id := session.ID().String()
	closeIt := func() {
		b.do(chromedp.Navigate(s.url + "?lock=x"))
		b.awaitText("#lock", id)
		b.do(chromedp.Click(chromedp.CSS(`#lock summary`)), chromedp.WaitVisible(chromedp.CSS(`#lock form button`)))
		b.awaitText("#summary", "quorum") // updates do not close the form
		b.do(chromedp.Click(chromedp.CSS(`#lock form button`)))
	}
	closeIt()
	b.awaitText("#result", "close-session: refused")
	b.awaitText("main", "only operators may do this")
	if session.Err() != nil {
		t.Fatal("the session has ended")
	}
	b.forget() // the browser logs the status 403
	operator.Store(true)
	closeIt()
	b.awaitText("#result", "close-session: done")
	<-session.Done()
	b.do(chromedp.Navigate(s.url))
	b.awaitText("#timeline", "importer of "+s.other().Status().Name+" closed by force, held 1")
	b.wantNoFaults()
	for _, result := range []string{"result=refused", "result=allowed", "result=done"} {
		if !strings.Contains(audit.String(), result) {
			t.Errorf("the audit log lacks %s:\n%s", result, audit.String())
		}
	}
}

// A part that is not updated, as its form is open, is marked.
func TestConsole_MarksPartInUse(t *testing.T) {
	s, b := stage(t, &conclavehttp.ConsoleOptions{Authorize: allow, Audit: slog.New(slog.NewTextHandler(io.Discard, nil))}), start(t)
	s.work()
	b.do(chromedp.Navigate(s.url + "?show=sessions"))
	b.awaitText("#live", "live")
	b.do(chromedp.Click(chromedp.CSS(`#listing summary`)))
	_, err := s.node.NewSession(t.Context(), &conclave.SessionConfig{Name: "later"})
	must(t, err)
	b.awaitText("#live", "live, but for the part in use")
	b.await(`document.querySelector("#listing").classList.contains("held")`)
	b.do(chromedp.Click(chromedp.CSS(`#listing summary`)))
	b.do(chromedp.Click(chromedp.CSS(`h2`)))
	b.awaitText("#listing", "later")
	b.await(`document.querySelector("#live").textContent === "live" && document.querySelector(".held") === null`)
	b.wantNoFaults()
}

// A connection over which nothing comes any more, as of a node that is paused, is not live.
func TestConsole_SilentConnection(t *testing.T) {
	s, b := stage(t, nil), start(t)
	b.do(chromedp.Navigate(s.url))
	b.awaitText("#live", "live")
	b.await(`document.querySelector("#live").className === "on"`)
	s.silent.Store(true)
	b.awaitText("#live", "not live")
	s.silent.Store(false)
	b.await(`document.querySelector("#live").className === "on"`)
	b.wantNoFaults()
}
