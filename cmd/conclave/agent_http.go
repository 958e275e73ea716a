package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/conclavehttp"
	"github.com/conclave-go/conclave/conclaveprom"
	"github.com/conclave-go/conclave/internal/attempts"
	"github.com/conclave-go/conclave/internal/loopback"
)

// agentServer serves probes, metrics, the console and the commands that ask an agent, from before the member is open.
type agentServer struct {
	listener net.Listener // nil: nothing is served
	server   *http.Server
	options  *conclavehttp.ConsoleOptions
	logins   *logins // nil: there is no password
	log      *slog.Logger
	access   func() accessView
	run      string // of this process, for those that follow its events
	node     atomic.Pointer[conclave.Node]
	console  atomic.Pointer[conclavehttp.ConsoleHandler]
	metrics  *prometheus.Registry

	left      chan error                 // the result of the Leave that has closed the node
	crossSite http.CrossOriginProtection // of leave; the console has its own
	refusals  attempts.Limiter           // of what the log has of requests without a password
}

func newAgentServer(o agentOptions, log *slog.Logger) (*agentServer, error) {
	s := &agentServer{
		log: log, metrics: prometheus.NewRegistry(), left: make(chan error, 1), access: o.access, run: rand.Text(),
		options: &conclavehttp.ConsoleOptions{ShowKeys: o.keys},
	}
	if o.http == "none" {
		return s, nil
	}
	if err := s.protect(o.console); err != nil {
		return nil, err
	}
	s.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if o.certificates != nil {
		o.certificates.register(s.metrics)
		s.options.Certificates = func() (certificate, authorities time.Time) {
			u := o.certificates.expiry()
			return u.certificate, u.authority
		}
	}
	l, err := net.Listen("tcp", o.http)
	if err != nil {
		return nil, fmt.Errorf("--http: %w", err)
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/livez", "/readyz"} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) { conclavehttp.Health(s.node.Load()).ServeHTTP(w, r) })
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError)}))
	mux.Handle("/console/", http.StripPrefix("/console", http.HandlerFunc(s.view)))
	mux.HandleFunc("GET "+statusPath, s.status)
	mux.HandleFunc("GET "+eventsPath, s.events)
	mux.HandleFunc("POST "+leavePath, s.leave)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/console/", http.StatusFound) })
	s.listener, s.server = l, newServer(mux, log)
	s.server.IdleTimeout = time.Minute
	s.console.Store(conclavehttp.Console(nil, s.options)) // answers that the node is not open yet
	go func() { _ = s.server.Serve(l) }()                 // until close
	return s, nil
}

// newServer returns a server whose own messages go to the log: package log would write them to standard error,
// whose reader may have stopped.
func newServer(handler http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: handler, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
}

// passwordVariable has the password of the console, if there is no file with it. A flag would show it to
// all users of the machine.
const passwordVariable = "CONCLAVE_CONSOLE_PASSWORD"

// readPassword returns the password in a file, or else that in the environment; nil: there is none.
func readPassword(file string) ([]byte, error) {
	password, source := []byte(os.Getenv(passwordVariable)), passwordVariable
	if file != "" {
		var err error
		if password, err = os.ReadFile(file); err != nil {
			return nil, fmt.Errorf("--console-password-file: %w", err)
		}
		source = "--console-password-file " + file
	}
	if file == "" && len(password) == 0 {
		return nil, nil
	}
	if password = bytes.TrimSpace(password); len(password) < 8 {
		return nil, usagef("%s: want a password of at least 8 bytes", source)
	}
	return password, nil
}

// protect opens the console to browsers elsewhere, behind a password, and what changes the group to those that have it.
func (s *agentServer) protect(file string) error {
	password, err := readPassword(file)
	if err != nil || password == nil {
		return err
	}
	s.logins = newLogins(password, s.log)
	s.options.Audit, s.options.Authorize = s.log, func(r *http.Request, _ conclavehttp.Act) (string, error) {
		user, ok := s.logins.user(r) // mayRead has let it pass
		if !ok {
			return user, errLogin
		}
		return user, nil
	}
	return nil
}

// mayRead answers a request that lacks the password. Without one the console has a rule of its own, for loopback.
func (s *agentServer) mayRead(w http.ResponseWriter, r *http.Request) bool {
	if s.logins == nil {
		return true
	}
	user, status, err := s.logins.check(w, r)
	if err == nil {
		return true
	}
	if r.Method == http.MethodPost && user == "" && s.mayRecord(r) { // one with a wrong password is in the log
		s.log.Warn("console act without a password", "remote", r.RemoteAddr)
	}
	http.Error(w, err.Error(), status)
	return false
}

// mayRecord reports whether the log gets the refusal of a request without a password: it has few of each host.
func (s *agentServer) mayRecord(r *http.Request) bool {
	wait, _ := s.refusals.Begin(attempts.Host(r.RemoteAddr))
	return wait == 0
}

func (s *agentServer) view(w http.ResponseWriter, r *http.Request) {
	if s.mayRead(w, r) {
		s.console.Load().ServeHTTP(w, r)
	}
}

const statusPath = "/status"

var errOpening = errors.New("the member waits for its group; its log has the reason")

// status answers with what conclave status -o json prints.
func (s *agentServer) status(w http.ResponseWriter, r *http.Request) {
	s.show(w, r, func(node *conclave.Node) any { return statusOf(node.Status(), s.access()) })
}

// show answers with a value about the node. It is for the clients that the console serves.
func (s *agentServer) show(w http.ResponseWriter, r *http.Request, value func(*conclave.Node) any) {
	if !s.mayRead(w, r) {
		return
	}
	node := s.node.Load()
	switch {
	case s.logins == nil && !loopback.IsFrom(r):
		http.Error(w, "this is for clients on the same machine, unless the agent has --console-password-file", http.StatusForbidden)
	case node == nil:
		http.Error(w, errOpening.Error(), http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_ = newEncoder(w).Encode(value(node)) // fails only if the client has disconnected
	}
}

func (s *agentServer) opened(node *conclave.Node) {
	if s.listener == nil {
		return
	}
	s.metrics.MustRegister(conclaveprom.New(node))
	s.console.Store(conclavehttp.Console(node, s.options))
	s.node.Store(node)
}

func (s *agentServer) addr() string {
	if s.listener == nil {
		return "none"
	}
	return s.listener.Addr().String()
}

// close lets answers that are under way finish, but for the streams of the console.
func (s *agentServer) close() {
	if s.listener == nil {
		return
	}
	s.console.Load().Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.server.Shutdown(ctx)
	_ = s.server.Close()
}
