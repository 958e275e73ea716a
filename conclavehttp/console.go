package conclavehttp

import (
	"cmp"
	"context"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/internal/attempts"
)

// ConsoleOptions configures [Console]. The zero value, like a nil *ConsoleOptions, is a
// console that is read-only and for loopback only.
type ConsoleOptions struct {
	// Authorize decides on each request, of which it gets what the request asks for: each act,
	// and ActView for the page and its streams. It returns the name of the person or program
	// for the audit log, or an error, which refuses the request with the status 403; the
	// client gets the error's text. It is called concurrently, on the request's goroutine, before
	// anything is done: one that blocks delays its request only. One that
	// goes by the client's address has to check r.Host as well: any site can have its name
	// resolve to this machine (DNS rebinding).
	//
	// Default nil: every act is refused, and only loopback clients are served that name a
	// loopback host, and whose request has no header of a proxy. A proxy on the same machine
	// that adds none, speaks HTTP/1.1 and names a loopback host, as nginx may without
	// proxy_set_header, is taken for such a client.
	Authorize func(r *http.Request, act Act) (actor string, err error)
	// Audit gets a record of each act that is asked for, refused ones included, as log lines
	// "console act" with the attributes act, target, actor, group of a session in a further group, remote, result ("refused",
	// "allowed" before it begins, then "done" or "failed") and error. Without it every act is
	// refused, and so it is with a logger that drops the level Info. After 10 refused acts of a remote host, and one more
	// each 10 s, further ones are answered with the status 429 and recorded once; those that Authorize
	// allows are carried out all the same. Views are not recorded. An act
	// waits for its record: while Audit blocks, up to 16 acts wait, and up to 16 refused ones for their answers; further ones are
	// refused, without a record, and nothing else waits.
	Audit *slog.Logger
	// ShowKeys has the page list the group's keys, with the first 200 bytes of each value, to all that may view it. They
	// are the application's data, so by default the page shows their number only.
	ShowKeys bool
	// Certificates returns until when this node's certificate and its chain are valid, and the authorities that it trusts: of each
	// the earliest end, or zero if it is not known. The page shows it, with a warning in the last 30 days. A node cannot know it: it
	// sees a tls.Config only. It is called each 10 s while a browser is connected, and concurrently for further requests, and
	// must not block. Default nil: nothing is shown.
	Certificates func() (certificate, authorities time.Time)
	// MaxStreams is how many browsers may be connected at a time; further ones get the status
	// 503. Default: 256.
	MaxStreams int
}

// Act is what a request asks of a console.
type Act struct {
	Kind    ActKind
	Session conclave.SessionID // with ActCloseSession
	Group   string             // with ActCloseSession: the further group of the session; "": the default one
	Member  conclave.MemberID  // with ActTransferLeadership and ActRemoveMember
}

// ActKind is a kind of Act.
type ActKind int

// The kinds of acts.
const (
	ActView               ActKind = iota + 1 // read the page and its updates
	ActCloseSession                          // Group.CloseSession
	ActTransferLeadership                    // Node.TransferLeadership
	ActRemoveMember                          // Node.RemoveMember
)

// String returns the kind in lower case, as "close-session".
func (k ActKind) String() string {
	names := [ActRemoveMember]string{"view", "close-session", "transfer-leadership", "remove-member"}
	if k >= 1 && k <= ActRemoveMember {
		return names[k-1]
	}
	return "unknown"
}

const (
	defaultStreams = 256
	maxPages       = 64 // requests other than acts and streams that are answered at a time
	maxActs        = 16 // acts that are carried out at a time, and refused ones that are recorded
)

// ConsoleHandler serves the console of a node. It has goroutines only while a browser is
// connected: they end with the last stream, with the node, and with Close.
type ConsoleHandler struct {
	node      *conclave.Node
	opts      ConsoleOptions
	templates *template.Template
	broken    error // the templates are not valid
	crossSite *http.CrossOriginProtection
	board     *board
	reads     *pacer        // of requests
	pages     chan struct{} // holds a value for each request under way, but for acts and streams
	acts      chan struct{} // holds a value for each act under way, which is authorized
	refusals  chan struct{} // holds a value for each refused act that is being recorded
	streams   chan struct{} // holds a value for each stream

	refused attempts.Limiter // acts

	closeOnce sync.Once
	closed    chan struct{}

	mu        sync.Mutex
	connected int       // guarded by mu; streams
	gathering *gatherer // guarded by mu; nil: no stream is connected
}

// Console returns a handler with a page that shows the node's group, live: members, locks
// and what waits for them, semaphores, elections, shards, jobs, sessions, checks, what each member, client and session holds, wait-for
// cycles, what has happened, and the group's settings; with ShowKeys also keys. Of a further group it shows the same, but for the
// members and settings, which are those of the default group; an overview has links to all groups. It serves the page at its root and what the page
// needs below it; [http.StripPrefix] mounts it elsewhere. It redirects to a path with a slash at its
// end. It uses no asset from elsewhere, and no script but its own.
//
// All names in a group are escaped, and what is not printable is shown as a Go escape. Names
// and addresses are shown to every client that may view the page. On a loopback address that
// is every local user; see [ConsoleOptions.Authorize] for anything else. Acts are accepted
// from pages of the same origin only ([http.CrossOriginProtection]).
//
// All browsers share one view of the group, which is taken once a second, and only while a
// browser is connected; each gets what has changed once a second. What they list is read a page of 50 at a time, at most 8 pages a second for all
// of them. If they look at more different pages, each is updated less often. A browser that
// does not take an update within 5 seconds is disconnected, and each after 10 minutes; it
// connects again by itself. The handler needs a server whose writers support
// [http.ResponseController], as those of package net/http do. Without it the page is not live.
//
// A nil node is one that Open has not returned yet: the status is 503.
func Console(node *conclave.Node, opts *ConsoleOptions) *ConsoleHandler {
	return newConsole(node, opts, opts.canAct())
}

