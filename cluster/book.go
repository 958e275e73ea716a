package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/conclave-go/conclave/internal/wire"
	"github.com/conclave-go/conclave/raftlog"
	"github.com/conclave-go/conclave/storage"
)

// book remembers where the members of the group were last seen and how often
// each has started. It is kept on disk, so that a restarted member finds the
// others without being told.
//
// An address is advice: a wrong one costs a dial. A count of starts is not, as
// it tells a copied directory from the real one; it comes from the port, which
// has verified it, and never from gossip.
type book struct {
	log *raftlog.Log

	mu      sync.Mutex
	peers   map[uint64]*wire.Peer // guarded by mu
	claimed map[uint64]uint64     // guarded by mu; the latest start that gossip spoke of
}

const peerRecord = "peer/"

func loadBook(log *raftlog.Log) (*book, error) {
	b := &book{log: log, peers: make(map[uint64]*wire.Peer), claimed: make(map[uint64]uint64)}
	records, err := log.Locals(peerRecord)
	if err != nil {
		return nil, err
	}
	for name, value := range records {
		p := new(wire.Peer)
		if err := proto.Unmarshal(value, p); err != nil {
			return nil, fmt.Errorf("%w: address of a member, %q: %v", storage.ErrCorrupt, name, err)
		}
		b.peers[p.GetMember()] = p
	}
	return b, nil
}

// heard notes where gossip says that a start of a member can be reached; the
// latest start wins. It reports whether that is news.
func (b *book) heard(member, start uint64, name, addr string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if start < max(b.claimed[member], b.peers[member].GetBoot()) {
		return false
	}
	b.claimed[member] = start
	return b.note(member, name, addr)
}

// met notes where a member says that it can be reached, after it has shown that
// it is the latest start. It reports whether that is news.
func (b *book) met(member uint64, name, addr string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.note(member, name, addr)
}

// note is called with mu held.
func (b *book) note(member uint64, name, addr string) bool {
	old := b.peers[member]
	p := &wire.Peer{Member: member, Name: name, Advertise: addr, Boot: old.GetBoot()}
	if proto.Equal(old, p) {
		return false
	}
	b.peers[member] = p
	b.save(p)
	return old.GetAdvertise() != addr
}

// raised notes that a member has started anew.
func (b *book) raised(member, boot uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := &wire.Peer{Member: member}
	if old := b.peers[member]; old != nil {
		p = proto.CloneOf(old)
	}
	p.Boot = max(p.Boot, boot)
	b.peers[member] = p
	b.save(p)
}

// save needs no answer: losing it costs a lookup after the next restart.
func (b *book) save(p *wire.Peer) {
	if data, err := proto.Marshal(p); err == nil {
		b.log.SetLocalNoSync(fmt.Sprintf("%s%016x", peerRecord, p.GetMember()), data)
	}
}

// all lists the members ever seen, by ID.
func (b *book) all() []*wire.Peer {
	b.mu.Lock()
	defer b.mu.Unlock()
	peers := make([]*wire.Peer, 0, len(b.peers))
	for _, p := range b.peers {
		peers = append(peers, p)
	}
	slices.SortFunc(peers, func(x, y *wire.Peer) int { return cmp.Compare(x.GetMember(), y.GetMember()) })
	return peers
}

func (b *book) boots() map[uint64]uint64 {
	boots := make(map[uint64]uint64)
	for _, p := range b.all() {
		boots[p.GetMember()] = p.GetBoot()
	}
	return boots
}
