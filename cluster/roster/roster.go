// Package roster is the table of a group's members as a process sees them, with what a failure detector makes of it.
//
// It is a seam, not an API: only package cluster uses it.
package roster

import (
	"cmp"
	"crypto/ed25519"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/version"
	"github.com/conclave-go/conclave/internal/wait"
	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// Roster is the table of the group's members: their addresses, boot counters, roles and
// liveness. It is updated by gossip, by the transport and by membership changes, in any
// order and on any goroutine. Readers take an immutable snapshot.
//
// It stores addresses and boot counters on disk, so that a restarted member finds the
// others. An address is a hint: a wrong one costs a dial. A boot counter distinguishes a
// copied directory from the original, so it comes from the transport, which has
// verified it, and never from gossip.
type Roster struct {
	self    *wire.GossipMeta // without a cluster
	cluster func() []byte    // this member's; empty: none yet
	log     *raftlog.Log
	// Listed is called when the members or their records have changed; nil: ignored. It is set before the roster
	// is used.
	Listed  func()
	named   func(member uint64, name string)
	current atomic.Pointer[Snapshot]

	mu        sync.Mutex
	watchers  map[wait.Signal]bool        // guarded by mu
	voters    []uint64                    // guarded by mu
	standbys  []uint64                    // guarded by mu
	processes map[string]*wire.GossipMeta // guarded by mu; alive according to gossip, by memberlist's name
	entries   map[uint64]*entry           // guarded by mu; by member
}

type entry struct {
	peer      *wire.Peer // as on disk; nil: no record
	claimed   uint64     // the highest boot counter in gossip
	build     string     // the version that the process with it states
	died      bool       // gossip has declared a process dead
	lastDeath uint64     // the highest boot counter of these
	connected bool

	unconnected time.Time // while there is no connection from the member: since when
}

// Snapshot is an immutable state of the roster.
type Snapshot struct {
	Members []Member     // of the group, by ID, this one included
	Peers   []*wire.Peer // every known address, by member
}

// Member is a member of the group.
type Member struct {
	ID        uint64
	Voter     bool
	Liveness  Liveness
	Build     string // the version that its last process states; "": unknown
	boot      uint64 // of the latest live process, or else of the latest dead one
	connected bool   // a connection from it is up

	unconnected time.Time // else: since when, this process's start at most; zero: not known
}

// Liveness is a member's liveness according to gossip. Unseen: no event since this
// process started, or declared dead while a connection from the member is open.
type Liveness int

const (
	Unseen Liveness = iota
	Alive
	dead
)

const peerRecord = "peer/"

// Load returns the roster of the process that self describes, with the records of the log.
func Load(log *raftlog.Log, self *wire.GossipMeta, cluster func() []byte) (*Roster, error) {
	r := &Roster{
		self: self, cluster: cluster, log: log, watchers: make(map[wait.Signal]bool),
		processes: make(map[string]*wire.GossipMeta), entries: make(map[uint64]*entry),
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

// Snapshot returns the present state.
func (r *Roster) Snapshot() *Snapshot { return r.current.Load() }

// ProcessAlive records a process that gossip shows alive. If it is the latest known
// process of a member of the group, it also records the address, and reports whether
// that has changed.
func (r *Roster) ProcessAlive(name string, meta *wire.GossipMeta) (moved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.processes[name] = meta
	moved = r.noteAddress(meta)
	r.refreshAndWake()
	return moved
}

// ProcessDead records that gossip has declared a process dead, or that it has announced
// its shutdown.
func (r *Roster) ProcessDead(name string, meta *wire.GossipMeta) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.processes, name)
	if r.isPeer(meta) {
		e := r.entry(meta.GetMember())
		e.died, e.lastDeath = true, max(e.lastDeath, meta.GetBoot())
	}
	r.refreshAndWake()
}

// Connected records a connection from a member, whose boot counter the transport has
// verified, and its address. It reports whether the address has changed.
func (r *Roster) Connected(member uint64, name, addr string) (moved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entry(member).connected = true
	moved = r.setAddress(member, name, addr)
	r.refresh()
	return moved
}

// Moved records the address of a member that a dial has reached elsewhere, and reports
// whether it is a new one.
func (r *Roster) Moved(member uint64, name, addr string) (moved bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	moved = r.setAddress(member, name, addr)
	r.refresh()
	return moved
}

// Disconnected records that the last connection from a member has ended.
func (r *Roster) Disconnected(member uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entry(member)
	e.connected, e.unconnected = false, time.Now()
	r.refreshAndWake()
}

// SetFounder records the address and the key of a founder of the group.
func (r *Roster) SetFounder(f *wire.Founder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.setAddress(f.GetMember(), f.GetName(), f.GetAdvertise())
	e := r.entry(f.GetMember())
	p := proto.CloneOf(e.peer)
	p.Key = f.GetKey()
	r.save(e, p)
	r.refresh()
}

// BootChanged records another boot counter that the transport has verified.
func (r *Roster) BootChanged(member, boot uint64) {
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

// Key returns the recorded public key of a member; nil: none.
func (r *Roster) Key(member uint64) ed25519.PublicKey { return r.Snapshot().Peer(member).GetKey() }

// SetAcknowledged records what a member has acknowledged.
func (r *Roster) SetAcknowledged(member uint64, at core.Position) {
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

// SetMembership sets the members to those in conf, and records the addresses that gossip
// has for new ones.
func (r *Roster) SetMembership(conf *raftpb.ConfState) {
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
	r.refreshAndWake()
}

// Retain forgets all members but some.
func (r *Roster) Retain(keep func(member uint64) bool) {
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

// IsMember reports whether a member is in Raft's configuration as far as this process knows.
func (r *Roster) IsMember(id uint64) bool { return r.Snapshot().Has(id) }

// Boots returns the verified boot counters.
func (r *Roster) Boots() map[uint64]uint64 {
	boots := make(map[uint64]uint64)
	for _, p := range r.Snapshot().Peers {
		boots[p.GetMember()] = p.GetBoot()
	}
	return boots
}

// The methods below are called with mu held.

func (r *Roster) entry(member uint64) *entry {
	e := r.entries[member]
	if e == nil {
		e = &entry{unconnected: time.Now()}
		r.entries[member] = e
	}
	return e
}

func (r *Roster) isMember(id uint64) bool {
	return slices.Contains(r.voters, id) || slices.Contains(r.standbys, id)
}

// isPeer reports whether meta is of another member of the group: any process may gossip.
func (r *Roster) isPeer(meta *wire.GossipMeta) bool {
	id := meta.GetMember()
	return id != r.self.GetMember() && r.isMember(id) && slices.Equal(meta.GetCluster(), r.cluster())
}

func (r *Roster) noteAddress(meta *wire.GossipMeta) (moved bool) {
	if !r.isPeer(meta) {
		return false
	}
	e := r.entry(meta.GetMember())
	if meta.GetBoot() < max(e.claimed, e.peer.GetBoot()) {
		return false
	}
	e.claimed, e.build = meta.GetBoot(), version.Stated(meta.GetBuild())
	return r.setAddress(meta.GetMember(), meta.GetName(), meta.GetAdvertise())
}

func (r *Roster) setAddress(member uint64, name, addr string) (moved bool) {
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
func (r *Roster) save(e *entry, p *wire.Peer) {
	e.peer = p
	if r.named != nil {
		r.named(p.GetMember(), p.GetName())
	}
	if data, err := proto.Marshal(p); err == nil {
		r.log.SetLocalNoSync(recordOf(p.GetMember()), data)
	}
}

func recordOf(member uint64) string { return fmt.Sprintf("%s%016x", peerRecord, member) }

// aliveProcesses returns the processes by member and boot counter.
func (r *Roster) aliveProcesses() []*wire.GossipMeta {
	return slices.SortedFunc(maps.Values(r.processes), func(x, y *wire.GossipMeta) int {
		return cmp.Or(cmp.Compare(x.GetMember(), y.GetMember()), cmp.Compare(x.GetBoot(), y.GetBoot()))
	})
}

// refreshAndWake is refresh, and wakes the watchers if the snapshot differs: not for what strangers gossip.
func (r *Roster) refreshAndWake() {
	if r.refresh() {
		r.changed()
	}
}

// refresh publishes a new snapshot, and reports whether it differs from the last one.
func (r *Roster) refresh() (differs bool) {
	s := new(Snapshot)
	for _, id := range slices.Sorted(maps.Keys(r.entries)) {
		if p := r.entries[id].peer; p != nil {
			s.Peers = append(s.Peers, p)
		}
	}
	boots := map[uint64]uint64{r.self.GetMember(): r.self.GetBoot()}
	for _, meta := range r.aliveProcesses() {
		if r.isPeer(meta) {
			boots[meta.GetMember()] = meta.GetBoot() // ascending: the latest stays
		}
	}
	for _, id := range slices.Sorted(slices.Values(slices.Concat(r.voters, r.standbys))) {
		s.Members = append(s.Members, r.member(id, boots))
	}
	before := r.current.Swap(s)
	differs = before == nil || !slices.Equal(before.Members, s.Members) || !slices.Equal(before.Peers, s.Peers)
	if r.Listed != nil && differs {
		r.Listed()
	}
	return differs
}

// member returns a member's row. It is not dead while a connection from it is open.
func (r *Roster) member(id uint64, boots map[uint64]uint64) Member {
	m := Member{ID: id, Voter: slices.Contains(r.voters, id)}
	e := r.entries[id]
	if e != nil {
		m.connected, m.unconnected = e.connected, e.unconnected
	}
	m.Build = r.buildOf(id)
	if boot, ok := boots[id]; ok {
		m.Liveness, m.boot = Alive, boot
	} else if e != nil && e.died {
		m.boot = e.lastDeath
		if !e.connected {
			m.Liveness = dead
		}
	}
	return m
}

// IsDead reports whether gossip has declared the member's latest process dead, and no connection from it is open.
func (s *Snapshot) IsDead(id uint64) bool { return s.liveness(id) == dead }

// IsAlive reports whether gossip shows the member alive.
func (s *Snapshot) IsAlive(id uint64) bool {
	return s.liveness(id) == Alive
}

func (s *Snapshot) liveness(id uint64) Liveness {
	if i := slices.IndexFunc(s.Members, func(m Member) bool { return m.ID == id }); i >= 0 {
		return s.Members[i].Liveness
	}
	return Unseen
}
