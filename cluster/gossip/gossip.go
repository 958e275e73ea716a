// Package gossip runs memberlist over the group's port: it shows which processes are alive, and at which addresses.
//
// It is a seam, not an API: only package cluster uses it.
package gossip

import (
	"cmp"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/transport"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
)

// Gossip runs memberlist and turns its notifications into events for the roster:
// which processes are alive, and at which addresses. It never decides on membership.
//
// memberlist reports a conflict when a name appears at another address. Its names are
// therefore those of processes, not of members: a restarted member is a new process at
// once, and the death of the former process is detected separately.
type Gossip struct {
	list   *memberlist.Memberlist
	probes *probeWatch
	pace   time.Duration // a factor, see Seams.Slow
	events Events

	meta []byte // what this member gossips about itself

	mu      sync.Mutex
	joinErr error // guarded by mu; see LastJoinError
	lookup  error // guarded by mu; of the last lookups of names in Config.Join
	refused bool  // guarded by mu; joinErr is a refusal, or another failed handshake

	closing wait.Lock // held while announcing and closing: memberlist panics on an announcement after Shutdown
	closed  bool      // guarded by closing
}

// Events are called for what gossip shows, on its goroutines. They must not block.
type Events struct {
	Alive, Dead func(process string, meta *wire.GossipMeta)
}

const (
	// gossipInterval is half of memberlist's default: a shutdown waits for the next
	// round, and groups are small.
	gossipInterval = 100 * time.Millisecond
	// probeInterval is the time between two probes, and the longest that one lasts.
	// It is not extended under load, because Close may have to wait for it.
	probeInterval = 500 * time.Millisecond
	// probeTimeout is the longest that a direct or an indirect probe waits.
	probeTimeout = probeInterval / 2
	// announceTimeout bounds how long a shutdown waits for its announcement.
	announceTimeout = 3 * gossipInterval
	// indirectProbes is the number of processes that are asked to probe one that does
	// not answer. Without them a lost link between two members causes a suspicion,
	// which must be refuted through the others in time. memberlist loses some
	// refutations: in a round in which it replaces the only queued broadcast, it
	// numbers the next ones from 1 again, and one of two equally long broadcasts with
	// the same number replaces the other (TransmitLimitedQueue, v0.7.0).
	indirectProbes = 3
)

// New starts gossip for the process that self describes. It is slower than usual by pace, a factor.
func New(port *transport.Gossip, self *wire.GossipMeta, logger *slog.Logger, pace time.Duration, events Events) (*Gossip, error) {
	meta, err := EncodeMeta(self)
	if err != nil {
		return nil, err
	}
	g := &Gossip{pace: pace, events: events, meta: meta}
	g.probes = newProbeWatch(port, wire.ProcessName(self.GetMember(), self.GetBoot()))
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = wire.ProcessName(self.GetMember(), self.GetBoot())
	cfg.GossipInterval = pace * gossipInterval
	cfg.ProbeInterval = pace * probeInterval
	cfg.ProbeTimeout = pace * probeTimeout
	cfg.PushPullInterval *= pace
	cfg.AwarenessMaxMultiplier = 1
	cfg.IndirectChecks = indirectProbes
	cfg.EnableCompression = false // packets are tiny, and each compressor takes tens of kilobytes
	cfg.Ping = g
	cfg.Transport = g.probes
	cfg.Delegate = g
	cfg.Events = g
	cfg.LogOutput = nil
	cfg.Logger = log.New(gossipLog{logger}, "", 0)
	list, err := memberlist.Create(cfg)
	if err != nil {
		_ = g.probes.Shutdown() // the port is closed next
		return nil, fmt.Errorf("start gossip: %w", err)
	}
	g.list = list
	return g, nil
}

