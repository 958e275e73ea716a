package conclavehttp

import (
	"net/http"
	"sync"

	"github.com/conclave-go/conclave"
)

// MuxOptions configures [Mux]. The zero value, like a nil *MuxOptions, serves probes and a console
// that is read-only and for loopback only.
type MuxOptions struct {
	// Metrics is served at /metrics, such as a promhttp.Handler of a registry that has a conclaveprom
	// collector. Default nil: there is no such path.
	Metrics http.Handler
	// Console configures the console. Default nil: read-only and for loopback only.
	Console *ConsoleOptions
}

// Mux returns a handler of all that a node serves to operators:
//
//   - /livez and /readyz, as [HealthFunc]
//   - /metrics, if there are MuxOptions.Metrics
//   - /console/, as [Console]; / leads there
//
// node is called at each request, concurrently, and must not block: it returns nil as long as Open
// has not returned, and may return another node later. So a program listens before it calls
// Open, and an orchestrator sees that it lives:
//
//	var node atomic.Pointer[conclave.Node]
//	handler := conclavehttp.Mux(node.Load, nil)
//	server := &http.Server{Addr: "127.0.0.1:8080", Handler: handler, ReadHeaderTimeout: 10 * time.Second}
//	server.RegisterOnShutdown(handler.Close)
//
// Probes and metrics are not protected: serve them on an address that operators and probes reach only.
func Mux(node func() *conclave.Node, opts *MuxOptions) *MuxHandler {
	h := &MuxHandler{node: node}
	if opts != nil {
		h.opts = *opts
	}
	h.canAct = h.opts.Console.canAct()
	health := HealthFunc(node)
	h.mux.Handle("/livez", health)
	h.mux.Handle("/readyz", health)
	if h.opts.Metrics != nil {
		h.mux.Handle("/metrics", h.opts.Metrics)
	}
	h.mux.Handle("/console/", http.StripPrefix("/console", http.HandlerFunc(h.serveConsole)))
	h.mux.Handle("GET /{$}", http.RedirectHandler("console/", http.StatusFound))
	return h
}

// MuxHandler is the handler that [Mux] returns.
type MuxHandler struct {
	node   func() *conclave.Node
	opts   MuxOptions
	canAct bool // of its consoles
	mux    http.ServeMux

	mu       sync.Mutex
	console  *ConsoleHandler // guarded by mu; of the latest node
	begun    int             // guarded by mu; calls of current
	replaced int             // guarded by mu; begun when console was set
	closed   bool            // guarded by mu
}

// ServeHTTP implements [http.Handler].
func (h *MuxHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

func (h *MuxHandler) serveConsole(w http.ResponseWriter, r *http.Request) {
	h.current().ServeHTTP(w, r)
}

// current returns the console of the present node. It asks for the node without the mutex, since the function is the
// application's. So another call may have replaced the console since this one began: then the node may be an earlier
// one, and must not end that console.
func (h *MuxHandler) current() *ConsoleHandler {
	h.mu.Lock()
	h.begun++
	began := h.begun
	h.mu.Unlock()
	node := h.node()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.console == nil || h.console.node != node && began > h.replaced {
		if h.console != nil {
			h.console.Close()
		}
		h.console, h.replaced = newConsole(node, h.opts.Console, h.canAct), h.begun
		if h.closed {
			h.console.Close()
		}
	}
	return h.console
}

// Close ends the streams of the console and refuses further requests to it, as [ConsoleHandler.Close]. Probes
// and metrics are still served. It does not block.
func (h *MuxHandler) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	if h.console != nil {
		h.console.Close()
	}
}
