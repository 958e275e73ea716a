package cluster

import (
	"slices"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// Status is a member's view of itself and its group.
type Status struct {
	ID                   uint64
	Name                 string
	Leader, Term         uint64
	Commit, Applied      uint64
	Members              []Peer // by ID, this one included
	Cluster, Incarnation wire.ID
	Boot                 uint64
	Installed            uint64 // snapshots since the start

	conf       *raftpb.ConfState
	removed    []uint64
	registered bool
}

// Peer is a member of the group as this one sees it.
type Peer struct {
	ID         uint64
	Name, Addr string
	Voter      bool
	Alive      bool // according to gossip
}

// publish stores the core's status for other goroutines.
func (m *Member) publish() {
	c := m.core.Status()
	before := m.status.Load()
	m.status.Store(&Status{
		Leader: c.Leader, Term: c.Term,
		Commit: c.Commit, Applied: c.Applied,
		Installed:  c.Installed,
		conf:       c.Membership,
		removed:    m.core.Machine().Removed(),
		registered: c.Registered,
	})
	if c.Registered && before != nil && !before.registered {
		m.leadership.set()
	}
}

// JoinError returns the error of the last attempt to join an address.
func (m *Member) JoinError() error { return m.gossip.lastJoinError() }

// Status returns the current view. It never blocks.
func (m *Member) Status() Status {
	s := *m.status.Load()
	s.ID, s.Name = m.identity.member, m.cfg.Name
	s.Cluster, s.Incarnation = m.identity.cluster(), m.identity.incarnation
	s.Boot = m.identity.get().GetBoot()
	roster := m.roster.snapshot()
	known := make(map[uint64]Peer)
	for _, p := range roster.peers {
		known[p.GetMember()] = Peer{Name: p.GetName(), Addr: p.GetAdvertise()}
	}
	known[s.ID] = Peer{Name: m.cfg.Name, Addr: m.cfg.Advertise}
	for _, id := range slices.Sorted(slices.Values(slices.Concat(s.conf.GetVoters(), s.conf.GetLearners()))) {
		p := known[id]
		p.ID, p.Voter = id, slices.Contains(s.conf.GetVoters(), id)
		p.Alive = roster.isAlive(id) || id == s.ID
		s.Members = append(s.Members, p)
	}
	return s
}

// HasQuorum reports whether gossip shows a majority of the voters alive, this member
// included. It never blocks.
func (m *Member) HasQuorum() bool { return m.roster.snapshot().hasQuorum() }
