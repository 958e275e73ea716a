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

// book remembers where the members were last seen and how often each has
// started. It is advice: a wrong address costs a dial. The latest start of a
// member wins. It is kept on disk, so that a restarted member finds the others
// without being told.
type book struct {
	log *raftlog.Log

	mu    sync.Mutex
	peers map[uint64]*wire.Peer // guarded by mu
}

const peerRecord = "peer/"

func loadBook(log *raftlog.Log) (*book, error) {
	b := &book{log: log, peers: make(map[uint64]*wire.Peer)}
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

// saw notes where a member says it can be reached. It reports whether that is
// news.
func (b *book) saw(p *wire.Peer) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	old := b.peers[p.GetMember()]
	if old.GetBoot() > p.GetBoot() || proto.Equal(old, p) {
		return false
	}
	b.peers[p.GetMember()] = p
	b.save(p)
	return old.GetAdvertise() != p.GetAdvertise()
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
		b.log.NoteLocal(fmt.Sprintf("%s%016x", peerRecord, p.GetMember()), data)
	}
}

func (b *book) boot(member uint64) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.peers[member].GetBoot()
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
