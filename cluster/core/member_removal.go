package core

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// The leader's part in the removal of members. The protocol as a whole stands at
// the top of cluster/removal.go.
//
// That a member is removed is a fact of the machine. Every leader makes Raft's
// configuration agree with it, one membership change at a time. A leader that is
// to be removed itself transfers leadership first: as the last to know that the
// change committed, it must not be the one that goes.
//
// A voter is demoted to a standby by a change of its own, and removed by a second
// one. The first commit may be known to a single remaining voter; with an even
// number of voters the others cannot find it out again by themselves without the
// removed member's vote. It therefore remains a standby until the second change,
// whose entry implies the first to whoever has it, and which the remaining voters
// commit by themselves. After that none of them can be elected that still counts
// the removed member.
//
// One gap is left. A standby does not campaign. If the leader alone knows of the
// first change, is cut off from the remaining voters but not from the removed
// member, and is then lost for good, the others depend on the vote of a member
// whose log may be longer than theirs. Withholding the change from that member
// would close the gap and break an assumption of raft: that no member campaigns
// that is more than one membership change behind.

// remove proposes the next membership change that is due.
func (c *Core) proposeRemoval() {
	if c.role.RaftState != raft.StateLeader || !c.clock.running || c.changing {
		return
	}
	for _, id := range c.machine.Removed() {
		voter := slices.Contains(c.conf.GetVoters(), id)
		switch {
		case id == c.id:
			if c.stepDownForRemoval() {
				return
			}
		case voter && c.quorumWithout(id):
			c.proposeChange(raftpb.ConfChangeAddLearnerNode, id)
			return
		case !voter && slices.Contains(c.conf.GetLearners(), id):
			c.proposeChange(raftpb.ConfChangeRemoveNode, id)
			return
		}
	}
}

// stepDownForRemoval transfers leadership to an up-to-date voter that is not to be
// removed as well, and reports whether a transfer is under way. A voter that is to
// be removed would transfer it back at once, and one that lags would stall the
// group: until there is another one, the member goes on leading.
func (c *Core) stepDownForRemoval() bool {
	if c.node.BasicStatus().LeadTransferee != raft.None {
		return true
	}
	removed := func(id uint64) bool { return slices.Contains(c.machine.Removed(), id) }
	to := c.successor(slices.DeleteFunc(slices.Clone(c.conf.GetVoters()), removed))
	if p := c.node.Status().Progress[to]; !p.RecentActive || p.State != tracker.StateReplicate {
		return false
	}
	c.node.TransferLeader(to)
	return true
}

func (c *Core) proposeChange(kind raftpb.ConfChangeType, id uint64) {
	err := c.node.ProposeConfChange(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
		Type: kind.Enum(), NodeId: &id,
	}}})
	if err != nil {
		c.ignore(err) // a leadership transfer is under way
		return
	}
	c.changing = true
}

// quorumWithout reports whether most of the other voters were heard of lately, or
// the member is no voter. raft resets that knowledge once in each election timeout,
// so false means only not now.
func (c *Core) quorumWithout(removed uint64) bool {
	if !slices.Contains(c.conf.GetVoters(), removed) {
		return true
	}
	active, remaining := 0, 0
	progress := c.node.Status().Progress
	for _, id := range c.conf.GetVoters() {
		if id == removed {
			continue
		}
		remaining++
		if id == c.id || progress[id].RecentActive {
			active++
		}
	}
	return active > remaining/2
}

// membershipChanged takes note of another configuration.
func (c *Core) membershipChanged(conf *raftpb.ConfState) {
	c.conf, c.out.Membership, c.changing = conf, conf, false
}
