package conclavehttp_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/internal/grouptest"
)

// deadlines is a recorder of a stream.
type deadlines struct{ *httptest.ResponseRecorder }

func (*deadlines) SetWriteDeadline(time.Time) error { return nil }
func (*deadlines) SetReadDeadline(time.Time) error  { return nil }

// events is a stream that a browser follows.
type events struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (s *site) events(query string) *events {
	s.t.Helper()
	r, err := http.NewRequestWithContext(grouptest.Bounded(s.t), http.MethodGet, s.url+"events"+query, nil)
	grouptest.Must(s.t, err)
	w, err := s.client.Do(r)
	grouptest.Must(s.t, err)
	s.t.Cleanup(func() { w.Body.Close() })
	if w.StatusCode != http.StatusOK || w.Header.Get("Content-Type") != "text/event-stream" {
		s.t.Fatalf("%s, %v", w.Status, w.Header)
	}
	e := &events{t: s.t, body: w.Body, lines: bufio.NewScanner(w.Body)}
	e.lines.Buffer(nil, 1<<20)
	return e
}

// await blocks until a part with a text comes.
func (e *events) await(id, text string) string {
	e.t.Helper()
	for e.lines.Scan() {
		data, ok := strings.CutPrefix(e.lines.Text(), "data: ")
		if !ok {
			continue
		}
		var part struct{ ID, HTML string }
		grouptest.Must(e.t, json.Unmarshal([]byte(data), &part))
		if part.ID == id && strings.Contains(part.HTML, text) {
			return part.HTML
		}
	}
	e.t.Fatalf("the stream ended before %s contained %q: %v", id, text, e.lines.Err())
	return ""
}

// awaitEnd blocks until the server has ended the stream.
func (e *events) awaitEnd() {
	e.t.Helper()
	for e.lines.Scan() {
	}
}

// What happens in the group shows without a reload, whichever member it happens on.
func TestConsole_Live(t *testing.T) {
	t.Parallel()
	g := grouptest.Start(t, 3)
	leader := g.Leader()
	n, other, third := g.Nodes[leader], g.Nodes[(leader+1)%3], (leader+2)%3
	site := serve(t, n, nil)
	all, searched, explained := site.events(""), site.events("?prefix=orders/"), site.events("?lock=orders/1")
	all.await("members", "member-2")
	grouptest.MustLock(t, n.FencedLock("accounts/1"))
	fence := grouptest.MustLock(t, other.FencedLock("orders/1"))
	all.await("listing", "accounts/1")
	if html := searched.await("listing", "orders/1"); strings.Contains(html, "accounts/1") {
		t.Errorf("a search for orders/ lists\n%s", html)
	}
	explained.await("lock", fence.String())
	waiting := grouptest.StartLock(t, n.FencedLock("orders/1"))
	defer waiting.Cancel()
	explained.await("lock", "Queue: 1 waiting")
	s := grouptest.MustSession(t, other, &conclave.SessionConfig{Name: "forced"})
	grouptest.MustLock(t, s.FencedLock("accounts/2"))
	grouptest.Must(t, n.CloseSession(t.Context(), s.ID()))
	all.await("timeline", "closed by force, held 1")
	g.Kill(third)
	all.await("summary", "0 more may fail")
	site.events("").await("members", "dead")
}

// Two sessions that wait for each other are shown.
func TestConsole_ShowsWaitCycles(t *testing.T) {
	t.Parallel()
	n := grouptest.Alone(t)
	a, b := grouptest.MustSession(t, n, grouptest.Lasting()), grouptest.MustSession(t, n, grouptest.Lasting())
	grouptest.MustLock(t, a.FencedLock("stock/7"))
	grouptest.MustLock(t, b.FencedLock("stock/9"))
	for _, l := range []*conclave.FencedLock{a.FencedLock("stock/9"), b.FencedLock("stock/7")} {
		waiting := grouptest.StartLock(t, l)
		defer waiting.Cancel()
	}
	site := serve(t, n, nil)
	events := site.events("")
	html := events.await("cycles", "Possible deadlocks")
	want(t, html, "stock/7", "stock/9")
}

// A group without a quorum is what a console is for: the parts that ask no other member stay
// live, and the others say why they are not.
func TestConsole_WithoutQuorum(t *testing.T) {
	t.Parallel()
	g := grouptest.Start(t, 3)
	site := serve(t, g.Nodes[0], nil)
	events := site.events("")
	events.await("listing", "None")
	g.Kill(1, 2)
	events.await("summary", "no command commits")
	site.events("").await("listing", conclave.ErrUnavailable.Error())
	site.events("").await("timeline", "the quorum is lost")
}

