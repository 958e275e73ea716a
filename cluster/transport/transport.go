// Package transport connects the members of a group over one TCP port.
//
// Every connection, of whatever kind, starts with a handshake: TLS if it is
// configured, then one hello in each direction, then proofs that each side has the
// key of the member that it claims to be. A mismatch is refused before anything else
// is decoded. The handshake is followed by raft frames (one way, so a
// pair of members holds two connections), memberlist's packets or streams, a
// snapshot, or a proposal to form a group.
//
// The package is a seam, not an API: it serves package cluster only, and its
// exported names change with it.
package transport

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/conclave-go/conclave/cluster/transport/slots"
	"github.com/conclave-go/conclave/internal/wire"
)

// Transport is one member's end of the network. It owns its listener, its
// connections and their goroutines.
type Transport struct {
	handshaker
	peers

	cfg          Config          // with defaults; Identity.Cluster is superseded by cluster
	ctx          context.Context // ends with Close
	cancel       context.CancelFunc
	goroutines   *goroutines
	clientMemory *slots.Memory
	gossip       *Gossip

	mu      sync.Mutex // guards what follows
	started bool
	closed  bool
	cluster wire.ID
	conns   map[*conn]struct{} // every open connection
}

// New validates cfg and takes ownership of its listener, which it closes if it
// fails. Nothing is accepted or dialed before Start.
func New(cfg Config) (*Transport, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		if cfg.Listener != nil {
			_ = cfg.Listener.Close() // err is the error to report
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &Transport{
		cfg:          c,
		ctx:          ctx,
		cancel:       cancel,
		goroutines:   newGoroutines(c.Identity.Member),
		clientMemory: slots.NewMemory(c.Limits.ClientsBytes, ErrQueueFull),
		cluster:      c.Identity.Cluster,
		conns:        make(map[*conn]struct{}),
	}
	t.peers = peers{
		cfg: &t.cfg, ctx: ctx, goroutines: t.goroutines, identity: t.identity, dial: t.handshaker.connect,
		refused: t.isRefused,
		byID:    make(map[uint64]*peer), inbound: make(map[uint64]*inbound), hosts: make(map[uint64]string),
	}
	tls := newTLSPair(c.TLS, c.Calls)
	t.handshaker = handshaker{
		cfg: &t.cfg, tls: tls, network: network{dialer: c.Dial, resolver: c.Lookup, tls: tls, insecure: c.Insecure}, members: &t.peers,
		identity: t.identity, track: t.track, limits: slots.NewMembers(c.Limits.Connections, c.Limits.PerMember), clients: slots.NewClients(c.Limits.Clients),
		handshakes: slots.New(c.Limits.Handshakes), strangers: slots.New(c.Limits.Strangers),
		boots: newBootCounters(c.Boots, c.BootChanged), processes: newProcesses(), failures: newFailureLog(c.Logger),
	}
	t.gossip = newGossip(ctx, &t.cfg, t.goroutines, &t.handshaker, &t.peers)
	return t, nil
}

// Start begins to accept and to dial. Further calls have no effect.
func (t *Transport) Start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started || t.closed {
		return
	}
	t.started = true
	t.goroutines.start("accept", t.acceptLoop)
	t.peers.start()
}

// Addr returns the address that the listener is bound to.
func (t *Transport) Addr() net.Addr { return t.cfg.Listener.Addr() }

// Joined sets the cluster that this member belongs to. Before, no PEER or
// SNAPSHOT connection is dialed or accepted.
func (t *Transport) Joined(cluster wire.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cluster = cluster
	t.peers.redialAll()
}

// identity returns what this member's hello contains now.
func (t *Transport) identity() Identity {
	id := t.cfg.Identity
	t.mu.Lock()
	id.Cluster = t.cluster
	t.mu.Unlock()
	return id
}

// Close closes every connection and blocks until every goroutine has ended,
// which includes Handler calls in progress: unblock those first. For functions of the
// application it waits 3 seconds: those of Config.Calls, and callbacks of TLS. It may be
// called more than once, and before Start.
//
// The order is from source to sink. First nothing new can begin: the context
// ends dials and waits, the listener closes, and track rejects connections.
// Then the open connections close, which ends every read and write. Only then
// is the wait certain to end.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	t.peers.close()
	open := make([]*conn, 0, len(t.conns))
	for c := range t.conns {
		open = append(open, c)
	}
	t.mu.Unlock()

	t.cancel()
	err := t.cfg.Listener.Close()
	for _, c := range open {
		_ = c.Close() // the peer is owed nothing
	}
	t.goroutines.wait()
	awaitApplication(t.cfg.Calls, t.cfg.Logger)
	if isClosed(err) {
		return nil
	}
	return err
}

// track wraps a connection for Close to find. If the transport is closed, it
// closes the connection and returns false.
func (t *Transport) track(raw net.Conn) (*conn, bool) {
	return track(raw, &t.mu, &t.closed, t.conns)
}

// Connected returns the incarnation of the member's process that has a live, proven
// connection with this member, in either direction; ok is false if there is none.
func (t *Transport) Connected(member uint64) (incarnation wire.ID, ok bool) {
	return t.processes.of(member)
}

// LeaderPriority returns that of the member's process that Connected returns.
func (t *Transport) LeaderPriority(member uint64) (priority int32, connected bool) {
	return t.processes.priority(member)
}

// Gossip returns the transport for memberlist on this port. What arrives while
// memberlist does not read from it, or after its Shutdown, is dropped.
func (t *Transport) Gossip() *Gossip { return t.gossip }

func (t *Transport) log() *slog.Logger { return t.cfg.Logger }
