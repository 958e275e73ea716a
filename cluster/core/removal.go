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

// parting is a member that is not in the membership any more. Its connection
// stays for a while, so that it hears of that.
type parting struct {
	member uint64
	since  uint64 // tick
}

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
	for _, id := range slices.Concat(c.conf.GetVoters(), c.conf.GetLearners()) {
		if slices.Contains(conf.GetVoters(), id) || slices.Contains(conf.GetLearners(), id) {
			continue
		}
		c.parting = append(c.parting, parting{id, c.ticks})
		if id == c.id && c.role.RaftState == raft.StateLeader {
			c.out.deposed = true
		}
	}
	c.conf, c.removing = conf, false
	c.out.membership = true
}

// part lets those go who have had the time to hear that they are not members.
func (c *Core) part() {
	for len(c.parting) > 0 && c.ticks >= c.parting[0].since+uint64(c.cfg.ElectionTicks) {
		c.out.parted = append(c.out.parted, c.parting[0].member)
		c.parting = c.parting[1:]
	}
}
