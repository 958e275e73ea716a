package core

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// How a member leaves the group for good. That it has left is a fact of the
// machine. Whoever leads makes the membership agree with it, one change at a
// time, however often leaders change meanwhile. A leader that is to go itself
// hands leadership over: as the last to know that the change was agreed on, it
// must not be the one to go.
//
// Who is taken out stays until one of those who stay has told him that he is:
// they do so when they have that on their disks. His own log does not count. He
// may have heard that the change is agreed on from a leader who forgets that when
// the power fails, and who finds it out again only with his vote.

// remove proposes the next change of the membership that is due.
func (c *Core) remove() {
	if c.role.RaftState != raft.StateLeader || !c.clock.running || c.removing {
		return
	}
	for _, id := range c.machine.Left() {
		switch {
		case !slices.Contains(c.conf.GetVoters(), id) && !slices.Contains(c.conf.GetLearners(), id):
		case id != c.id && !c.survives(id):
		case id != c.id:
			c.proposeRemoval(id)
			return
		case c.node.BasicStatus().LeadTransferee == raft.None:
			if to := c.successor(); to != raft.None {
				c.node.TransferLeader(to)
			}
			return
		}
	}
}

func (c *Core) proposeRemoval(id uint64) {
	err := c.node.ProposeConfChange(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
		Type: raftpb.ConfChangeRemoveNode.Enum(), NodeId: &id,
	}}})
	if err != nil {
		c.ignore(err) // leadership is being handed over
		return
	}
	c.removing = true
}

// survives says whether those who stay can decide without the member: whether
// most of the voters that are left have been heard of lately. raft forgets once
// in each election timeout whom it has heard, so a no is only for now.
func (c *Core) survives(leaver uint64) bool {
	if !slices.Contains(c.conf.GetVoters(), leaver) {
		return true
	}
	active, left := 0, 0
	progress := c.node.Status().Progress
	for _, id := range c.conf.GetVoters() {
		if id == leaver {
			continue
		}
		left++
		if id == c.id || progress[id].RecentActive {
			active++
		}
	}
	return active > left/2
}

// membership takes note of another membership.
func (c *Core) membership(conf *raftpb.ConfState) {
	c.conf, c.removing = conf, false
}
