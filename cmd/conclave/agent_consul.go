package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/spf13/pflag"

	"github.com/conclave-go/conclave"
	"github.com/conclave-go/conclave/contrib/consulapi"
)

// consulServer serves Consul's HTTP API, from before the member is open.
type consulServer struct {
	listener net.Listener // nil: nothing is served
	server   *http.Server
	options  consulapi.Options
	handler  atomic.Pointer[http.Handler]
	log      *slog.Logger

	creating sync.WaitGroup // the creation of the group
	stop     func()         // ends that; nil: it has not begun
}

// tokenVariable has the token of Consul's API, if there is no file with it. A flag would show it to all
// users of the machine.
const tokenVariable = "CONCLAVE_CONSUL_TOKEN"

type consulOptions struct {
	addr       string
	group      string // further group; "": the default one
	token      string // file with a token
	datacenter string
	ttlMin     time.Duration
}

func (o *consulOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.addr, "consul-http", "none", "`address` for Consul's HTTP API, as 127.0.0.1:8500 or unix:///run/conclave/consul.sock; none: do not serve it")
	f.StringVar(&o.token, "consul-token-file", "", "`file` with the token that clients of Consul's HTTP API need")
	f.StringVar(&o.group, "consul-group", "", "`name` of the further group whose keys, sessions and checks Consul's HTTP API serves; created if missing (default: the default group)")
	f.StringVar(&o.datacenter, "consul-dc", "dc1", "`name` of the datacenter in Consul's HTTP API")
	f.DurationVar(&o.ttlMin, "consul-session-ttl-min", 10*time.Second, "the least TTL of a session in Consul's HTTP API, 1s or more")
}

func newConsulServer(o consulOptions, log *slog.Logger) (*consulServer, error) {
	s := &consulServer{log: log, options: consulapi.Options{Logger: log, Group: o.group, Datacenter: o.datacenter, SessionTTLMin: o.ttlMin}}
	switch {
	case o.addr == "none" && o.group != "":
		return nil, usagef("--consul-group %s has no effect without --consul-http: give the address at which the group is to be served", name(o.group))
	case o.addr == "none":
		return s, nil
	case len(o.group) > maxGroupName || !utf8.ValidString(o.group) || strings.Contains(o.group, "\x00"):
		return nil, usagef("--consul-group: want a name of at most %d bytes of UTF-8 without NUL", maxGroupName)
	case o.datacenter == "":
		return nil, usagef("--consul-dc: want a name")
	case o.ttlMin < time.Second || o.ttlMin > 24*time.Hour:
		return nil, usagef("--consul-session-ttl-min: want 1s to 24h, got %v", o.ttlMin)
	}
	if err := s.protect(o.token); err != nil {
		return nil, err
	}
	l, err := listenConsul(o.addr)
	if err != nil {
		return nil, fmt.Errorf("--consul-http: %w", err)
	}
	if at, isTCP := l.Addr().(*net.TCPAddr); s.options.Authorize == nil && isTCP && !at.IP.IsLoopback() {
		_ = l.Close()
		return nil, usagef("--consul-http %s: an address beyond loopback needs --consul-token-file or %s", o.addr, tokenVariable)
	}
	s.listener = l
	s.opened(nil) // answers that there is no leader
	// Not an http.ServeMux: it redirects keys with "//" or "..".
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*s.handler.Load()).ServeHTTP(w, r) })
	s.server = newServer(serve, log)
	go func() { _ = s.server.Serve(l) }() // until close
	return s, nil
}

// protect allows everything to clients with the token, wherever they are, and nothing to others.
func (s *consulServer) protect(file string) error {
	token, source := []byte(os.Getenv(tokenVariable)), tokenVariable
	if file != "" {
		var err error
		if token, err = os.ReadFile(file); err != nil {
			return fmt.Errorf("--consul-token-file: %w", err)
		}
		source = "--consul-token-file " + file
	}
	if file == "" && len(token) == 0 {
		return nil
	}
	if token = bytes.TrimSpace(token); len(token) < 8 {
		return usagef("%s: want a token of at least 8 bytes", source)
	}
	want := newSecret(token)
	s.options.Authorize = func(token string, _ consulapi.Verb, _ string) error {
		if !want.is(token) {
			return errors.New("this needs the token of the agent")
		}
		return nil
	}
	return nil
}

func (s *consulServer) opened(node *conclave.Node) {
	if s.listener == nil {
		return
	}
	h := consulapi.Handler(node, &s.options)
	s.handler.Store(&h)
	if node != nil && s.options.Group != "" {
		var ctx context.Context
		ctx, s.stop = context.WithCancel(context.Background())
		s.creating.Go(func() { s.create(ctx, node) })
	}
}

const (
	maxGroupName   = 512
	createPatience = 30 * time.Second
	createPause    = 5 * time.Second
)

// create creates the group that is served, unless there is one, and tries again until it can: while another member runs a build
// without groups, there cannot be one. A group that is deleted later is not created again before the next start.
func (s *consulServer) create(ctx context.Context, node *conclave.Node) {
	for reported := ""; ; {
		bounded, cancel := context.WithTimeout(ctx, createPatience)
		_, err := node.CreateGroup(bounded, s.options.Group, conclave.GroupConfig{})
		cancel()
		if err == nil || ctx.Err() != nil || errors.Is(err, conclave.ErrClosed) {
			return
		}
		if text := err.Error(); text != reported {
			s.log.Warn("the group of Consul's API is not created yet", "group", s.options.Group, "error", err)
			reported = text
		}
		pause := time.NewTimer(createPause)
		select {
		case <-pause.C:
		case <-node.Done():
		case <-ctx.Done():
		}
		pause.Stop()
	}
}

// addr returns the address as a client's CONSUL_HTTP_ADDR has it.
func (s *consulServer) addr() string {
	if s.listener == nil {
		return "none"
	}
	if at := s.listener.Addr(); at.Network() == "unix" {
		return unixScheme + at.String()
	}
	return s.listener.Addr().String()
}

// close lets answers that are under way finish. The end of the node has ended blocking queries.
func (s *consulServer) close() {
	if s.listener == nil {
		return
	}
	if s.stop != nil {
		s.stop()
		s.creating.Wait()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.server.Shutdown(ctx)
	_ = s.server.Close()
}
