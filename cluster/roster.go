package cluster

import (
	"cmp"
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// roster is the table of the group's members: their addresses, boot counters, roles and
// liveness. It is updated by gossip, by the transport and by membership changes, in any
// order and on any goroutine. Readers take an immutable snapshot.
//
// It stores addresses and boot counters on disk, so that a restarted member finds the
// others. An address is a hint: a wrong one costs a dial. A boot counter distinguishes a
// copied directory from the original, so it comes from the transport, which has
// verified it, and never from gossip.
type roster struct {
	self    *wire.GossipMeta // without a cluster
	cluster func() []byte    // this member's; empty: none yet
	log     *raftlog.Log
	changed wait.Signal
	listed  func() // called when what Status shows of the members has changed; nil: ignored
	current atomic.Pointer[rosterSnapshot]

	mu        sync.Mutex
	voters    []uint64                    // guarded by mu
	standbys  []uint64                    // guarded by mu
	processes map[string]*wire.GossipMeta // guarded by mu; alive according to gossip, by memberlist's name
	entries   map[uint64]*rosterEntry     // guarded by mu; by member
}

type rosterEntry struct {
	peer      *wire.Peer // as on disk; nil: no record
	claimed   uint64     // the highest boot counter in gossip
	died      bool       // gossip has declared a process dead
	lastDeath uint64     // the highest boot counter of these
	connected bool
}

// rosterSnapshot is an immutable state of the roster.
type rosterSnapshot struct {
	members   []rosterMember     // of the group, by ID, this one included
	processes []*wire.GossipMeta // alive according to gossip, of any group, by member and boot counter
	peers     []*wire.Peer       // every known address, by member
}

// rosterMember is a member of the group.
type rosterMember struct {
	id        uint64
	voter     bool
	liveness  liveness
	boot      uint64 // of the latest live process, or else of the latest dead one
	connected bool   // a connection from it is up
}

// liveness is a member's liveness according to gossip. unseen: no event since this
// process started, or declared dead while a connection from the member is open.
type liveness int

const (
	unseen liveness = iota
	alive
	dead
)

const peerRecord = "peer/"

func loadRoster(log *raftlog.Log, self *wire.GossipMeta, cluster func() []byte) (*roster, error) {
	r := &roster{
		self: self, cluster: cluster, log: log, changed: wait.NewSignal(),
		processes: make(map[string]*wire.GossipMeta), entries: make(map[uint64]*rosterEntry),
	}
	records, err := log.Locals(peerRecord)
	if err != nil {
		return nil, err
	}
	for name, value := range records {
		p := new(wire.Peer)
		if err := proto.Unmarshal(value, p); err != nil {
			return nil, fmt.Errorf("%w: address of a member, record %q: %v", storage.ErrCorrupt, name, err)
		}
		r.entry(p.GetMember()).peer = p
	}
	r.refresh()
	return r, nil
}

func (r *roster) snapshot() *rosterSnapshot { return r.current.Load() }

// processAlive records a process that gossip shows alive. If it is the latest known
// process of a member of the group, it also records the address, and reports whether
// that has changed.
func (r *roster) processAlive(name string, meta *wire.GossipMeta) (moved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes[name] = meta
	moved = r.noteAddress(meta)
	r.refresh()
	r.changed.Set()
	return moved
}

// processDead records that gossip has declared a process dead, or that it has announced
// its shutdown.
func (r *roster) processDead(name string, meta *wire.GossipMeta) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.processes, name)
	if r.isPeer(meta) {
		e := r.entry(meta.GetMember())
		e.died, e.lastDeath = true, max(e.lastDeath, meta.GetBoot())
	}
	r.refresh()
	r.changed.Set()
}

// connected records a connection from a member, whose boot counter the transport has
// verified, and its address. It reports whether the address has changed.
func (r *roster) connected(member uint64, name, addr string) (moved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entry(member).connected = true
	moved = r.setAddress(member, name, addr)
	r.refresh()
	return moved
}