// EncodeMeta returns a member's meta data for gossip, without what only forming needs, and without the build if there
// is no room for it.
func EncodeMeta(self *wire.GossipMeta) ([]byte, error) {
	self = proto.CloneOf(self)
	self.FeatureLevel = 0
	meta, err := proto.Marshal(self)
	if err == nil && len(meta) > memberlist.MetaMaxSize {
		self.Build = ""
		meta, err = proto.Marshal(self)
	}
	if err == nil && len(meta) > memberlist.MetaMaxSize {
		err = fmt.Errorf("name and advertised address take %d bytes of gossip, limit %d: shorten them", len(meta), memberlist.MetaMaxSize)
	}
	return meta, err
}

// Join exchanges states with the process at an address.
func (g *Gossip) Join(to transport.Target) error {
	addr, done := g.probes.joinAddress(to)
	_, err := g.list.Join([]string{addr})
	refused := transport.HandshakeFailure(done()) != ""
	if first := errors.Unwrap(err); first != nil {
		err = first // memberlist lists its errors over several lines
	}
	if err != nil { // memberlist begins with what it takes for the address
		_, text, _ := strings.Cut(err.Error(), ": ")
		err = errors.New(text)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	// Of several addresses, one that refuses explains more than one that is down.
	if err == nil || refused || !g.refused {
		g.joinErr, g.refused = err, refused
	}
	return err
}

// SetLookupError notes the error of a round of lookups; nil: all names were resolved.
func (g *Gossip) SetLookupError(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lookup = err
}

// LastJoinError returns the error of the last join that says most, and that of the last
// lookups.
func (g *Gossip) LastJoinError() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.joinErr != nil && g.lookup != nil {
		return fmt.Errorf("%w; %w", g.lookup, g.joinErr)
	}
	return cmp.Or(g.lookup, g.joinErr)
}

// AnnounceShutdown broadcasts that this process stops, so that the others need not
// detect it.
func (g *Gossip) AnnounceShutdown() {
	g.closing.Acquire()
	defer g.closing.Release()
	if !g.closed {
		_ = g.list.Leave(g.pace * announceTimeout)
	}
}

// Close stops gossip and waits until none of its goroutines can be running. memberlist
// waits neither for its own probes nor for the indirect ones that it makes for others.
// Each is bounded in time, so Close waits for the rest of that time: not at all in the
// ordinary case, in which every probe has been answered.
func (g *Gossip) Close() {
	g.closing.Acquire()
	g.closed = true
	_ = g.list.Shutdown()
	g.closing.Release()
	if rest := g.probes.rest(g.pace); rest > 0 {
		<-time.After(rest)
	}
}

// memberlist.Delegate: only the meta data are gossiped.

func (g *Gossip) NodeMeta(int) []byte { return g.meta }

func (g *Gossip) NotifyMsg([]byte)                {}
func (g *Gossip) GetBroadcasts(int, int) [][]byte { return nil }
func (g *Gossip) LocalState(bool) []byte          { return nil }
func (g *Gossip) MergeRemoteState([]byte, bool)   {}

// memberlist.PingDelegate

func (g *Gossip) AckPayload() []byte { return nil }

func (g *Gossip) NotifyPingComplete(*memberlist.Node, time.Duration, []byte) { g.probes.answered() }

// memberlist.EventDelegate

func (g *Gossip) NotifyJoin(n *memberlist.Node)   { g.notify(n, true) }
func (g *Gossip) NotifyUpdate(n *memberlist.Node) { g.notify(n, true) }
func (g *Gossip) NotifyLeave(n *memberlist.Node)  { g.notify(n, false) }

func (g *Gossip) notify(n *memberlist.Node, alive bool) {
	meta := new(wire.GossipMeta)
	if err := wire.Decode(n.Meta, meta); err != nil || meta.GetMember() == 0 || meta.GetVersion() > wire.GossipVersion {
		return
	}
	if alive {
		g.events.Alive(n.Name, meta)
		return
	}
	g.events.Dead(n.Name, meta)
}

// gossipLog passes memberlist's log lines to the application's logger at debug level:
// none of them needs an operator's action.
type gossipLog struct{ to *slog.Logger }

func (l gossipLog) Write(line []byte) (int, error) {
	l.to.Debug(strings.TrimSpace(string(line)), "from", "memberlist")
	return len(line), nil
}
