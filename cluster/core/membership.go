package core

import (
	"slices"
	"unsafe"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/conclave-go/conclave/cluster/reconcile"
	"github.com/conclave-go/conclave/internal/fact"
)

// maxLag is how many entries a standby may lag behind what the leader has applied, and be
// promoted. The rest takes a few messages. It must have the last membership change, or it
// might not know a voter that needs its vote.
const maxLag = 1024

// reconciled is what the reconciler has seen last. It decides again when that has changed,
// and in each tick.
type reconciled struct {
	ticks      uint64
	conf       *raftpb.ConfState
	members    *fact.MemberRecord // the first of the machine's slice, which is never changed
	removed    *uint64
	n          int // both slices' lengths
	unsettled  bool
	unfinished bool
}

// unchanged reports whether nothing has changed since the last decision.
func (c *Core) unchanged() bool {
	members, removed := c.machine.Members(), c.machine.Removed()
	now := reconciled{
		ticks: c.ticks, conf: c.conf, members: unsafe.SliceData(members), removed: unsafe.SliceData(removed),
		n: len(members) + len(removed), unsettled: !c.settled(), unfinished: c.changing || c.changes.pending() != 0,
	}
	before := c.reconciled
	c.reconciled = now
	return now == before
}

// reconcile proposes the membership change that is due, if this member leads.
func (c *Core) reconcile() {
	if c.role.RaftState != raft.StateLeader || !c.clock.running {
		c.reconciled = reconciled{}
		return
	}
	if c.unchanged() {
		return
	}
	switch {
	case c.changing || c.changes.pending() != 0:
		c.plan.Reason = "waiting until the last membership change is applied"
		return
	case c.node.BasicStatus().LeadTransferee != raft.None:
		return
	}
	c.plan = reconcile.Decide(c.facts())
	switch {
	case c.plan.Transfer:
		c.stepDownForRemoval()
	case !c.plan.Leave && len(c.plan.Changes) == 0:
	case !c.settled():
		c.plan.Reason += ": waiting until a majority of the voters knows of the last membership change"
	case c.plan.Leave:
		c.proposeChange(&raftpb.ConfChangeV2{})
	default:
		change := &raftpb.ConfChangeV2{}
		for _, part := range c.plan.Changes {
			change.Changes = append(change.Changes, part.Raft())
		}
		if len(change.Changes) > 1 {
			change.Transition = raftpb.ConfChangeTransition_ConfChangeTransitionJointExplicit.Enum()
		}
		c.cfg.Logger.Info("changing the membership", "change", c.plan.Reason)
		c.proposeChange(change)
	}
}

// facts returns what the reconciler decides on.
func (c *Core) facts() *reconcile.Facts {
	progress := c.node.Status().Progress
	return &reconcile.Facts{
		Self: c.id, Conf: c.conf, Removed: c.machine.Removed(), Members: c.machine.Members(),
		Config: c.machine.GroupConfig(), Now: c.clock.time,
		Active: c.isActive,
		Current: func(id uint64) bool {
			p := progress[id]
			return p.State == tracker.StateReplicate && p.Match+maxLag >= c.applied && p.Match >= c.changes.last()
		},
		KnowsRemoval: c.knowsRemoval, Early: c.ticks < c.leadsSince+uint64(c.cfg.ElectionTicks),
	}
}

// isActive reports whether a member has sent this leader something within the last election
// timeout, over a connection that is still up. raft's RecentActive is another thing: it is false
// for all members after each election timeout, until their next message, and true for as long
// after a member has died.
func (c *Core) isActive(id uint64) bool {
	p := c.peers.byID[id]
	return id == c.id || p != nil && c.ticks < p.activeUntil
}

func (c *Core) proposeChange(change *raftpb.ConfChangeV2) {
	if err := c.node.ProposeConfChange(change); err != nil {
		c.ignore(err) // a leadership transfer is in progress
		return
	}
	c.changing = true
}

// membershipChanged replaces the configuration.
func (c *Core) membershipChanged(conf *raftpb.ConfState) {
	c.conf, c.out.Membership, c.changing = conf, conf, false
	for _, p := range c.peers.all {
		if !c.isVoter(p.id) && p.voteEnded() {
			c.arbitration.settled()
		}
		if !c.isMember(p.id) {
			c.refuseSnapshot(p, errRemoved)
		}
	}
	c.peers.follow(c.id, conf)
}

// MembersOf returns the members of a configuration, by ID.
func MembersOf(conf *raftpb.ConfState) []uint64 {
	members := slices.Concat(conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing())
	slices.Sort(members)
	return slices.Compact(members)
}