// newConsole calls no function of the application.
func newConsole(node *conclave.Node, opts *ConsoleOptions, canAct bool) *ConsoleHandler {
	h := &ConsoleHandler{
		node: node, crossSite: http.NewCrossOriginProtection(), closed: make(chan struct{}),
		reads: newPacer(pageReads), pages: make(chan struct{}, maxPages), acts: make(chan struct{}, maxActs), refusals: make(chan struct{}, maxActs),
	}
	if opts != nil {
		h.opts = *opts
	}
	h.streams = make(chan struct{}, cmp.Or(max(0, h.opts.MaxStreams), defaultStreams))
	h.templates, h.broken = parseTemplates()
	h.board = newBoard(source{node: node, canAct: canAct, certificates: h.opts.Certificates, seen: new(seenHolders)}, h.templates)
	return h
}

// canAct reports whether acts are possible. It asks the handler of Audit, which is the application's.
func (o *ConsoleOptions) canAct() bool {
	return o != nil && o.Authorize != nil && o.Audit != nil && o.Audit.Enabled(context.Background(), slog.LevelInfo)
}

// Close ends all streams, and refuses further requests with the status 503. It does not
// block. [http.Server.Shutdown] waits for streams, so register it:
//
//	server.RegisterOnShutdown(console.Close)
//
// A handler whose node has stopped needs no Close.
func (h *ConsoleHandler) Close() { h.closeOnce.Do(func() { close(h.closed) }) }

// ServeHTTP implements [http.Handler].
func (h *ConsoleHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	hurry(w) // an error may be long as well
	switch {
	case h.node == nil:
		http.Error(w, "the node is not open yet: it waits for its group; its log has the reason", http.StatusServiceUnavailable)
		return
	case h.isClosed():
		http.Error(w, "the console is closed", http.StatusServiceUnavailable)
		return
	case h.broken != nil:
		http.Error(w, h.broken.Error(), http.StatusInternalServerError)
		return
	}
	switch name := strings.TrimPrefix(r.URL.Path, "/"); {
	case name == "" && !inFolder(r):
		toFolder(w, r)
	case name == "act":
		if allowed(w, r, http.MethodPost) {
			h.act(w, r)
		}
	case !allowed(w, r, http.MethodGet, http.MethodHead) || !h.mayView(w, r):
	case name == "events":
		if take(w, h.streams) {
			defer release(h.streams)
			h.stream(w, r)
		}
	case take(w, h.pages):
		defer release(h.pages)
		if name == "" {
			h.page(w, r)
		} else {
			asset(w, r, name)
		}
	}
}

func (h *ConsoleHandler) isClosed() bool {
	select {
	case <-h.closed:
		return true
	default:
		return false
	}
}

// take takes a place, or refuses the request.
func take(w http.ResponseWriter, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
		w.Header().Set("Retry-After", "10")
		http.Error(w, "too many requests to this console, or browsers connected to it: try again later, or close some", http.StatusServiceUnavailable)
		return false
	}
}

func release(places chan struct{}) { <-places }

// hurry bounds how long a client that does not read keeps the place of its request. Where the
// server cannot, its own timeouts count.
func hurry(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
}

func allowed(w http.ResponseWriter, r *http.Request, methods ...string) bool {
	for _, m := range methods {
		if r.Method == m {
			return true
		}
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	return false
}

// inFolder reports whether the page is asked for by a path against which its links resolve,
// whatever prefix was stripped of it.
func inFolder(r *http.Request) bool {
	before, _, _ := strings.Cut(r.RequestURI, "?")
	return r.URL.Path == "/" || strings.HasSuffix(before, "/")
}

// toFolder redirects to the same path with a slash, against which the page's links resolve.
// The part of the path before the handler's prefix is not known, so it is relative.
func toFolder(w http.ResponseWriter, r *http.Request) {
	before, _, _ := strings.Cut(r.RequestURI, "?")
	name, err := url.PathUnescape(path.Base(before))
	if err != nil || strings.Trim(name, "/.") == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Location", "./"+url.PathEscape(name)+"/")
	w.WriteHeader(http.StatusMovedPermanently)
}

// page serves the page, with what it shows at the moment.
func (h *ConsoleHandler) page(w http.ResponseWriter, r *http.Request) {
	v, err := h.viewOf(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	queries := v.queries()
	parts := make([]part, len(queries))
	var reads sync.WaitGroup // together, since a group without a quorum answers none of them
	for i, q := range queries {
		reads.Go(func() {
			p := h.board.cached(q)
			if p == nil {
				p = h.board.read(r.Context(), q, h.reads)
			}
			parts[i] = *p
		})
	}
	reads.Wait()
	local := h.board.local(time.Now(), v.Group) // the latest
	h.render(w, "page", http.StatusOK, pageData{
		view: v, Default: h.node.Status().Group, Owner: ownerOf(h.node, v.Of), CanAct: h.board.canAct, WithKeys: h.opts.ShowKeys, Parts: append(local, parts...),
	})
}
