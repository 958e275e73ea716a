// Package provisional decides whom a member accepts although its log does not show them as members yet. It is
// a seam, not an API: only package cluster uses it.
//
// A member that was down, or that has just been admitted, may not know the member that leads now: it joined
// by a change that this member's log does not contain yet, and only that leader could send it. Such members
// are provisional: they are accepted as standbys are, until this member's log is as far as the statement on
// which they are accepted, or has the removal of one that made it.
//
//   - A process presents endorsements, over a connection that this member refuses (cluster/identity).
//   - A member that is accepted vouches for the members that it knows, over each new connection. The statement
//     of one proven member suffices: that member could itself lead, and send any log. Where more members have
//     joined, each by the one before, than endorsements reach back, nothing else lets the leader in.
//   - A member that was admitted, and has no state yet, accepts the members that its admission named.
package provisional

import (
	"crypto/ed25519"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/wire"
)

// MaxMembers bounds the provisional members.
const MaxMembers = 256

// Log is what this member's log shows.
type Log struct {
	Applied uint64
	Conf    *raftpb.ConfState
	Removed []uint64 // ascending
}

// Members are the provisional members of one log. They are not safe for concurrent use.
type Members struct {
	self    uint64
	members map[uint64]*statement
}

// statement is why a member is accepted, and until when.
type statement struct {
	index uint64   // the log has to have
	by    []uint64 // none of these may be removed
}

// New returns no members. self is this member.
func New(self uint64) *Members {
	return &Members{self: self, members: make(map[uint64]*statement)}
}

// Endorsed accepts a member that others have endorsed until the log grows; over its connection that
// member states how far. It reports whether the member was not accepted before.
func (m *Members) Endorsed(log Log, member *wire.VouchedMember, by []uint64) bool {
	return m.add(log, member, statement{index: log.Applied + 1, by: by})
}

// Vouched accepts the members that a peer has stated, and returns those that were not accepted before. A peer
// that is not accepted itself states nothing. named are the members that this member's admission named.
func (m *Members) Vouched(log Log, named []uint64, from uint64, stated *wire.Membership) (added []*wire.VouchedMember) {
	if stated.GetIndex() <= log.Applied || !slices.Contains(core.MembersOf(m.With(log, named)), from) {
		return nil
	}
	by := []uint64{from}
	if s := m.members[from]; s != nil { // it was endorsed
		s.index = max(s.index, stated.GetIndex())
		by = append(by, s.by...)
	}
	for _, member := range stated.GetMembers() {
		if known := m.members[member.GetMember()]; known != nil {
			known.index = max(known.index, stated.GetIndex())
		}
		if m.add(log, member, statement{index: stated.GetIndex(), by: by}) {
			added = append(added, member)
		}
	}
	return added
}

func (m *Members) add(log Log, member *wire.VouchedMember, s statement) bool {
	id := member.GetMember()
	switch {
	case id == m.self, slices.Contains(core.MembersOf(log.Conf), id), m.members[id] != nil:
		return false
	case len(member.GetKey()) != ed25519.PublicKeySize, wire.FingerprintOf(member.GetKey()) != id:
		return false
	case len(m.members) >= MaxMembers, s.hasEnded(id, log):
		return false
	}
	m.members[id] = &s
	return true
}

// hasEnded reports whether a member is not accepted any more.
func (s *statement) hasEnded(id uint64, log Log) bool {
	return log.Applied >= s.index || core.Includes(log.Removed, id) ||
		slices.ContainsFunc(s.by, func(id uint64) bool { return core.Includes(log.Removed, id) })
}

// With returns the log's configuration with the provisional members as standbys. Where the log has none, named take
// its place.
func (m *Members) With(log Log, named []uint64) *raftpb.ConfState {
	conf := log.Conf
	if len(conf.GetVoters()) == 0 {
		conf = &raftpb.ConfState{Voters: named, Learners: []uint64{m.self}}
	}
	members, learners := core.MembersOf(conf), slices.Clone(conf.GetLearners())
	for id, s := range m.members { // order: of a set
		if !slices.Contains(members, id) && !s.hasEnded(id, log) {
			learners = append(learners, id)
		}
	}
	return &raftpb.ConfState{Voters: conf.GetVoters(), VotersOutgoing: conf.GetVotersOutgoing(), Learners: learners}
}

// Expire drops the members that are not accepted any more, and reports whether there were some. It precedes
// Endorsed and Vouched: a later statement must not renew an acceptance that has ended.
func (m *Members) Expire(log Log) bool {
	before := len(m.members)
	maps.DeleteFunc(m.members, func(id uint64, s *statement) bool { return s.hasEnded(id, log) })
	return len(m.members) < before
}

// IsEmpty reports whether there are no provisional members.
func (m *Members) IsEmpty() bool { return len(m.members) == 0 }
