package core

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/tracker"
)

// The leader's part in the removal of members. The whole protocol is described in
// cluster/member_removal.go.
//
// The machine records which members are removed. Every leader makes Raft's configuration
// agree with that record, one membership change at a time (Raft dissertation §4.1). A
// leader that is to be removed transfers leadership first, so that its successor removes
// it: it could be the only member that knows of the commit.
//
// A voter is removed by two changes: it is demoted to a standby (or replaced by one), then
// removed. The
// quorum that commits the demotion may include the removed member and a single remaining
// voter; with an even number of voters, the others cannot elect a leader without the
// removed member's vote. It therefore stays a standby until the second change, which the
// remaining voters commit alone and whose entry follows the first in every log. After
// that, no member can be elected that still counts the removed one as a voter.
//
// Nothing is sent to a member that is out of the configuration. The second change
// therefore waits for a limited time until the standby knows that the first is committed:
// its own log then shows its removal, and it depends on no majority that confirms
// it. If all members leave at once, there may soon be none.
//
// When a leader notifies other members of these changes: see commit_notice.go.

// demotionWait is the wait for the standby that is removed next.
type demotionWait struct {
	standby        uint64
	index          uint64 // that the standby is to acknowledge
	began          uint64 // tick
	acknowledgedAt uint64 // tick; with acknowledged
	acknowledged   bool
}

// commitTicks is how many heartbeats the leader waits after the acknowledgement. One of them
// carries the commit index to the standby.
const commitTicks = 2

// knowsRemoval reports whether a standby knows of everything that was in the log when the
// wait began, or has been waited for long enough: for an election timeout if it does not
// answer, and for five if it does.
func (r *reconciler) knowsRemoval(id uint64) bool {
	f := &r.demotion
	if f.standby != id {
		*f = demotionWait{standby: id, index: r.last, began: r.ticks}
	}
	progress := r.node.Status().Progress[id]
	if !f.acknowledged && progress.Match >= f.index && r.notices.changes.pending() == 0 && r.notices.settled() {
		f.acknowledged, f.acknowledgedAt = true, r.ticks
	}
	if f.acknowledged {
		return r.ticks >= f.acknowledgedAt+commitTicks
	}
	patience := r.electionTicks // no member has answered a new leader yet
	if r.isActive(id) {
		patience *= 5
	}
	return r.ticks >= f.began+patience
}

// stepDownForRemoval transfers leadership to an up-to-date voter that is not to be
// removed as well, and reports whether a transfer is in progress. Until there is such a
// voter this member keeps leading: one that is to be removed would transfer leadership
// again at once, and a lagging one would stall the group.
func (r *reconciler) stepDownForRemoval(machine Machine) bool {
	if r.node.BasicStatus().LeadTransferee != raft.None {
		return true
	}
	removed := func(id uint64) bool { return Includes(machine.Removed(), id) }
	candidates := slices.DeleteFunc(slices.Clone(r.conf.GetVoters()), removed)
	if f := machine.Following(); f != nil {
		candidates = slices.DeleteFunc(candidates, func(id uint64) bool { return !Includes(f.Voters, id) })
	}
	if len(candidates) == 0 && !slices.Contains(r.conf.GetVoters(), r.id) {
		candidates = r.conf.GetVoters() // of a joint configuration, which another one must leave
	}
	to := r.successor(candidates)
	if p := r.node.Status().Progress[to]; !p.RecentActive || p.State != tracker.StateReplicate {
		return false
	}
	r.node.TransferLeader(to)
	return true
}
