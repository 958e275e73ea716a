package cluster

import (
	"slices"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/internal/wire"
)

// Status is what the member knows at the moment.
type Status struct {
	ID                   uint64
	Name                 string
	Leader, Term         uint64
	Commit, Applied      uint64
	Members              []Peer // by ID, this one included
	Cluster, Incarnation wire.ID
	Boot                 uint64
	Installed            uint64 // snapshots since the start

	conf *raftpb.ConfState
	left []uint64
}

// Peer is a member of the group as this one sees it.
type Peer struct {
	ID         uint64
	Name, Addr string
	Voter      bool
	Alive      bool // gossip says that it answers
}

// publish lets the world see how far the loop is.
func (m *Member) publish() {
	c := m.core.Status()
	m.status.Store(&Status{
		Leader: c.Leader, Term: c.Term,
		Commit: c.Commit, Applied: c.Applied,
		Installed: c.Installed,
		conf:      c.Membership,
		left:      m.core.Machine().Left(),
	})
}

// Unmet says why the address that was tried last led to no other member; nil is
// that it did.
func (m *Member) Unmet() error { return m.gossip.whyUnmet() }

// Status never blocks.
func (m *Member) Status() Status {
	s := *m.status.Load()
	s.ID, s.Name = m.identity.member, m.cfg.Name
	s.Cluster, s.Incarnation = m.identity.cluster(), m.identity.incarnation
	s.Boot = m.identity.get().GetBoot()
	known := map[uint64]Peer{s.ID: {Name: m.cfg.Name, Addr: m.cfg.Advertise, Alive: true}}
	for _, p := range m.book.all() {
		if p.GetMember() != s.ID {
			known[p.GetMember()] = Peer{Name: p.GetName(), Addr: p.GetAdvertise()}
		}
	}
	for _, meta := range m.gossip.alive() {
		p := known[meta.GetMember()]
		p.Alive = true
		known[meta.GetMember()] = p
	}
	for _, id := range slices.Sorted(slices.Values(slices.Concat(s.conf.GetVoters(), s.conf.GetLearners()))) {
		p := known[id]
		p.ID, p.Voter = id, slices.Contains(s.conf.GetVoters(), id)
		s.Members = append(s.Members, p)
	}
	return s
}

// members is the membership as goroutines outside the loop may ask for it.
type members struct {
	mu  sync.Mutex
	ids []uint64 // guarded by mu
}

func (s *members) set(conf *raftpb.ConfState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = slices.Concat(conf.GetVoters(), conf.GetLearners())
}

func (s *members) all() []uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ids
}

func (s *members) has(id uint64) bool { return slices.Contains(s.all(), id) }
func (s *members) none() bool         { return len(s.all()) == 0 }
