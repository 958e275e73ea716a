package replica

import (
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/core"
	"github.com/conclave-go/conclave/internal/fact"
	"github.com/conclave-go/conclave/internal/wire"
)

// Status is a replica's view of its group, of one moment.
type Status struct {
	Leader, Term    uint64
	Commit, Applied uint64
	Installed       uint64 // snapshots since the start
	// Stalled is for how long the oldest write to the disk, or the oldest entry that this
	// leader has proposed, has been under way.
	Stalled time.Duration
	// Plan is what the leader's reconciler does or waits for; "": nothing, or this member
	// does not lead.
	Plan string

	LastLeader uint64 // the last one that was known
	Conf       *raftpb.ConfState
	Removed    []uint64
	Admitted   []fact.MemberRecord // to the group, and not removed; not all are in Conf yet
	Ticks      uint64              // they stand still while the group is quiet
	Quiet      bool                // the group has nothing to do, see core.Core.Quiet
	Peers      map[uint64]core.PeerProgress
	Registered bool               // this process
	Level      uint32             // the group's feature level
	Processes  map[uint64]wire.ID // the last registered of each member
	Directory  *fact.Directory    // of further groups, in the default one
	Following  *fact.Following    // of a further group; nil: this is the default one
	Config     fact.GroupConfig

	lag lag
}

// publish stores the core's status for other goroutines.
func (r *Replica) publish() {
	c, machine := r.core.Status(), r.core.Machine()
	before, lastLeader := r.status.Load(), c.Leader
	if lastLeader == 0 && before != nil {
		lastLeader = before.LastLeader
	}
	var peers map[uint64]core.PeerProgress
	if before != nil && before.Ticks == c.Ticks && before.Leader == c.Leader && before.Term == c.Term {
		peers = before.Peers
	} else {
		peers = r.core.Peers()
	}
	level, _ := machine.Level()
	r.metrics.GroupTime.Store(machine.Now())
	now := r.pulse.lastPass()
	contact := r.lag.note(c, peers, before != nil && !before.Registered, now, r.cfg.Heartbeat, r.cfg.Election)
	r.leaderLog.watch(r.cfg.Logger, contact, c.Leader, now, 2*r.cfg.Election)
	s := &Status{
		Plan: c.Plan, Ticks: c.Ticks, Quiet: r.core.Quiet(), Peers: peers,
		Leader: c.Leader, Term: c.Term,
		Commit: c.Commit, Applied: c.Applied,
		Installed:  c.Installed,
		Stalled:    c.Stalled,
		LastLeader: lastLeader,
		Conf:       c.Membership,
		Removed:    machine.Removed(),
		Admitted:   machine.Members(),
		Registered: c.Registered,
		lag:        r.lag,
		Level:      level,
		Processes:  machine.Registered(),
		Directory:  machine.Directory(),
		Following:  machine.Following(),
		Config:     machine.GroupConfig(),
	}
	r.status.Store(s)
	if c.Registered && before != nil && !before.Registered {
		r.Leadership.Set()
	}
	r.cfg.Host.Published(s)
}

// Status returns the current view, which must not be changed; nil before Start. It never blocks.
func (r *Replica) Status() *Status { return r.status.Load() }

func (r *Replica) applied() uint64 { return r.status.Load().Applied }

// Voters returns how many members vote, or did before a change that is under way.
func (s *Status) Voters() int { return max(len(s.Conf.GetVoters()), len(s.Conf.GetVotersOutgoing())) }

// Progress returns the lag of another member behind this one if self leads, and for how long nothing was heard of it;
// negative: nothing was.
func (s *Status) Progress(self, id uint64, tick time.Duration) (lag uint64, silence time.Duration) {
	if id == self {
		return 0, 0
	}
	p, silence := s.Peers[id], -1*time.Nanosecond
	if p.Heard > 0 {
		silence = time.Duration(s.Ticks-p.Heard) * tick
	}
	if s.Leader == self && p.Match < s.Commit {
		lag = s.Commit - p.Match
	}
	return lag, silence
}
