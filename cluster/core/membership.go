package core

import (
	"slices"
	"unsafe"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/conclave-go/conclave/cluster/reconcile"
	"github.com/conclave-go/conclave/internal/fact"
)

// maxLag is how many entries a standby may lag behind what the leader has applied, and be
// promoted, or a voter, and become the leader by StepDownTo, see isNear. The rest takes a few messages. A standby must have the last membership
// change, or it might not know a voter that needs its vote.
const maxLag = 1024

// reconciler makes raft's configuration agree with the machine's members while this member leads.
type reconciler struct {
	*raftNode
	peers   *peers
	notices *commitNotices
	clock   *groupClock

	mayRemove func(id uint64) bool // Config.MayRemove

	changing   bool           // a membership change is in flight
	plan       reconcile.Plan // the last
	before     reconciled
	demotion   demotionWait
	leadsSince uint64 // the tick at which this member became the leader
}

// roleChanged ends what the reconciler knew of the former role.
func (r *reconciler) roleChanged() {
	r.changing, r.demotion, r.plan = false, demotionWait{}, reconcile.Plan{}
	if r.role.RaftState == raft.StateLeader {
		r.leadsSince = r.ticks
	}
}

// reconciled is what the reconciler has seen last. It decides again when that has changed,
// and in each tick.
type reconciled struct {
	ticks      uint64
	conf       *raftpb.ConfState
	members    *fact.MemberRecord // the first of the machine's slice, which is never changed
	removed    *uint64
	following  *fact.Following
	n          int // both slices' lengths
	unsettled  bool
	unfinished bool
}

// unchanged reports whether nothing has changed since the last decision.
func (r *reconciler) unchanged(machine Machine) bool {
	members, removed := machine.Members(), machine.Removed()
	now := reconciled{
		ticks: r.ticks, conf: r.conf, members: unsafe.SliceData(members), removed: unsafe.SliceData(removed),
		following: machine.Following(), n: len(members) + len(removed), unsettled: !r.notices.settled(), unfinished: r.changing || r.notices.changes.pending() != 0,
	}
	before := r.before
	r.before = now
	return now == before
}

// reconcile proposes the membership change that is due, if this member leads.
func (r *reconciler) reconcile(machine Machine) {
	if r.role.RaftState != raft.StateLeader || !r.clock.running {
		r.before = reconciled{}
		return
	}
	if r.unchanged(machine) {
		return
	}
	switch {
	case r.changing || r.notices.changes.pending() != 0:
		r.plan.Reason = "waiting until the last membership change is applied"
		return
	case r.node.BasicStatus().LeadTransferee != raft.None:
		return
	}
	r.plan = reconcile.Decide(r.facts(machine))
	switch {
	case r.plan.Transfer:
		r.stepDownForRemoval(machine)
	case !r.plan.Leave && len(r.plan.Changes) == 0:
	case !r.notices.settled():
		r.plan.Reason += ": waiting until a majority of the voters knows of the last membership change"
	case r.plan.Leave:
		r.proposeChange(&raftpb.ConfChangeV2{})
	default:
		change := &raftpb.ConfChangeV2{}
		for _, part := range r.plan.Changes {
			change.Changes = append(change.Changes, part.Raft())
		}
		if len(change.Changes) > 1 {
			change.Transition = raftpb.ConfChangeTransition_ConfChangeTransitionJointExplicit.Enum()
		}
		r.logger.Info("changing the membership", "change", r.plan.Reason)
		r.proposeChange(change)
	}
}

// facts returns what the reconciler decides on.
func (r *reconciler) facts(machine Machine) *reconcile.Facts {
	progress := r.node.Status().Progress
	following := machine.Following()
	return &reconcile.Facts{
		Following: following,
		Self:      r.id, Conf: r.conf, Removed: machine.Removed(), Members: machine.Members(),
		Config: machine.GroupConfig(), Now: r.clock.time,
		Active: r.isActive,
		Current: func(id uint64) bool {
			p := progress[id]
			return r.isCurrent(p) && p.Match >= r.notices.changes.last()
		},
		KnowsRemoval: func(id uint64) bool { return following != nil || r.knowsRemoval(id) },
		MayRemove:    func(id uint64) bool { return r.mayRemove == nil || r.mayRemove(id) }, Early: r.ticks < r.leadsSince+r.electionTicks,
	}
}

// isActive reports whether a member has sent this leader something within the last election
// timeout, over a connection that is still up. raft's RecentActive is another thing: it is false
// for all members after each election timeout, until their next message, and true for as long
// after a member has died.
func (r *reconciler) isActive(id uint64) bool {
	p := r.peers.byID[id]
	return id == r.id || p != nil && r.ticks < p.activeUntil
}

func (r *reconciler) proposeChange(change *raftpb.ConfChangeV2) {
	if err := r.node.ProposeConfChange(change); err != nil {
		r.ignore(err) // a leadership transfer is in progress
		return
	}
	r.changing = true
}

// MembersOf returns the members of a configuration, by ID.
func MembersOf(conf *raftpb.ConfState) []uint64 {
	members := slices.Concat(conf.GetVoters(), conf.GetLearners(), conf.GetVotersOutgoing())
	slices.Sort(members)
	return slices.Compact(members)
}