// moved records the address of a member that a dial has reached elsewhere, and reports
// whether it is a new one.
func (r *roster) moved(member uint64, name, addr string) (moved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	moved = r.setAddress(member, name, addr)
	r.refresh()
	return moved
}

func (r *roster) disconnected(member uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entry(member).connected = false
	r.refresh()
	r.changed.Set()
}

// setFounder records the address and the key of a founder of the group.
func (r *roster) setFounder(f *wire.Founder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setAddress(f.GetMember(), f.GetName(), f.GetAdvertise())
	e := r.entry(f.GetMember())
	p := proto.CloneOf(e.peer)
	p.Key = f.GetKey()
	r.save(e, p)
	r.refresh()
}

// bootChanged records another boot counter that the transport has verified.
func (r *roster) bootChanged(member, boot uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := &wire.Peer{Member: member}
	e := r.entry(member)
	if e.peer != nil {
		p = proto.CloneOf(e.peer)
	}
	p.Boot = boot
	r.save(e, p)
	r.refresh()
}

// key returns the recorded public key of a member; nil: none.
func (r *roster) key(member uint64) ed25519.PublicKey { return r.snapshot().peer(member).GetKey() }

// setAcknowledged records what a member has acknowledged.
func (r *roster) setAcknowledged(member uint64, at core.Position) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(member)
	p := &wire.Peer{Member: member}
	if e.peer != nil {
		p = proto.CloneOf(e.peer)
	}
	p.AcknowledgedTerm, p.AcknowledgedIndex = at.Term, at.Index
	r.save(e, p)
}

// setMembership sets the members to those in conf, and records the addresses that gossip
// has for new ones.
func (r *roster) setMembership(conf *raftpb.ConfState) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.voters, r.standbys = conf.GetVoters(), conf.GetLearners()
	for _, id := range conf.GetVotersOutgoing() { // of a joint configuration
		if !r.isMember(id) {
			r.standbys = append(slices.Clone(r.standbys), id)
		}
	}
	for _, meta := range r.aliveProcesses() {
		r.noteAddress(meta)
	}
	r.refresh()
	r.changed.Set()
}

// retain forgets all members but some.
func (r *roster) retain(keep func(member uint64) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, e := range r.entries { // order: each by itself
		if keep(id) {
			continue
		}
		if e.peer != nil {
			r.log.SetLocalNoSync(recordOf(id), nil)
		}
		delete(r.entries, id)
	}
	r.refresh()
}

// boots returns the verified boot counters.
func (r *roster) boots() map[uint64]uint64 {
	boots := make(map[uint64]uint64)
	for _, p := range r.snapshot().peers {
		boots[p.GetMember()] = p.GetBoot()
	}
	return boots
}

// The methods below are called with mu held.

func (r *roster) entry(member uint64) *rosterEntry {
	e := r.entries[member]
	if e == nil {
		e = new(rosterEntry)
		r.entries[member] = e
	}
	return e
}

func (r *roster) isMember(id uint64) bool {
	return slices.Contains(r.voters, id) || slices.Contains(r.standbys, id)
}

// isPeer reports whether meta is of another member of the group: any process may gossip.
func (r *roster) isPeer(meta *wire.GossipMeta) bool {
	id := meta.GetMember()
	return id != r.self.GetMember() && r.isMember(id) && slices.Equal(meta.GetCluster(), r.cluster())
}

func (r *roster) noteAddress(meta *wire.GossipMeta) (moved bool) {
	if !r.isPeer(meta) {
		return false
	}
	e := r.entry(meta.GetMember())
	if meta.GetBoot() < max(e.claimed, e.peer.GetBoot()) {
		return false
	}
	e.claimed = meta.GetBoot()
	return r.setAddress(meta.GetMember(), meta.GetName(), meta.GetAdvertise())
}

