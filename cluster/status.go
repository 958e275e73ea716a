package cluster

import (
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/cluster/replica"
	"github.com/conclave-go/conclave/internal/wire"
)

// Status is a member's view of itself and its group.
type Status struct {
	replica.Status
	ID                   uint64
	Name                 string
	Members              []Peer // by ID, this one included
	Cluster, Incarnation wire.ID
	Boot                 uint64
	// Redundancy is how many more voters may fail, according to gossip; negative: there is no
	// quorum.
	Redundancy int
}

// Peer is a member of the group as this one sees it.
type Peer struct {
	ID         uint64
	Name, Addr string
	Voter      bool
	Alive      bool // according to gossip
	// Build is the version that its last process states, in gossip; "": unknown.
	Build string
	// Level is the feature level that its last registered process supports; 0: none has registered.
	Level uint32
	// Priority is the LeaderPriority of its process, if this member is connected to that.
	Priority      int32
	PriorityKnown bool
	// Lag is how many entries it has not acknowledged to this leader; 0 on other members.
	Lag uint64
	// Silence is for how long this member has had no Raft message of it; negative: it has
	// had none.
	Silence time.Duration
}

// registeredProcess implements transport.Config.Registered.
func (m *Member) registeredProcess(member uint64) wire.ID {
	if s := m.replica.Status(); s != nil {
		return s.Processes[member]
	}
	return wire.ID{}
}

// Unreachable describes the last known leader, if there is no connection to it; "" if
// there is one. A member may reach a majority and not the leader of that majority. It also describes a
// voter that this member reaches and that does not reach it: without a leader that may be the one that leads.
func (m *Member) Unreachable() string {
	s := m.Status()
	leader := s.LastLeader
	if s.Leader == s.ID {
		return ""
	}
	if err := m.port.PeerError(leader); leader != 0 && leader != s.ID && err != nil {
		name := ""
		for _, p := range s.Members {
			if p.ID == leader {
				name = fmt.Sprintf(" (%s at %s)", p.Name, p.Addr)
			}
		}
		reachable, voters := m.reach(s.Conf)
		return fmt.Sprintf("there is no connection to the leader, member %v%s: %v; this member reaches %d of %d voters",
			wire.MemberID(leader), name, err, reachable, voters)
	}
	seen := m.roster.Snapshot()
	for _, p := range s.Members {
		if p.ID == s.ID || !p.Voter || seen.Unconnected(p.ID) < oneWayGrace || m.port.PeerError(p.ID) != nil || s.Leader != 0 && p.ID != leader {
			continue
		}
		what := "a voter"
		if p.ID == leader {
			what = "the leader"
		}
		return fmt.Sprintf("%s, member %v (%s at %s), does not reach this member at %s, which reaches it: check the firewall here, and Config.Advertise",
			what, wire.MemberID(p.ID), p.Name, p.Addr, m.cfg.Advertise)
	}
	return ""
}

// oneWayGrace is for how long a voter that this member reaches may have no connection to it: after a start of either, the
// two are not up at the same moment.
const oneWayGrace = 5 * time.Second

// reach counts the voters, and those that this member is connected to or is itself; of a joint
// configuration, in the half that is nearest to the loss of its majority.
func (m *Member) reach(conf *raftpb.ConfState) (reachable, voters int) {
	return weakerHalf(conf, func(id uint64) bool { return id == m.identity.Member || m.port.PeerError(id) == nil })
}

// JoinError returns the error of the last attempt to join a member by gossip.
func (m *Member) JoinError() error { return m.gossip.LastJoinError() }

// Status returns the current view. It never blocks.
func (m *Member) Status() Status { return m.statusOf(m.replica.Status()) }

func (m *Member) statusOf(of *replica.Status) Status {
	s := Status{
		Status: *of, ID: m.identity.Member, Name: m.cfg.Name, Cluster: m.identity.Cluster(), Incarnation: m.identity.Incarnation,
		Boot: m.identity.Get().GetBoot(),
	}
	roster := m.roster.Snapshot()
	known := make(map[uint64]Peer)
	for _, p := range roster.Peers {
		known[p.GetMember()] = Peer{Name: p.GetName(), Addr: p.GetAdvertise()}
	}
	known[s.ID] = Peer{Name: m.cfg.Name, Addr: m.cfg.Advertise}
	s.Redundancy = redundancy(s.Conf, func(id uint64) bool { return roster.IsAlive(id) || id == s.ID })
	for _, id := range core.MembersOf(s.Conf) {
		p := known[id]
		p.Build, p.Level = roster.Build(id), s.levelOf(id)
		if p.Priority, p.PriorityKnown = m.cfg.LeaderPriority, true; id != s.ID {
			p.Priority, p.PriorityKnown = m.port.LeaderPriority(id)
		}
		p.ID, p.Voter = id, slices.Contains(s.Conf.GetVoters(), id)
		p.Alive = roster.IsAlive(id) || id == s.ID
		p.Lag, p.Silence = s.Progress(s.ID, id, m.cfg.Heartbeat)
		s.Members = append(s.Members, p)
	}
	return s
}

// levelOf returns the feature level that a member's last registered process supports; 0: none has registered.
func (s *Status) levelOf(id uint64) uint32 {
	for _, r := range s.Admitted {
		if r.ID == id && r.Registered {
			return r.Level
		}
	}
	return 0
}

// redundancy returns how many more voters may fail; of a joint configuration, of the half
// with fewer.
func redundancy(conf *raftpb.ConfState, alive func(id uint64) bool) int {
	live, voters := weakerHalf(conf, alive)
	if voters == 0 {
		return -1 // no configuration yet
	}
	return live - (voters/2 + 1)
}

// weakerHalf returns how many voters are up, and how many there are; of a joint configuration, which
// needs a majority of both halves, in the one that may lose fewer.
func weakerHalf(conf *raftpb.ConfState, up func(id uint64) bool) (ups, voters int) {
	least := math.MaxInt
	for _, half := range [][]uint64{conf.GetVoters(), conf.GetVotersOutgoing()} {
		n := 0
		for _, id := range half {
			if up(id) {
				n++
			}
		}
		if margin := n - (len(half)/2 + 1); len(half) > 0 && margin < least {
			least, ups, voters = margin, n, len(half)
		}
	}
	return ups, voters
}

// Voters returns the voters of Raft's configuration as far as this member knows.
func (m *Member) Voters() []uint64 { return votersOf(m.replica) }

func votersOf(g group) []uint64 { return g.Status().Conf.GetVoters() }

// HasQuorum reports whether a majority of the voters is up, this member included, as far
// as is known here. It never blocks.
func (m *Member) HasQuorum() bool {
	return m.roster.Snapshot().MayHaveQuorum(m.replica.Status().Leader)
}
