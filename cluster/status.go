package cluster

import (
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
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
	// Stalled is for how long the oldest write to the disk, or the oldest entry that this
	// leader has proposed, has been under way.
	Stalled time.Duration
	// Plan is what the leader's reconciler does or waits for; "": nothing, or this member
	// does not lead.
	Plan string
	// Redundancy is how many more voters may fail, according to gossip; negative: there is no
	// quorum.
	Redundancy int

	lastLeader uint64 // the last one that was known
	conf       *raftpb.ConfState
	removed    []uint64
	admitted   []wire.MemberRecord // to the group, and not removed; not all are in conf yet
	ticks      uint64
	peers      map[uint64]core.PeerProgress
	registered bool
	lag        lag
	level      uint32             // the group's feature level
	processes  map[uint64]wire.ID // the last registered of each member
}

// Peer is a member of the group as this one sees it.
type Peer struct {
	ID         uint64
	Name, Addr string
	Voter      bool
	Alive      bool // according to gossip
	// Lag is how many entries it has not acknowledged to this leader; 0 on other members.
	Lag uint64
	// Silence is for how long this member has had no Raft message of it; negative: it has
	// had none.
	Silence time.Duration
}

// publish stores the core's status for other goroutines.
func (m *Member) publish() {
	c := m.core.Status()
	before, lastLeader := m.status.Load(), c.Leader
	if lastLeader == 0 && before != nil {
		lastLeader = before.lastLeader
	}
	var peers map[uint64]core.PeerProgress
	if before != nil && before.ticks == c.Ticks && before.Leader == c.Leader && before.Term == c.Term {
		peers = before.peers
	} else {
		peers = m.core.Peers()
	}
	level, _ := m.core.Machine().Level()
	m.metrics.GroupTime.Store(m.core.Machine().Now())
	m.noteLag(c, peers, before != nil && !before.registered)
	m.status.Store(&Status{
		Plan: c.Plan, ticks: c.Ticks, peers: peers,
		Leader: c.Leader, Term: c.Term,
		Commit: c.Commit, Applied: c.Applied,
		Installed:  c.Installed,
		Stalled:    c.Stalled,
		lastLeader: lastLeader,
		conf:       c.Membership,
		removed:    m.core.Machine().Removed(),
		admitted:   m.core.Machine().Members(),
		registered: c.Registered,
		lag:        m.lag,
		level:      level,
		processes:  m.core.Machine().Registered(),
	})
	if c.Registered && before != nil && !before.registered {
		m.leadership.Set()
	}
	if s := m.status.Load(); core.Includes(s.removed, m.identity.Member) {
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
	name := ""
	for _, p := range s.Members {
		if p.ID == leader {
			name = fmt.Sprintf(" (%s at %s)", p.Name, p.Addr)
		}
	}
	reachable, voters := m.reach(s.Members)
	return fmt.Sprintf("there is no connection to the leader, member %v%s: %v; this member reaches %d of %d voters",
		wire.MemberID(leader), name, err, reachable, voters)
}

// reach counts the voters, and those that this member is connected to or is itself.
func (m *Member) reach(members []Peer) (reachable, voters int) {
	for _, p := range members {
		if !p.Voter {
			continue
		}
		voters++
		if p.ID == m.identity.Member || m.port.PeerError(p.ID) == nil {
			reachable++
		}
	}
	return reachable, voters
}

// JoinError returns the error of the last attempt to join a member by gossip.
func (m *Member) JoinError() error { return m.gossip.LastJoinError() }

func (m *Member) listsChanged() {
	applied := uint64(0)
	if s := m.status.Load(); s != nil {
		applied = s.Applied
	}
	if m.cfg.ListsChanged != nil {
		m.cfg.ListsChanged(applied)
	}
}

// Status returns the current view. It never blocks.
func (m *Member) Status() Status {
	s := *m.status.Load()
	s.ID, s.Name = m.identity.Member, m.cfg.Name
	s.Cluster, s.Incarnation = m.identity.Cluster(), m.identity.Incarnation
	s.Boot = m.identity.Get().GetBoot()
	roster := m.roster.Snapshot()
	known := make(map[uint64]Peer)
	for _, p := range roster.Peers {
		known[p.GetMember()] = Peer{Name: p.GetName(), Addr: p.GetAdvertise()}
	}
	known[s.ID] = Peer{Name: m.cfg.Name, Addr: m.cfg.Advertise}
	s.Redundancy = redundancy(s.conf, func(id uint64) bool { return roster.IsAlive(id) || id == s.ID })
	for _, id := range membersOf(s.conf) {
		p := known[id]
		p.ID, p.Voter = id, slices.Contains(s.conf.GetVoters(), id)
		p.Alive = roster.IsAlive(id) || id == s.ID
		p.Lag, p.Silence = s.progress(id, m.cfg.Heartbeat)
		s.Members = append(s.Members, p)
	}
	return s
}

// Voters returns how many members vote, or did before a change that is under way.
func (s *Status) Voters() int { return max(len(s.conf.GetVoters()), len(s.conf.GetVotersOutgoing())) }

// progress returns a member's lag, and for how long nothing was heard of it.
func (s *Status) progress(id uint64, tick time.Duration) (lag uint64, silence time.Duration) {
	if id == s.ID {
		return 0, 0
	}
	p, silence := s.peers[id], -1*time.Nanosecond
	if p.Heard > 0 {
		silence = time.Duration(s.ticks-p.Heard) * tick
	}
	if s.Leader == s.ID && p.Match < s.Commit {
		lag = s.Commit - p.Match
	}
	return lag, silence
}

// membersOf returns the members of a configuration, by ID.
func membersOf(conf *raftpb.ConfState) []uint64 {
	members := slices.Concat(conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing())
	slices.Sort(members)
	return slices.Compact(members)
}

// redundancy returns how many more voters may fail; of a joint configuration, of the half
// with fewer.
func redundancy(conf *raftpb.ConfState, alive func(id uint64) bool) int {
	least := math.MaxInt
	for _, half := range [][]uint64{conf.GetVoters(), conf.GetVotersOutgoing()} {
		live := 0
		for _, id := range half {
			if alive(id) {
				live++
			}
		}
		if len(half) > 0 {
			least = min(least, live-(len(half)/2+1))
		}
	}
	if least == math.MaxInt {
		return -1 // no configuration yet
	}
	return least
}

// HasQuorum reports whether a majority of the voters is up, this member included, as far
// as is known here. It never blocks.
func (m *Member) HasQuorum() bool { return m.roster.Snapshot().MayHaveQuorum(m.status.Load().Leader) }
