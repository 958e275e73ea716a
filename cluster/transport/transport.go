// Package transport connects the members of a group over one TCP port.
//
// Every connection, of whatever kind, opens with a hello in each direction
// that says who speaks; a mismatch is refused before anything else is decoded.
// Behind the hello run raft's frames (one way, so a pair of members holds two
// connections), memberlist's packets and streams, snapshots and the agreement
// on a new group.
//
// The package is a seam, not an API: it serves package cluster only, and its
// exported names change with it.
package transport

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/conclave-go/conclave/internal/wire"
)

// Transport is one member's end of the network. It owns its listener, its
// connections and their goroutines.
type Transport struct {
	cfg        Config // with defaults; Identity.Cluster is superseded by cluster
	tls        *tlsPair
	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	goroutines *group
	slots      *slots
	boots      *boots
	gossip     *Gossip
	refusals   *changes // what was logged about refused inbound connections

	mu      sync.Mutex // guards what follows
	started bool
	closed  bool
	cluster wire.ID
	peers   map[uint64]*peer    // the address book
	inbound map[uint64]*inbound // the current PEER connection from each member
	conns   map[*conn]struct{}  // every open connection
}

// New checks the configuration and takes over its listener, also when it
// fails. Nothing is accepted or dialled before Start.
func New(cfg Config) (*Transport, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		if cfg.Listener != nil {
			_ = cfg.Listener.Close() // it was handed over; the caller has a better error
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &Transport{
		cfg:        c,
		tls:        newTLSPair(c.TLS),
		ctx:        ctx,
		cancel:     cancel,
		goroutines: newGroup(c.Identity.Member),
		slots:      newSlots(c.Limits),
		boots:      newBoots(c.Boots, c.BootRaised),
		refusals:   newChanges(),
		cluster:    c.Identity.Cluster,
		peers:      make(map[uint64]*peer),
		inbound:    make(map[uint64]*inbound),
		conns:      make(map[*conn]struct{}),
	}
	t.gossip = newGossip(t)
	return t, nil
}

// Start begins to accept and to dial. A second call does nothing.
func (t *Transport) Start() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.started || t.closed {
		return
	}
	t.started = true
	t.goroutines.start("accept", t.acceptLoop)
	for _, p := range t.peers {
		p.start()
	}
}

// Addr is the address that the listener is bound to.
func (t *Transport) Addr() net.Addr { return t.cfg.Listener.Addr() }

// Joined says to which cluster this member belongs from now on. Until then no
// PEER or SNAPSHOT connection is opened or accepted.
func (t *Transport) Joined(cluster wire.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cluster = cluster
	for _, p := range t.peers {
		p.kick()
	}
}

// identity is what this member says of itself now.
func (t *Transport) identity() Identity {
	id := t.cfg.Identity
	t.mu.Lock()
	id.Cluster = t.cluster
	t.mu.Unlock()
	return id
}

// Close ends every connection and waits for every goroutine, so it waits for
// Handler calls that are under way: release them first. It may be called more
// than once, and before Start.
//
// The order is from source to sink. First nothing new may begin: the context
// ends dials and waits, the listener closes, and track refuses connections.
// Then the open connections are closed, which ends every read and write. Only
// then is it certain that the wait ends.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	open := make([]*conn, 0, len(t.conns))
	for c := range t.conns {
		open = append(open, c)
	}
	t.mu.Unlock()

	t.cancel()
	err := t.cfg.Listener.Close()
	for _, c := range open {
		_ = c.Close() // nothing is owed to the other side
	}
	t.goroutines.wait()
	if isClosed(err) {
		return nil
	}
	return err
}

// known reports whether frames and snapshots of the member are welcome.
func (t *Transport) known(member uint64) bool {
	if t.cfg.Member != nil {
		return t.cfg.Member(member)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.peers[member] != nil
}

func (t *Transport) log() *slog.Logger { return t.cfg.Logger }