func (r *roster) setAddress(member uint64, name, addr string) (moved bool) {
	e := r.entry(member)
	old := e.peer
	p := &wire.Peer{Member: member}
	if old != nil {
		p = proto.CloneOf(old)
	}
	p.Name, p.Advertise = name, addr
	if proto.Equal(old, p) {
		return false
	}
	r.save(e, p)
	return old.GetAdvertise() != addr
}

// save does not sync: gossip replaces a lost record after a restart.
func (r *roster) save(e *rosterEntry, p *wire.Peer) {
	e.peer = p
	if data, err := proto.Marshal(p); err == nil {
		r.log.SetLocalNoSync(recordOf(p.GetMember()), data)
	}
}

func recordOf(member uint64) string { return fmt.Sprintf("%s%016x", peerRecord, member) }

// aliveProcesses returns the processes by member and boot counter.
func (r *roster) aliveProcesses() []*wire.GossipMeta {
	return slices.SortedFunc(maps.Values(r.processes), func(x, y *wire.GossipMeta) int {
		return cmp.Or(cmp.Compare(x.GetMember(), y.GetMember()), cmp.Compare(x.GetBoot(), y.GetBoot()))
	})
}

// refresh publishes a new snapshot.
func (r *roster) refresh() {
	s := &rosterSnapshot{processes: r.aliveProcesses()}
	for _, id := range slices.Sorted(maps.Keys(r.entries)) {
		if p := r.entries[id].peer; p != nil {
			s.peers = append(s.peers, p)
		}
	}
	boots := map[uint64]uint64{r.self.GetMember(): r.self.GetBoot()}
	for _, meta := range s.processes {
		if r.isPeer(meta) {
			boots[meta.GetMember()] = meta.GetBoot() // ascending: the latest stays
		}
	}
	for _, id := range slices.Sorted(slices.Values(slices.Concat(r.voters, r.standbys))) {
		s.members = append(s.members, r.member(id, boots))
	}
	before := r.current.Swap(s)
	same := before != nil && slices.Equal(before.members, s.members) && slices.Equal(before.peers, s.peers)
	if r.listed != nil && !same {
		r.listed()
	}
}

// member returns a member's row. It is not dead while a connection from it is open.
func (r *roster) member(id uint64, boots map[uint64]uint64) rosterMember {
	m := rosterMember{id: id, voter: slices.Contains(r.voters, id)}
	e := r.entries[id]
	m.connected = e != nil && e.connected
	if boot, ok := boots[id]; ok {
		m.liveness, m.boot = alive, boot
	} else if e != nil && e.died {
		m.boot = e.lastDeath
		if !e.connected {
			m.liveness = dead
		}
	}
	return m
}

func (s *rosterSnapshot) has(id uint64) bool {
	return slices.ContainsFunc(s.members, func(m rosterMember) bool { return m.id == id })
}

// hasAny reports whether one of the members is among the removed ones.
func (s *rosterSnapshot) hasAny(removed []uint64) bool {
	return slices.ContainsFunc(s.members, func(m rosterMember) bool { return core.Includes(removed, m.id) })
}

// peer returns the record of a member; nil: none.
func (s *rosterSnapshot) peer(id uint64) *wire.Peer {
	if i := slices.IndexFunc(s.peers, func(p *wire.Peer) bool { return p.GetMember() == id }); i >= 0 {
		return s.peers[i]
	}
	return nil
}

// at returns the record of a member of the group that advertises addr; nil: none.
func (s *rosterSnapshot) at(addr string) *wire.Peer {
	for _, p := range s.peers {
		if p.GetAdvertise() == addr && s.has(p.GetMember()) {
			return p
		}
	}
	return nil
}

// isAlive reports whether gossip shows the member alive.
func (s *rosterSnapshot) isAlive(id uint64) bool {
	return s.liveness(id) == alive
}

func (s *rosterSnapshot) liveness(id uint64) liveness {
	if i := slices.IndexFunc(s.members, func(m rosterMember) bool { return m.id == id }); i >= 0 {
		return s.members[i].liveness
	}
	return unseen
}