// More browsers than MaxStreams are refused, and one that leaves makes room.
func TestConsole_BoundsStreams(t *testing.T) {
	site := serve(t, grouptest.Alone(t), &conclavehttp.ConsoleOptions{MaxStreams: 2})
	first := site.events("")
	first.await("summary", "quorum")
	site.events("").await("summary", "quorum")
	w, _ := site.get("events")
	if w.StatusCode != http.StatusServiceUnavailable || w.Header.Get("Retry-After") == "" {
		t.Fatalf("the third: %s", w.Status)
	}
	want(t, site.page(), "quorum") // a page is no stream
	first.body.Close()
	for w.StatusCode != http.StatusOK {
		grouptest.Pass(time.Millisecond)
		w, _ = site.send(http.MethodHead, "events", "")
	}
}

// Close, and the end of the node, end the streams and with them every goroutine.
func TestConsole_EndsStreams(t *testing.T) {
	for name, end := range map[string]func(*site){
		"Close":         func(s *site) { s.console.Close() },
		"the node ends": func(s *site) { grouptest.Must(t, s.node.Close(context.Background())) },
	} {
		t.Run(name, func(t *testing.T) {
			site := serve(t, grouptest.Alone(t), nil)
			if gathering() {
				t.Fatal("a gatherer runs without a browser")
			}
			var all []*events
			for range 10 {
				all = append(all, site.events(""))
			}
			for _, e := range all {
				e.await("summary", "quorum")
			}
			if !gathering() {
				t.Error("no gatherer runs with browsers")
			}
			end(site)
			for _, e := range all {
				e.awaitEnd()
			}
			for gathering() { // the last stream's handler waits for it, after its answer has ended
				grouptest.Pass(time.Millisecond)
			}
		})
	}
}

// gathering reports whether a goroutine keeps a board up to date.
func gathering() bool {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return strings.Contains(string(stacks), "conclavehttp.(*board).watch") || strings.Contains(string(stacks), "conclavehttp.(*board).readAll")
}

// pipes is a listener of connections without buffers, so that a client that does not read
// blocks the server.
type pipes struct{ accept chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	if c, ok := <-p.accept; ok {
		return local{c}, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

type local struct{ net.Conn }

func (local) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 5000} }

// A browser that does not read is disconnected, and disturbs no other.
func TestConsole_DropsSlowBrowser(t *testing.T) {
	t.Parallel()
	site := serve(t, grouptest.Alone(t), &conclavehttp.ConsoleOptions{MaxStreams: 2})
	listener := pipes{make(chan net.Conn)}
	server := &http.Server{Handler: site.console}
	ended := make(chan struct{})
	go func() { _ = server.Serve(listener); close(ended) }()
	defer func() { close(listener.accept); <-ended; server.Close() }()
	client, conn := net.Pipe()
	defer client.Close()
	listener.accept <- conn
	began := time.Now()
	_, err := io.WriteString(client, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
	grouptest.Must(t, err)
	_, err = client.Read(make([]byte, 1)) // the stream has begun, and its first write waits from here on
	grouptest.Must(t, err)
	other := site.events("")
	other.await("summary", "quorum")
	for dropped := false; !dropped; { // then there is room for another stream
		other.await("chart", "as of") // once a second
		w, _ := site.send(http.MethodHead, "events", "")
		dropped = w.StatusCode == http.StatusOK
	}
	if d := time.Since(began); d < 3*time.Second {
		t.Errorf("dropped after %v", d)
	}
}

// A server that cannot bound its writes gets no stream, and the page works without.
func TestConsole_NoDeadlines(t *testing.T) {
	console := conclavehttp.Console(grouptest.Alone(t), nil)
	r := httptest.NewRequest("GET", "/events", nil)
	r.RemoteAddr, r.Host = "127.0.0.1:5000", "localhost"
	w := httptest.NewRecorder()
	console.ServeHTTP(w, r)
	if w.Code != http.StatusNotImplemented {
		t.Errorf("%d: %s", w.Code, w.Body)
	}
}

// Server.ReadTimeout and WriteTimeout do not end a stream.
func TestConsole_OutlivesServerTimeouts(t *testing.T) {
	t.Parallel()
	console := conclavehttp.Console(grouptest.Alone(t), nil)
	server := httptest.NewUnstartedServer(console)
	server.Config.ReadTimeout, server.Config.WriteTimeout = 5*time.Second, 5*time.Second
	server.Start()
	defer server.Close()
	defer console.Close()
	s := &site{t: t, client: server.Client(), url: server.URL + "/"}
	e := s.events("")
	for began := time.Now(); time.Since(began) < 11*time.Second; {
		e.await("chart", "as of")
	}
}
