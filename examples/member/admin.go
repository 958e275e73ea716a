package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
)

// admin answers operators and probes over HTTP. It asks for no proof of who they
// are, so everything but the probes is for loopback only.
type admin struct {
	node    atomic.Pointer[conclave.Node]               // nil until Open has returned
	console atomic.Pointer[conclavehttp.ConsoleHandler] // likewise
	servers []*http.Server
}

func newAdmin() *admin { return &admin{} }

func (a *admin) opened(node *conclave.Node) {
	a.console.Store(conclavehttp.Console(node, nil))
	a.node.Store(node)
}

// listen starts the listeners that the options name. They answer while Open
// waits, so that a probe does not end a member that waits for the others.
func (a *admin) listen(o options, logf logFunc) error {
	for _, l := range []struct {
		flag, addr string
		mux        *http.ServeMux
	}{{"admin", o.admin, a.operators()}, {"probes", o.probes, a.probes()}} {
		if l.addr == "" {
			continue
		}
		listener, err := net.Listen("tcp", l.addr)
		if err != nil {
			a.close()
			return err
		}
		if tcp := listener.Addr().(*net.TCPAddr); l.flag == "admin" && !tcp.IP.IsLoopback() {
			listener.Close()
			a.close()
			return fmt.Errorf("-admin %s is not a loopback address: %w", l.addr, errUsage)
		}
		server := &http.Server{Handler: l.mux, ReadHeaderTimeout: 10 * time.Second}
		a.servers = append(a.servers, server)
		logf("%s on %s", l.flag, listener.Addr())
		go func() { _ = server.Serve(listener) }() // until close
	}
	return nil
}

// close lets answers that are under way finish, but for streams of the console.
func (a *admin) close() {
	if console := a.console.Load(); console != nil {
		console.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	for _, s := range a.servers {
		_ = s.Shutdown(ctx)
		_ = s.Close()
	}
}

// probes answers whether to restart the process, and whether it can serve.
func (a *admin) probes() *http.ServeMux {
	mux := http.NewServeMux()
	for _, path := range []string{"/livez", "/readyz"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			conclavehttp.Health(a.node.Load()).ServeHTTP(w, r)
		})
	}
	return mux
}

var errOpening = errors.New("the member waits for its group; its log has the reason")

func (a *admin) operators() *http.ServeMux {
	mux := a.probes()
	handle := func(pattern string, f func(ctx context.Context, node *conclave.Node, r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { a.answer(w, r, f) })
	}
	handle("GET /status", func(_ context.Context, node *conclave.Node, _ *http.Request) (any, error) {
		return statusOf(node.Status()), nil
	})
	handle("GET /config", func(ctx context.Context, node *conclave.Node, _ *http.Request) (any, error) {
		c, err := node.GroupConfig(ctx)
		return settingsOf(c), err
	})
	handle("PUT /config", func(ctx context.Context, node *conclave.Node, r *http.Request) (any, error) {
		var s settings
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			return nil, fmt.Errorf("%w settings: %w", conclave.ErrInvalid, err)
		}
		return s, node.SetGroupConfig(ctx, s.groupConfig())
	})
	handle("POST /transfer", func(ctx context.Context, node *conclave.Node, r *http.Request) (any, error) {
		to, err := memberID(r.FormValue("to"))
		if err == nil {
			err = node.TransferLeadership(ctx, to)
		}
		return nil, err
	})
	handle("DELETE /members/{id}", func(ctx context.Context, node *conclave.Node, r *http.Request) (any, error) {
		id, err := memberID(r.PathValue("id"))
		if err == nil {
			err = node.RemoveMember(ctx, id)
		}
		return nil, err
	})
	handle("POST /leave", func(ctx context.Context, node *conclave.Node, _ *http.Request) (any, error) {
		// It goes on if the operator's connection breaks.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
		defer cancel()
		return nil, node.Leave(ctx)
	})
	mux.HandleFunc("GET /backup", a.backup)
	mux.Handle("/console/", http.StripPrefix("/console", http.HandlerFunc(a.view)))
	return mux
}

// view serves the console, read-only.
func (a *admin) view(w http.ResponseWriter, r *http.Request) {
	console := a.console.Load()
	if console == nil {
		console = conclavehttp.Console(nil, nil) // answers that the node is not open yet
	}
	console.ServeHTTP(w, r)
}

// callTimeout bounds an operator's call.
const callTimeout = 30 * time.Second

// answer sends what f returns in JSON, or its error as text.
func (a *admin) answer(w http.ResponseWriter, r *http.Request, f func(context.Context, *conclave.Node, *http.Request) (any, error)) {
	node := a.node.Load()
	if node == nil {
		http.Error(w, errOpening.Error(), http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
	defer cancel()
	result, err := f(ctx, node, r)
	switch {
	case errors.Is(err, conclave.ErrInvalid):
		http.Error(w, err.Error(), http.StatusBadRequest)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case result != nil:
		w.Header().Set("Content-Type", "application/json")
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		_ = out.Encode(result) // fails only if the operator has gone
	}
}

// errorTrailer follows a backup and has its error: a failure shows only after a
// part of the backup was sent.
const errorTrailer = "Backup-Error"

func (a *admin) backup(w http.ResponseWriter, r *http.Request) {
	node := a.node.Load()
	if node == nil {
		http.Error(w, errOpening.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Trailer", errorTrailer)
	w.WriteHeader(http.StatusOK)
	if err := node.Backup(r.Context(), w); err != nil {
		w.Header().Set(errorTrailer, err.Error())
	}
}
