package cluster

import (
	"fmt"
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

	lastLeader uint64 // the last one that was known
	conf       *raftpb.ConfState
	removed    []uint64
	registered bool
	level      uint32             // the group's feature level
	processes  map[uint64]wire.ID // the last registered of each member
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
	before, lastLeader := m.status.Load(), c.Leader
	if lastLeader == 0 && before != nil {
		lastLeader = before.lastLeader
	}
	level, _ := m.core.Machine().Level()
	m.status.Store(&Status{
		Leader: c.Leader, Term: c.Term,
		Commit: c.Commit, Applied: c.Applied,
		Installed:  c.Installed,
		lastLeader: lastLeader,
		conf:       c.Membership,
		removed:    m.core.Machine().Removed(),
		registered: c.Registered,
		level:      level,
		processes:  m.core.Machine().Registered(),
	})
	if c.Registered && before != nil && !before.registered {
		m.leadership.set()
	}
	if s := m.status.Load(); slices.Contains(s.removed, m.identity.member) {
		m.considerRemoval(s)
	}
}

// registeredProcess implements transport.Config.Registered.
func (m *Member) registeredProcess(member uint64) wire.ID {
	if s := m.status.Load(); s != nil {
		return s.processes[member]
	}
	return wire.ID{}
}

// Unreachable describes the last known leader, if there is no connection to it; "" if
// there is one. A member may reach a majority and not the leader of that majority.
func (m *Member) Unreachable() string {
	s := m.Status()
	leader := s.lastLeader
	if leader == 0 || leader == s.ID {
		return ""
	}
	err := m.port.PeerError(leader)
	if err == nil {
		return ""
	}
	voters, reachable, name := 0, 0, ""
	for _, p := range s.Members {
		if p.ID == leader {
			name = fmt.Sprintf(" (%s at %s)", p.Name, p.Addr)
		}
		if p.Voter {
			voters++
			if p.ID == s.ID || m.port.PeerError(p.ID) == nil {
				reachable++
			}
		}
	}
	return fmt.Sprintf("there is no connection to the leader, member %v%s: %v; this member reaches %d of %d voters",
		wire.MemberID(leader), name, err, reachable, voters)
}

// JoinError returns the error of the last attempt to join a member by gossip.
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
