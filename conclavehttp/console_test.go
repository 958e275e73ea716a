package conclavehttp_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/cluster"
	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/internal/grouptest"
	"github.com/conclave-go/conclave/internal/wire"
)

// site is a console behind a prefix, on a server.
type site struct {
	t       *testing.T
	node    *conclave.Node
	console *conclavehttp.ConsoleHandler
	client  *http.Client
	url     string // of the page
}

func serve(t *testing.T, n *conclave.Node, opts *conclavehttp.ConsoleOptions) *site {
	t.Helper()
	console := conclavehttp.Console(n, opts)
	mux := http.NewServeMux()
	mux.Handle("/ops/console/", http.StripPrefix("/ops/console", console))
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		console.Close()
		server.Client().CloseIdleConnections()
		server.Close()
	})
	return &site{t: t, node: n, console: console, client: server.Client(), url: server.URL + "/ops/console/"}
}

// get returns the status and the body of an answer.
func (s *site) get(path string, edits ...func(*http.Request)) (*http.Response, string) {
	s.t.Helper()
	return s.send(http.MethodGet, path, "", edits...)
}

func (s *site) send(method, path, form string, edits ...func(*http.Request)) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(form))
	grouptest.Must(s.t, err)
	if form != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for _, edit := range edits {
		edit(r)
	}
	w, err := s.client.Do(r)
	grouptest.Must(s.t, err)
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	grouptest.Must(s.t, err)
	return w, string(body)
}

// page returns the page for some parameters.
func (s *site) page(pairs ...string) string {
	s.t.Helper()
	query := make(url.Values)
	for i := 0; i < len(pairs); i += 2 {
		query.Set(pairs[i], pairs[i+1])
	}
	w, body := s.get("?" + query.Encode())
	if w.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s", w.Status, body)
	}
	return body
}

func want(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in\n%s", p, text)
		}
	}
}

func wantNot(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if strings.Contains(text, p) {
			t.Errorf("%q is in\n%s", p, text)
		}
	}
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

// auditLog collects the records of a console.
type auditLog struct {
	mu    sync.Mutex
	lines strings.Builder // guarded by mu
}

func (a *auditLog) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lines.Write(p)
}

func (a *auditLog) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.lines.String()
}

func (a *auditLog) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "remote" {
			return slog.Attr{}
		}
		return a
	}}))
}

// Each listing shows what the group has.
func TestConsole_Lists(t *testing.T) {
	t.Parallel()
	g := grouptest.Start(t, 3, grouptest.LongElections) // a page without a leader says so after 2 s
	n := g.Nodes[g.Leader()]
	grouptest.Busy(t, n, 1)
	s := grouptest.MustSession(t, n, &conclave.SessionConfig{Name: "importer"})
	fence := grouptest.MustLock(t, s.FencedLock("orders/1", conclave.WithLabel("checkout")))
	waiting := grouptest.StartLock(t, n.FencedLock("orders/1", conclave.WithLabel("late")))
	defer waiting.Cancel()
	grouptest.MustAcquire(t, s.Semaphore("slots", 5), 2)
	grouptest.MustCampaign(t, s.Election("scheduler"), "10.0.0.7:80")
	grouptest.MustCheck(t, n, "disk", 0)
	site := serve(t, n, nil)
	want(t, site.page(), "orders/1", fence.String(), "member-0", "member-1", "member-2", "leader", "alive", "voters",
		"leads, term", "Read-only")
	site.events("").await("summary", "1 waiting")
	want(t, site.page("show", "semaphores"), "slots", ">5<", ">3<", ", numbers 0 1<")
	want(t, site.page("show", "elections"), "scheduler", "10.0.0.7:80")
	want(t, site.page("show", "sessions"), "importer", s.ID().String())
	want(t, site.page("show", "checks"), "disk", "gossip", "passing")
	want(t, site.page("lock", "orders/1"), "Queue: 1 waiting", s.ID().String(), "importer")
	want(t, site.page("lock", "idle"), "free", "No request waits")
	wantNot(t, site.page("show", "sessions"), "<form method=\"post\"")
	site.node = n
	for path, status := range map[string]int{
		"?show=keys": 400, "?lock=" + strings.Repeat("x", 5000): 400, "style.css": 200, "script.js": 200, "icon.svg": 200,
		"page.html": 404, "console.go": 404, "..%2fpage.html": 404, "x": 404, "events?show=x": 400,
	} {
		if w, _ := site.get(path); w.StatusCode != status {
			t.Errorf("%s: %s", path, w.Status)
		}
	}
}

