package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
)

// gossip runs memberlist: who is there, where, and does it answer. It suggests
// addresses and tells who seems alive; it never decides who is a member.
//
// memberlist takes a name at another address for a conflict. So its names are
// those of processes, not of members: a restart is a newcomer at once, and its
// predecessor dies in its own time.
type gossip struct {
	list    *memberlist.Memberlist
	pace    time.Duration // a factor; see Seams.Slow
	changed chan struct{} // holds one token after a change

	mu    sync.Mutex
	meta  []byte                      // guarded by mu; what we say of ourselves
	seen  map[string]*wire.GossipMeta // guarded by mu; alive processes by name
	unmet error                       // guarded by mu; see whyUnmet
	heard func(*wire.GossipMeta)      // of a process that is alive; called without mu
	lost  func(*wire.GossipMeta)      // of one that is dead or has left; called without mu

	answered time.Time // guarded by mu; when a probe of ours was last answered
	parted   time.Time // guarded by mu; when one of the others was last seen to go

	ending sync.Mutex // held while leaving and closing: memberlist panics when asked to leave later
	ended  bool       // guarded by ending
}

const (
	// gossipInterval is half of memberlist's: a parting member waits for the
	// next round, and groups are small.
	gossipInterval = 100 * time.Millisecond
	// probeInterval is how often one of the others is asked for a sign of life,
	// and how long an unanswered question lasts: it is not stretched, because
	// close may have to wait for it.
	probeInterval = 500 * time.Millisecond
	// leaveTimeout bounds how long a parting member waits until its word is out.
	leaveTimeout = 3 * gossipInterval
)

func newGossip(port memberlist.Transport, self *wire.GossipMeta, logger *slog.Logger, pace time.Duration, heard, lost func(*wire.GossipMeta)) (*gossip, error) {
	g := &gossip{
		pace:    pace,
		changed: make(chan struct{}, 1),
		seen:    make(map[string]*wire.GossipMeta),
		heard:   heard,
		lost:    lost,
	}
	if err := g.describe(self); err != nil {
		return nil, err
	}
	cfg := memberlist.DefaultLANConfig()
	cfg.Name = processName(self)
	cfg.GossipInterval = pace * gossipInterval
	cfg.ProbeInterval = pace * probeInterval
	cfg.ProbeTimeout = cfg.ProbeInterval / 2
	cfg.PushPullInterval *= pace
	cfg.AwarenessMaxMultiplier = 1
	// A member that probes somebody for another cannot be closed without leaving a
	// goroutine behind. Who is wrongly suspected by one hears of it from the others.
	cfg.IndirectChecks = 0
	cfg.EnableCompression = false // packets are tiny, and a compressor is tens of kilobytes for each
	cfg.Ping = g
	cfg.Transport = port
	cfg.Delegate = g
	cfg.Events = g
	cfg.LogOutput = nil
	cfg.Logger = log.New(gossipLog{logger}, "", 0)
	list, err := memberlist.Create(cfg)
	if err != nil {
		return nil, fmt.Errorf("starting gossip: %w", err)
	}
	g.list = list
	return g, nil
}

func processName(meta *wire.GossipMeta) string {
	return fmt.Sprintf("%016x.%d", meta.GetMember(), meta.GetBoot())
}

// describe changes what this member says of itself.
func (g *gossip) describe(self *wire.GossipMeta) error {
	meta, err := proto.Marshal(self)
	if err != nil {
		return err
	}
	if len(meta) > memberlist.MetaMaxSize {
		return fmt.Errorf("the member's name and address are too long: %d bytes of %d", len(meta), memberlist.MetaMaxSize)
	}
	g.mu.Lock()
	g.meta = meta
	g.mu.Unlock()
	if g.list != nil {
		return g.list.UpdateNode(time.Second)
	}
	return nil
}

// join greets the process at an address; what fails is tried again later.
func (g *gossip) join(addr string) error {
	_, err := g.list.Join([]string{addr})
	if first := errors.Unwrap(err); first != nil {
		err = first // memberlist lists its errors over several lines
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unmet = err
	return err
}

// whyUnmet says why nobody was met at the address that was tried last; nil is
// that somebody was.
func (g *gossip) whyUnmet() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.unmet
}

// leave tells the others that this process goes on purpose.
func (g *gossip) leave() {
	g.ending.Lock()
	defer g.ending.Unlock()
	if !g.ended {
		_ = g.list.Leave(g.pace * leaveTimeout)
	}
}

// close ends gossip. memberlist does not wait for a probe that is out, and says
// nowhere when one ends; so where one may be out, close waits as long as a
// probe can last. There is none when the last was answered less than an
// interval ago, which is the ordinary case, or when nobody else was there.
func (g *gossip) close() {
	others := g.list.NumMembers() > 1
	g.ending.Lock()
	g.ended = true
	_ = g.list.Shutdown()
	g.ending.Unlock()
	g.mu.Lock()
	answered, parted := time.Since(g.answered), time.Since(g.parted)
	g.mu.Unlock()
	if probe := g.pace * probeInterval; (others || parted <= probe) && answered > probe*9/10 {
		<-time.After(probe)
	}
}

// alive lists the processes that answer, by member and start, ourselves included.
func (g *gossip) alive() []*wire.GossipMeta {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := make([]*wire.GossipMeta, 0, len(g.seen))
	for _, meta := range g.seen {
		list = append(list, meta)
	}
	slices.SortFunc(list, func(x, y *wire.GossipMeta) int {
		return cmp.Or(cmp.Compare(x.GetMember(), y.GetMember()), cmp.Compare(x.GetBoot(), y.GetBoot()))
	})
	return list
}

// memberlist.Delegate. All that is said is in the meta data.

func (g *gossip) NodeMeta(int) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.meta
}

func (g *gossip) NotifyMsg([]byte)                {}
func (g *gossip) GetBroadcasts(int, int) [][]byte { return nil }
func (g *gossip) LocalState(bool) []byte          { return nil }
func (g *gossip) MergeRemoteState([]byte, bool)   {}

// memberlist.PingDelegate

func (g *gossip) AckPayload() []byte { return nil }

func (g *gossip) NotifyPingComplete(*memberlist.Node, time.Duration, []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answered = time.Now()
}

// memberlist.EventDelegate

func (g *gossip) NotifyJoin(n *memberlist.Node)   { g.note(n, true) }
func (g *gossip) NotifyUpdate(n *memberlist.Node) { g.note(n, true) }
func (g *gossip) NotifyLeave(n *memberlist.Node)  { g.note(n, false) }

func (g *gossip) note(n *memberlist.Node, alive bool) {
	meta := new(wire.GossipMeta)
	if err := proto.Unmarshal(n.Meta, meta); err != nil || meta.GetMember() == 0 || meta.GetVersion() > wire.GossipVersion {
		return
	}
	g.mu.Lock()
	if alive {
		g.seen[n.Name] = meta
	} else {
		delete(g.seen, n.Name)
		g.parted = time.Now()
	}
	g.mu.Unlock()
	if alive {
		g.heard(meta)
	} else {
		g.lost(meta)
	}
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// gossipLog carries memberlist's log lines to the application's logger. Gossip
// decides nothing, so none of its troubles is one for an operator.
type gossipLog struct{ to *slog.Logger }

func (l gossipLog) Write(line []byte) (int, error) {
	l.to.Debug(strings.TrimSpace(string(line)), "from", "memberlist")
	return len(line), nil
}
