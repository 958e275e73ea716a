package core

import (
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// How a member leaves the group for good. That it has left is a fact of the
// machine. Whoever leads makes the membership agree with it, one change at a
// time, however often leaders change meanwhile. A leader that is to go itself
// hands leadership over: as the last to know that the change was agreed on, it
// must not be the one to go.
//
// A voter becomes a standby first, by a change of its own. That it was agreed on
// may be known to a single one of the others; and where voters were even in number,
// a majority of those who stay is too few to find it out again without his vote. So
// he is there until a second change takes him out. Whoever has that in his log
// knows of the first, since who sent it did; and those who stay agree on it by
// themselves. From then on none of them can be elected who would still count him.
//
// He stays until one of those who stay has told him that he is out: his own log may
// be behind for ever.
//
// One gap is left. A standby asks for no votes. If who leads is the only one of those
// who stay to know of the first change, is cut off from them and not from the one who
// goes, and then is lost for good, the others count on the vote of one whose log may
// be longer than theirs. Not telling him of the change would close it, and break what
// raft builds on: that nobody campaigns who is more than one change behind.

// remove proposes the next change of the membership that is due.
func (c *Core) remove() {
	if c.role.RaftState != raft.StateLeader || !c.clock.running || c.removing {
		return
	}
	for _, id := range c.machine.Left() {
		voter := slices.Contains(c.conf.GetVoters(), id)
		switch {
		case id == c.id:
			if c.giveWay() {
				return
			}
		case voter && c.survives(id):
			c.change(raftpb.ConfChangeAddLearnerNode, id)
			return
		case !voter && slices.Contains(c.conf.GetLearners(), id):
			c.change(raftpb.ConfChangeRemoveNode, id)
			return
		}
	}
}

// giveWay hands leadership to one who stays, if there is one who is up to date, and
// reports whether it is under way. Those who are to go as well would hand it back
// at once, and whoever is behind would hold everybody up: until then the member
// goes on leading.
func (c *Core) giveWay() bool {
	if c.node.BasicStatus().LeadTransferee != raft.None {
		return true
	}
	goes := func(id uint64) bool { return slices.Contains(c.machine.Left(), id) }
	to := c.successor(slices.DeleteFunc(slices.Clone(c.conf.GetVoters()), goes))
	if p := c.node.Status().Progress[to]; !p.RecentActive || p.State != tracker.StateReplicate {
		return false
	}
	c.node.TransferLeader(to)
	return true
}

func (c *Core) change(kind raftpb.ConfChangeType, id uint64) {
	err := c.node.ProposeConfChange(&raftpb.ConfChangeV2{Changes: []*raftpb.ConfChangeSingle{{
		Type: kind.Enum(), NodeId: &id,
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
	c.conf, c.out.membership, c.removing = conf, conf, false
}