// The members' builds are shown, as text: each process states its own, and its priority as a leader if that is not the default.
func TestConsole_Builds(t *testing.T) {
	t.Parallel()
	builds := []string{"v0.1.0", "<i>v0.2.0</i>", "v0.3.0\x1b[31m"}
	g := grouptest.Start(t, 3, grouptest.Edit(func(i int, c *conclave.Config, s *cluster.Seams) { s.Build, c.LeaderPriority = builds[i], -7*i }))
	site := serve(t, g.Nodes[0], nil)
	site.events("").await("members", "&lt;i&gt;v0.2.0&lt;/i&gt;")
	site.events("").await("members", "priority -7<")
	body := site.page()
	want(t, body, ">v0.1.0<", "&lt;i&gt;v0.2.0&lt;/i&gt;", "not heard yet", fmt.Sprintf("feature level %d", wire.FeatureLevel))
	wantNot(t, body, "<i>v0.2.0", "v0.3.0")
}

// Names that applications choose are shown as text, whatever they are.
func TestConsole_EscapesHostileNames(t *testing.T) {
	t.Parallel()
	hostile := map[string]string{
		"<script>alert(1)</script>":              "&lt;script&gt;alert(1)&lt;/script&gt;",
		`"><img src=x onerror=alert(1)>`:         "&#34;&gt;&lt;img src=x onerror=alert(1)&gt;",
		"a\u202egpj.exe":                         `a\u202egpj.exe`,
		"line\nbreak\r\n\t.":                     `line\nbreak\r\n\t.`,
		"zero\u200bwidth\ufeff":                  `zero\u200bwidth\ufeff`,
		" at both ends ":                         `\x20at both ends\x20`,
		`back\slash`:                             `back\\slash`,
		"{{.Secret}} javascript:alert(1)":        "{{.Secret}} javascript:alert(1)",
		"z" + strings.Repeat("長", 170):           "z" + strings.Repeat("長", 170),
		"nul-like \x01 and \x7f and \u0085 here": `nul-like \x01 and \x7f and \u0085 here`,
	}
	n := grouptest.Alone(t)
	site := serve(t, n, &conclavehttp.ConsoleOptions{ShowKeys: true})
	for name := range hostile {
		s := grouptest.MustSession(t, n, &conclave.SessionConfig{Name: name, TTL: conclave.NoTTL, NoChecks: true})
		grouptest.MustLock(t, s.FencedLock(name, conclave.WithLabel(name[:min(len(name), 64)])))
		grouptest.MustAcquire(t, s.Semaphore(name, 1), 1)
		grouptest.MustCampaign(t, s.Election(name), name)
		grouptest.MustCheck(t, n, name, 0)
		_, err := n.KV().Acquire(t.Context(), name, []byte(name), s.ID())
		grouptest.Must(t, err)
		waiting := grouptest.StartLock(t, n.FencedLock(name, conclave.WithLabel(name[:min(len(name), 64)])))
		defer waiting.Cancel()
	}
	for name, shown := range hostile {
		for _, body := range []string{
			site.page("prefix", name), site.page("lock", name), site.page("show", "semaphores", "prefix", name),
			site.page("show", "elections", "prefix", name), site.page("show", "sessions"), site.page("show", "checks"),
			site.page("show", "keys", "prefix", name), site.page("show", "keys", "of", n.Status().ID.String(), "prefix", name),
		} {
			want(t, body, shown)
			before, field, _ := strings.Cut(body, `type="search"`) // which has the prefix as it is, and is its own island
			_, behind, _ := strings.Cut(field, ">")
			wantNot(t, before+behind, "<script>alert", "<img", "\u202e", "\u200b", "\x01", "href=\"javascript")
			wantNot(t, body, "<script>alert", "<img")
		}
	}
	// A link to the explanation names the lock exactly.
	want(t, site.page("prefix", "line"), "lock=line%0Abreak%0D%0A%09.")
}

