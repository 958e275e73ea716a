package core

import (
	"cmp"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
)

// peers is what this member knows of the others. Invariant: there is an entry for each other
// member of the configuration, of a joint one in either half, and for no other process. So the
// members bound its memory, and what is known of one ends at the latest with its removal.
type peers struct {
	byID map[uint64]*peer
	all  []*peer // by ID: what is done with each of them in turn has the same effects in each run
}

// peer is what this member knows of another one, beyond raft's progress. Each piece ends at the
// moments below, which are methods, and otherwise with the peer's removal from the configuration:
//
//	               connection   leadership   leadership   vote of     a stream to
//	               from it lost begins here  ends here    it ended    it ended
//	heardAt        -            -            -            -           -
//	activeUntil    ends         ends         -            -           -
//	catchUp        -            -            ends         -           streaming ends
//	unconfirmed    -            -            refused      -           ends
//	claims         -            -            -            ends        -
//	differs        -            -            -            ends        -
//
// An installed snapshot ends nothing of that by itself: it brings a configuration, which may remove
// members or end votes. It ends what arbitration knows of the state that it replaces.
type peer struct {
	id          uint64
	heardAt     uint64       // the tick of its last message; 0: none
	activeUntil uint64       // the tick up to which it is active, see isActive; 0: it is not
	catchUp     *catchUp     // nil: the log waits for nothing of it
	unconfirmed *unconfirmed // nil: no snapshot for it waits for an agreement
	claims      *digestRing  // the digests that it has sent as a voter; nil: none
	differs     bool         // its last compared digest differed from the majority's
}

// heard notes a message, which counts as activity for an election timeout.
func (p *peer) heard(tick, timeout uint64) { p.heardAt, p.activeUntil = tick, tick+timeout }

// connectionLost ends what is known of the peer's process by its connection.
func (p *peer) connectionLost() { p.activeUntil = 0 }

// leadershipBegan ends what the peer has sent to this member as a follower: it may have been the
// leader, and be dead.
func (p *peer) leadershipBegan() { p.activeUntil = 0 }

// leadershipEnded ends the wait for the peer: the next leader sends it the entries. A snapshot
// without an agreement is refused by confirmSnapshots, in the same Take.
func (p *peer) leadershipEnded() { p.catchUp = nil }

// voteEnded ends what only voters decide on, and reports whether the peer took part.
func (p *peer) voteEnded() (compared bool) {
	compared = p.claims != nil
	p.claims, p.differs = nil, false
	return compared
}

// snapshotBegan notes a snapshot of the state at index in flight. The allowance is that of the
// preceding one, if the peer has not caught up since.
func (p *peer) snapshotBegan(index, tick uint64) {
	if p.catchUp == nil {
		p.catchUp = &catchUp{allowance: firstAllowance}
	}
	m := p.catchUp
	m.from, m.sent, m.streaming, m.kept, m.progress = index, 0, true, true, tick
}

// snapshotEnded notes that no snapshot is in flight any more. The log still waits for the entries
// after it.
func (p *peer) snapshotEnded() {
	p.unconfirmed = nil
	if p.catchUp != nil {
		p.catchUp.streaming = false
	}
}

// claim notes a digest that the peer has sent.
func (p *peer) claim(index, digest uint64) {
	if p.claims == nil {
		p.claims = new(digestRing)
	}
	p.claims.put(index, digest)
}

// claimed returns the digest that the peer has sent of an index, or nil.
func (p *peer) claimed(index uint64) *indexedDigest {
	if p == nil || p.claims == nil {
		return nil
	}
	return p.claims.at(index)
}

// follow adds the members of a configuration that are new, and forgets those that are not in it.
func (s *peers) follow(self uint64, conf *raftpb.ConfState) {
	members := make(map[uint64]*peer)
	s.all = nil
	for _, id := range slices.Concat(conf.GetVoters(), conf.GetVotersOutgoing(), conf.GetLearners()) {
		if id == self || members[id] != nil {
			continue
		}
		members[id] = cmp.Or(s.byID[id], &peer{id: id})
		s.all = append(s.all, members[id])
	}
	s.byID = members
	slices.SortFunc(s.all, func(a, b *peer) int { return cmp.Compare(a.id, b.id) })
}

// heardAt returns the tick of the last message of a member; 0: none.
func (s *peers) heardAt(id uint64) uint64 {
	if p := s.byID[id]; p != nil {
		return p.heardAt
	}
	return 0
}