// No page lists everything: each has a cursor of the next.
func TestConsole_Pages(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	s := grouptest.MustSession(t, n, grouptest.Lasting())
	for i := range 120 {
		grouptest.MustLock(t, s.FencedLock(string(rune('a'+i%26))+"/"+strings.Repeat("&", i+1)))
		grouptest.MustCheck(t, n, strings.Repeat("c", i+1), 0)
		grouptest.MustSession(t, n, grouptest.Lasting())
	}
	site := serve(t, n, nil)
	for show, total := range map[string]int{"locks": 120, "sessions": 122, "checks": 121} {
		rows, pages := 0, 0
		for path := "?show=" + show; path != ""; pages++ {
			_, body := site.get(path)
			_, listing, _ := strings.Cut(body, `<div id="listing">`)
			rows += strings.Count(listing, "<tr>") - 1
			_, next, more := strings.Cut(listing, `<a rel="next" href="`)
			if path = ""; more {
				path, _, _ = strings.Cut(next, "#state")
				path = strings.ReplaceAll(path, "&amp;", "&")
			}
		}
		if rows < total-1 || pages != 3 {
			t.Errorf("%s: %d rows on %d pages; want %d on 3", show, rows, pages, total)
		}
	}
	for _, cursor := range []string{"x", "1-2", "0000000000000000", "/", "1-"} {
		want(t, site.page("show", "sessions", "after", cursor), "begin with the first page")
	}
	want(t, site.page("show", "checks", "after", "zz/x"), "begin with the first page")
}

func TestConsole_SecureHeaders(t *testing.T) {
	t.Parallel()
	site := serve(t, grouptest.Alone(t), nil)
	for _, path := range []string{"", "script.js", "missing", "events?show=x"} {
		w, _ := site.get(path)
		for name, value := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store", "Referrer-Policy": "same-origin",
		} {
			if got := w.Header.Get(name); got != value {
				t.Errorf("%q: %s: %q", path, name, got)
			}
		}
		policy := w.Header.Get("Content-Security-Policy")
		want(t, policy, "default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'")
		wantNot(t, policy, "unsafe", "http", "*")
	}
	// The policy permits no script or style within the page.
	body := site.page("lock", "x", "show", "sessions")
	wantNot(t, body, "<style", " style=", " onclick", " onload", "http://", "https://")
	if strings.Count(body, "<script") != 1 {
		t.Errorf("scripts in the page:\n%s", body)
	}
}

// The page's links resolve against a path with a slash at its end.
func TestConsole_RedirectsToFolder(t *testing.T) {
	console := conclavehttp.Console(grouptest.Alone(t), nil)
	h := http.StripPrefix("/ops/console", console)
	slashed := httptest.NewRequest("GET", "/ops/console/", nil)
	slashed.RemoteAddr, slashed.Host = "127.0.0.1:5000", "localhost"
	for _, prefix := range []string{"/ops/console", "/ops/console/"} {
		w := httptest.NewRecorder()
		if http.StripPrefix(prefix, console).ServeHTTP(w, slashed); w.Code != http.StatusOK {
			t.Errorf("below %s: %d, %q", prefix, w.Code, w.Header().Get("Location"))
		}
	}
	for target, location := range map[string]string{"/ops/console": "./console/", "/ops/console?x=1": "./console/"} {
		w := get(h, "GET", target)
		if w.Code != http.StatusMovedPermanently || w.Header().Get("Location") != location {
			t.Errorf("%s: %d, %q", target, w.Code, w.Header().Get("Location"))
		}
	}
}

func TestConsole_NotOpen(t *testing.T) {
	if w := get(conclavehttp.Console(nil, nil), "GET", "/"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("before Open: %d", w.Code)
	}
	n := grouptest.Alone(t)
	site := serve(t, n, nil)
	grouptest.Must(t, n.Close(t.Context()))
	want(t, site.page(), "node is closed")
	site.console.Close()
	if w, _ := site.get(""); w.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("after Close: %s", w.Status)
	}
}
